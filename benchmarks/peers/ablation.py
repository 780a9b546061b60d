"""What each piece of the default fit brings: whole default fits on the tables to choose by, one piece left out in turn.

    MERCER_DATA=… python benchmarks/peers/ablation.py [--rows 3000] [--splits 2] [--tables wine pol] [--out a.jsonl]

Errors are those of `tables.py` (normalised squared error, log loss of classes) on rows that were not fitted. Printed
are, for each piece, the geometric mean over tables of the error without it over the error with it, its standard error,
and the same for CPU seconds. Pieces without an argument of their own are taken out of the race's modules.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from tables import log_loss
from tables_data import TASKS, Table, names, table

from mercer import KernelBoostingClassifier, KernelBoostingRegressor
from mercer.selection import constants, last_round, race, race_rows
from mercer.selection.closed_form import Judge

#: What counts as no error at all, so that ratios stay finite.
LEAST = 1e-4


@contextmanager
def without(piece: str) -> Iterator[dict[str, Any]]:
    """The default fit without a piece: arguments for the estimator, and modules changed for as long."""
    if piece in ARGUMENTS:
        yield ARGUMENTS[piece]
        return
    with CHANGES[piece]():
        yield {}


def _no_city_block() -> Any:
    lengths = {family: at for family, at in constants.FIRST_LENGTHS.items() if family != "cityblock"}
    climbed = race._climbed

    def without_it(heat: Any, kind: str, at: dict[str, Any], base: str, full: bool, most: int) -> list[Any]:
        return climbed(heat, kind, at, base, full, most) if full else []

    rough = tuple(family for family in constants.ROUGH if family != "cityblock")
    return _all(
        patch.multiple(constants, FIRST_LENGTHS=lengths, ROUGH=rough), patch.object(race, "_climbed", without_it)
    )


def _no_evidence() -> Any:
    with_metrics = race._with_metrics

    def without_it(heat: Any, kind: str, plain: Any, only: set[str] | None = None, **more: Any) -> list[Any]:
        return with_metrics(
            heat, kind, plain, ({"cityblock", "matern12"} if only is None else only) - {"evidence"}, **more
        )

    return patch.object(race, "_with_metrics", without_it)


def _squares_of_codes(Y: Any, weight: Any, codes: Any = None) -> Judge:
    return Judge(Y, weight)


@contextmanager
def _all(*changes: Any) -> Iterator[None]:
    with ExitStack() as stack:
        for change in changes:
            stack.enter_context(change)
        yield


def _one_map() -> Any:
    return patch.dict(race.race.__kwdefaults__, {"kinds": ("standard",)})


def _squared_error() -> Any:
    return _all(patch.object(race_rows, "Judge", _squares_of_codes), patch.object(race, "Judge", _squares_of_codes))


ARGUMENTS: dict[str, dict[str, Any]] = {"nothing": {}, "metric": {"metric": None}, "averaging": {"n_kernels": 1}}
CHANGES: dict[str, Callable[[], Any]] = {
    "L1 kernel": _no_city_block,
    "column maps": _one_map,
    "evidence": _no_evidence,
    "descents": lambda: patch.object(last_round, "_leading", lambda heat, found: []),
    "log loss": _squared_error,
}


def error(piece: str, given: Table, seed: int) -> tuple[float, float]:
    """The error without a piece, and the CPU seconds of the fit."""
    numbers = given.task == "regression"
    with without(piece) as arguments, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        began = time.process_time()
        model = (KernelBoostingRegressor if numbers else KernelBoostingClassifier)(random_state=seed, **arguments)
        model.fit(given.X, given.y)
        seconds = time.process_time() - began
    if numbers:
        return float(np.mean((model.predict(given.X_test) - given.y_test) ** 2) / np.var(given.y)), seconds
    return log_loss(model.predict_proba(given.X_test), given.y_test), seconds


def shown(lines: list[dict[str, Any]]) -> str:
    """The table of ratios; the log loss is a matter of classes alone."""
    by = {(one["table"], one["split"], one["without"]): one for one in lines}
    out = ["| without | " + " | ".join(f"{task}, error" for task in TASKS) + " | CPU time |", "|---|---|---|---|"]
    for piece in [*ARGUMENTS, *CHANGES]:
        cells = []
        for task, field in [*((task, "error") for task in TASKS), (None, "seconds")]:
            ratios: dict[str, list[float]] = {}
            for (name, split, left), one in by.items():
                if left == piece and (task in (None, one["task"])) and (base := by.get((name, split, "nothing"))):
                    ratios.setdefault(name, []).append(np.log((one[field] + LEAST) / (base[field] + LEAST)))
            means = np.array([np.mean(of) for of in ratios.values()])
            if not len(means):
                cells.append("–")
                continue
            spread = means.std() / max(len(means) - 1, 1) ** 0.5
            cells.append(f"{np.exp(means.mean()):.3f} ± {spread:.3f} ({len(means)})")
        out.append(f"| {piece} | " + " | ".join(cells) + " |")
    return "\n".join(out)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--tables", nargs="+", default=None)
    options.add_argument("--pieces", nargs="+", choices=[*ARGUMENTS, *CHANGES], default=[*ARGUMENTS, *CHANGES])
    options.add_argument("--rows", type=int, default=3000)
    options.add_argument("--splits", type=int, default=2)
    options.add_argument("--out", type=Path, default=None, help="a line of JSON for each fit")
    given = options.parse_args()
    lines: list[dict[str, Any]] = []
    for split in range(given.splits):
        for name in given.tables or [name for task in TASKS for name in names("choose", task)]:
            rows = table(name, split, given.rows)
            for piece in given.pieces:
                if piece == "log loss" and rows.task == "regression":
                    continue
                found, seconds = error(piece, rows, split)
                lines.append(
                    {
                        "table": name,
                        "task": rows.task,
                        "split": split,
                        "without": piece,
                        "error": found,
                        "seconds": seconds,
                    }
                )
                print(lines[-1], flush=True)
                if given.out is not None:
                    given.out.write_text("".join(json.dumps(line) + "\n" for line in lines))
    print(shown(lines))


if __name__ == "__main__":
    main()

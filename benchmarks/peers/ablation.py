"""Ablation of the default fit: whole fits on development tables, without one piece at a time.

    MERCER_DATA=… python benchmarks/peers/ablation.py [--rows 3000] [--splits 2] [--tables wine pol] [--out a.jsonl]

Errors are those of `tables.py` (normalised squared error, log loss of classes) on rows that were not fitted. Printed
are, for each piece, the geometric mean over tables of the error without it over the error with it, its standard error,
and the same for CPU seconds. `docs/ablations.md` keeps the table.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from tables import log_loss
from tables_data import TASKS, Table, names, table

from mercer import KernelBoostingClassifier, KernelBoostingRegressor
from mercer.selection.settings import DEFAULT_SETTINGS

#: What counts as no error at all, so that ratios stay finite.
LEAST = 1e-4


#: The default fit without a piece, as changes of its settings; log loss and metrics have arguments of their own.
ARGUMENTS: dict[str, dict[str, Any]] = {
    "nothing": {},
    "metric": {"metric": None},
    "averaging": {"n_kernels": 1},
    "several selections": {"n_selections": 1},
}
SETTINGS: dict[str, dict[str, Any]] = {
    "L1 kernel": {"families": tuple(name for name in DEFAULT_SETTINGS.families if name != "cityblock")},
    "smooth kernels": {"families": ("matern32", "matern12", "cityblock", "linear")},
    "column maps": {"column_maps": ("standard",)},
    "evidence": {"evidence": False},
    "evidence kernels": {"smooth_loss": 0.0},
    "gradient metric": {"gradient_steps": 0},
    "descents": {"descent": False},
    "more rows in the last stage": {"last_most_rows": 1500},
    "distinct survivors": {"distinct": 0.0},
}


def estimator(piece: str, numbers: bool) -> type[Any]:
    """The estimator with the settings of a piece."""
    base: type[Any] = KernelBoostingRegressor if numbers else KernelBoostingClassifier
    settings = replace(DEFAULT_SETTINGS, **SETTINGS.get(piece, {}))
    return type(base.__name__, (base,), {"_selection_settings": settings})


def error(piece: str, given: Table, seed: int) -> tuple[float, float]:
    """The error without a piece, and the CPU seconds of the fit."""
    numbers = given.task == "regression"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        began = time.process_time()
        model = estimator(piece, numbers)(random_state=seed, **ARGUMENTS.get(piece, {}))
        model.fit(given.X, given.y)
        seconds = time.process_time() - began
    if numbers:
        return float(np.mean((model.predict(given.X_test) - given.y_test) ** 2) / np.var(given.y)), seconds
    return log_loss(model.predict_proba(given.X_test), given.y_test), seconds


def shown(lines: list[dict[str, Any]]) -> str:
    """The table of ratios; the log loss is a matter of classes alone."""
    by = {(one["table"], one["split"], one["without"]): one for one in lines}
    out = ["| without | " + " | ".join(f"{task}, error" for task in TASKS) + " | CPU time |", "|---|---|---|---|"]
    for piece in [*ARGUMENTS, *SETTINGS]:
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
    options.add_argument("--pieces", nargs="+", choices=[*ARGUMENTS, *SETTINGS], default=[*ARGUMENTS, *SETTINGS])
    options.add_argument("--rows", type=int, default=3000)
    options.add_argument("--splits", type=int, default=2)
    options.add_argument("--out", type=Path, default=None, help="a line of JSON for each fit")
    given = options.parse_args()
    lines: list[dict[str, Any]] = []
    for split in range(given.splits):
        for name in given.tables or [name for task in TASKS for name in names("choose", task)]:
            rows = table(name, split, given.rows)
            for piece in given.pieces:
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

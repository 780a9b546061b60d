"""Greedy02 beside ours: measures, and has `results.md` written (`report.py`).

    MERCER_DATA=… python benchmarks/papers/greedy02/run.py               # what `ours.json` does not hold yet
    MERCER_DATA=… python benchmarks/papers/greedy02/run.py --quick       # of that what takes a minute or two
    MERCER_DATA=… python benchmarks/papers/greedy02/run.py 2 4 ripley    # some of them
    python benchmarks/papers/greedy02/run.py --write a.json b.json       # the page, with what others measured

Ours are kept in `ours.json`, so that the tables can be measured one by one, and on several machines (`--out`): times
apart, which are CPU seconds of one thread (OMP_NUM_THREADS=1), they do not depend on the machine.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import methods
import numpy as np
import protocol
import report
import rivals

HERE = Path(__file__).parent
OURS = HERE / "ours.json"
SETS = [printed["data"] for printed in report.PAPER["table5"]["rows"]]

Cells = dict[str, dict[str, list[float]]]  # row → column → the repeats, or their mean, deviation and number


def _summary(cells: Cells) -> Cells:
    def three(values: list[float]) -> list[float]:
        return [float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else 0.0, len(values)]

    return {row: {column: three(values) for column, values in columns.items()} for row, columns in cells.items()}


def _cells() -> Cells:
    return defaultdict(lambda: defaultdict(list))


# What is measured


def table1(repeats: int = 20) -> Cells:
    cells, setting = _cells(), protocol.SYNTHETIC
    largest = replace(setting, sizes=setting.sizes[-1:])  # its path holds the residuals of the others
    for p in (5, 10):
        for seed in range(repeats):
            X, y = protocol.synthetic(p, seed)
            for name, method in methods.METHODS.items():
                residuals = method(protocol.Split(X, y, X[:1], y[:1]), largest).residuals
                for n in setting.sizes:
                    cells[f"{p}, {n}"][name].append(residuals[n - 1])
    return _summary(cells)


def _errors(splits: Any, setting: protocol.Setting) -> Cells:
    cells = _cells()
    for split in splits:
        for name, method in methods.METHODS.items():
            for n, error in zip(setting.sizes, methods.squared_errors(method(split, setting), split), strict=True):
                cells[str(n)][name].append(error)
    return _summary(cells)


def table2() -> Cells:
    return _errors(protocol.boston(), protocol.BOSTON)


def table3() -> Cells:
    return _errors(protocol.abalone(), protocol.ABALONE)


def table4() -> Cells:
    cells = _cells()
    sets = {"boston": (protocol.boston(), protocol.BOSTON.c), "abalone": (protocol.abalone(), protocol.ABALONE.c)}
    for name, (splits, c) in sets.items():
        for split in splits:
            for rule in ("mdl", "aic"):
                model = methods.stopped(split, c, rule)
                cells[name][rule].append(np.mean((model.predict(split.X_test) - split.y_test) ** 2))
                cells[name][f"{rule}_n"].append(len(model.basis_))
    return _summary(cells)


def table5(names: Sequence[str] | None = None, patience: int | None = protocol.PATIENCE) -> Cells:
    """Read at the first minimum that lasts; `table5_whole` is read at the smallest value of the whole path."""
    cells = _cells()
    for name in names or SETS:
        splits = list(protocol.raetsch(name))
        widths = [w * splits[0].X.shape[1] for w in protocol.WIDTHS_PER_INPUT]
        for rule, c in methods.choose_widths(splits[0], widths, protocol.RAETSCH_SIZE, patience).items():
            for split in splits:
                size, values = methods.minima(split, c, protocol.RAETSCH_SIZE, patience)[rule]
                cells[name][rule].append(100 * methods.wrong_side(values, split.y_test) / len(split.y_test))
                cells[name][f"{rule}_n"].append(size)
            cells[name][f"{rule}_c"].append(c)
    return _summary(cells)


def table6() -> Cells:
    split, cells = protocol.usps(), _cells()
    widths = [256 * w for w in protocol.USPS_WIDTHS_PER_INPUT]
    c = methods.choose_digit_width(split, widths)
    for which in range(10):
        found = methods.digit(split, which, c, protocol.USPS_SIZE)
        for rule in ("aic", "mdl"):
            cells[str(which)][rule].append(found.wrong[rule])
            cells[str(which)][f"{rule}_n"].append(found.sizes[rule])
        cells[str(which)]["c"].append(c)
    return _summary(cells)


def sinc(repeats: int = 50) -> Cells:
    cells = _cells()
    for reading in protocol.SINC_READINGS:
        for seed in range(repeats):
            split = protocol.sinc(seed, reading)
            for rule in ("aic", "mdl"):
                model = methods.stopped(split, reading.c, rule)
                error = np.sqrt(np.mean((model.predict(split.X_test) - split.y_test) ** 2))
                cells[str(reading)][rule].append(error)
                cells[str(reading)][f"{rule}_n"].append(len(model.basis_))
    return _summary(cells)


def ripley() -> Cells:
    cells = _cells()
    for scale, c in protocol.RIPLEY_READINGS:
        split = protocol.ripley(protocol.RIPLEY_SCALES[scale])
        for rule in ("aic", "mdl"):
            model = methods.stopped(split, c, rule, min_novelty=protocol.RIPLEY_NOVELTY)
            row = cells[f"{scale}, c = {c:g}"]
            row[rule].append(methods.percent_wrong(model, split.X_test, split.y_test))
            row[f"{rule}_n"].append(len(model.basis_))
    return _summary(cells)


def table5_whole(names: Sequence[str] | None = None) -> Cells:
    return table5(names, None)


def rivals5(names: Sequence[str] | None = None) -> Cells:
    """The columns of the support and relevance vector machine."""
    return _summary({name: rivals.table5(name, "svm") | rivals.table5(name, "rvm") for name in names or SETS})


def rivals6() -> Cells:
    return _summary(rivals.table6())


def boston_svm() -> Cells:
    return _summary({"boston": rivals.boston()})


MEASURES = {
    **{f"table{i}": f for i, f in enumerate((table1, table2, table3, table4, table5, table6), 1)},
    "table5_whole": table5_whole,
    "rivals5": rivals5,
    "rivals6": rivals6,
    "boston_svm": boston_svm,
    "sinc": sinc,
    "ripley": ripley,
}
#: Measured set by set.
BY_SET = ("table5", "table5_whole", "rivals5")
QUICK = ("table3", "rivals6", "sinc", "ripley")


def _lacking(rows: Cells) -> list[str]:
    """Sets of table 5 that are not kept yet."""
    return [name for name in SETS if name not in rows]


def _kept(path: Path = OURS) -> dict[str, Cells]:
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def _merged(old: dict[str, Cells], new: dict[str, Cells]) -> dict[str, Cells]:
    """Rows and columns of both; what is new wins."""
    tables = dict(old)
    for name, rows in new.items():
        table = dict(tables.get(name, {}))
        table |= {row: table.get(row, {}) | columns for row, columns in rows.items()}
        tables[name] = table
    return tables


def _keep(path: Path, found: dict[str, Cells]) -> None:
    path.write_text(json.dumps(_merged(_kept(path), found), indent=1) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description="Greedy02 beside ours")
    parser.add_argument(
        "what", nargs="*", help="numbers of tables, other measures, figures, timing, or nothing for all"
    )
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", nargs="+", default=None, help="these sets of table 5")
    parser.add_argument("--out", type=Path, default=OURS, help="another file to keep what is found")
    parser.add_argument("--write", type=Path, nargs="*", default=None, help="measure nothing; take in these files")
    given = parser.parse_args()
    if given.write is not None:
        for path in given.write:
            _keep(OURS, _kept(path))
        report.write(_kept(), HERE / "results.md")
        return
    known, kept = {"timing": "figure7"}, _kept(given.out)
    everything = [name for name in (QUICK if given.quick else (*MEASURES, "timing", "figures"))
                  if known.get(name, name) not in kept or (name in BY_SET and _lacking(kept[name]))]  # fmt: skip
    for name in [f"table{w}" if w.isdigit() else w for w in given.what] or everything:
        if name == "figures":
            import figures

            figures.main()
        elif name == "timing":
            import timing

            _keep(given.out, timing.measure())
        else:
            sets = given.only or (SETS if name in given.what else _lacking(kept.get(name, {})))
            _keep(given.out, {name: MEASURES[name](*((sets,) if name in BY_SET else ()))})
    if given.out == OURS:
        report.write(_kept(), HERE / "results.md")


if __name__ == "__main__":
    main()

"""Greedy02 beside ours: measures, judges and writes `results.md`.

    MERCER_DATA=… python benchmarks/papers/greedy02/run.py               # all tables and figures
    MERCER_DATA=… python benchmarks/papers/greedy02/run.py 2 4 ripley    # some of them
    MERCER_DATA=… python benchmarks/papers/greedy02/run.py --timing      # figure 7 and the speed lines

Ours are kept in `ours.json`, so that the tables can be measured one by one. A cell is within the spread if our mean is
at most one printed spread from the printed mean; where none is printed, one deviation of ours over the splits. Counts
of table 6, and the one split of diabetis with its 300 test rows, have the deviation of a count.
"""

from __future__ import annotations

import argparse
import json
import tomllib
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import methods
import numpy as np
import protocol
from notes import FIGURES, NOTES, READINGS

HERE = Path(__file__).parent
PAPER = tomllib.loads((HERE / "paper.toml").read_text(encoding="utf-8"))
OURS = HERE / "ours.json"

Cells = dict[str, dict[str, list[float]]]  # row → column → the repeats, or their mean and deviation


def _summary(cells: Cells) -> Cells:
    both = lambda values: [float(np.mean(values)), float(np.std(values))]  # noqa: E731
    return {row: {column: both(values) for column, values in columns.items()} for row, columns in cells.items()}


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


def table5() -> Cells:
    cells = _cells()
    for printed in PAPER["table5"]["rows"]:
        name = printed["data"]
        splits = list(protocol.raetsch(name))
        widths = [w * splits[0].X.shape[1] for w in protocol.WIDTHS_PER_INPUT]
        for rule in ("aic", "mdl"):
            c = methods.choose_width(splits[0], rule, widths, protocol.RAETSCH_SIZE)
            for split in splits:
                model = methods.stopped(split, c, rule, protocol.RAETSCH_SIZE)
                cells[name][rule].append(methods.percent_wrong(model, split.X_test, split.y_test))
                cells[name][f"{rule}_n"].append(len(model.basis_))
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


MEASURES = {
    **{f"table{i}": f for i, f in enumerate((table1, table2, table3, table4, table5, table6), 1)},
    "sinc": sinc,
    "ripley": ripley,
}

# What is judged and written


def judge(name: str, ours: Cells) -> tuple[list[str], set[str]]:
    """A table in Markdown, and the columns in which a cell lies outside the spread."""
    paper = PAPER[name]
    columns = [c for c in paper["rows"][0] if c not in paper["keys"] and not c.startswith(("svm", "rvm"))]
    lines = [f"| {', '.join(paper['keys'])} | " + " | ".join(_heading(c) for c in columns) + " |"]
    lines.append("|---" * (len(columns) + 1) + "|")
    outside = set()
    for printed in paper["rows"]:
        key = ", ".join(str(printed[k]) for k in paper["keys"])
        texts = []
        for column in columns:
            mean, deviation = ours[key][column]
            target, spread = _printed(name, printed[column], deviation, column.endswith("_n"))
            verdict = "no spread" if spread is None else "yes" if abs(mean - target) <= spread else "no"
            outside |= set() if verdict == "yes" else {column}
            texts.append(f"{_shown(printed[column])}; **{mean:.3g}** ± {deviation:.2g}; {verdict}")
        lines.append(f"| {key} | " + " | ".join(texts) + " |")
    return lines, outside


def _printed(name: str, cell: Any, deviation: float, is_size: bool) -> tuple[float, float | None]:
    """The printed mean, and the spread ours is judged by; a single size has none."""
    if isinstance(cell, list):
        return cell[0], cell[1]
    if deviation > 0:
        return cell, deviation
    if is_size:
        return cell, None
    return cell, cell**0.5 if name == "table6" else (cell * (100 - cell) / 300) ** 0.5


def _shown(cell: Any) -> str:
    return f"{cell[0]:g} ± {cell[1]:g}" if isinstance(cell, list) else f"{cell:g}"


def _heading(column: str) -> str:
    rule, _, size = column.partition("_")
    return rule.upper() + (" vectors" if size else "")


def _readings(name: str, ours: Cells) -> list[str]:
    """The facts of section 5 under every reading tried, in the order of `protocol.py`."""
    limit = PAPER[name]["at_most"]
    columns = ("aic", "aic_n", "mdl", "mdl_n")
    lines = ["| reading | AIC | AIC vectors | MDL | MDL vectors | reached |", "|---" * 6 + "|"]
    for row, cells in ours.items():
        good = [
            cells[rule][0] <= limit.get("rmse", limit.get("error"))
            and cells[f"{rule}_n"][0] <= limit.get("n_basis", np.inf)
            for rule in ("aic", "mdl")
        ]
        verdict = {2: "yes", 1: "AIC" if good[0] else "MDL", 0: "no"}[sum(good)]
        lines.append(f"| {row} | " + " | ".join(f"{cells[c][0]:.3g}" for c in columns) + f" | {verdict} |")
    return lines


def write(all_ours: dict[str, Cells]) -> None:
    lines = ["# Greedy02, printed and ours", "", READINGS, ""]
    for name, ours in ((name, all_ours[name]) for name in MEASURES if name in all_ours):
        lines += [f"## {PAPER[name]['where']}", "", f"{PAPER[name]['what'][0].upper()}{PAPER[name]['what'][1:]}.", ""]
        if name in ("sinc", "ripley"):
            table, outside = _readings(name, ours), set()
        else:
            table, outside = judge(name, ours)
        print("\n".join([PAPER[name]["where"], *table]), "\n")
        shown = {(name, column) for column in ("always", *outside)}
        reasons = [text for key, text in NOTES.items() if key in shown]
        lines += [*table, "", *(f"- {text}" for text in dict.fromkeys(reasons)), ""]
    text = "\n".join([*lines, FIGURES, ""]).replace("\n\n\n", "\n\n")
    (HERE / "results.md").write_text(text, encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description="Greedy02 beside ours")
    parser.add_argument("what", nargs="*", help="numbers of tables, sinc, ripley, figures, or nothing for all")
    parser.add_argument("--timing", action="store_true", help="figure 7 and the speed lines, on a quiet machine")
    arguments = parser.parse_args()
    if arguments.timing:
        import timing

        timing.main()
        return
    wanted = [f"table{w}" if w.isdigit() else w for w in arguments.what] or [*MEASURES, "figures"]
    for name in wanted:
        if name == "figures":
            import figures

            figures.main()
        else:
            found = MEASURES[name]()
            OURS.write_text(json.dumps(_kept() | {name: found}, indent=1), encoding="utf-8")
    write(_kept())


def _kept() -> dict[str, Cells]:
    return json.loads(OURS.read_text(encoding="utf-8")) if OURS.exists() else {}


if __name__ == "__main__":
    main()

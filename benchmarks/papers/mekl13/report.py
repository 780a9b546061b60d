"""Judges MEKL13's tables: ours beside the printed, paired t-tests, verdicts; writes `results.md` and draws figure 1."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import protocol
from judge import Verdict, judge, tally
from measure import EARLIER, Store
from notes import NOTES, raw_reading, reading, seconds, timed_by
from scipy.stats import ttest_rel

OURS = ("RPEMEKL", "RPEMEKL p=0.1", "MultiK-MHKS")
Results = dict[str, dict[str, dict[str, dict[str, Any]]]]


def results(store: Store) -> Results:
    """Cells by set, method and split."""
    found: Results = {}
    for key, cell in store.cells.items():
        name, seed, method = (*key.split("/"), "")[:3]
        if name in protocol.SETS:
            own = {method: cell} if method != "coupled" else {one: cell[one] for one in OURS}
            own = {one: value | {"code": cell["code"]} for one, value in own.items()}
            for one, value in own.items():
                found.setdefault(name, {}).setdefault(one, {})[seed] = value
    return found


def accuracies(rows: dict[str, Any], method: str) -> list[float]:
    return [100 * cell["accuracy"] for cell in rows.get(method, {}).values()]


def verdict(rows: dict[str, Any], method: str, printed: list[float]) -> Verdict:
    mean, spread = printed
    return judge(accuracies(rows, method), mean, printed_spread=spread, printed_runs=protocol.SPLITS)


def paired(rows: dict[str, Any], method: str) -> tuple[float, float] | None:
    """RPEMEKL's mean less that of a method, in points, and p of a paired t-test over the splits of both."""
    common = [s for s in rows.get(method, {}) if s in rows["RPEMEKL"]]
    a, b = (np.array([100 * rows[one][s]["accuracy"] for s in common]) for one in ("RPEMEKL", method))
    if len(common) < 2:
        return None
    return float((a - b).mean()), 1.0 if np.ptp(a - b) == 0 else float(ttest_rel(a, b).pvalue)


def record(found: Results, method: str) -> list[int]:
    """Sets on which RPEMEKL is significantly better, no different, significantly worse (p < 0.05)."""
    counts = [0, 0, 0]
    for rows in found.values():
        if "RPEMEKL" in rows and (pair := paired(rows, method)) is not None:
            counts[(0 if pair[0] > 0 else 2) if pair[1] < 0.05 else 1] += 1
    return counts


def write(paper: dict[str, Any], store: Store, target: Path) -> None:
    """results.md from the printed numbers and the cells."""
    found = results(store)
    lines = ["# MEKL13 beside ours", "", "`MERCER_DATA=… python benchmarks/papers/mekl13/run.py` writes this page.", ""]
    lines += [store.versions(), ""]
    lines += _accuracy(paper["table2"], found) + _raw(paper["table2"], found) + _seconds(paper["table3"], found)
    lines += _convergence({name: cell["path"] for name, cell in store.under("figure1/").items()})
    lines += ["## Readings", "", *reading(paper, found, record), NOTES]
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text("\n".join(lines), encoding="utf-8")


def _cell(rows: dict[str, Any], method: str) -> str:
    values = accuracies(rows, method)
    if not values:
        return "–"
    text = f"{np.mean(values):.2f} ± {np.std(values, ddof=1) if len(values) > 1 else 0:.2f}"
    if method not in ("RPEMEKL", "raw") and (pair := paired(rows, method)) is not None:
        text += f" (p {pair[1]:.3f}{'*' if pair[1] < 0.05 else ''})"
    text += " †" if any(cell["code"] == EARLIER for cell in rows[method].values()) else ""
    return text if len(values) == protocol.SPLITS else f"{text} [{len(values)}]"


def _accuracy(table: dict[str, Any], found: Results) -> list[str]:
    columns = table["columns"]
    lines = [f"## {table['where']}: {table['what']}", "", "Inputs standardised; ours, then printed.", ""]
    lines += [
        "| set | " + " | ".join(columns) + " | SVC | RPEMEKL against printed |",
        "|" + "---|" * (len(columns) + 3),
    ]
    said: dict[str, list[Verdict]] = {column: [] for column in columns}
    for name, printed in table["rows"].items():
        rows = found.get(name, {})
        if not rows.get("RPEMEKL"):
            continue
        cells = [f"{_cell(rows, c)}, {m:.2f} ± {s:.2f}" for c, (m, s) in zip(columns, printed, strict=True)]
        for column, own in zip(columns, printed, strict=True):
            if rows.get(column):
                said[column].append(verdict(rows, column, own))
        lines.append(f"| {name} | " + " | ".join(cells) + f" | {_cell(rows, 'SVC')} | {said['RPEMEKL'][-1]} |")
    lines += ["", "Against the printed numbers, over the sets:", ""]
    lines += [f"- {column}: {tally(said[column])}" for column in columns]
    lines += ["", "RPEMEKL significantly better, no difference, significantly worse (p < 0.05), over the sets:", ""]
    lines += ["- {}: {}, {}, {}".format(method, *record(found, method)) for method in (*columns[2:], "SVC")]
    return [*lines, ""]


def _raw(table: dict[str, Any], found: Results) -> list[str]:
    lines = ["## Table 2 with raw inputs: RPEMEKL alone", "", "Glass has its row number as a tenth input.", ""]
    lines += [
        "| set | raw | standardised | printed | raw against printed | standardised against printed |",
        "|---" * 6 + "|",
    ]
    said: dict[str, list[Verdict]] = {"raw": [], "RPEMEKL": []}
    for name, printed in table["rows"].items():
        rows = found.get(name, {})
        if rows.get("raw") and rows.get("RPEMEKL"):
            for method, verdicts in said.items():
                verdicts.append(verdict(rows, method, printed[0]))
            cells = [_cell(rows, "raw"), _cell(rows, "RPEMEKL"), "{:.2f} ± {:.2f}".format(*printed[0])]
            lines.append(f"| {name} | " + " | ".join([*cells, *(str(said[m][-1]) for m in said)]) + " |")
    return [*lines, "", *raw_reading(said["raw"], said["RPEMEKL"]), ""]


def _seconds(table: dict[str, Any], found: Results) -> list[str]:
    columns = table["columns"]
    lines = [
        f"## {table['where']}: {table['what']}",
        "",
        f"Ours, CPU seconds of one x86 core for the fit of the first split, all by {timed_by(found)}; then printed.",
        "",
    ]
    lines += ["| set | " + " | ".join(columns) + " | SVC |", "|" + "---|" * (len(columns) + 2)]
    for name, printed in table["rows"].items():
        rows = found.get(name, {})
        if rows.get("RPEMEKL"):
            cells = [f"{seconds(rows, c):.3g}, {s:g}" for c, s in zip(columns, printed, strict=True)]
            lines.append(
                f"| {name} | " + " | ".join([*cells, f"{seconds(rows, 'SVC'):.3g}"]).replace("nan", "–") + " |"
            )
    return [*lines, ""]


def _convergence(paths: dict[str, list[float]]) -> list[str]:
    lines = [
        "## Figure 1: the objective (5) over the iterations",
        "",
        "![figure 1](../../../docs/figures/mekl13_figure1.png)",
    ]
    lines += ["", "| set | ln L after 1, 2, … iterations | fall of L from the 5th to the 10th |", "|---|---|---|"]
    for name, path in paths.items():
        fall = 1 - np.exp(path[-1] - path[4])
        lines.append(f"| {name} | " + ", ".join(f"{v:.3f}" for v in path) + f" | {100 * fall:.2f} % |")
    return [*lines, ""]


def draw(store: Store, target: Path) -> None:
    """Figure 1."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    _, axes = plt.subplots(figsize=(7, 4))
    for name, cell in store.under("figure1/").items():
        axes.plot(range(1, len(cell["path"]) + 1), cell["path"], marker="o", markersize=3, label=name)
    axes.set(xlabel="iteration", ylabel="ln L, eq. (5)", title="RPEMEKL (c = λ = 1, p = 0.3 N)")
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    axes.grid(alpha=0.3)
    plt.tight_layout()
    plt.savefig(target, dpi=110)

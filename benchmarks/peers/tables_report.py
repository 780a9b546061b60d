"""What the numbers of `tables.py` say, as Markdown: each part and each task apart.

Means over splits count where a method has all of them. Ranks are among the methods at hand, on the tables that all of
them have; ties share their ranks. Our estimators are compared with each rival on the tables that both have: the share
that we win (a tie is half a win) and the geometric mean of our error over the rival's, where no wrong row at all
counts as half a row.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tables_data import PARTS, TASKS, names

Results = dict[str, dict[str, dict[str, dict[str, Any]]]]  # table, method, split: error, log loss, seconds
Means = dict[str, dict[str, dict[str, float]]]  # table, method: the same, over splits
TITLES = {"choose": "the part chosen by", "development": "the development part", "others": "others"}
MEASURES = {"error": "error", "log_loss": "log loss"}
LEAST_LOG_LOSS = 1e-6


def merged(files: list[Results]) -> Results:
    """Several files in one; of what two of them have, the last that ended well counts."""
    out: Results = {}
    for results in files:
        for name, methods in results.items():
            for method, splits in methods.items():
                kept = out.setdefault(name, {}).setdefault(method, {})
                kept.update({seed: score for seed, score in splits.items() if "error" in score or seed not in kept})
    return out


def report(results: Results, tables: list[str], methods: list[str], splits: int) -> str:
    pieces = []
    for part in PARTS:
        for task in TASKS:
            here = {n: averages(results[n], task, splits) for n in names(part, task) if n in tables and n in results}
            here = {n: row for n, row in here.items() if row}
            shown = [m for m in methods if any(m in row for row in here.values())]
            if shown:
                title = f"### {task.capitalize()}, {TITLES[part]} ({len(here)} tables, {splits} splits)"
                pieces += [title, listed(here, shown, task), standing(here, shown, task)]
    failed = [
        f"- {name}, {method}, split {seed}: {score['failed']}"
        for name in tables
        for method in methods
        for seed, score in results.get(name, {}).get(method, {}).items()
        if "failed" in score
    ]
    return "\n\n".join([*pieces, *(["Failed:\n\n" + "\n".join(failed)] if failed else [])]) + "\n"


def averages(row: dict[str, dict[str, dict[str, Any]]], task: str, splits: int) -> dict[str, dict[str, float]]:
    """Means over all the splits, of methods that have them, and the least error that a ratio may see."""
    out = {}
    for method, scores in row.items():
        found = [scores.get(str(seed), {}) for seed in range(splits)]
        if all("error" in score for score in found):
            measured = [key for key in ("error", "log_loss", "seconds") if key in found[0]]
            out[method] = {key: float(np.mean([score[key] for score in found])) for key in measured}
            half_a_row = 50.0 / sum(score["test_rows"] for score in found)
            out[method]["least_error"] = half_a_row if task == "classification" else 1e-9
    return out


def listed(here: Means, methods: list[str], task: str) -> str:
    """Every table's errors, the best in bold."""
    measures = ["error"] if task == "regression" else list(MEASURES)
    words = "NMSE, %" if task == "regression" else "error, % / log loss"
    lines = [f"| {words} | {' | '.join(methods)} |", "|---" * (len(methods) + 1) + "|"]
    for name, row in here.items():
        cells = [" / ".join(_cell(row, m, key) for key in measures if key in row.get(m, {})) or "–" for m in methods]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(row: dict[str, dict[str, float]], method: str, key: str) -> str:
    text = f"{row[method][key]:.2f}" if key == "error" else f"{row[method][key]:.3f}"
    best = min(scores[key] for scores in row.values() if key in scores)
    return f"**{text}**" if row[method][key] == best else text


def standing(here: Means, methods: list[str], task: str) -> str:
    """Ranks, tables won, ratios and seconds."""
    lines = [f"| | {' | '.join(methods)} |", "|---" * (len(methods) + 1) + "|"]
    measures = ["error"] if task == "regression" else list(MEASURES)
    for key in measures:
        found, n_tables = ranks(here, methods, key)
        lines.append(_line(f"mean rank, {MEASURES[key]} ({n_tables} tables)", methods, found, "{:.2f}"))
    if task == "classification":
        lines.append(_line("mean log loss of these tables", methods, mean_log_loss(here, methods), "{:.4f}"))
    for key in measures:
        ratios = {m: ours_over(here, m, key) for m in methods if m != "ours"}
        ratios = {m: r for m, r in ratios.items() if len(r)}
        won = {m: 100 * float(np.mean((r < 1) + 0.5 * (r == 1))) for m, r in ratios.items()}
        means = {m: float(np.exp(np.log(r).mean())) for m, r in ratios.items()}
        lines.append(_line(f"ours wins against it, {MEASURES[key]}", methods, won, "{:.0f} %"))
        lines.append(_line(f"ours over it, {MEASURES[key]} (geometric mean)", methods, means, "{:.3f}"))
    seconds = {m: float(np.mean([row[m]["seconds"] for row in here.values() if m in row])) for m in methods}
    lines.append(_line("mean seconds of fit", methods, seconds, "{:.2f}"))
    times = {m: ours_over(here, m, "seconds") for m in methods if m != "ours"}
    longest = {m: float(r.max()) for m, r in times.items() if len(r)}
    lines.append(_line("ours over it, seconds (the largest)", methods, longest, "{:.1f}"))
    return "\n".join(lines)


def _line(label: str, methods: list[str], values: dict[str, float], shape: str) -> str:
    return f"| {label} | {' | '.join(shape.format(values[m]) if m in values else '–' for m in methods)} |"


def ranks(here: Means, methods: list[str], key: str) -> tuple[dict[str, float], int]:
    """Mean ranks of the methods that have this measure at all, and the number of tables that all of them have."""
    ranked = [m for m in methods if any(key in row.get(m, {}) for row in here.values())]
    rows = [[row[m][key] for m in ranked] for row in here.values() if all(key in row.get(m, {}) for m in ranked)]
    if not rows:
        return {}, 0
    errors = np.array(rows)
    above, equal = errors[:, :, None] > errors[:, None, :], errors[:, :, None] == errors[:, None, :]
    return dict(zip(ranked, (1 + above.sum(2) + 0.5 * (equal.sum(2) - 1)).mean(0), strict=True)), len(rows)


def mean_log_loss(here: Means, methods: list[str]) -> dict[str, float]:
    """Over the tables that all methods with probabilities have."""
    having = [m for m in methods if any("log_loss" in row.get(m, {}) for row in here.values())]
    rows = [row for row in here.values() if all("log_loss" in row.get(m, {}) for m in having)]
    return {m: float(np.mean([row[m]["log_loss"] for row in rows])) for m in having} if rows else {}


def ours_over(here: Means, method: str, key: str) -> np.ndarray:
    """Our value over the rival's, on the tables that both have."""
    rows = [(row.get("ours", {}), row.get(method, {})) for row in here.values()]
    both = [(ours, theirs) for ours, theirs in rows if key in ours and key in theirs]

    def raised(scores: dict[str, float]) -> float:
        least = {"error": scores["least_error"], "log_loss": LEAST_LOG_LOSS, "seconds": 1e-6}[key]
        return max(scores[key], least)

    return np.array([raised(ours) / raised(theirs) for ours, theirs in both])

"""Where the model errs: predicted against observed, residuals along each input, classes taken for others."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.stats import t
from sklearn.metrics import confusion_matrix

from mercer.report.section import Figure, Grid, Section
from mercer.report.subject import Subject
from mercer.report.svg import Band, Line, Points, chart, short

#: Points of a cloud, outputs and inputs that are drawn, bins along an input, classes in one table.
CLOUD, OUTPUTS, INPUTS, BINS, CLASSES = 700, 4, 6, 10, 12


def fit_section(subject: Subject) -> Section:
    """Predicted against observed; of classes, which are taken for which."""
    return _classes(subject) if subject.classes is not None else _numbers(subject)


def _numbers(subject: Subject) -> Section:
    predicted, observed = subject.predicted.reshape(subject.observed.shape), subject.observed
    some = np.unique(np.linspace(0, len(observed) - 1, CLOUD).astype(int))
    figures, rows, every = [], [], {}
    for j, name in enumerate(subject.outputs):
        error = observed[:, j] - predicted[:, j]
        spread = float(observed[:, j].std()) or 1.0
        numbers = {
            "rmse": float(np.sqrt(np.mean(error**2))),
            "mae": float(np.abs(error).mean()),
            "bias": float(error.mean()),
            "r2": 1 - float(np.mean(error**2)) / spread**2,
        }
        every[name] = numbers
        rows.append([name, *numbers.values()])
        if j < OUTPUTS:
            ends = np.array([observed[:, j].min(), observed[:, j].max()])
            says = (
                f"Predicted against observed values of {name}: R² is {numbers['r2']:.3f}; the line is a perfect answer."
            )
            cloud = Points(observed[some, j], predicted[some, j])
            drawn = chart([cloud, Line(ends, ends, dashed=True)], f"observed {name}", f"predicted {name}", says)
            figures.append(Figure(drawn, says))
    table = Grid("Errors by output", ["output", "RMSE", "mean absolute", "mean (bias)", "R²"], rows)
    return Section("fit", "Predicted and observed", (), {"outputs": every}, [table], figures)


def _classes(subject: Subject) -> Section:
    classes = subject.classes
    assert classes is not None
    matrix = confusion_matrix(subject.y, subject.predicted, labels=classes)
    totals = matrix.sum(1)
    recall = np.diag(matrix) / np.maximum(totals, 1)
    words = []
    off = matrix - np.diag(np.diag(matrix))
    if off.any():
        i, j = np.unravel_index(off.argmax(), off.shape)
        words.append(f"Most often {classes[i]} is taken for {classes[j]}: {off[i, j]} of {totals[i]} rows.")
    else:
        words.append("No test row is given a wrong class.")
    head = ["observed", "rows", "right"]
    shown = range(len(classes)) if len(classes) <= CLASSES else []
    head += [f"as {classes[j]}" for j in shown]
    rows = [
        [str(name), int(totals[i]), f"{recall[i]:.1%}", *(int(matrix[i, j]) for j in shown)]
        for i, name in enumerate(classes)
    ]
    table = Grid("Observed classes and what was predicted", head, rows[:40])
    numbers = {"classes": [str(c) for c in classes], "confusion": matrix, "recall": recall}
    return Section("fit", "Predicted and observed", words, numbers, [table])


def residual_section(subject: Subject) -> Section | None:
    """The mean residual along the inputs that matter most: where it leaves zero, something is left to learn."""
    figures, words = [], []
    found: dict[str, dict[str, Any]] = {}
    wrong = subject.classes is not None
    residual = subject.residuals[:, 0]
    level = float(residual.mean()) if wrong else 0.0
    what = "share of wrong classes" if wrong else "observed − predicted"
    for j in subject.most_relevant(INPUTS):
        name, column = subject.table.names[j], subject.table.columns[j]
        if not subject.table.is_numeric(j):
            found[name] = _by_level(column, residual)
            continue
        binned = _by_bin(column, residual, level if wrong else None)
        if binned is None:
            continue
        centre, mean, twice, limit = binned
        clear = np.abs(mean - level) > limit
        found[name] = {"centre": centre, "mean": mean, "two_standard_errors": twice}
        if clear.any():
            worst = int(np.argmax(np.where(clear, np.abs(mean - level), -1)))
            at = subject.table.said(j, centre[worst])
            words.append(f"Around {name} = {at} the {what} is {short(mean[worst])} on average.")
        count = {0: "none is", 1: "one is"}.get(int(clear.sum()), f"{clear.sum()} are")
        says = (
            f"{what.capitalize()} along {name}: means of {len(centre)} parts of the test rows with twice their "
            f"standard error; {count} clearly away from {short(level)}."
        )
        marks: list[Points | Line | Band] = [Band(centre, mean - twice, mean + twice), Line(centre, mean, dots=True)]
        if not wrong:
            some = np.unique(np.linspace(0, len(column) - 1, CLOUD // 2).astype(int))
            marks.insert(0, Points(column[some], residual[some]))
        marks.append(Line(centre[[0, -1]], np.array([level, level]), colour=2, dashed=True))
        figures.append(Figure(chart(marks, name, what, says, dates=subject.table.is_date(j)), says))
    if not found:
        return None
    words = words[:4] or ["Along none of these inputs the mean residual is clearly away from what it is overall."]
    tables = [
        Grid(f"{what.capitalize()} by {name}", ["level", "rows", "mean"], list(zip(*one.values(), strict=True)))
        for name, one in found.items()
        if "level" in one
    ]
    return Section("residuals", "Residuals by input", words, {"inputs": found}, tables, figures)


def _by_bin(
    column: np.ndarray, residual: np.ndarray, share: float | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray] | None:
    """Centre, mean residual, twice its standard error and what chance may make of it, in parts of equally many rows,
    or for each value where a column has few.

    `share` is that of wrong classes among all rows: a part without any has no spread of its own. A limit is passed by
    chance in one page of twenty, all parts of all inputs together.
    """
    known = np.isfinite(column)
    values, residual = column[known], residual[known]
    if len(values) < 20 or np.ptp(values) == 0:
        return None
    distinct, place = np.unique(values, return_inverse=True)
    if len(distinct) > BINS:
        edges = np.unique(np.quantile(values, np.linspace(0, 1, min(BINS, len(values) // 10) + 1)))
        place = np.clip(np.searchsorted(edges, values, side="right") - 1, 0, len(edges) - 2)
    counts = np.bincount(place)
    full = counts >= 3
    if not full.any():
        return None
    mean = np.bincount(place, residual)[full] / counts[full]
    square = np.bincount(place, residual**2)[full] / counts[full]
    centre = np.bincount(place, values)[full] / counts[full]
    spread = np.maximum(square - mean**2, 0) if share is None else np.full(len(mean), share * (1 - share))
    error = np.sqrt(spread / (counts[full] - 1))
    return centre, mean, 2 * error, error * t.ppf(1 - 0.05 / (2 * BINS * INPUTS), counts[full] - 1)


def _by_level(column: np.ndarray, residual: np.ndarray) -> dict[str, Any]:
    levels, place, counts = np.unique(column.astype(str), return_inverse=True, return_counts=True)
    mean = np.bincount(place, residual) / counts
    order = np.argsort(-counts, kind="stable")[:8]
    return {"level": levels[order].tolist(), "rows": counts[order].tolist(), "mean": mean[order].tolist()}

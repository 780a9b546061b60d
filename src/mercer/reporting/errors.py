"""Errors of the model: predicted against observed, residuals along each input, confused classes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import t
from sklearn.metrics import confusion_matrix

from mercer.data import spaced_rows
from mercer.reporting.section import Grid, Section
from mercer.reporting.subject import Subject
from mercer.reporting.svg import Band, Figure, Line, Mark, Points, chart, short

#: Points of a scatter plot, outputs and inputs that are drawn, bins along an input, classes in one table.
CLOUD, OUTPUTS, INPUTS, BINS, CLASSES = 700, 4, 6, 10, 12


def fit_section(subject: Subject) -> Section:
    """Predicted against observed; for classes, the confusion matrix."""
    return _classes(subject) if subject.classes is not None else _numbers(subject)


def _numbers(subject: Subject) -> Section:
    predicted, observed = subject.predicted.reshape(subject.observed.shape), subject.observed
    figures, rows, outputs = [], [], {}
    for j, name in enumerate(subject.outputs):
        measures = _measures(observed[:, j], predicted[:, j])
        outputs[name] = measures
        rows.append([name, *measures.values()])
        if j < OUTPUTS:
            figures.append(_scatter(name, observed[:, j], predicted[:, j], measures["r2"]))
    table = Grid("Errors by output", ["output", "RMSE", "mean absolute", "mean (bias)", "R²"], rows)
    return Section("fit", "Predicted and observed", (), {"outputs": outputs}, [table], figures)


def _measures(observed: np.ndarray, predicted: np.ndarray) -> dict[str, float]:
    error = observed - predicted
    spread = float(observed.std()) or 1.0
    return {
        "rmse": float(np.sqrt(np.mean(error**2))),
        "mae": float(np.abs(error).mean()),
        "bias": float(error.mean()),
        "r2": 1 - float(np.mean(error**2)) / spread**2,
    }


def _scatter(name: str, observed: np.ndarray, predicted: np.ndarray, r2: float) -> Figure:
    """Predicted against observed values, thinned to `CLOUD` points."""
    index = spaced_rows(np.ones(len(observed)), CLOUD)
    ends = np.array([observed.min(), observed.max()])
    caption = f"Predicted against observed values of {name}: R² is {r2:.3f}; the line is a perfect answer."
    marks: list[Mark] = [Points(observed[index], predicted[index]), Line(ends, ends, dashed=True)]
    return chart(marks, f"observed {name}", f"predicted {name}", caption)


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


@dataclass(frozen=True)
class BinnedResiduals:
    """Mean residuals in bins along a column, twice their standard errors, and the limits that chance keeps."""

    centre: np.ndarray
    mean: np.ndarray
    two_standard_errors: np.ndarray
    limit: np.ndarray


def residual_section(subject: Subject) -> Section | None:
    """The mean residual along the most relevant inputs: where it leaves zero, something is left to learn."""
    figures, tables, words = [], [], []
    found: dict[str, dict[str, Any]] = {}
    residual = subject.residuals[:, 0]
    wrong = subject.classes is not None
    level = float(residual.mean()) if wrong else 0.0
    what = "share of wrong classes" if wrong else "observed − predicted"
    for j in subject.most_relevant(INPUTS):
        name, column = subject.table.names[j], subject.table.columns[j]
        if not subject.table.is_numeric(j):
            found[name] = _by_level(column, residual)
            rows = list(zip(*found[name].values(), strict=True))
            tables.append(Grid(f"{what.capitalize()} by {name}", ["level", "rows", "mean"], rows))
            continue
        binned = _by_bin(column, residual, level if wrong else None)
        if binned is None:
            continue
        found[name] = {name: value for name, value in vars(binned).items() if name != "limit"}
        clear = np.abs(binned.mean - level) > binned.limit
        if clear.any():
            worst = int(np.argmax(np.where(clear, np.abs(binned.mean - level), -1)))
            at = subject.table.format_value(j, binned.centre[worst])
            words.append(f"Around {name} = {at} the {what} is {short(binned.mean[worst])} on average.")
        figures.append(_residual_figure(subject, j, binned, what, level, int(clear.sum())))
    if not found:
        return None
    words = words[:4] or ["Along none of these inputs the mean residual is clearly away from what it is overall."]
    return Section("residuals", "Residuals by input", words, {"inputs": found}, tables, figures)


def _residual_figure(
    subject: Subject, j: int, binned: BinnedResiduals, what: str, level: float, n_clear: int
) -> Figure:
    """Mean residuals along a column with their band; for numbers, over the residuals themselves."""
    name, column = subject.table.names[j], subject.table.columns[j]
    count = {0: "none is", 1: "one is"}.get(n_clear, f"{n_clear} are")
    caption = (
        f"{what.capitalize()} along {name}: means of {len(binned.centre)} parts of the test rows with twice their "
        f"standard error; {count} clearly away from {short(level)}."
    )
    mean, twice = binned.mean, binned.two_standard_errors
    marks: list[Mark] = []
    if subject.classes is None:
        index = spaced_rows(np.ones(len(column)), CLOUD // 2)
        marks.append(Points(column[index], subject.residuals[index, 0]))
    marks += [Band(binned.centre, mean - twice, mean + twice), Line(binned.centre, mean, dots=True)]
    marks.append(Line(binned.centre[[0, -1]], np.array([level, level]), colour=2, dashed=True))
    return chart(marks, name, what, caption, dates=subject.table.is_date(j))


def _by_bin(column: np.ndarray, residual: np.ndarray, share: float | None) -> BinnedResiduals | None:
    """Mean residuals in bins of equally many rows, or for each value where a column has few.

    `share` is that of wrong classes among all rows: a bin without any has no spread of its own. A limit is passed by
    chance in one page of twenty, all bins of all inputs together.
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
    limit = error * t.ppf(1 - 0.05 / (2 * BINS * INPUTS), counts[full] - 1)
    return BinnedResiduals(centre, mean, 2 * error, limit)


def _by_level(column: np.ndarray, residual: np.ndarray) -> dict[str, Any]:
    levels, place, counts = np.unique(column.astype(str), return_inverse=True, return_counts=True)
    mean = np.bincount(place, residual) / counts
    order = np.argsort(-counts, kind="stable")[:8]
    return {"level": levels[order].tolist(), "rows": counts[order].tolist(), "mean": mean[order].tolist()}

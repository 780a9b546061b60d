"""Effects of the inputs: the mean prediction along each of them, and Shapley values of single rows.

Shapley values are exact where the model's kernels are sums of products over the inputs and that takes seconds, not
minutes (`mercer.shapley_values`). Otherwise they are estimated from orders of the columns: in each order, columns of
another row are exchanged one by one for those of the row in question, and the change of the prediction is the column's.
An order and its reverse make a pair, each pair beside another row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mercer.data import spaced_rows
from mercer.explain.shapley import operations, shapley_values
from mercer.forward.relevance import BACKGROUND_ROWS
from mercer.preprocessing.text import Text
from mercer.reporting.section import Grid, Section
from mercer.reporting.subject import Subject
from mercer.reporting.svg import LETTERS, NEGLIGIBLE, Band, Figure, Line, bars, chart, short, shorten

#: Inputs and points along each, rows that are averaged, levels of a category.
INPUTS, POINTS, ROWS, LEVELS = 4, 21, 150, 12
#: Background rows of estimated Shapley values, predictions they may take, and bars of a picture.
MIN_BACKGROUND, MAX_BACKGROUND, MAX_PREDICTIONS, BARS = 8, 60, 20_000, 8
#: Multiplications that exact values may take: about ten seconds on one core.
MAX_OPERATIONS = 1e9


def effects_section(subject: Subject) -> Section | None:
    """The mean prediction while one column is moved and the others stay as they are (partial dependence)."""
    sample = subject.sample(ROWS)
    what, predict = explained_output(sample)
    figures, tables, found = [], [], {}
    for j in subject.most_relevant(INPUTS):
        name = subject.table.names[j]
        if (code := _text_code(subject, j)) is not None:
            table, found[name] = _term_effects(subject, j, code)
            tables.append(table)
            continue
        if not subject.table.is_numeric(j):
            table, found[name] = _level_effects(subject, sample, j)
            tables.append(table)
            continue
        known = subject.table.columns[j][np.isfinite(subject.table.columns[j])]
        if len(known) < 2 or np.ptp(known) == 0:
            continue
        grid = np.unique(np.quantile(known, np.linspace(0.01, 0.99, POINTS)))
        values = np.stack([predict(sample.table.with_value(j, value)) for value in grid])
        mean, (low, high) = values.mean(1), np.quantile(values, [0.1, 0.9], axis=1)
        change = short(float(np.ptp(mean)))
        caption = f"{what.capitalize()} along {name}: the mean changes by {change}; 80 % of rows are in the band."
        marks: list[Band | Line] = [Band(grid, low, high, colour=0), Line(grid, mean, colour=0, dots=True)]
        figures.append(chart(marks, name, what, caption, dates=subject.table.is_date(j)))
        found[name] = {"at": grid, "mean": mean, "low": low, "high": high}
    if not found:
        return None
    words = [f"{what.capitalize()}, while one column is moved and the others of {sample.table.n_rows} test rows stay."]
    return Section("effects", "What the inputs do", words, {"answer": what, "inputs": found}, tables, figures)


def _level_effects(subject: Subject, sample: Subject, j: int) -> tuple[Grid, dict[str, np.ndarray]]:
    """The mean prediction at each of the most frequent levels of a column."""
    what, predict = explained_output(sample)
    column = subject.table.columns[j].astype(str)
    levels, first, counts = np.unique(column, return_index=True, return_counts=True)
    order = np.argsort(-counts, kind="stable")[:LEVELS]
    values = [subject.table.cell(int(first[k]), j) for k in order]
    mean = np.array([predict(sample.table.with_value(j, value)).mean() for value in values])
    rows = [[str(levels[k]), int(counts[k]), float(m)] for k, m in zip(order, mean, strict=True)]
    caption = f"{what.capitalize()} by {subject.table.names[j]}"
    return Grid(caption, ["level", "rows", "mean answer"], rows), {"at": levels[order], "mean": mean}


def _text_code(subject: Subject, j: int) -> Text | None:
    """The code of a column of free text."""
    codes = getattr(getattr(subject.estimator, "table_", None), "codes", ())
    same = subject.inner_table is subject.table
    return next((code for code in codes if same and code.column == j and isinstance(code, Text)), None)


def _term_effects(subject: Subject, j: int, code: Text) -> tuple[Grid, dict[str, Any]]:
    """The mean change of predictions by each of the strongest terms, against the same texts without the term."""
    what, predict = explained_output(subject)
    rows = code.rows(subject.table.raw[j]).tocsc()
    strength = rows.mean(0) * np.abs(code.slopes if code.slopes.shape[1] else code.directions).max(1)
    effects = []
    for k in np.flatnonzero(strength)[np.argsort(-strength[strength > 0], kind="stable")[: 2 * LEVELS]].tolist():
        holds = rows[:, [k]].toarray().ravel()
        part = subject.table.part(spaced_rows(holds, ROWS))
        without = np.array([code.without(k, str(part.cell(i, j))) for i in range(part.n_rows)], dtype=object)
        change = predict(part.X) - predict(part.with_value(j, without))
        effects.append([code.terms[k], int((holds > 0).sum()), float(change.mean())])
    effects = sorted(effects, key=lambda effect: -abs(effect[1] * effect[2]))[:LEVELS]  # by their sum over all rows
    caption = f"{what.capitalize()} by words of {subject.table.names[j]}: what a word adds to texts that have it"
    found = {"at": [effect[0] for effect in effects], "change": [effect[2] for effect in effects]}
    return Grid(caption, ["words", "rows", "mean change"], effects), found


def explained_output(subject: Subject) -> tuple[str, Any]:
    """The name of the output that is explained, and a function of rows to it: the first output, or a probability."""
    model, classes = subject.model, subject.classes
    if classes is None:
        return f"predicted {subject.outputs[0]}", lambda X: np.asarray(model.predict(X)).reshape(len(X), -1)[:, 0]
    k = len(classes) - 1
    if hasattr(model, "predict_proba"):
        return f"probability of {classes[k]}", lambda X: np.asarray(model.predict_proba(X))[:, k]
    return f"share of {classes[k]}", lambda X: (np.asarray(model.predict(X)) == classes[k]).astype(float)


@dataclass(frozen=True)
class RowExplanations:
    """Shapley values of rows (rows × columns): of which output, and beside the mean over which rows."""

    values: np.ndarray
    output: str
    background: str
    note: str
    size: float  # of the predictions, beside which small values are rounding


def rows_section(subject: Subject) -> Section | None:
    """Shapley values of single rows."""
    if subject.inner_table is not subject.table:
        return None
    rows = chosen_rows(subject)
    index = list(rows.values())
    explained = exact_shapley(subject, index) or sampled_shapley(subject, index)
    figures, numbers = [], {}
    for (choice, row), values in zip(rows.items(), explained.values, strict=True):
        values = np.where(np.abs(values) < NEGLIGIBLE * (np.abs(values).max() + explained.size), 0.0, values)
        figures.append(_row_figure(subject, choice, row, values))
        numbers[str(row)] = {"chosen_as": choice, "values": dict(zip(subject.table.names, values, strict=True))}
    words = [
        f"Shapley values divide the model's answer for a row ({explained.output}), less its mean over "
        f"{explained.background}, among the columns. {explained.note}"
    ]
    return Section("shapley", "Single rows", words, {"answer": explained.output, "rows": numbers}, figures=figures)


def _row_figure(subject: Subject, choice: str, row: int, values: np.ndarray) -> Figure:
    """Bars of the largest Shapley values of a row; long names are cut, so that the value of the column stays."""
    table = subject.table
    order = np.argsort(-np.abs(values))[:BARS]
    cells = [table.format_value(j, table.columns[j][row]) for j in order]
    room = [max(LETTERS - len(cell) - 3, 4) for cell in cells]
    labels = [
        f"{shorten(table.names[j], letters)} = {cell}" for j, letters, cell in zip(order, room, cells, strict=True)
    ]
    caption = (
        f"Row {row} ({choice}; observed {_target_text(subject.y[row])}, predicted "
        f"{_target_text(subject.predicted[row])}): {table.names[order[0]]} = {cells[0]} counts for "
        f"{short(values[order[0]])}."
    )
    return bars(labels, values[order], "what the column adds", caption, signed=True)


def chosen_rows(subject: Subject) -> dict[str, int]:
    """Rows to explain: typical, extreme, and the one of largest error."""
    answer = explained_output(subject)[1](subject.table.X)
    size = np.abs(subject.residuals[:, 0])
    order = np.argsort(answer, kind="stable")
    wanted = {
        "in the middle": int(order[len(order) // 2]),
        "smallest answer": int(order[0]),
        "largest answer": int(order[-1]),
        "largest error": int(size.argmax()),
    }
    if subject.classes is not None and not size.any():
        del wanted["largest error"]
    rows: dict[str, int] = {}
    for name, row in wanted.items():
        if row not in rows.values():
            rows[name] = row
    return rows


def exact_shapley(subject: Subject, at: Sequence[int]) -> RowExplanations | None:
    """Exact Shapley values, where the model has them and they take seconds."""
    part = subject.table.part(np.asarray(at))
    try:
        if operations(subject.estimator, len(at) + BACKGROUND_ROWS) > MAX_OPERATIONS:
            return None
        found = shapley_values(subject.estimator, part.X)
    except (ValueError, TypeError, AttributeError):  # kernels, or models, that have none in closed form
        return None
    values, size = found.values, float(np.abs(found.predictions()).max())
    if values.shape[1] != len(part.names):  # of coordinates, not of the table's columns
        return None
    classes = subject.classes
    if values.ndim == 3:
        values = values[..., 0 if classes is None else -1]
    what = f"predicted {subject.outputs[0]}" if classes is None else f"decision value of {classes[-1]}"
    return RowExplanations(values, what, "training rows", "", size)


def sampled_shapley(subject: Subject, at: Sequence[int]) -> RowExplanations:
    """Shapley values of any model from orders of the columns; exact where columns do not interact."""
    what, predict = explained_output(subject)
    table, rng, D = subject.table, np.random.default_rng(0), len(subject.table.names)
    affordable = MAX_PREDICTIONS // (2 * len(at) * (D + 1))
    pairs = int(np.clip(affordable, MIN_BACKGROUND, min(MAX_BACKGROUND, table.n_rows)))
    background = np.linspace(0, table.n_rows - 1, pairs).astype(int)
    drawn = [rng.permutation(D) for _ in range(pairs)]
    orders = np.stack([order for forward in drawn for order in (forward, forward[::-1])])
    others = np.repeat(background, 2)  # an order and its reverse share a background row
    place = np.argsort(orders, axis=1)  # of each column in its order
    taken = place[:, None, :] < np.arange(D + 1)[None, :, None]  # columns exchanged after each step
    values, errors, size = [], [], 0.0
    for row in at:
        cells = np.where(taken, row, others[:, None, None]).reshape(-1, D)
        predicted = predict(table.mix_rows(cells)).reshape(len(orders), D + 1)
        size = max(size, float(np.abs(predicted).max()))
        gains = np.take_along_axis(np.diff(predicted, axis=1), place, axis=1).reshape(pairs, 2, D).mean(1)
        values.append(gains.mean(0))
        errors.append(gains.std(0) / np.sqrt(pairs))
    note = (
        f"Estimated from {len(orders)} orders of the columns beside {pairs} other test rows; another choice of rows "
        f"and orders would change a value by {short(float(np.max(errors)))} at most, one standard error."
    )
    return RowExplanations(np.stack(values), what, "test rows", note, size)


def _target_text(value: Any) -> str:
    if isinstance(value, np.ndarray):
        value = value.ravel()[0]
    return short(float(value)) if isinstance(value, float | int | np.number) else shorten(str(value), 16)

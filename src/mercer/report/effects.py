"""What the inputs do to the answer: the mean answer along each of them, and what single rows owe to theirs.

Shapley values are exact where the model's kernels are sums of products over the inputs and that takes seconds, not
minutes (`mercer.shapley_values`), and else estimated from orders of the columns: in each order, columns of another row
are exchanged one by one for those of the row in question, and what the answer gains is the column's. An order and its
reverse make a pair, each pair beside another row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mercer.explain.shapley import operations, shapley_values
from mercer.forward.relevance import BACKGROUND_ROWS
from mercer.report.section import Figure, Grid, Section
from mercer.report.subject import Subject
from mercer.report.svg import LETTERS, NEGLIGIBLE, Band, Line, bars, chart, short, shortened

#: Inputs and points along each, rows that are averaged, levels of a category.
INPUTS, POINTS, ROWS, LEVELS = 4, 21, 150, 12
#: Rows beside which single ones stand, at least and at most, predictions that an estimate may take, bars of a picture.
FEWEST, BESIDE, PREDICTIONS, BARS = 8, 60, 20_000, 8
#: Multiplications that exact values may take: some ten seconds on one core.
MOST_OPERATIONS = 1e9


def effects_section(subject: Subject) -> Section | None:
    """The mean answer while one column is moved and the others stay as they are (partial dependence)."""
    few = subject.few(ROWS)
    what, answer = followed(few)
    figures, tables, found = [], [], {}
    for j in subject.most_relevant(INPUTS):
        name, column = subject.table.names[j], subject.table.columns[j]
        if subject.table.is_numeric(j):
            known = column[np.isfinite(column)]
            if len(known) < 2 or np.ptp(known) == 0:
                continue
            grid = np.unique(np.quantile(known, np.linspace(0.01, 0.99, POINTS)))
            answers = np.stack([answer(few.table.with_value(j, value)) for value in grid])
            mean, (low, high) = answers.mean(1), np.quantile(answers, [0.1, 0.9], axis=1)
            change = float(np.ptp(mean))
            says = (
                f"{what.capitalize()} along {name}: the mean changes by {short(change)}; 80 % of rows are in the band."
            )
            marks: list[Band | Line] = [Band(grid, low, high, colour=0), Line(grid, mean, colour=0, dots=True)]
            figures.append(Figure(chart(marks, name, what, says, dates=subject.table.is_date(j)), says))
            found[name] = {"at": grid, "mean": mean, "low": low, "high": high}
        else:
            levels, first, counts = np.unique(column.astype(str), return_index=True, return_counts=True)
            order = np.argsort(-counts, kind="stable")[:LEVELS]
            values = [subject.table.cell(int(first[k]), j) for k in order]
            mean = np.array([answer(few.table.with_value(j, value)).mean() for value in values])
            rows = [[str(levels[k]), int(counts[k]), float(m)] for k, m in zip(order, mean, strict=True)]
            tables.append(Grid(f"{what.capitalize()} by {name}", ["level", "rows", "mean answer"], rows))
            found[name] = {"at": levels[order], "mean": mean}
    if not found:
        return None
    words = [f"{what.capitalize()}, while one column is moved and the others of {few.table.n_rows} test rows stay."]
    return Section("effects", "What the inputs do", words, {"answer": what, "inputs": found}, tables, figures)


def followed(subject: Subject) -> tuple[str, Any]:
    """What is followed, and a function of rows to one number each: the first output, or a probability."""
    model, classes = subject.model, subject.classes
    if classes is None:
        return f"predicted {subject.outputs[0]}", lambda X: np.asarray(model.predict(X)).reshape(len(X), -1)[:, 0]
    k = len(classes) - 1
    if hasattr(model, "predict_proba"):
        return f"probability of {classes[k]}", lambda X: np.asarray(model.predict_proba(X))[:, k]
    return f"share of {classes[k]}", lambda X: (np.asarray(model.predict(X)) == classes[k]).astype(float)


@dataclass(frozen=True)
class Owed:
    """What each of some rows owes to its columns (rows × columns), of which answer, less its mean over which rows."""

    values: np.ndarray
    answer: str
    beside: str
    words: str
    size: float  # of the answers, beside which values may be rounding


def rows_section(subject: Subject) -> Section | None:
    """What single rows owe to each column."""
    if subject.seen is not subject.table:
        return None
    rows = chosen_rows(subject)
    at = list(rows.values())
    owed = _exact(subject, at) or estimated(subject, at)
    table, figures, numbers = subject.table, [], {}
    for (why, row), value in zip(rows.items(), owed.values, strict=True):
        order = np.argsort(-np.abs(value))[:BARS]
        value = np.where(np.abs(value) < NEGLIGIBLE * (np.abs(value).max() + owed.size), 0.0, value)
        shown = [table.said(j, table.columns[j][row]) for j in order]
        cut = [shortened(table.names[j], max(LETTERS - len(one) - 3, 4)) for j, one in zip(order, shown, strict=True)]
        labels = [f"{name} = {value}" for name, value in zip(cut, shown, strict=True)]  # of long names the value stays
        says = (
            f"Row {row} ({why}; observed {_shown(subject.y[row])}, predicted {_shown(subject.predicted[row])}): "
            f"{table.names[order[0]]} = {shown[0]} counts for {short(value[order[0]])}."
        )
        figures.append(Figure(bars(labels, value[order], "what the column adds", says, signed=True), says))
        numbers[str(row)] = {"chosen_as": why, "values": dict(zip(table.names, value, strict=True))}
    words = [
        f"Shapley values divide what the model says of a row ({owed.answer}), less its mean over {owed.beside}, among "
        f"the columns. {owed.words}"
    ]
    return Section("shapley", "Single rows", words, {"answer": owed.answer, "rows": numbers}, figures=figures)


def chosen_rows(subject: Subject) -> dict[str, int]:
    """Rows worth a look: typical, extreme and the one the model errs in most."""
    answer = followed(subject)[1](subject.table.X)
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


def _exact(subject: Subject, at: Sequence[int]) -> Owed | None:
    part = subject.table.part(np.asarray(at))
    try:
        if operations(subject.final, len(at) + BACKGROUND_ROWS) > MOST_OPERATIONS:
            return None
        found = shapley_values(subject.final, part.X)
    except (ValueError, TypeError, AttributeError):  # kernels, or models, that have none in closed form
        return None
    values, size = found.values, float(np.abs(found.predictions()).max())
    if values.shape[1] != len(part.names):  # of coordinates, not of the table's columns
        return None
    classes = subject.classes
    if values.ndim == 3:
        values = values[..., 0 if classes is None else -1]
    what = f"predicted {subject.outputs[0]}" if classes is None else f"decision value of {classes[-1]}"
    return Owed(values, what, "training rows", "", size)


def estimated(subject: Subject, at: Sequence[int]) -> Owed:
    """Shapley values of any model from orders of the columns; exact where columns do not interact."""
    what, answer = followed(subject)
    table, rng, D = subject.table, np.random.default_rng(0), len(subject.table.names)
    pairs = int(np.clip(PREDICTIONS // (2 * len(at) * (D + 1)), FEWEST, min(BESIDE, table.n_rows)))
    beside = np.linspace(0, table.n_rows - 1, pairs).astype(int)
    drawn = [rng.permutation(D) for _ in range(pairs)]
    orders = np.stack([order for one in drawn for order in (one, one[::-1])])  # each pair beside its own row
    others = np.repeat(beside, 2)
    place = np.argsort(orders, axis=1)  # of each column in its order
    taken = place[:, None, :] < np.arange(D + 1)[None, :, None]  # columns exchanged after so many steps
    values, errors, size = [], [], 0.0
    for row in at:
        mixed = np.where(taken, row, others[:, None, None]).reshape(-1, D)
        answers = answer(table.mixed(mixed)).reshape(len(orders), D + 1)
        gains, size = np.diff(answers, axis=1), max(size, float(np.abs(answers).max()))
        each = np.take_along_axis(gains, place, axis=1).reshape(pairs, 2, D).mean(1)
        values.append(each.mean(0))
        errors.append(each.std(0) / np.sqrt(pairs))
    words = (
        f"Estimated from {len(orders)} orders of the columns beside {pairs} other test rows; another choice of rows "
        f"and orders would change a value by {short(float(np.max(errors)))} at most, one standard error."
    )
    return Owed(np.stack(values), what, "test rows", words, size)


def _shown(value: Any) -> str:
    if isinstance(value, np.ndarray):
        value = value.ravel()[0]
    return short(float(value)) if isinstance(value, float | int | np.number) else shortened(str(value), 16)

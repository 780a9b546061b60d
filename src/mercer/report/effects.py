"""What the inputs do to the answer: the mean answer along each of them, and what single rows owe to each column."""

from __future__ import annotations

from typing import Any

import numpy as np

from mercer.explain.shapley import shapley_values
from mercer.report.section import Figure, Grid, Section
from mercer.report.subject import Subject
from mercer.report.svg import Band, Line, bars, chart, short, shortened

#: Inputs and points along each, rows that are averaged, levels of a category, rows beside which single ones stand.
INPUTS, POINTS, ROWS, LEVELS, BESIDE = 4, 21, 150, 12, 60


def effects_section(subject: Subject) -> Section | None:
    """The mean answer while one column is moved and the others stay as they are (partial dependence)."""
    few = subject.few(ROWS)
    what, answer = _answer(few)
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
            figures.append(Figure(chart(marks, name, what, says), says))
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


def _answer(subject: Subject) -> tuple[str, Any]:
    """What is followed, and a function of rows to one number each: the first output, or a probability."""
    model, classes = subject.model, subject.classes
    if classes is None:
        return f"predicted {subject.outputs[0]}", lambda X: np.asarray(model.predict(X)).reshape(len(X), -1)[:, 0]
    k = len(classes) - 1
    if hasattr(model, "predict_proba"):
        return f"probability of {classes[k]}", lambda X: np.asarray(model.predict_proba(X))[:, k]
    return f"share of {classes[k]}", lambda X: (np.asarray(model.predict(X)) == classes[k]).astype(float)


def chosen_rows(subject: Subject) -> dict[str, int]:
    """Rows worth a look: typical, extreme and the one the model errs in most."""
    answer = _answer(subject)[1](subject.table.X)
    size = np.abs(subject.residuals[:, 0])
    order = np.argsort(answer, kind="stable")
    wanted = {
        "in the middle": int(order[len(order) // 2]),
        "smallest answer": int(order[0]),
        "largest answer": int(order[-1]),
        "largest error": int(size.argmax()),
    }
    rows: dict[str, int] = {}
    for name, row in wanted.items():
        if row not in rows.values():
            rows[name] = row
    return rows


def shapley_section(subject: Subject) -> Section | None:
    """What single rows owe to each column: exact Shapley values, where the model's kernels allow them."""
    if subject.seen is not subject.table:
        return None
    rows = chosen_rows(subject)
    beside = np.linspace(0, subject.table.n_rows - 1, BESIDE).astype(
        int
    )  # rows whose mean the chosen are compared with
    part = subject.table.part(np.r_[list(rows.values()), beside])
    try:
        values = _first_output(shapley_values(subject.final, part.X).centred().values)[: len(rows)]
    except (ValueError, TypeError, AttributeError) as refusal:
        return Section("shapley", "Single rows", [f"Shapley values: {refusal}"])
    figures, numbers = [], {}
    for (why, row), value in zip(rows.items(), values, strict=True):
        order = np.argsort(-np.abs(value))[:8]
        i = list(rows).index(why)
        labels = [f"{part.names[j]} = {_shown(part.columns[j][i])}" for j in order]
        says = (
            f"Row {row} ({why}; observed {_shown(subject.y[row])}, predicted {_shown(subject.predicted[row])}): "
            f"{labels[0]} counts for {short(value[order[0]])}."
        )
        figures.append(Figure(bars(labels, value[order], "what the column adds", says, signed=True), says))
        numbers[str(row)] = {"chosen_as": why, "values": dict(zip(part.names, value, strict=True))}
    words = ["Shapley values divide what the model says of a row, beside the mean of all, among its columns."]
    return Section("shapley", "Single rows", words, {"rows": numbers}, figures=figures)


def _first_output(values: np.ndarray) -> np.ndarray:
    return values[..., 0] if values.ndim == 3 else values


def _shown(value: Any) -> str:
    if isinstance(value, np.ndarray):
        value = value.ravel()[0]
    return short(float(value)) if isinstance(value, float | int | np.number) else shortened(str(value), 16)

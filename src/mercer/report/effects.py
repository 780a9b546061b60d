"""What the inputs do to the answer: the mean answer along each of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from mercer.report.section import Figure, Grid, Section
from mercer.report.subject import Subject
from mercer.report.svg import Band, Line, chart, short

#: Inputs and points along each, rows that are averaged, levels of a category.
INPUTS, POINTS, ROWS, LEVELS = 4, 21, 150, 12


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


def followed(subject: Subject) -> tuple[str, Any]:
    """What is followed, and a function of rows to one number each: the first output, or a probability."""
    model, classes = subject.model, subject.classes
    if classes is None:
        return f"predicted {subject.outputs[0]}", lambda X: np.asarray(model.predict(X)).reshape(len(X), -1)[:, 0]
    k = len(classes) - 1
    if hasattr(model, "predict_proba"):
        return f"probability of {classes[k]}", lambda X: np.asarray(model.predict_proba(X))[:, k]
    return f"share of {classes[k]}", lambda X: (np.asarray(model.predict(X)) == classes[k]).astype(float)

"""Distance of rows from what the model has learned from: the nearest basis vector, or the nearest local model.

Distances are those of `predict_uncertainty`: a row is *outside* if its distance is above 1, where 99 in 100 basis
vectors have another one nearer than 1, and for mixtures 99 in 100 training rows. A kernel model can only guess there.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mercer.base.uncertainty import WITHIN
from mercer.data import spaced_rows
from mercer.preprocessing.read import read_new
from mercer.reporting.section import Section
from mercer.reporting.subject import Subject
from mercer.reporting.svg import Line, chart, short


def distances(subject: Subject) -> np.ndarray | None:
    """`predict_uncertainty(X).distance` of the test rows; None where the model has none."""
    model = subject.estimator
    if not hasattr(model, "_relative_distances"):
        return None
    try:
        found: np.ndarray = model._relative_distances(read_new(model, subject.inner_table.X))
    except ValueError:  # a mixture from a file of an earlier version
        return None
    return None if np.isnan(found).all() else found


def _rows(subject: Subject) -> np.ndarray:
    """The test rows as the estimator reads them."""
    source = read_new(subject.estimator, subject.inner_table.X)
    return source.take(np.arange(source.n_rows)).cpu().numpy()


def learned_share(subject: Subject) -> float:
    """The share of test rows that are basis vectors of the model; zero where the test rows repeat themselves."""
    model, basis = subject.estimator, np.asarray(getattr(subject.estimator, "basis_", np.empty(0)))
    if basis.ndim != 2 or basis.dtype.kind != "f" or not hasattr(model, "n_features_in_"):
        return 0.0
    rows = _rows(subject)
    if rows.shape[1] != basis.shape[1]:
        return 0.0
    keys = [row.tobytes() for row in rows.astype(np.float32)]
    known = {row.tobytes() for row in basis.astype(np.float32)}
    repeated = len(set(keys)) < WITHIN * len(keys)
    return 0.0 if repeated else float(np.mean([key in known for key in keys]))


def distance_section(subject: Subject) -> Section | None:
    """The share of test rows that are outside, and the errors inside and outside."""
    far = distances(subject)
    if far is None:
        return None
    what = "local model" if hasattr(subject.estimator, "means_") else "basis vector"
    outside = far > 1
    share = float(outside.mean())
    size = np.abs(subject.residuals).mean(1)
    words = [
        f"{share:.1%} of the test rows lie outside of what the model has learned from: farther from every {what} than "
        + ("99 in 100 of these are from each other." if what == "basis vector" else "99 in 100 training rows.")
    ]
    numbers: dict[str, Any] = {"extrapolation_share": share, "median_distance": float(np.median(far))}
    if 0 < share < 1:
        inside_error, outside_error = float(size[~outside].mean()), float(size[outside].mean())
        numbers |= {"error_inside": inside_error, "error_outside": outside_error}
        kind = "Wrong classes" if subject.classes is not None else "Mean absolute error"
        words.append(f"{kind}: {short(inside_error)} inside, {short(outside_error)} outside.")
        rows = np.argsort(-far)[:5]
        words.append("The farthest test rows: " + ", ".join(str(int(i)) for i in rows) + ".")
        numbers["farthest_rows"] = rows
    order = np.sort(far)
    portion = (np.arange(len(order)) + 0.5) / len(order)
    keep = spaced_rows(np.ones(len(order)), 200)
    caption = f"Share of test rows nearer to a {what} than each distance; {share:.1%} lie beyond 1, the usual distance."
    marks = [
        Line(order[keep], portion[keep], "test rows", 0),
        Line(np.ones(2), np.array([0.0, 1.0]), "usual distance", 1, dashed=True),
    ]
    figure = chart(marks, f"distance to the nearest {what}", "share of test rows", caption)
    return Section("distance", "Far from what was learned", words, numbers, figures=[figure])

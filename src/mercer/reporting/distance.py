"""Distance of rows from what the model has learned from: the nearest basis vector, or the nearest local model.

Distances are those that the kernel sees. A row is *outside* if it lies farther from every basis vector than 99 in 100
basis vectors lie from their nearest other; for mixtures, if it lies outside the 99 % ellipsoid of every component. A
kernel model can only guess there.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from scipy.stats import chi2

from mercer.base.uncertainty import WITHIN
from mercer.forward.uncertainty import basis_distances
from mercer.kernels import Kernel
from mercer.preprocessing.inputs import InputMap
from mercer.preprocessing.read import read_new
from mercer.reporting.section import Figure, Section
from mercer.reporting.subject import Subject
from mercer.reporting.svg import Line, chart, short


def distances(subject: Subject) -> tuple[np.ndarray, float, str] | None:
    """Each test row's distance from the nearest vector or component, the reach, and which of the two it is."""
    model = subject.estimator
    if hasattr(model, "means_") and hasattr(model, "covariances_"):
        return _from_components(subject)
    kernel, inputs, basis = _coordinates(model)
    if basis is None:
        return None
    found = basis_distances(kernel, inputs, basis, _rows(subject))
    return None if found is None else (*found, "basis vector")


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


def _coordinates(model: Any) -> tuple[Any, Any, np.ndarray | None]:
    """Kernel, inputs and basis vectors as the kernel sees them, of the first ensemble member."""
    if getattr(model, "expansions_", ()):
        first = model.expansions_[0]
        return first.kernel, first.inputs, np.asarray(first.basis, dtype=np.float64)
    kernel, inputs, basis = (getattr(model, name, None) for name in ("kernel_", "inputs_", "basis_"))
    if not isinstance(kernel, Kernel) or not isinstance(inputs, InputMap) or basis is None:
        return None, None, None
    return kernel, inputs, inputs.encode(torch.as_tensor(np.asarray(basis, dtype=np.float64))).numpy()


def _from_components(subject: Subject) -> tuple[np.ndarray, float, str]:
    """Mahalanobis distances from the nearest component of a mixture."""
    model, X = subject.estimator, _rows(subject).astype(np.float64)
    nearest = np.full(len(X), np.inf)
    for mean, covariance in zip(np.atleast_2d(model.means_), np.asarray(model.covariances_), strict=True):
        full = np.diag(covariance) if covariance.ndim == 1 else covariance
        z = np.linalg.solve(np.linalg.cholesky(full), (X - mean).T)
        nearest = np.minimum(nearest, np.sqrt((z**2).sum(0)))
    return nearest, float(np.sqrt(chi2.ppf(WITHIN, X.shape[1]))), "local model"


def distance_section(subject: Subject) -> Section | None:
    """The share of test rows that are outside, and the errors inside and outside."""
    found = distances(subject)
    if found is None:
        return None
    far, reach, what = found
    outside = far > reach
    share = float(outside.mean())
    size = np.abs(subject.residuals).mean(1)
    words = [
        f"{share:.1%} of the test rows lie outside of what the model has learned from: farther from every {what} than "
        + ("99 in 100 of these are from each other." if what == "basis vector" else "99 in 100 of its rows.")
    ]
    numbers: dict[str, Any] = {"extrapolation_share": share, "reach": reach, "median_distance": float(np.median(far))}
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
    keep = np.unique(np.linspace(0, len(order) - 1, 200).astype(int))
    caption = (
        f"Share of test rows nearer than each distance to a {what}; {share:.1%} lie beyond the reach of {short(reach)}."
    )
    marks = [
        Line(order[keep], portion[keep], "test rows", 0),
        Line(np.array([reach, reach]), np.array([0.0, 1.0]), "reach", 1, dashed=True),
    ]
    drawn = chart(marks, f"distance to the nearest {what}", "share of test rows", caption)
    return Section("distance", "Far from what was learned", words, numbers, figures=[Figure(drawn, caption)])

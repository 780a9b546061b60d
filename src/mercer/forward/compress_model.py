"""`compress`: a fitted model with fewer basis vectors."""

from __future__ import annotations

import copy
import math
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from mercer.clock import StopReason
from mercer.data import RowSource, SparseRows, spaced_rows
from mercer.engine import Plan, Sample, make_plan
from mercer.forward.compress import CompressionPath, GrowingBasis, JointSizes, Judges, Sizes, grown
from mercer.forward.compress_members import (
    FEWEST_ROWS,
    JUDGING_SHARE,
    LARGEST_SHARE,
    Compressed,
    largest_size,
)
from mercer.forward.estimator import ForwardEstimator
from mercer.forward.expansion import Expansion
from mercer.forward.problem import Problem
from mercer.parts import require, require_integer, require_number
from mercer.preprocessing.inputs import PositiveTargets
from mercer.preprocessing.read import read_new

Model = TypeVar("Model", bound=ForwardEstimator)
#: The least penalty in the metric in which functions are projected.
LEAST_PENALTY = 1e-6


def compress(model: Model, X: Any, y: Any, n_basis: int | str = "auto", tol: float = 0.01) -> Model:
    """A copy of a fitted model with fewer basis vectors, chosen among the rows of a table.

    Each expansion of the model is projected on the basis vectors chosen for it. A fifth of the rows, at most 500, judge
    the size and are never basis vectors. Estimators with the parameter `n_basis` compress exact solutions in `fit`
    already; this function is for other sizes, and for models that were loaded or boosted. It takes 3nm² operations for
    m basis vectors among n rows.

    Parameters
    ----------
    model : KernelBoostingRegressor, KernelBoostingClassifier, GreedyKernelRegressor or GreedyKernelClassifier
        A fitted model. It is not changed.
    X : array, frame, tensor, file or row source of n rows
        Rows to choose from, such as those of `fit`.
    y : array
        Their targets. They tell the error of the model; on rows of `fit` it is too small, and more vectors are kept.
    n_basis : int or "auto", default "auto"
        Number of basis vectors of each expansion. "auto" takes the fewest within `tol`; the model is returned as it is
        if these are not clearly fewer than it has.
    tol : float, default 0.01
        The share by which the root mean squared error may rise at most (`mercer.forward.compress`).

    Returns
    -------
    estimator
        The compressed model. `basis_indices_` refers to the rows of `X`, `compression_reason_` says what was done.
        Intervals widen by the rise of the error if that exceeds `tol`.

    Examples
    --------
    >>> import numpy as np
    >>> import mercer
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-2, 2, (600, 2))
    >>> y = np.sin(2 * X[:, 0]) * X[:, 1] + 0.2 * rng.normal(size=600)
    >>> model = mercer.KernelBoostingRegressor(kernel="matern32", n_basis=None, random_state=0).fit(X, y)
    >>> small = mercer.compress(model, X, y, n_basis=50)
    >>> len(model.basis_), len(small.basis_), bool(np.corrcoef(model.predict(X), small.predict(X))[0, 1] > 0.99)
    (600, 50, True)
    """
    wanted = "a fitted boosted or greedy kernel model"
    require(isinstance(model, ForwardEstimator), "model", wanted, type(model).__name__)
    check_is_fitted(model)
    require_number("tol", tol, "a positive number", 0.0)
    given = not isinstance(n_basis, str)
    if given:
        require_integer("n_basis", n_basis)
    require(given or n_basis == "auto", "n_basis", "an integer or 'auto'", n_basis)
    positive = isinstance(model.targets_, PositiveTargets)
    require(not positive, "model", "of a loss without log link; n_basis of fit compresses it", model.loss)
    free = getattr(model, "monotonic_cst", None) is None
    require(free, "model", "without monotonic_cst, which fewer basis vectors would not keep", "a monotone model")
    require(not model._pairwise, "model", "of a kernel that is not precomputed", "precomputed kernel values")
    source = read_new(model, X)
    require(not isinstance(source, SparseRows), "X", "dense", "a wide sparse matrix")
    table = JudgedTable(model, source, y)
    paths = [table.path(part, int(n_basis) if given else None, tol) for part in model.expansions_]
    require(all(path.sizes for path in paths), "model", "of functions that are not zero", "a constant")
    curve = JointSizes(paths, [1.0] * len(paths)).curve(math.inf if given else tol)
    at = curve[0] if given else [at for at in curve if at.rise <= tol][-1]
    made = copy.copy(model)
    before = sum(len(part.basis) for part in model.expansions_)
    if None in at.sizes:
        reason = f"all {before} basis vectors are kept: fewer may raise the error by more than {100 * tol:g} %"
        made.__dict__ |= Compressed([], reason).attributes()
        return made
    reason = f"{at.n_basis} of {before} basis vectors: the error rises by at most about {100 * at.rise:.2g} %"
    made.__dict__ |= Compressed([], reason, curve).attributes() | table.attributes(model, paths, at)
    for name in ("_stages", "_statistics"):
        made.__dict__.pop(name, None)
    if getattr(model, "intervals_", None) is not None and at.rise > tol:
        made.__dict__["intervals_"] = made.__dict__["intervals_"].widened(1 + at.rise)
    return made


class JudgedTable:
    """Rows and coded targets, some of which judge, and the model's error there."""

    def __init__(self, model: ForwardEstimator, source: RowSource, y: Any) -> None:
        self.source, self.lam = source, max(float(model.regularization_), LEAST_PENALTY)
        coded = np.asarray(model.targets_.encode(np.asarray(y)), dtype=np.float64)
        require(len(coded) == source.n_rows, "y", f"of the length of X, {source.n_rows}", len(coded))
        plan = make_plan(source.n_rows, model.device, "float64", model.memory_limit)
        self.plan: Plan = plan
        self.y = torch.as_tensor(coded, device=plan.device)
        n_judges = min(FEWEST_ROWS, int(JUDGING_SHARE * source.n_rows))
        require(n_judges >= 10, "X", f"of at least {math.ceil(10 / JUDGING_SHARE)} rows", source.n_rows)
        self.places = torch.as_tensor(spaced_rows(np.ones(source.n_rows), n_judges), device=plan.device)
        self.weight = torch.ones(source.n_rows, dtype=torch.float64, device=plan.device)
        self.weight[self.places] = 0.0
        self.values = {id(part): part.product(source, plan).double() for part in model.expansions_}
        self.error = (self.y - sum(self.values.values()))[self.places]

    def path(self, expansion: Expansion, size: int | None, tol: float) -> CompressionPath:
        """The expansion projected on growing numbers of rows."""
        f = self.values[id(expansion)]
        known = f[self.places]
        judges = Judges(self.places, known, known, known + self.error, torch.ones_like(self.error[:, 0]), root=True)
        sample = Sample(expansion.inputs.rows(self.source, self.plan), f, self.weight, self.plan)
        problem = Problem(sample, expansion.kernel, self.lam)
        rows = torch.arange(len(f), device=f.device)
        n_free = int(problem.distinct.sum())
        most = largest_size(problem, size)
        most = min(most, n_free) if size is not None else min(most, int(LARGEST_SHARE * len(expansion.basis)))
        require(most >= 1, "X", "of more different rows", n_free)
        return grown(
            GrowingBasis(problem, rows, f, problem.distinct, most, projects=True), judges, 0.0 if size else tol
        )

    def attributes(self, model: ForwardEstimator, paths: list[CompressionPath], at: Sizes) -> dict[str, Any]:
        """The fitted attributes of a model of these sizes."""
        sizes = zip(model.expansions_, paths, at.sizes, strict=True)
        expansions = tuple(self._expansion(part, path, size or 0) for part, path, size in sizes)
        rows = paths[0].rows[: at.sizes[0]].cpu().numpy()
        return {
            "expansions_": expansions,
            "basis_indices_": rows,
            "basis_": self.source.take(rows).cpu().numpy(),
            "dual_coef_": expansions[0].weights,
            "stop_reason_": StopReason.joined([model.stop_reason_, "basis vectors were compressed afterwards"]),
            "_warm": None,
        }

    def _expansion(self, old: Expansion, path: CompressionPath, size: int) -> Expansion:
        """The expansion of the first basis vectors of a path."""
        rows: Tensor = old.inputs.rows(self.source, self.plan).take(path.rows[:size])
        return replace(old, basis=rows.double().cpu().numpy(), weights=path.weights(size).cpu().numpy())

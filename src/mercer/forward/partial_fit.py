r"""`partial_fit`: new rows for a fitted model, whose kernels, basis vectors and penalties stay.

Ridge regression on m basis vectors sees its rows only through :math:`\sum_n w_n\varphi_n\varphi_n^\top` and
:math:`\sum_n w_n\varphi_n y_n^\top`, where :math:`\varphi = B^\top k(x)` are whitened kernel values
(`mercer.linalg.whitening`).
New rows add to both sums, and the weights that solve the sum are those of a refit on all rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Self

import numpy as np
import torch
from sklearn.utils.metaestimators import available_if
from torch import Tensor

from mercer.base.estimator import keep
from mercer.base.parameters import BOOL
from mercer.data import RowSource, SparseRows
from mercer.engine import KernelMatrix, Sample
from mercer.forward.expansion import Expansion, Objective
from mercer.forward.influence import training_sample
from mercer.forward.solve.polish import in_float64
from mercer.forward.span import novel
from mercer.forward.task import FittedMember
from mercer.kernels import Kernel
from mercer.linalg import cholesky, inverse_factor, whitening
from mercer.losses import Loss
from mercer.parts import require, warn
from mercer.preprocessing.read import read_new

#: Share of a kernel's norm outside the span of the basis vectors beyond which a row is far from them, and the share of
#: far rows in a batch that deserves a warning.
FAR, FAR_ROWS = 0.5, 0.1


@dataclass(frozen=True)
class RidgeStatistics:
    """The map B (m × r) of basis vectors, and the sums Σ wφφᵀ (r × r) and Σ wφy (r × p) over all rows so far."""

    map: np.ndarray
    gram: np.ndarray
    cross: np.ndarray

    @classmethod
    def of(cls, part: FittedMember) -> RidgeStatistics:
        """The sums over the rows of a fit."""
        basis, kernel = part.final.basis.double(), part.final.kernel
        problem = in_float64(part.fit.problem)
        B = whitening(kernel(basis, basis), part.fit.problem.plan.dtype).contiguous().cpu().numpy()
        empty = cls(B, np.zeros((B.shape[1], B.shape[1])), np.zeros((B.shape[1], problem.n_outputs)))
        return empty.plus(problem.sample, kernel, basis)

    def plus(self, sample: Sample, kernel: Kernel, basis: Tensor) -> RidgeStatistics:
        """The sums with further rows."""
        B = torch.as_tensor(self.map).to(basis)
        gram, cross = KernelMatrix(sample.rows, kernel, basis, sample.plan).moments(sample.Y, sample.weight, B)
        return replace(self, gram=self.gram + gram.cpu().numpy(), cross=self.cross + cross.cpu().numpy())

    def weights(self, lam: float) -> np.ndarray:
        """The weights of the basis vectors (m × p) that minimise Σ w(y − f)² + λ‖f‖²."""
        gram = torch.as_tensor(self.gram + lam * np.eye(len(self.gram)))
        return self.map @ torch.cholesky_solve(torch.as_tensor(self.cross), cholesky(gram)[0]).numpy()

    def outside(self, rows: RowSource, kernel: Kernel, basis: Tensor, sample: Sample) -> np.ndarray:
        """The share of each row's kernel norm k(x, x) that lies outside the span of the basis vectors."""
        B = torch.as_tensor(self.map).to(basis)
        inside = KernelMatrix(rows, kernel, basis, sample.plan).product(B).square().sum(1)
        whole = kernel.diag(rows.take(np.arange(rows.n_rows)).to(basis))
        return (1 - inside / whole.clamp(min=torch.finfo(torch.float64).tiny)).cpu().numpy()

    def grown(self, kernel: Kernel, basis: Tensor, rows: Tensor) -> tuple[RidgeStatistics, np.ndarray]:
        """The statistics with further basis vectors, and which of the given rows these are.

        Rows enter by the largest share outside the span, until none has more than `FAR` there. The new coordinates are
        orthogonal to the old ones, and sums over earlier rows are zero along them.
        """
        B = torch.as_tensor(self.map).to(basis)
        inside = kernel(rows, basis) @ B
        rest, whole = kernel(rows, rows) - inside @ inside.T, kernel.diag(rows)
        chosen = novel(rest, whole, FAR)
        C = inverse_factor(rest[chosen][:, chosen])
        corner = -B @ (inside[chosen].T @ C)
        new_map = torch.cat([torch.cat([B, corner], 1), torch.cat([C.new_zeros(len(C), B.shape[1]), C], 1)])
        padding = (0, len(chosen))
        gram, cross = np.pad(self.gram, (padding, padding)), np.pad(self.cross, (padding, (0, 0)))
        return RidgeStatistics(new_map.contiguous().cpu().numpy(), gram, cross), chosen.numpy()


def _is_updatable(estimator: Any) -> bool:
    if not estimator.updatable:
        raise AttributeError(f"updatable must be True before fit for partial_fit, got {estimator.updatable!r}")
    return True


@dataclass(eq=False, repr=False, kw_only=True)
class PartialFitMixin:
    """The method `partial_fit` of boosted and greedy models.

    Parameters
    ----------
    updatable : bool, default False
        Whether the model keeps what `partial_fit` needs: 2m² numbers for m basis vectors of each kernel. The loss is
        squared then, and boosted models have no refinement stages.
    """

    updatable: Annotated[bool, BOOL] = False

    expansions_: ClassVar[tuple[Expansion, ...]]
    basis_: ClassVar[np.ndarray]
    basis_indices_: ClassVar[np.ndarray]
    targets_: ClassVar[Any]
    _is_classifier: ClassVar[bool]
    _objectives: ClassVar[tuple[Objective, ...]]
    _statistics: ClassVar[tuple[RidgeStatistics, ...]]

    def _require_updatable(self, loss: Loss, rows: RowSource) -> None:
        """Refuse `updatable` with parameters whose weights do not follow from the statistics."""
        require(loss.quadratic, "updatable", "False unless the loss is squared", True)
        require(not getattr(self, "_pairwise", False), "updatable", "False where the kernel is precomputed", True)
        require(not isinstance(rows, SparseRows), "updatable", "False where X is a wide sparse matrix", True)
        balanced = isinstance(getattr(self, "class_weight", None), str)
        require(not balanced, "class_weight", "None or a dict where updatable is True", "balanced")

    def _kept_statistics(self, parts: list[FittedMember]) -> dict[str, Any]:
        return {"_statistics": tuple(RidgeStatistics.of(part) for part in parts)} if self.updatable else {}

    @available_if(_is_updatable)  # type: ignore[untyped-decorator]
    def partial_fit(
        self, X: Any, y: Any, sample_weight: Any = None, *, classes: Any = None, grow: bool = False
    ) -> Self:
        """Add rows to a fitted model; needs ``updatable=True`` in `fit`. A model that is not fitted yet is fitted.

        Kernels, basis vectors, penalties, codes of columns and the scale of the targets stay; the weights are those of
        a refit on all rows so far. A batch of n rows takes nm² + m³/3 operations for m basis vectors, and the earlier
        rows are not needed. Rows count as much as those of `fit`, by their `sample_weight`. Intervals and
        probabilities stay calibrated as by `fit`. A warning tells if many rows are far from the basis vectors: they
        cannot be learned, and call for a new fit, or for ``grow=True``, which makes some of them basis vectors
        (`basis_indices_` of -1). Earlier rows count as if they had no part in these beyond the other basis vectors.
        All classes must be in the rows of `fit`; `classes`, which some tools of scikit-learn pass, may only name these.

        Examples
        --------
        >>> import numpy as np
        >>> from mercer import KernelBoostingRegressor
        >>> rng = np.random.default_rng(0)
        >>> X = rng.uniform(-2, 2, (2000, 2))
        >>> y = np.sin(2 * X[:, 0]) + X[:, 1] + 0.5 * rng.normal(size=2000)
        >>> model = KernelBoostingRegressor(kernel="gaussian", updatable=True, random_state=0).fit(X[:200], y[:200])
        >>> before = model.score(X[1500:], y[1500:])
        >>> for start in range(200, 1500, 100):
        ...     model = model.partial_fit(X[start : start + 100], y[start : start + 100])
        >>> bool(model.score(X[1500:], y[1500:]) > before)
        True
        """
        require(isinstance(grow, bool), "grow", "True or False", grow)
        new = not hasattr(self, "expansions_")
        if new:
            self.fit(X, y, sample_weight)  # type: ignore[attr-defined]
        if self._is_classifier and classes is not None:
            self.targets_.require_known(np.asarray(classes), "classes")
        if new:
            return self
        kept = hasattr(self, "_statistics")
        require(kept, "the model", "fitted with updatable=True for partial_fit", "one without statistics")
        source = read_new(self, X)
        sample = training_sample(self, source, y, sample_weight, ("X", "y"))
        fitted = zip(self.expansions_, self._objectives, self._statistics, strict=True)
        parts = [_Updated.by(sample, grow, *one) for one in fitted]
        if not grow:
            _warn_of_far_rows(np.min([part.outside for part in parts], axis=0))
        first, attributes = parts[0], {name: vars(self)[name] for name in vars(self)["_kept"]}
        joined = source.take(first.joined).cpu().numpy()
        attributes |= {
            "expansions_": tuple(part.expansion for part in parts),
            "_objectives": tuple(part.objective for part in parts),
            "_statistics": tuple(part.statistics for part in parts),
            "dual_coef_": first.expansion.weights,
            "basis_": np.concatenate([self.basis_, joined.astype(self.basis_.dtype)]),
            "basis_indices_": np.append(self.basis_indices_, np.full(len(joined), -1)),
        }
        keep(self, **attributes | {"_stages": None, "_warm": None})
        return self


@dataclass(frozen=True)
class _Updated:
    """An expansion with new rows, the share of each row outside the span of its basis, and rows that joined it."""

    expansion: Expansion
    objective: Objective
    statistics: RidgeStatistics
    outside: np.ndarray
    joined: np.ndarray

    @classmethod
    def by(
        cls, sample: Sample, grow: bool, expansion: Expansion, objective: Objective, statistics: RidgeStatistics
    ) -> _Updated:
        """Add the rows of a table; with `grow`, far ones join the basis vectors."""
        rows, kernel = expansion.inputs.rows(sample.rows, sample.plan), expansion.kernel
        sample = replace(sample, rows=rows, weight=objective.unit * sample.weight)
        basis = torch.as_tensor(expansion.basis).to(sample.Y)
        outside, joined = statistics.outside(rows, kernel, basis, sample), np.arange(0)
        if grow:
            far = np.flatnonzero((outside > FAR) & (sample.weight.cpu().numpy() > 0))
            statistics, chosen = statistics.grown(kernel, basis, rows.take(far).to(basis))
            joined = far[chosen]
            basis = torch.cat([basis, rows.take(joined).to(basis)])
        statistics = statistics.plus(sample, kernel, basis)
        weights = objective.share * statistics.weights(objective.lam)
        expansion = replace(expansion, basis=basis.cpu().numpy(), weights=weights)
        objective = replace(objective, weight=objective.weight + float(sample.weight.sum()))
        return cls(expansion, objective, statistics, outside, joined)


def _warn_of_far_rows(outside: np.ndarray) -> None:
    n_far = int((outside > FAR).sum())
    if n_far > FAR_ROWS * len(outside):
        warn(
            f"{n_far} of {len(outside)} rows are far from all basis vectors, so the model cannot learn from them; fit "
            "it again on old and new rows, or pass grow=True"
        )

"""The empirical kernel map as a transformer: `EmpiricalKernelMap`."""

from __future__ import annotations

from dataclasses import KW_ONLY, replace
from typing import Annotated, Any, Self

import numpy as np
import torch
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from mercer.base.estimator import BaseKernelEstimator, estimator_dataclass
from mercer.base.parameters import NONE, check, integer, number, part_of
from mercer.clock import Clock
from mercer.data import RowSource
from mercer.empirical.coordinates import MappedRows
from mercer.empirical.mapping import EmpiricalMap, empirical_map, mean_distance, resolve_kernels
from mercer.empirical.parameters import ROWS
from mercer.empirical.problem import subset_number
from mercer.engine import Plan, make_plan
from mercer.forward.criteria import Criterion
from mercer.forward.nystroem import select_basis
from mercer.kernels import Kernel
from mercer.parts import require
from mercer.preprocessing.duplicates import merged
from mercer.preprocessing.inputs import InputMap, find_inputs
from mercer.preprocessing.read import TableData, read_new, read_rows
from mercer.preprocessing.validate import host
from mercer.preprocessing.weights import unit_weights
from mercer.progress import with_progress

#: Rows of the first map within a time budget.
FIRST_ROWS = 300
#: Share of the time left that a further map may be expected to take, and the least growth that is worth one.
PRUDENCE, WORTH = 0.5, 1.3
#: Share of the time budget after which a criterion chooses no further row: the rest is for the map.
CHOOSING_SHARE = 0.7
#: Seconds that no clock tells from none.
SHORTEST = 1e-9


@estimator_dataclass
class EmpiricalKernelMap(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseKernelEstimator):
    r"""Coordinates whose inner products are a kernel: exactly on p chosen rows, its Nyström approximation elsewhere.

    .. math:: \Phi(x) = \Lambda^{-1/2} Q^\top [k(x, x_1), \dots, k(x, x_p)]^\top, \qquad K = Q \Lambda Q^\top,

    with the positive eigenvalues of the kernel matrix K of those rows; any linear model may follow.

    Parameters
    ----------
    kernel : a kernel, a name or a function, default "gaussian"
        A radial kernel by name has the mean distance between rows as length-scale.
    subset_size : int, float or None, default 300
        p: a number, a share of the rows, or all of them.
    criterion : str or Criterion, default "random"
        How the rows are chosen: "random", or a criterion of `GreedyKernelRegressor`, which needs targets in `fit`.
    rank : int or None, default None
        Coordinates at most: those of the largest eigenvalues.
    tol : float or None, default None
        Eigenvalues below this share of the largest are dropped; None drops what rounding leaves unknown.
    scale_inputs : bool or "standard", default True
        Whether all columns are standardised; True and "standard" are the same here.
    time_budget : float or None, default None
        Seconds that `fit` may take, everything counted: the map is then made of as many rows as there is time for.
    verbose : bool, default False
        Show a progress bar where rows are chosen by a criterion.
    callbacks : function, several or None, default None
        Called with an `Event` after each row that a criterion chooses; one that returns true ends the choice.

    Attributes
    ----------
    basis_ : ndarray of shape (p, D)
        The rows chosen, in the inputs' own units.
    basis_indices_ : ndarray of shape (p,)
        Where they stand in `X`.
    kernel_ : Kernel
        The kernel used.
    normalization_ : ndarray of shape (p, r)
        What maps kernel values to coordinates.
    inputs_ : InputMap
        How inputs are coded.

    References
    ----------
    H. Xiong, M. N. S. Swamy and M. O. Ahmad, "Optimizing the kernel in the empirical feature space", IEEE Transactions
    on Neural Networks 16 (2005); MEKL13 eqs. 3 and 4.

    Examples
    --------
    >>> import numpy as np
    >>> from mercer import EmpiricalKernelMap
    >>> X = np.random.default_rng(0).normal(size=(50, 3))
    >>> features = EmpiricalKernelMap("gaussian", subset_size=None).fit_transform(X)
    >>> bool(np.allclose((features**2).sum(1), 1.0))
    True
    """

    kernel: Any = "gaussian"
    subset_size: Annotated[int | float | None, ROWS] = 300
    _: KW_ONLY
    criterion: Annotated[Any, part_of(Criterion)] = "random"
    rank: Annotated[int | None, NONE | integer()] = None
    tol: Annotated[float | None, NONE | number(0.0, 1.0, open_high=True)] = None

    @with_progress
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Choose the rows and factor their kernel matrix."""
        check(self)
        budget, rng = Clock(self.time_budget), self._generator()
        given, targets = self._given(X, y, sample_weight)
        plan = make_plan(given.rows.n_rows, self.device, self.dtype, self.memory_limit)
        inputs = find_inputs(given, given.y[:, None], plan, self.scale_inputs, may_bend=False)
        rows = inputs.rows(given.rows, plan)
        kernel = self._kernel(rows, given.weight, plan, rng)
        index = self._rows(given, targets, inputs, kernel, plan, rng, budget)
        index, made = largest_map(kernel, rows, index, plan, budget, self.rank, self.tol)
        return self._keep(
            **given.columns(),
            inputs_=inputs,
            dtype_=str(plan.dtype).removeprefix("torch."),
            kernel_=kernel,
            basis_=given.rows.take(index).cpu().numpy(),
            basis_indices_=given.places(index),
            normalization_=made.coefficients.cpu().contiguous().numpy(),
            _n_features_out=made.rank,
        )

    def _given(self, X: Any, y: Any, sample_weight: Any) -> tuple[TableData, np.ndarray]:
        """The table, equal rows merged, and the targets of all rows."""
        require(self._draws or y is not None, "criterion", "'random' where there are no targets", self.criterion)
        given = read_rows(self, X, sample_weight)
        n, targets = given.rows.n_rows, given.y if y is None else np.asarray(host(y))
        require(targets.shape[:1] == (n,), "y", f"of length {n}", len(targets) if targets.ndim else targets)
        weight, _ = unit_weights(given.weight)
        given, _ = merged(replace(given, weight=weight), given.y[:, None])
        return given, targets

    @property
    def _draws(self) -> bool:
        """Whether the rows are random ones."""
        return isinstance(self.criterion, str) and self.criterion == "random"

    def _rows(
        self,
        given: TableData,
        targets: np.ndarray,
        inputs: InputMap,
        kernel: Kernel,
        plan: Plan,
        rng: np.random.Generator,
        budget: Clock,
    ) -> np.ndarray:
        """Random rows, or those of a criterion of the package on inputs scaled as ours are.

        One at least, be the kernel zero there.
        """
        alive = given.alive
        p = subset_number(self.subset_size, len(alive))
        plan.require_square(p)
        if self._draws:
            return rng.choice(alive, p, replace=False)
        shared = ("device", "dtype", "memory_limit", "verbose", "callbacks")
        options = {name: getattr(self, name) for name in shared}
        options |= {"scale_inputs": False, "random_state": int(rng.integers(2**31))}
        if self.time_budget is not None:
            options["time_budget"] = max(budget.remaining(until=CHOOSING_SHARE), SHORTEST)
        X = inputs.encode(given.rows.take(alive)).cpu().numpy()
        index = select_basis(X, targets[given.places(alive)], kernel, self.criterion, p, **options)
        return alive[index if len(index) else np.array([0])]

    def _kernel(self, rows: RowSource, weight: np.ndarray, plan: Plan, rng: np.random.Generator) -> Kernel:
        """The one kernel, at the mean distance between rows where only its name is given."""
        w = torch.as_tensor(weight, device=plan.device, dtype=plan.dtype)
        kernels = resolve_kernels(self.kernel, mean_distance(rows, w, rng))
        require(len(kernels) == 1, "kernel", "one kernel", self.kernel)
        return kernels[0]

    def transform(self, X: Any) -> np.ndarray:
        """Coordinates of rows `X`, n × r."""
        check_is_fitted(self)
        source = read_new(self, X)
        plan = make_plan(source.n_rows, self.device, self.dtype_, self.memory_limit)
        made = EmpiricalMap(self.kernel_, self.inputs_.few(self.basis_, plan), torch.as_tensor(self.normalization_))
        out = np.empty((source.n_rows, made.rank))

        def visit(where: slice, features: Any) -> None:
            out[where] = features[0].double().cpu().numpy()

        MappedRows(self.inputs_.rows(source, plan), [made], plan).each(visit)
        return out


def largest_map(
    kernel: Kernel,
    rows: RowSource,
    index: np.ndarray,
    plan: Plan,
    budget: Clock,
    rank: int | None = None,
    tol: float | None = None,
) -> tuple[np.ndarray, EmpiricalMap]:
    """The map of these rows or, within a time budget, of as many of the first of them as there is time for."""
    n = len(index) if budget.seconds is None else min(FIRST_ROWS, len(index))
    while True:
        began = budget.elapsed()
        made = empirical_map(kernel, rows.take(index[:n]).to(plan.device), rank, tol, plan.dtype)
        last = max(budget.elapsed() - began, SHORTEST)
        further = (PRUDENCE * budget.remaining() / last) ** (1 / 3)  # the eigenvalues of n rows cost n³
        if n == len(index) or further < WORTH:
            return index[:n], made
        n = min(int(n * further), len(index))

"""The empirical kernel map (MEKL13 eqs. 3 and 4): formula, kernels, and the transformer `EmpiricalKernelMap`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import KW_ONLY, dataclass, replace
from functools import reduce
from numbers import Integral
from operator import add
from typing import Annotated, Any, Self

import numpy as np
import torch
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from mercer.base.estimator import BaseKernelEstimator, estimator_dataclass
from mercer.base.parameters import NONE, check, integer, number, part_of
from mercer.clock import Clock
from mercer.data import RowSource
from mercer.engine import Plan, each_block, make_plan
from mercer.engine.plan import generator
from mercer.forward.criteria import Criterion
from mercer.forward.nystroem import select_basis
from mercer.kernels import Gaussian, Kernel, Linear, Normalized, Precomputed, as_kernel
from mercer.linalg import exact_distances, spectral_map
from mercer.parts import require
from mercer.preprocessing.duplicates import merged
from mercer.preprocessing.inputs import InputMap, find_inputs
from mercer.preprocessing.read import TableData, read_new, read_rows
from mercer.preprocessing.validate import host, unit_weights
from mercer.progress import with_progress

#: Rows of a map: all, a number, or a share.
ROWS = NONE | integer() | number(0.0, 1.0, open_low=True, wanted="a share above 0 and at most 1")
#: Rows from which the mean pairwise distance is estimated: its relative error is then below about 1 %.
DISTANCE_ROWS = 2000
#: Rows of the first map within a time budget.
FIRST_ROWS = 300
#: Share of the remaining time that a larger fit may be expected to take, and the least growth that is worth one.
PRUDENCE, WORTH = 0.5, 1.3
#: Share of the time budget after which a criterion chooses no further row: the rest is for the map.
CHOOSING_SHARE = 0.7
#: Seconds below which no clock can measure.
SHORTEST = 1e-9


@dataclass(frozen=True)
class EmpiricalMap:
    r"""Φ(x) = Λ^{-1/2} Qᵀ [k(x, x_1), …, k(x, x_p)]ᵀ for p basis vectors; make one with `empirical_map`."""

    kernel: Kernel
    basis: Tensor
    #: Q Λ^{-1/2}, p × r, in float64.
    coefficients: Tensor

    @property
    def rank(self) -> int:
        """The number r of coordinates."""
        return self.coefficients.shape[1]

    def columns(self, plan: Plan) -> Callable[[Tensor], Tensor]:
        """Return a function from a block of rows to its coordinates, in the plan's device and precision."""
        tile = self.kernel.columns(self.basis.to(plan.device, plan.dtype))
        coefficients = self.coefficients.to(plan.device, plan.dtype)
        return lambda block: tile(block) @ coefficients


def empirical_map(
    kernel: Kernel, basis: Tensor, rank: int | None = None, tol: float | None = None, dtype: torch.dtype = torch.float64
) -> EmpiricalMap:
    """Make the map of `kernel` on p basis vectors, for tiles of precision `dtype`.

    Eigenvalues above `tol` times the largest are kept, the largest `rank` of them at most. The default `tol` is eps of
    `dtype` and at least p eps of float64: smaller eigenvalues are rounding errors.
    """
    Z = basis.double()
    coefficients, kept = spectral_map(kernel(Z, Z), rank, tol, dtype)
    return EmpiricalMap(kernel, basis, coefficients[:, : int(kept)])


def mean_distance(rows: RowSource, weight: Tensor, rng: np.random.Generator) -> float:
    """Weighted mean of ‖x_i − x_j‖ over all pairs i, j, i = j included; from 2000 random rows of a larger table.

    The result is at least a millionth of the largest distance: a row with nearly all the weight would make it zero.
    """
    alive = weight.nonzero()[:, 0].cpu().numpy()
    if len(alive) > DISTANCE_ROWS:
        alive = np.sort(rng.choice(alive, DISTANCE_ROWS, replace=False))
    X, w = rows.take(alive).double(), weight[torch.as_tensor(alive, device=weight.device)].double()
    apart = exact_distances(X, X)
    mean = max(float(w @ apart @ w / w.sum().square()), 1e-6 * float(apart.max()))
    return mean if mean > 0 else 1.0  # all rows are the same, and any width will do


def resolve_kernels(choice: Any, distance: float) -> list[Kernel]:
    """Kernels from "paper", or a kernel, name or callable, or several; named radial ones at that length-scale.

    "paper" is MEKL13 section 3.1: the normalised linear kernel and Gaussians at the mean distance between rows and at
    a tenth of it.

    >>> resolve_kernels(["gaussian", "linear"], distance=3.0)
    [Gaussian(length_scale=3.0), Linear()]
    >>> len(resolve_kernels("paper", distance=3.0))
    3
    """
    if isinstance(choice, str) and choice == "paper":
        return [Normalized(Linear()), Gaussian(distance), Gaussian(distance / 10)]
    choices = list(choice) if isinstance(choice, Sequence) and not isinstance(choice, str) else [choice]
    require(len(choices) > 0, "kernels", "'paper', a kernel or at least one of them", choice)
    return [_resolve(kernel, distance) for kernel in choices]


def _resolve(choice: Any, distance: float) -> Kernel:
    kernel = as_kernel(choice)
    kernel = deepcopy(kernel) if isinstance(choice, Kernel) else kernel  # a fitted model never shares a parameter
    wanted = "a function of rows: maps are not made of kernel values computed before"
    require(not isinstance(kernel, Precomputed), "a kernel", wanted, choice)
    if isinstance(choice, str) and hasattr(kernel, "length_scale"):
        kernel.length_scale = distance
    return kernel


def mean_kernel(kernels: Sequence[Kernel]) -> Kernel:
    """The mean of kernels, which is all that a fit of f̄ alone uses."""
    return kernels[0] if len(kernels) == 1 else reduce(add, kernels) * (1 / len(kernels))


def subset_number(wanted: Any, n: int) -> int:
    """Count the rows of a subset of n rows: all for None, an integer (at most n), or a share.

    >>> subset_number(None, 50), subset_number(0.1, 50), subset_number(300, 50)
    (50, 5, 50)
    """
    if wanted is None:
        return n
    return min(max(int(wanted) if isinstance(wanted, Integral) else round(float(wanted) * n), 1), n)


def affordable_growth(clock: Clock, seconds: float) -> float:
    """Factor by which work of cubic cost that took `seconds` may grow in the remaining time; 0 if not worth it."""
    growth = (PRUDENCE * clock.remaining() / max(seconds, SHORTEST)) ** (1 / 3)
    return growth if growth >= WORTH else 0.0


@estimator_dataclass
class EmpiricalKernelMap(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseKernelEstimator):
    r"""Map rows to coordinates whose inner products are a kernel, exact on p chosen rows and Nyström elsewhere.

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
        clock, rng = Clock(self.time_budget), generator(self.random_state)
        given, targets = self._given(X, y, sample_weight)
        plan = make_plan(given.rows.n_rows, self.device, self.dtype, self.memory_limit)
        inputs = find_inputs(given, given.y[:, None], plan, self.scale_inputs, may_bend=False)
        rows = inputs.rows(given.rows, plan)
        kernel = self._kernel(rows, given.weight, plan, rng)
        index = self._choose_rows(given, targets, inputs, kernel, plan, rng, clock)
        index, made = largest_map(kernel, rows, index, plan, clock, self.rank, self.tol)
        return self._keep(
            **given.columns(),
            inputs_=inputs,
            dtype_=str(plan.dtype).removeprefix("torch."),
            kernel_=kernel,
            basis_=given.rows.take(index).cpu().numpy(),
            basis_indices_=given.original_indices(index),
            normalization_=made.coefficients.cpu().contiguous().numpy(),
            _n_features_out=made.rank,
        )

    def _given(self, X: Any, y: Any, sample_weight: Any) -> tuple[TableData, np.ndarray]:
        """Read the table, merge duplicates, and keep the targets of all rows."""
        require(self._draws or y is not None, "criterion", "'random' where there are no targets", self.criterion)
        given = read_rows(self, X, sample_weight)
        n, targets = given.rows.n_rows, given.y if y is None else np.asarray(host(y))
        require(targets.shape[:1] == (n,), "y", f"of length {n}", len(targets) if targets.ndim else targets)
        weight, _ = unit_weights(given.weight)
        given, _ = merged(replace(given, weight=weight), given.y[:, None])
        return given, targets

    @property
    def _draws(self) -> bool:
        """Whether the rows are drawn at random."""
        return isinstance(self.criterion, str) and self.criterion == "random"

    def _choose_rows(
        self,
        given: TableData,
        targets: np.ndarray,
        inputs: InputMap,
        kernel: Kernel,
        plan: Plan,
        rng: np.random.Generator,
        clock: Clock,
    ) -> np.ndarray:
        """Choose random rows, or rows by a selection criterion on the scaled inputs; at least one."""
        alive = given.alive
        p = subset_number(self.subset_size, len(alive))
        plan.require_square(p)
        if self._draws:
            return rng.choice(alive, p, replace=False)
        shared = ("device", "dtype", "memory_limit", "verbose", "callbacks")
        options = {name: getattr(self, name) for name in shared}
        options |= {"scale_inputs": False, "random_state": int(rng.integers(2**31))}
        if self.time_budget is not None:
            options["time_budget"] = max(clock.remaining(until=CHOOSING_SHARE), SHORTEST)
        X = inputs.encode(given.rows.take(alive)).cpu().numpy()
        index = select_basis(X, targets[given.original_indices(alive)], kernel, self.criterion, p, **options)
        return alive[index if len(index) else np.array([0])]

    def _kernel(self, rows: RowSource, weight: np.ndarray, plan: Plan, rng: np.random.Generator) -> Kernel:
        """Resolve the kernel; a name gets the mean distance between rows as length-scale."""
        w = torch.as_tensor(weight, device=plan.device, dtype=plan.dtype)
        kernels = resolve_kernels(self.kernel, mean_distance(rows, w, rng))
        require(len(kernels) == 1, "kernel", "one kernel", self.kernel)
        return kernels[0]

    def transform(self, X: Any) -> np.ndarray:
        """Return the coordinates of rows `X`, n × r."""
        check_is_fitted(self)
        source = read_new(self, X)
        plan = make_plan(source.n_rows, self.device, self.dtype_, self.memory_limit)
        made = EmpiricalMap(
            self.kernel_, self.inputs_.kernel_rows(self.basis_, plan), torch.as_tensor(self.normalization_)
        )
        columns, out = made.columns(plan), np.empty((source.n_rows, made.rank))

        def visit(where: slice, block: Tensor) -> None:
            out[where] = columns(block).double().cpu().numpy()

        each_block(self.inputs_.rows(source, plan), plan, plan.panel_rows(made.rank + len(made.basis)), visit)
        return out


def largest_map(
    kernel: Kernel,
    rows: RowSource,
    index: np.ndarray,
    plan: Plan,
    clock: Clock,
    rank: int | None,
    tol: float | None,
) -> tuple[np.ndarray, EmpiricalMap]:
    """Make the map of these rows or, within a time budget, of as many of the first of them as there is time for."""
    n = len(index) if clock.seconds is None else min(FIRST_ROWS, len(index))
    while True:
        began = clock.elapsed()
        made = empirical_map(kernel, rows.take(index[:n]).to(plan.device), rank, tol, plan.dtype)
        growth = affordable_growth(clock, clock.elapsed() - began)
        if n == len(index) or growth == 0:
            return index[:n], made
        n = min(int(n * growth), len(index))

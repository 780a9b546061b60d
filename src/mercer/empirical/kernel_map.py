"""The empirical kernel map as a transformer: `EmpiricalKernelMap`."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import torch
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from mercer.border.estimator import RowEstimator, _host, require_number, require_whole
from mercer.data import ArrayRows, RowSource, as_source
from mercer.empirical.coordinates import MappedRows
from mercer.empirical.estimator import require_size
from mercer.empirical.mapping import EmpiricalMap, empirical_map, mean_distance, resolve_kernels
from mercer.empirical.problem import NearRows, subset_number
from mercer.engine import make_plan
from mercer.forward.nystroem import select_basis
from mercer.parts import require


class EmpiricalKernelMap(ClassNamePrefixFeaturesOutMixin, TransformerMixin, RowEstimator):
    r"""Coordinates whose inner products are a kernel: exactly on p chosen rows, its Nyström approximation elsewhere.

    .. math:: \Phi(x) = \Lambda^{-1/2} Q^\top [k(x, x_1), \dots, k(x, x_p)]^\top, \qquad K = Q \Lambda Q^\top,

    with the positive eigenvalues of the kernel matrix K of those rows; any linear model may follow.

    Parameters
    ----------
    kernel : a kernel, a short name or a callable
        A radial kernel by name has the mean distance between rows as length-scale.
    subset_size : int, float or None
        p: a number, a share of the rows, or all of them.
    criterion : "random" or a criterion of `GreedyKernelRegressor`
        How the rows are chosen; all but "random" need targets in `fit`.
    rank : int or None
        Coordinates at most: those of the largest eigenvalues.
    tol : float or None
        Eigenvalues below this share of the largest are dropped; by default what rounding leaves unknown.
    scale_inputs, device, dtype, memory_limit, random_state : as everywhere

    Attributes
    ----------
    basis_, basis_indices_ : the rows chosen
    kernel_ : the kernel used
    normalization_ : maps kernel values to coordinates, p × r

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

    def __init__(
        self,
        kernel: Any = "gaussian",
        subset_size: Any = 300,
        *,
        criterion: Any = "random",
        rank: int | None = None,
        tol: float | None = None,
        scale_inputs: bool = True,
        device: Any = "auto",
        dtype: Any = "auto",
        memory_limit: Any = None,
        random_state: Any = None,
    ) -> None:
        self.kernel = kernel
        self.subset_size = subset_size
        self.criterion = criterion
        self.rank = rank
        self.tol = tol
        self.scale_inputs = scale_inputs
        self.device = device
        self.dtype = dtype
        self.memory_limit = memory_limit
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> EmpiricalKernelMap:
        """Choose the rows and factor their kernel matrix."""
        self._require_parameters()
        random = isinstance(self.criterion, str) and self.criterion == "random"
        require(random or y is not None, "criterion", "'random' where there are no targets", self.criterion)
        source, y, weight, original = self._rows(X, y, sample_weight)
        plan = make_plan(source.n_rows, self.device, self.dtype, self.memory_limit)
        self.dtype_ = str(plan.dtype).removeprefix("torch.")
        self._scale_columns(source, weight, plan, enabled=bool(self.scale_inputs))
        rows = self._prepared(source, plan)
        rng = np.random.default_rng(check_random_state(self.random_state).randint(2**31))
        w = torch.as_tensor(weight, device=plan.device, dtype=plan.dtype)
        kernels = resolve_kernels(self.kernel, mean_distance(rows, w, rng))
        require(len(kernels) == 1, "kernel", "one kernel", self.kernel)
        self.kernel_ = kernels[0]
        alive = np.flatnonzero(weight > 0)
        p = subset_number(self.subset_size, len(alive))
        plan.require_square(p)
        if random:
            index = alive if p == len(alive) else np.sort(rng.choice(alive, p, replace=False))
        else:
            index = self._greedy(source, y[original], p)
            index = index if len(index) else alive[:1]  # a map needs a row, be it one where the kernel is zero
        made = empirical_map(self.kernel_, rows.take(index).to(plan.device), self.rank, self.tol, plan.dtype)
        self.basis_, self.basis_indices_ = source.take(index).cpu().numpy(), original[index]
        self.normalization_ = made.coefficients.cpu().numpy()
        self._n_features_out = made.rank
        return self

    def _require_parameters(self) -> None:
        require_size(self.subset_size)
        if self.rank is not None:
            require_whole("rank", self.rank)
        if self.tol is not None:
            require_number("tol", self.tol, "None or a number of at least 0 and below 1", 0.0, 1.0)

    def _rows(self, X: Any, y: Any, sample_weight: Any) -> tuple[RowSource, np.ndarray, np.ndarray, np.ndarray]:
        """Rows, identical ones merged, with targets and weights, and each row's index in the table given."""
        if isinstance(X, RowSource | str | os.PathLike):
            source = as_source(X)
        else:
            source = ArrayRows(validate_data(self, _host(X), dtype=[np.float64, np.float32]))
        nothing = np.zeros(source.n_rows)
        y = nothing if y is None else np.asarray(_host(y))
        require(y.ndim > 0 and len(y) == source.n_rows, "y", f"of length {source.n_rows}", len(y) if y.ndim else y)
        source, nothing, weight = self._read(source, nothing, sample_weight)
        source, _, weight, original = self._merge(source, nothing, weight)
        return source, y, weight, original

    def _greedy(self, source: RowSource, y: np.ndarray, p: int) -> np.ndarray:
        """Rows by a criterion of the package, on inputs scaled as ours are."""
        X = self._standardised(source.take(np.arange(source.n_rows)).cpu().numpy()).numpy()
        options = {"scale_inputs": False, "device": self.device, "dtype": self.dtype, "random_state": self.random_state}
        return select_basis(X, y, self.kernel_, self.criterion, p, **options)

    def transform(self, X: Any) -> np.ndarray:
        """Coordinates of rows `X`, n × r."""
        check_is_fitted(self)
        source = self._new_rows(X)
        plan = make_plan(source.n_rows, self.device, self.dtype_, self.memory_limit)
        basis = self._prepared(ArrayRows(self.basis_), plan).take(np.arange(len(self.basis_)))
        made = EmpiricalMap(self.kernel_, basis, torch.as_tensor(self.normalization_))
        out = np.empty((source.n_rows, made.rank))

        def visit(where: slice, features: Any) -> None:
            out[where] = features[0].double().cpu().numpy()

        MappedRows(NearRows(self._prepared(source, plan)), [made], plan).each(visit)
        return out

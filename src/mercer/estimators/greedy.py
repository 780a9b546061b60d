"""Sparse kernel models on few basis vectors: `GreedyKernelRegressor`."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from sklearn.base import RegressorMixin
from sklearn.utils import check_random_state

from mercer.component import require
from mercer.estimators.base import KernelEstimator
from mercer.estimators.targets import RealTargets
from mercer.forward.solve import sparse_ridge


class GreedyKernelRegressor(RegressorMixin, KernelEstimator):
    r"""Kernel ridge regression on few basis vectors.

    Minimises over the weights a of `n_basis` training rows

    .. math:: \tfrac12 \sum_n w_n (y_n - f(x_n))^2 + \tfrac\lambda2 \|f\|^2_{\mathcal H},
        \qquad f(x) = b + \sum_m a_m k(\tilde x_m, x).

    Parameters
    ----------
    n_basis : int
        Basis vectors; all rows if there are fewer.
    criterion : "random"
        How basis vectors are chosen.
    kernel : "auto", name, kernel or callable
        A name is tuned by `tune_kernel`; a kernel object is taken as it is.
    regularization : "auto" or float
        λ, relative to targets of unit variance; "auto" takes the noise variance of largest evidence.
    tuning_rows : int
        Rows used to tune the kernel.
    scale_inputs : bool
        Standardise each input inside the model.
    device, dtype, memory_limit
        See `mercer.engine.make_plan`.
    random_state : int, RandomState or None

    Attributes
    ----------
    basis_, basis_indices_ : the basis vectors (as given in `X`) and their rows
    dual_coef_ : prediction, in standardised targets, is ``kernel_(scaled X, scaled basis_) @ dual_coef_``
    kernel_, regularization_ : what was tuned or given

    Examples
    --------
    >>> import numpy as np
    >>> from mercer import GreedyKernelRegressor
    >>> X = np.linspace(0, 6, 300)[:, None]
    >>> model = GreedyKernelRegressor(n_basis=30, random_state=0).fit(X, np.sin(X[:, 0]))
    >>> bool(model.score(X, np.sin(X[:, 0])) > 0.999)
    True
    """

    def __init__(
        self,
        n_basis: int = 500,
        *,
        criterion: Any = "random",
        kernel: Any = "auto",
        regularization: Any = "auto",
        tuning_rows: int = 1000,
        scale_inputs: bool = True,
        device: Any = "auto",
        dtype: Any = "auto",
        memory_limit: Any = None,
        random_state: Any = None,
    ) -> None:
        self.n_basis = n_basis
        self.criterion = criterion
        self.kernel = kernel
        self.regularization = regularization
        self.tuning_rows = tuning_rows
        self.scale_inputs = scale_inputs
        self.device = device
        self.dtype = dtype
        self.memory_limit = memory_limit
        self.random_state = random_state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> GreedyKernelRegressor:
        """Fit to rows `X` (an array, frame, tensor, file or row source) and targets `y`."""
        require(self.n_basis >= 1, "n_basis", "at least 1", self.n_basis)
        source, y, weight = self._read(X, y, sample_weight, multi_output=True, y_numeric=True)
        self._coding = RealTargets.of(y, weight)
        source, y, weight, original = self._merge(source, y, weight)
        problem = self._problem(source, self._coding.encode(y), weight)

        rng = check_random_state(self.random_state)
        candidates = problem.candidates().cpu().numpy()
        chosen = rng.choice(candidates, min(self.n_basis, len(candidates)), replace=False)
        weights = sparse_ridge(problem, torch.as_tensor(chosen, device=problem.plan.device))

        self._store(source, torch.from_numpy(chosen), weights, original)
        return self

    def predict(self, X: Any) -> np.ndarray:
        """Predicted targets, of the shape `y` had in `fit`."""
        return self._coding.decode(self._values(X))

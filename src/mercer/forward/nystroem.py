"""Greedy selection as a service: `select_basis` and the transformer `GreedyNystroem`."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.multiclass import type_of_target
from sklearn.utils.validation import check_is_fitted, validate_data

from mercer.forward.greedy import GreedyKernelClassifier, GreedyKernelRegressor
from mercer.forward.kernel_estimator import KernelEstimator
from mercer.linalg import whitening


def select_basis(
    X: Any, y: Any, kernel: Any = "auto", criterion: Any = "max-res", n_basis: int = 100, **options: Any
) -> np.ndarray:
    """Indices of rows of `X` that serve best as basis vectors for `y`, in the order they were chosen.

    `options` go to `GreedyKernelRegressor` (or the classifier, where `y` holds classes that are no numbers):
    `update`, `stopping`, `step_size`, `regularization`, `sample_weight` apart. Inputs are standardised.

    >>> import numpy as np
    >>> from mercer import select_basis
    >>> X = np.linspace(0, 6, 200)[:, None]
    >>> len(select_basis(X, np.sin(X[:, 0]), "gaussian", n_basis=5, random_state=0))
    5
    """
    face = GreedyKernelClassifier if _classes(y) else GreedyKernelRegressor
    return face(n_basis, criterion=criterion, kernel=kernel, **options).fit(X, y).basis_indices_


def _classes(y: Any) -> bool:
    return np.asarray(y).dtype.kind in "OUSb" and type_of_target(y) in ("binary", "multiclass")


class GreedyNystroem(ClassNamePrefixFeaturesOutMixin, TransformerMixin, KernelEstimator):
    """Nyström features on basis vectors chosen greedily for the targets: a drop-in for scikit-learn's `Nystroem`.

    Features are whitened, so that their inner products are the kernel's best approximation on the chosen
    rows, and any linear model may follow. Without targets (`y=None`) rows are drawn at random, as `Nystroem` does.

    Parameters
    ----------
    n_components : int
        Basis vectors, hence features (fewer where some are dependent).
    criterion : as in `GreedyKernelRegressor`
    kernel : "auto", a name, a kernel or a callable
        "auto" and names are tuned on `y`; without `y` a name means that kernel at length-scale √D.
    regularization, tuning_rows, scale_inputs, device, dtype, memory_limit, random_state : as everywhere

    Attributes
    ----------
    basis_, basis_indices_ : the rows chosen
    kernel_ : the kernel used
    normalization_ : maps kernel values to features

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import Ridge
    >>> from sklearn.pipeline import make_pipeline
    >>> from mercer import GreedyNystroem
    >>> X = np.linspace(0, 6, 300)[:, None]
    >>> model = make_pipeline(GreedyNystroem(20, random_state=0), Ridge(1e-3)).fit(X, np.sin(X[:, 0]))
    >>> bool(model.score(X, np.sin(X[:, 0])) > 0.99)
    True
    """

    def __init__(
        self,
        n_components: int = 100,
        *,
        criterion: Any = "max-res",
        kernel: Any = "auto",
        regularization: Any = "auto",
        tuning_rows: int = 1000,
        scale_inputs: bool | str = True,
        device: Any = "auto",
        dtype: Any = "auto",
        memory_limit: Any = None,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.criterion = criterion
        self.kernel = kernel
        self.regularization = regularization
        self.tuning_rows = tuning_rows
        self.scale_inputs = scale_inputs
        self.device = device
        self.dtype = dtype
        self.memory_limit = memory_limit
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> GreedyNystroem:
        """Choose the basis vectors."""
        if y is None:
            X = validate_data(self, X, dtype=[np.float64, np.float32])
            y, criterion = np.arange(len(X), dtype=float), "random"
            kernel = "gaussian" if self.kernel == "auto" else self.kernel
            kernel = _at_rest(kernel, X.shape[1])
        else:
            criterion, kernel = self.criterion, self.kernel
        face = GreedyKernelClassifier if _classes(y) else GreedyKernelRegressor
        options = {
            name: getattr(self, name)
            for name in (
                "regularization",
                "tuning_rows",
                "scale_inputs",
                "device",
                "dtype",
                "memory_limit",
                "random_state",
            )
        }
        chosen = face(self.n_components, criterion=criterion, kernel=kernel, **options).fit(X, y, sample_weight)
        shared = ("basis_", "basis_indices_", "kernel_", "dtype_", "n_features_in_")
        for name in (*shared, "input_mean_", "input_scale_", "input_bend_"):
            setattr(self, name, getattr(chosen, name))
        if hasattr(chosen, "feature_names_in_"):
            self.feature_names_in_ = chosen.feature_names_in_
        Z = self._standardised(self.basis_)
        self.normalization_ = whitening(self.kernel_(Z, Z), dtype=getattr(torch, self.dtype_)).map.numpy()
        self._n_features_out = self.normalization_.shape[1]
        return self

    def transform(self, X: Any) -> np.ndarray:
        """Features of rows `X`, n × (number of independent basis vectors)."""
        check_is_fitted(self)
        return self._values(X, self.normalization_)


def _at_rest(kernel: Any, n_inputs: int) -> Any:
    """A named kernel without targets to tune it: standardised inputs are about √(2D) apart."""
    from mercer.kernels import Radial

    if isinstance(kernel, str) and kernel in Radial.choices():
        return Radial.choices()[kernel](length_scale=n_inputs**0.5)
    return kernel

"""Greedy selection of rows, and the transformer `GreedyNystroem`."""

from __future__ import annotations

from dataclasses import KW_ONLY, fields, replace
from functools import partial
from typing import Annotated, Any, Self

import numpy as np
import torch
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from mercer.base.estimator import BaseKernelEstimator, estimator_dataclass
from mercer.base.parameters import AUTO, check, integer, number, part_of
from mercer.engine import make_plan
from mercer.engine.plan import Sample
from mercer.forward.absorb import Block
from mercer.forward.criteria import Criterion
from mercer.forward.expansion import evaluate
from mercer.forward.greedy import GreedyKernelClassifier, GreedyKernelRegressor
from mercer.forward.loop import ForwardFit, vector_learner, vectors_per_pass
from mercer.forward.problem import Problem
from mercer.forward.stopping import MIN_NOVELTY, Dependence, MaxSteps
from mercer.kernels import Kernel, Stationary
from mercer.linalg import whitening
from mercer.preprocessing.inputs import holds_classes
from mercer.preprocessing.read import read_new, read_rows
from mercer.progress import with_progress
from mercer.selection.kernel_choice import is_precomputed

#: Parameters that are passed on to the greedy model.
SHARED = frozenset(field.name for field in fields(BaseKernelEstimator)) | {"regularization", "tuning_rows"}


def select_basis(
    X: Any, y: Any, kernel: Any = "auto", criterion: Any = "max-res", n_basis: int = 100, **options: Any
) -> np.ndarray:
    """Select the rows of `X` that are the best basis vectors for `y`.

    Returns their indices in order of entry.

    Parameters
    ----------
    X : array, frame, tensor, file or row source
    y : array of numbers or classes
    kernel : "auto", a name, a Kernel or a function, default "auto"
    criterion : str or Criterion, default "max-res"
    n_basis : int, default 100
        Number of rows at most.
    **options
        Further parameters of `GreedyKernelRegressor` (or of the classifier, if `y` holds classes that are not numbers).

    Returns
    -------
    ndarray
        Indices into `X`. Inputs are standardised first.

    Examples
    --------
    >>> import numpy as np
    >>> from mercer import select_basis
    >>> X = np.linspace(0, 6, 200)[:, None]
    >>> len(select_basis(X, np.sin(X[:, 0]), "gaussian", n_basis=5, random_state=0))
    5
    """
    greedy = GreedyKernelClassifier if holds_classes(y) else GreedyKernelRegressor
    return greedy(n_basis, criterion=criterion, kernel=kernel, **options).fit(X, y).basis_indices_


@estimator_dataclass
class GreedyNystroem(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseKernelEstimator):
    """Nyström features on basis vectors selected greedily for the targets.

    It is a drop-in for scikit-learn's `Nystroem`.

    Features are whitened, so that their inner products are the best approximation of the kernel on the chosen rows; any
    linear model may follow. Without targets (`y=None`) rows are drawn at random, as in `Nystroem`.

    Parameters
    ----------
    n_components : int, default 100
        Basis vectors, hence features (fewer if basis vectors are dependent).
    criterion : str or Criterion, default "max-res"
        Which row enters next, as in `GreedyKernelRegressor`.
    kernel : "auto", a name, a Kernel or a function, default "auto"
        "auto" and names are tuned on `y`; without `y` a name means that kernel at length-scale √D.
    regularization : float or "auto", default "auto"
        λ, the penalty of the model that selects rows.
    tuning_rows : int, default 1000
        Rows on which the kernel is tuned.

    Attributes
    ----------
    basis_ : ndarray of shape (m, D)
        The chosen rows, in the units of the inputs.
    basis_indices_ : ndarray of shape (m,)
        Their indices in `X`.
    kernel_ : Kernel
        The kernel used, on standardised inputs.
    normalization_ : ndarray of shape (m, r)
        Maps kernel values to features.
    expansions_ : tuple of one Expansion
        Input map, kernel, basis vectors and normalisation in one record.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import Ridge
    >>> from sklearn.pipeline import make_pipeline
    >>> from mercer import GreedyNystroem
    >>> X = np.linspace(0, 6, 300)[:, None]
    >>> model = make_pipeline(GreedyNystroem(20, random_state=0), Ridge(1e-3)).fit(X, np.sin(X[:, 0]))
    >>> print(f"R² = {model.score(X, np.sin(X[:, 0])):.2f}")
    R² = 1.00
    """

    n_components: Annotated[int, integer()] = 100
    _: KW_ONLY
    criterion: Annotated[Any, part_of(Criterion)] = "max-res"
    kernel: Any = "auto"
    regularization: Annotated[Any, AUTO | number(0.0)] = "auto"
    tuning_rows: Annotated[int, integer(2)] = 1000

    @property
    def _pairwise(self) -> bool:
        return is_precomputed(self.kernel)

    @with_progress
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Select the basis vectors."""
        check(self)
        data = read_rows(self, X, sample_weight)
        criterion, kernel = self.criterion, self.kernel
        without_targets = y is None
        if without_targets:
            y, criterion = np.arange(data.rows.n_rows, dtype=float), "random"
            kernel = _untuned_kernel("gaussian" if self.kernel == "auto" else self.kernel, data.rows.n_columns)
        greedy = GreedyKernelClassifier if holds_classes(y) else GreedyKernelRegressor
        shared = {name: value for name, value in self.get_params(deep=False).items() if name in SHARED}
        model = greedy(self.n_components, criterion=criterion, kernel=kernel, **shared)
        if without_targets and not self._pairwise:  # categories must not be encoded by made-up targets
            chosen, columns = model.fit(data.rows, y, data.weight), data.columns()
        else:
            chosen = model.fit(X, y, sample_weight)
            columns = {name: getattr(chosen, name, None) for name in data.columns()}
        Z = torch.as_tensor(chosen.expansions_[0].basis)
        dtype = getattr(torch, chosen.dtype_)
        normalization = whitening(chosen.kernel_(Z, Z), dtype).numpy()
        return self._keep(
            **columns,
            basis_=chosen.basis_,
            basis_indices_=chosen.basis_indices_,
            kernel_=chosen.kernel_,
            expansions_=(replace(chosen.expansions_[0], weights=normalization),),
            dtype_=chosen.dtype_,
            normalization_=normalization,
            _n_features_out=normalization.shape[1],
        )

    def transform(self, X: Any) -> np.ndarray:
        """Features of rows `X`, n × (number of independent basis vectors)."""
        check_is_fitted(self)
        source = read_new(self, X)
        plan = make_plan(source.n_rows, self.device, self.dtype_, self.memory_limit)
        return evaluate(self.expansions_, source, plan, pairwise=self._pairwise)


def _untuned_kernel(kernel: Any, n_inputs: int) -> Any:
    """A kernel by name without targets to tune it: its length-scale is a typical distance of standardised inputs."""
    family = Stationary.choices().get(kernel) if isinstance(kernel, str) else None
    if family is not None:
        return family(length_scale=family.typical_length(n_inputs))
    return kernel


def select_rows(
    data: Sample, kernel: Kernel, lam: float, criterion: Criterion | str, m: int, rng: np.random.Generator
) -> np.ndarray:
    """Select at most `m` rows as basis vectors for the targets.

    Returns their indices in order of entry.

    Each step updates all weights, with penalty `lam` in the RKHS (Boost10 eq. 12). There are fewer than `m` rows if no
    further row is worth adding.
    """
    criterion = Criterion.resolve(criterion, "criterion")
    problem = Problem(data.in_tiles(data.plan), kernel, lam)
    n = problem.n_candidates
    m = min(m, n)
    step = min(vectors_per_pass(criterion, n), m)
    block = partial(Block, min_novelty=MIN_NOVELTY)
    fit = ForwardFit(problem, vector_learner(criterion, step, m), rng, capacity=m, make_block=block)
    fit.run([MaxSteps(-(-m // step), "steps"), Dependence()])
    if fit.interrupted:  # selected rows are not yet a model
        raise KeyboardInterrupt
    return fit.path().rows

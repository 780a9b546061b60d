"""`ARDSelector`: which inputs matter, by the length-scales of voting Gaussian processes (Thesis09, section 5.3.4)."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import KW_ONLY, replace
from typing import Annotated, Any, Self

import numpy as np
from numpy.exceptions import DTypePromotionError
from sklearn.base import BaseEstimator, clone
from sklearn.feature_selection import SelectorMixin
from sklearn.utils.multiclass import type_of_target
from sklearn.utils.validation import check_is_fitted

from mercer.base.estimator import SaveMixin, estimator_dataclass, keep
from mercer.base.parameters import NONE, Rule, check, integer, number
from mercer.data import ArrayRows, RowSource
from mercer.engine.plan import generator
from mercer.gp.classifier import SparseGPClassifier
from mercer.gp.regressor import SparseGPRegressor
from mercer.parts import require
from mercer.preprocessing.read import read, read_new
from mercer.preprocessing.validate import host

#: Rows of a file that are read at once.
BLOCK_ROWS = 10_000


def _can_vote(models: Any) -> bool:
    given = _several(models)
    return len(given) > 0 and all(hasattr(model, "fit") and hasattr(model, "get_params") for model in given)


def _several(models: Any) -> list[Any]:
    if isinstance(models, Iterator):
        return []  # it could be gone through once only
    return list(models) if isinstance(models, Iterable) else [models]


MODELS = NONE | Rule("an estimator or a sequence of at least one", _can_vote)


@estimator_dataclass
class ARDSelector(SelectorMixin, SaveMixin, BaseEstimator):
    r"""Keep the inputs that matter to Gaussian processes with one length-scale per input.

    The relevance of input d is 1/λ_d of the standardised inputs in

    .. math:: k(x, x') = a^2 \exp\Big(-\tfrac12 \sum_d \big((x_d - x'_d)/\lambda_d\big)^2\Big) ;

    a model selects the inputs whose relevance is at least `threshold` of its largest (for several classes, of the
    largest over their one-versus-rest models), and an input is kept if enough models select it.

    Parameters
    ----------
    models : estimator, sequence of estimators or None, default None
        Models that vote: sparse Gaussian processes by their inverse length-scales, others by `relevance_`. One model
        votes alone. None: SPGP on three random starts of 32 inducing inputs each, as classifiers where `y` holds
        classes and as regressors otherwise.
    threshold : float, default 0.1
        Share of the largest relevance at which a model selects an input.
    min_votes : int or None, default None
        Votes that keep an input: by default 2, as in the thesis, or 1 where there is one model.
    n_features_to_select : int or None, default None
        Keep this many instead, the ones with most votes; equal votes go by mean relevance.
    random_state : int, RandomState or None, default None
        Seed of the models without one of their own.

    Attributes
    ----------
    relevance_ : ndarray of shape (D,)
        Mean over models of the inverse length-scales (or of `relevance_`), each model's largest set to 1. The
        `relevance_` of other estimators measures the effect on predictions instead.
    votes_ : ndarray of shape (D,)
        Models that select each input.
    ranking_ : ndarray of shape (D,)
        Inputs from the most to the least relevant.
    models_ : list
        The fitted models.
    n_features_in_ : int
        Columns of `X` in `fit`.
    feature_names_in_ : ndarray of shape (D,)
        Their names, where they had any.

    References
    ----------
    Ma Li, "Computationally efficient models for high-dimensional and large-scale classification problems", thesis
    (2009), sections 5.1.2 and 5.3.4.

    Examples
    --------
    >>> import numpy as np
    >>> from mercer import ARDSelector
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(150, 4))
    >>> selector = ARDSelector(random_state=0).fit(X, np.sin(2 * X[:, 2]) + 0.1 * rng.normal(size=150))
    >>> selector.get_support().tolist()
    [False, False, True, False]
    """

    models: Annotated[Any, MODELS] = None
    _: KW_ONLY
    threshold: Annotated[float, number(0.0, 1.0)] = 0.1
    min_votes: Annotated[int | None, NONE | integer()] = None
    n_features_to_select: Annotated[int | None, NONE | integer()] = None
    random_state: Any = None

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.input_tags.allow_nan = tags.input_tags.string = tags.input_tags.categorical = True
        tags.input_tags.sparse = True
        return tags

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Fit the models to rows `X` (array, frame, tensor, file or row source) and count their votes."""
        check(self)
        given = read(self, X, y, sample_weight, supervised=False)  # the models merge duplicates and average targets
        columns, wanted = given.n_columns, self.n_features_to_select
        if wanted is not None:
            require(wanted <= columns, "n_features_to_select", f"at most the number of inputs, {columns}", wanted)
        voters, votes = self._voters(given.y), self.min_votes
        if votes is not None:
            require(votes <= len(voters), "min_votes", f"at most the number of models, {len(voters)}", votes)
        given = replace(given, constants=None)  # what is kept of a table goes on as it is
        table = given.rows.X if isinstance(given.rows, ArrayRows) and given.table is None else X
        weights = () if sample_weight is None else (given.weight,)
        for voter in voters:
            voter.fit(table, given.y, *weights)
            told = hasattr(voter, "inverse_length_scales_") or hasattr(voter, "relevance_")
            require(told, "models", "estimators that have `relevance_` after fitting", type(voter).__name__)
        each = np.stack([_share(_ranked_by(voter)) for voter in voters])
        relevance, counted = each.mean(0), (each >= self.threshold).sum(0)
        return keep(
            self,
            **given.columns(),
            models_=voters,
            relevance_=relevance,
            votes_=counted,
            ranking_=np.lexsort((-relevance, -counted)),
        )

    def _voters(self, y: np.ndarray) -> list[Any]:
        """Fresh models; those without a seed of their own take one from here."""
        rng = generator(self.random_state)
        if self.models is None:
            model = SparseGPClassifier if _few(y) and _labels(y) else SparseGPRegressor
            seeds = [int(rng.integers(2**31)) for _ in range(3)]
            shared: dict[str, Any] = {"approximation": "spgp", "kernel": "gaussian", "ard": True, "max_iter": 30}
            return [model(32, random_state=seed, **shared) for seed in seeds]
        voters = [clone(model) for model in _several(self.models)]
        for voter in voters:
            if getattr(voter, "random_state", 0) is None:
                voter.set_params(random_state=int(rng.integers(2**31)))
        return voters

    def transform(self, X: Any) -> Any:
        """The columns kept, of an array, frame, tensor, file or row source."""
        check_is_fitted(self)
        if not isinstance(X, RowSource | str | os.PathLike):
            X = host(X)
            try:
                return super().transform(X)
            except DTypePromotionError:  # dates or durations beside numbers: an array of objects, as beside categories
                return super().transform(X.astype(object))
        kept = self.get_support(indices=True)
        return np.concatenate([block.cpu().numpy()[:, kept] for _, block in read_new(self, X).blocks(BLOCK_ROWS)])

    def _get_support_mask(self) -> np.ndarray:
        check_is_fitted(self)
        mask = np.zeros(self.n_features_in_, dtype=bool)
        if self.n_features_to_select is not None:
            mask[self.ranking_[: self.n_features_to_select]] = True
            return mask
        needed = self.min_votes if self.min_votes is not None else min(2, len(self.models_))
        mask[self.votes_ >= needed] = True
        mask[self.ranking_[0]] = True  # what matters most stays, even alone
        return mask


def _ranked_by(voter: Any) -> np.ndarray:
    """Inverse length-scales, as in the thesis, or the effect on predictions for models without them."""
    return voter.inverse_length_scales_ if hasattr(voter, "inverse_length_scales_") else voter.relevance_


def _share(relevance: np.ndarray) -> np.ndarray:
    """Relevance as a share of the largest; the largest share over one-versus-rest models."""
    r = np.atleast_2d(relevance)
    largest = r.max(1, keepdims=True)
    return (r / np.where(largest > 0, largest, 1.0)).max(0)


def _labels(y: np.ndarray) -> bool:
    with np.errstate(invalid="ignore"):  # huge numbers are compared with integers there
        return type_of_target(y) in ("binary", "multiclass")


def _few(y: np.ndarray) -> bool:
    """Whether targets are classes: text and booleans are, numbers if they repeat often."""
    return y.dtype.kind in "OUSb" or len(np.unique(y)) <= max(2, len(y) // 10)

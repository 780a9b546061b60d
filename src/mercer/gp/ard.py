"""`ARDSelector`: which inputs matter, by the length-scales of voting Gaussian processes (Thesis09, section 5.3.4)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.feature_selection import SelectorMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import type_of_target
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from mercer.border.estimator import require_number, require_whole
from mercer.gp.classifier import SparseGPClassifier
from mercer.gp.regressor import SparseGPRegressor
from mercer.parts import require


class ARDSelector(SelectorMixin, BaseEstimator):
    r"""Keep the inputs that matter to Gaussian processes with one length-scale per input.

    The relevance of input d is 1/λ_d of the standardised inputs in

    .. math:: k(x, x') = a^2 \exp\Big(-\tfrac12 \sum_d \big((x_d - x'_d)/\lambda_d\big)^2\Big) ;

    a model selects the inputs whose relevance is at least `threshold` of its largest (for several classes, of the
    largest over their one-versus-rest models), and an input is kept if enough models select it.

    Parameters
    ----------
    models : estimator, sequence of estimators, or None
        Models that vote, each with `relevance_` after fitting; one model votes alone. None: SPGP on three random starts
        of 32 inducing inputs each, as classifiers where `y` holds classes and as regressors otherwise.
    threshold : float
        Share of the largest relevance at which a model selects an input.
    min_votes : int or None
        Votes that keep an input: by default 2, as in the thesis, or 1 where there is one model.
    n_features_to_select : int or None
        Keep this many instead, the ones with most votes; equal votes go by mean relevance.
    random_state : int, RandomState or None

    Attributes
    ----------
    relevance_ : mean over models of the relevance, each model's largest set to 1
    votes_ : models that select each input
    ranking_ : inputs from the most to the least relevant
    models_ : the fitted models

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

    def __init__(
        self,
        models: Any = None,
        *,
        threshold: float = 0.1,
        min_votes: int | None = None,
        n_features_to_select: int | None = None,
        random_state: Any = None,
    ) -> None:
        self.models = models
        self.threshold = threshold
        self.min_votes = min_votes
        self.n_features_to_select = n_features_to_select
        self.random_state = random_state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> ARDSelector:
        """Fit the models and count their votes."""
        require_number("threshold", self.threshold, "a number of at least 0 and at most 1", 0.0, np.nextafter(1, 2))
        X, y = (part.detach().cpu().numpy() if isinstance(part, Tensor) else part for part in (X, y))
        X, y = validate_data(self, X, y, dtype=[np.float64, np.float32])
        if self.n_features_to_select is not None:
            require_whole("n_features_to_select", self.n_features_to_select)
            wanted = f"at most the number of inputs, {X.shape[1]}"
            require(self.n_features_to_select <= X.shape[1], "n_features_to_select", wanted, self.n_features_to_select)
        voters = self._voters(y)
        if self.min_votes is not None:
            require_whole("min_votes", self.min_votes)
            seen, most = self.min_votes, len(voters)
            require(seen <= most, "min_votes", f"at most the number of models, {most}", seen)
        models = []
        for voter in voters:
            models.append(voter.fit(X, y) if sample_weight is None else voter.fit(X, y, sample_weight))
            told = hasattr(models[-1], "relevance_")
            require(told, "models", "estimators that have `relevance_` after fitting", type(voter).__name__)
        each = np.stack([_share(model.relevance_) for model in models])
        self.models_ = models
        self.relevance_ = each.mean(0)
        self.votes_ = (each >= self.threshold).sum(0)
        self.ranking_ = np.lexsort((-self.relevance_, -self.votes_))
        return self

    def _voters(self, y: np.ndarray) -> list[Any]:
        rng = check_random_state(self.random_state)
        if self.models is not None:
            given = list(self.models) if isinstance(self.models, Iterable) else [self.models]
            good = len(given) > 0 and all(hasattr(model, "fit") and hasattr(model, "get_params") for model in given)
            require(good, "models", "None, an estimator or a sequence of at least one", self.models)
            voters = [clone(model) for model in given]
            for voter in voters:  # those without a seed of their own take one from here
                if getattr(voter, "random_state", 0) is None:
                    voter.set_params(random_state=rng.randint(2**31))
            return voters
        face = SparseGPClassifier if type_of_target(y) in ("binary", "multiclass") and _few(y) else SparseGPRegressor
        return [face(32, kernel="gaussian", ard=True, max_iter=30, random_state=rng.randint(2**31)) for _ in range(3)]

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


def _share(relevance: np.ndarray) -> np.ndarray:
    """Relevance as a share of the largest; of several one-versus-rest models an input's best counts."""
    r = np.atleast_2d(relevance)
    return (r / r.max(1, keepdims=True)).max(0)


def _few(y: np.ndarray) -> bool:
    """Whether whole numbers are classes: text and booleans are, numbers where they repeat often."""
    return y.dtype.kind in "OUSb" or len(np.unique(y)) <= max(2, len(y) // 10)

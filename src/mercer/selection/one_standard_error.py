"""The one-standard-error rule: the simplest candidate whose score is within one standard error of the best."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Real
from typing import Any

import numpy as np

from mercer.parts import require


def one_standard_error(
    cv_results: Mapping[str, Any], parameter: str | None = None, larger_is_simpler: bool = False
) -> int:
    r"""Index of the simplest candidate whose mean score is at least that of the best less its standard error.

    The standard error of the best is :math:`s/\sqrt F`, with s the deviation (of F − 1 degrees of freedom) of its
    scores over the F folds of `cv_results`. Candidates are ordered by `parameter`, a number, by default the first one
    searched over; the smallest is the simplest, or the largest where `larger_is_simpler`. It can be given as it is to
    scikit-learn's ``GridSearchCV(..., refit=one_standard_error)``, and with ``functools.partial`` where several
    parameters vary.

    References
    ----------
    L. Breiman, J. Friedman, R. Olshen and C. Stone, "Classification and Regression Trees" (1984), section 3.4.3;
    used in Thesis09, section 2.5, for the number of components.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.model_selection import GridSearchCV
    >>> from sklearn.tree import DecisionTreeClassifier
    >>> from mercer.selection import one_standard_error
    >>> X, y = load_iris(return_X_y=True)
    >>> tree, grid = DecisionTreeClassifier(random_state=0), {"max_depth": [1, 2, 3, 4, 5, 6]}
    >>> GridSearchCV(tree, grid).fit(X, y).best_params_
    {'max_depth': 4}
    >>> GridSearchCV(tree, grid, refit=one_standard_error).fit(X, y).best_params_
    {'max_depth': 3}
    """
    names = [name for name in cv_results if name.startswith("param_")]
    chosen = f"param_{parameter}" if parameter is not None else next(iter(names), "")
    require(chosen in names, "parameter", f"one of {[name.removeprefix('param_') for name in names]}", parameter)
    values = list(cv_results[chosen])
    require(all(isinstance(value, Real) for value in values), f"the values of {chosen[6:]}", "numbers", values)
    size = np.array([float(value) for value in values])
    folds = [name for name in cv_results if name.startswith("split") and name.endswith("_test_score")]
    scores = np.array([np.asarray(cv_results[name], dtype=np.float64) for name in folds])
    require(len(scores) >= 2, "the number of folds", "at least 2", len(scores))
    mean = np.where(np.isfinite(scores).all(0), scores.mean(0), -np.inf)
    require(bool(np.isfinite(mean).any()), "cv_results", "of at least one candidate with finite scores", mean.tolist())
    best = int(mean.argmax())
    error = scores[:, best].std(ddof=1) / len(scores) ** 0.5
    good = np.flatnonzero(mean >= mean[best] - error)
    order = -size if larger_is_simpler else size
    return int(min(good, key=lambda index: (order[index], -mean[index])))

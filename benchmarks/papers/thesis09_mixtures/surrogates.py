"""One small cell for each table and figure of chapters 2 and 3 on generated rows, by the models of the tables."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from papers.thesis09_mixtures.methods import CLASSIFIERS, REGRESSORS, rmse
from sklearn.datasets import make_blobs

from mercer.datasets import make_sin2, make_three_gaussians

SHORT = {"n_init": 1, "max_iter": 40, "random_state": 0}


def figures_2_1_to_2_6() -> float:
    """ENRBF with the thesis' four components: its distance to sin²."""
    new = make_sin2(500, snr=float("inf"), random_state=10_000)
    return rmse(REGRESSORS["ENRBF"](4, **SHORT).fit(*make_sin2(random_state=0)), *new)


def table_2_3() -> float:
    """NRBF by gradient, one step ahead on a logistic map with three lags."""
    x = [0.3]
    for _ in range(303):
        x.append(3.9 * x[-1] * (1 - x[-1]))
    windows = np.lib.stride_tricks.sliding_window_view(np.array(x), 4)
    model = REGRESSORS["NRBF by gradient"](6, **SHORT).fit(windows[:200, :-1], windows[:200, -1])
    return rmse(model, windows[200:, :-1], windows[200:, -1])


def figures_3_1_to_3_5() -> float:
    """The mean accuracy of all five classifiers with three components on new rows, in percent."""
    X, y = make_three_gaussians(random_state=0)
    new = make_three_gaussians(1000, random_state=1)
    made = [make(3, covariance_type="full", **SHORT).fit(X, y) for make in CLASSIFIERS.values()]
    return 100 * float(np.mean([model.score(*new) for model in made]))


def table_3_3() -> float:
    """ENRBFC's log loss with two components on its training rows."""
    X, y = make_three_gaussians(random_state=0)
    p = CLASSIFIERS["ENRBFC"](2, covariance_type="diagonal", **SHORT).fit(X, y).predict_proba(X)
    return -float(np.mean(np.log(p[np.arange(len(y)), np.searchsorted(np.unique(y), y)])))


def several_classes() -> float:
    """The mean accuracy of all five classifiers on four classes, in percent."""
    X, y = make_blobs(200, centers=4, cluster_std=1.2, random_state=0)
    made = [make(4, **SHORT).fit(X[:100], y[:100]) for make in CLASSIFIERS.values()]
    return 100 * float(np.mean([model.score(X[100:], y[100:]) for model in made]))


CELLS: dict[str, Callable[[], float]] = {
    "figures 2-1 to 2-6": figures_2_1_to_2_6,
    "table 2-3": table_2_3,
    "figures 3-1 to 3-5": figures_3_1_to_3_5,
    "table 3-3": table_3_3,
    "several classes": several_classes,
}

"""One small cell per table and figure of Greedy02, on generated tables, for the test that fails when they drift."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial

import numpy as np
from papers.greedy02 import methods, protocol, rivals

from mercer.datasets import make_ripley


def residual(method: str, n: int = 40) -> float:
    """Table 1's residual on 400 of its rows."""
    X, y = protocol.synthetic(5, 0, 400)
    setting = protocol.Setting(protocol.SYNTHETIC.c, protocol.SYNTHETIC.noise, (n,))
    return float(methods.METHODS[method](protocol.Split(X, y, X[:1], y[:1]), setting).residuals[n - 1])


def error(method: str) -> float:
    """Tables 2 and 3: squared error at 30 vectors, of a smooth function."""
    X, y = protocol.synthetic(2, 0, 500)
    split = protocol.Split(X[:400], y[:400], X[400:], y[400:])
    setting = protocol.Setting(0.5, protocol.BOSTON.noise, (30,))
    return methods.squared_errors(methods.METHODS[method](split, setting), split)[0]


def sinc(rule: str) -> float:
    split = protocol.sinc(0, protocol.SINC_SHOWN)
    model = methods.stopped(split, protocol.SINC_SHOWN.c, rule)
    return float(np.sqrt(np.mean((model.predict(split.X_test) - split.y_test) ** 2)))


@cache
def ripley() -> protocol.Split:
    (X, y), (X_test, y_test) = make_ripley(250, random_state=0), make_ripley(1000, random_state=1)
    sign = lambda labels: np.where(labels == labels.max(), 1.0, -1.0)  # noqa: E731
    return protocol.Split(X, sign(y), X_test, sign(y_test))


def wrong(rule: str) -> float:
    """Tables 5 and 6: errors where a rule has its minimum."""
    return rivals.wrong(ripley(), methods.minima(ripley(), 0.5, 100, None)[rule][1])


def ripley_cell() -> dict[str, float]:
    return {"mdl": wrong("mdl")}


CELLS: dict[str, Callable[[], float]] = {
    **{f"table 1, {name}": partial(residual, name) for name in methods.METHODS},
    **{f"tables 2 and 3, {name}": partial(error, name) for name in methods.METHODS},
    **{f"table 4, {rule}": partial(sinc, rule) for rule in ("aic", "mdl")},
    **{f"tables 5 and 6, {rule}": partial(wrong, rule) for rule in ("aic", "mdl")},
    "tables 5 and 6, svm": lambda: rivals.wrong(ripley(), rivals.svm(0.5, 10.0)(ripley())[0]),
    "table 5, rvm": lambda: rivals.wrong(ripley(), rivals.rvm(0.5)(ripley())[0]),
    "figure 3, vectors": lambda: float(len(methods.stopped(ripley(), 0.5, "mdl", min_novelty=1e-4).basis_)),
}

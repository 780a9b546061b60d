"""The rivals' columns of Greedy02's tables 5 and 6: support vector machines by scikit-learn, and our RVM.

Widths (and C) by five-fold cross-validation on the first split, as for the greedy models. Table 6 has
exp(−d²/(0.3 · 256)) and C = 10 (ours: the paper quotes its column and states no settings).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from papers.greedy02 import methods, protocol
from papers.greedy02.rvm import RelevanceVectorMachine
from sklearn.svm import SVC, SVR

COSTS = (1.0, 10.0, 100.0, 1000.0)
Model = Callable[[protocol.Split], tuple[np.ndarray, int]]  # values at the test rows, and vectors


def svm(c: float, C: float) -> Model:
    def run(split: protocol.Split) -> tuple[np.ndarray, int]:
        machine = SVC(C=C, gamma=1 / c).fit(split.X, split.y)
        return machine.decision_function(split.X_test), len(machine.support_)

    return run


def rvm(c: float) -> Model:
    def run(split: protocol.Split) -> tuple[np.ndarray, int]:
        machine = RelevanceVectorMachine(lambda A, B: methods.gram(A, B, c).numpy()).fit(split.X, split.y)
        return machine.predict(split.X_test), machine.n_vectors

    return run


def svr(c: float, C: float, epsilon: float) -> Model:
    def run(split: protocol.Split) -> tuple[np.ndarray, int]:
        machine = SVR(C=C, gamma=1 / c, epsilon=epsilon).fit(split.X, split.y)
        return machine.predict(split.X_test), len(machine.support_)

    return run


def wrong(split: protocol.Split, values: np.ndarray) -> float:
    return 100 * float(np.mean((values > 0) != (split.y_test > 0)))


def squared(split: protocol.Split, values: np.ndarray) -> float:
    return float(np.mean((values - split.y_test) ** 2))


def cross_validated(split: protocol.Split, model: Model, error: Callable[..., float], n_folds: int = 5) -> float:
    """The sum of the errors on folds of the training rows."""
    fold, total = np.random.default_rng(0).permutation(len(split.X)) % n_folds, 0.0
    for k in range(n_folds):
        a, b = fold != k, fold == k
        part = protocol.Split(split.X[a], split.y[a], split.X[b], split.y[b])
        total += error(part, model(part)[0])
    return total


def chosen(split: protocol.Split, models: list[Model], error: Callable[..., float]) -> Model:
    """The one of least error in cross-validation on the training rows."""
    return models[int(np.argmin([cross_validated(split, model, error) for model in models]))]


def table5(name: str, which: str) -> dict[str, list[float]]:
    """Errors and vectors on the splits of one set."""
    splits = list(protocol.raetsch(name))
    widths = [w * splits[0].X.shape[1] for w in protocol.WIDTHS_PER_INPUT]
    models = [svm(c, C) for c in widths for C in COSTS] if which == "svm" else [rvm(c) for c in widths]
    best = chosen(splits[0], models, wrong)
    found = [best(split) for split in splits]
    errors = [wrong(split, values) for split, (values, _) in zip(splits, found, strict=True)]
    return {which: errors, f"{which}_n": [float(n) for _, n in found]}


def table6() -> dict[str, dict[str, list[float]]]:
    split, cells = protocol.usps(), {}
    for which in range(10):
        part = protocol.Split(split.X, np.where(split.y == which, 1.0, -1.0), split.X_test,
                              np.where(split.y_test == which, 1.0, -1.0))  # fmt: skip
        values, n = svm(0.3 * 256, 10.0)(part)
        cells[str(which)] = {"svm": [float(np.sum((values > 0) != (part.y_test > 0)))], "svm_n": [float(n)]}
    return cells


def boston(n_splits: int = 100) -> dict[str, list[float]]:
    """The text's SVM on Boston (8.7 ± 6.8): width, C and ε by cross-validation on the first split."""
    splits = list(protocol.boston(n_splits))
    grid = [svr(c, C, e) for c in (1.0, 2.0, 3.9, 8.0, 16.0) for C in COSTS for e in (0.1, 0.5, 2.0)]
    best = chosen(splits[0], grid, squared)
    return {"svm": [squared(split, best(split)[0]) for split in splits]}

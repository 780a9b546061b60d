"""Log loss of every default classifier beside that of the classes' shares, on few rows and on real tables.

    MERCER_DATA=… python benchmarks/peers/probabilities.py [--draws 20] [--tables iris sonar] [--models MHKSClassifier]

Draws: X uniform on [-2, 2]², P(y = 1 | x) = σ(2 sin 2x₀ + x₁), 40 to 100 training rows, 2000 test rows. Tables: at most
1000 training rows, at most 2000 test rows. The base rate predicts the training rows' share of each class for all test
rows. The script prints one line a draw or table; `!` marks a log loss above that of the base rate. The last two lines
are the mean over draws, and the number of losses above the base rate for each classifier.
"""

from __future__ import annotations

import argparse
import time
import warnings
from typing import Any

import numpy as np
from sklearn.metrics import log_loss

import mercer
from mercer.datasets import load

CLASSIFIERS = [name for name in mercer.__all__ if name.endswith("Classifier")]
#: Classification tables of numbers.
TABLES = [
    "arrhythmia", "cmc", "covtype", "ecoli", "glass", "house_votes_84", "ijcnn1", "ionosphere", "iris",
    "letter", "musk1", "page_blocks", "pima", "raetsch_banana", "raetsch_breast_cancer", "raetsch_diabetis",
    "raetsch_german", "raetsch_heart", "raetsch_image", "raetsch_titanic", "raetsch_waveform", "ripley", "segment",
    "sonar", "spambase", "usps", "waveform21", "wdbc", "wine",
]  # fmt: skip
TRAIN, TEST = 1000, 2000
#: A loss above the base rate by less than this is equal to it.
ROUNDING = 1e-9


def drawn(n: int, seed: int) -> tuple[Any, np.ndarray, Any, np.ndarray]:
    """A small training table and 2000 test rows of the same distribution."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (n + TEST, 2))
    p = 1 / (1 + np.exp(-2 * np.sin(2 * X[:, 0]) - X[:, 1]))
    y = (rng.random(n + TEST) < p).astype(int)
    return X[:n], y[:n], X[n:], y[n:]


def table(name: str) -> tuple[Any, np.ndarray, Any, np.ndarray]:
    """Training and test rows of a table, at random, without test rows of classes that training rows lack."""
    bunch = load(name)
    X, y = np.asarray(bunch.X), np.asarray(bunch.y).ravel()
    if X.ndim == 3:  # several splits of one table: the first
        return X[0], np.ravel(bunch.y[0]), np.asarray(bunch.X_test[0]), np.ravel(bunch.y_test[0])
    if "X_test" in bunch:
        X, y = np.concatenate([X, bunch.X_test]), np.concatenate([y, np.ravel(bunch.y_test)])
    order = np.random.default_rng(0).permutation(len(y))
    n = min(TRAIN, len(y) * 7 // 10)
    train, test = order[:n], order[n : n + TEST]
    test = test[np.isin(y[test], y[train])]
    return X[train], y[train], X[test], y[test]


def losses(data: tuple[Any, np.ndarray, Any, np.ndarray], models: list[str]) -> tuple[float, list[float], list[float]]:
    """The log loss of the base rate and of each model, and the seconds that each fit took."""
    X, y, X_test, y_test = data
    classes, counts = np.unique(y, return_counts=True)
    base = log_loss(y_test, np.tile(counts / len(y), (len(y_test), 1)), labels=classes)
    found, seconds = [], []
    for name in models:
        began = time.perf_counter()
        model = getattr(mercer, name)(random_state=0).fit(X, y)
        seconds.append(time.perf_counter() - began)
        found.append(log_loss(y_test, model.predict_proba(X_test), labels=classes))
    return base, found, seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--tables", nargs="*", default=TABLES)
    parser.add_argument("--models", nargs="*", default=CLASSIFIERS, choices=CLASSIFIERS)
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    short = [name.removesuffix("Classifier") for name in asked.models]
    print(f"{'':>16} {'rows':>5} {'base':>6} " + " ".join(f"{name[:10]:>10}" for name in short))
    sizes = np.linspace(40, 100, max(asked.draws, 1)).astype(int)
    cases = [(f"draw {k}", drawn(int(n), k)) for k, n in enumerate(sizes[: asked.draws])]
    above, of_draws, took = np.zeros(len(short), dtype=int), [], np.zeros(len(short))
    for name, data in [*cases, *((name, None) for name in asked.tables)]:
        data = table(name) if data is None else data
        base, found, seconds = losses(data, asked.models)
        above += np.array(found) > base + ROUNDING
        took += seconds
        if name.startswith("draw "):
            of_draws.append([base, *found])
        cells = " ".join(f"{loss:9.3f}{'!' if loss > base + ROUNDING else ' '}" for loss in found)
        print(f"{name:>16} {len(data[1]):5d} {base:6.3f} {cells}", flush=True)
    if of_draws:
        mean = np.mean(of_draws, axis=0)
        cells = " ".join(f"{loss:9.3f}{'!' if loss > mean[0] else ' '}" for loss in mean[1:])
        print(f"{'mean of draws':>16} {'':5} {mean[0]:6.3f} {cells}")
    print(f"{'above base':>16} {'':5} {'':6} " + " ".join(f"{count:9d} " for count in above))
    print(f"{'seconds':>16} {'':5} {'':6} " + " ".join(f"{s:9.1f} " for s in took))


if __name__ == "__main__":
    main()

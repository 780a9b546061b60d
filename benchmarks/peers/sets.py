"""Prediction sets of classes: coverage and size of `predict_set` beside MAPIE's split conformal sets.

    MERCER_DATA=… PYTHONPATH=… python benchmarks/peers/sets.py [--rows 600] [--coverage 0.9] [--seed 0] [--tables cmc]
    MERCER_DATA=… python benchmarks/peers/sets.py --splits 40 --tables waveform21

All methods have default boosting. `predict_set` calibrates on held-out, out-of-fold or left-out rows of its own fit;
MAPIE gets the estimator fitted to four fifths of the training rows, and the last fifth. Its scores are "lac" (least
ambiguous sets, which may be empty) and "aps" (adaptive sets, randomised). `--splits` repeats `predict_set` with a
Gaussian kernel over many splits, beside the deviation of split conformal sets: the coverage of m test rows by the k-th
of n scores is beta-binomial.
"""

from __future__ import annotations

import argparse

import numpy as np
from scipy.stats import betabinom

from mercer import KernelBoostingClassifier
from mercer.datasets import load

TABLES = ("cmc", "letter", "page_blocks", "segment", "waveform21")
TEST = 2000


def table(name: str) -> tuple[np.ndarray, np.ndarray]:
    """All rows of a table, and classes 0, 1, …"""
    bunch = load(name)
    X, y = np.asarray(bunch.X, dtype=float), np.asarray(bunch.y).reshape(-1)
    return X, np.unique(y, return_inverse=True)[1]


def judged(sets: np.ndarray, y: np.ndarray) -> tuple[float, float, float]:
    """Coverage, mean size, and the share of empty sets."""
    return sets[np.arange(len(y)), y].mean(), sets.sum(1).mean(), np.mean(sets.sum(1) == 0)


def over_splits(name: str, n: int, coverage: float, splits: int) -> None:
    """Print the coverage of `predict_set` over random splits of a table."""
    X, y = table(name)
    found = []
    for seed in range(splits):
        order = np.random.default_rng(100 + seed).permutation(len(y))
        train, test = order[:n], order[n : n + TEST]
        model = KernelBoostingClassifier(kernel="gaussian", random_state=0).fit(X[train], y[train])
        found.append((*judged(model.predict_set(X[test], coverage), y[test])[:2], model.score(X[test], y[test])))
    covered, sizes, right = np.transpose(found)
    k = int(np.ceil((n + 1) * coverage))
    expected = betabinom(TEST, k, n + 1 - k).std() / TEST
    print(
        f"{name:12} {splits} splits: coverage {covered.mean():.3f}, deviation {covered.std(ddof=1):.3f} (beta-binomial "
        f"{expected:.3f}), lowest {covered.min():.3f}, size {sizes.mean():.2f}, accuracy {right.mean():.3f}"
    )


def main() -> None:
    """Print a line for each table and method, and the means."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=600)
    parser.add_argument("--coverage", type=float, default=0.9)
    parser.add_argument("--seed", type=int, default=0, help="of the split")
    parser.add_argument("--tables", nargs="+", default=TABLES)
    parser.add_argument("--splits", type=int, default=0, help="of predict_set alone")
    given = parser.parse_args()
    if given.splits:
        for name in given.tables:
            over_splits(name, given.rows, given.coverage, given.splits)
        return
    from mapie.classification import SplitConformalClassifier

    found: dict[str, list[tuple[float, float, float]]] = {"predict_set": [], "lac": [], "aps": []}
    for name in given.tables:
        X, y = table(name)
        order = np.random.default_rng(given.seed).permutation(len(y))
        train, test = order[: given.rows], order[given.rows : given.rows + TEST]
        fit, rest = np.split(train, [given.rows * 4 // 5])
        whole = KernelBoostingClassifier(random_state=0).fit(X[train], y[train])
        seen = np.isin(y[test], whole.classes_)
        test = test[seen]
        place = np.searchsorted(whole.classes_, y[test])
        found["predict_set"].append(judged(whole.predict_set(X[test], given.coverage), place))
        part = KernelBoostingClassifier(random_state=0).fit(X[fit], y[fit])
        rest, test = (rows[np.isin(y[rows], part.classes_)] for rows in (rest, test))
        place = np.searchsorted(part.classes_, y[test])
        for score in ("lac", "aps"):
            rival = SplitConformalClassifier(part, given.coverage, conformity_score=score, prefit=True, random_state=0)
            sets = rival.conformalize(X[rest], y[rest]).predict_set(X[test])[1][:, :, 0]
            found[score].append(judged(sets, place))
        for method, lines in found.items():
            print(
                f"{name:12} {method:12} coverage {lines[-1][0]:.3f}  size {lines[-1][1]:.2f}  empty {lines[-1][2]:.3f}"
            )
    for method, lines in found.items():
        print(f"mean         {method:12}", *np.mean(lines, axis=0).round(3))


if __name__ == "__main__":
    main()

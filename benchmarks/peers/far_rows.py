"""Rows unlike those of the fit: how well `predict_uncertainty` finds them, beside a Gaussian process and a forest.

The tenth of each table that lies farthest along a random direction is left out of the fit: far rows. Of the others 1000
fit and 500 are new rows like them. The AUC says how often a far row has a larger score than a new row.

    python benchmarks/peers/far_rows.py --data DIRECTORY
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from sklearn.ensemble import IsolationForest
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.metrics import roc_auc_score
from sklearn.preprocessing import StandardScaler

import mercer

TABLES = ("abalone", "cal_housing", "elevators", "kin8nm", "pol")
N_FIT, N_NEW, SEEDS = 1000, 500, 3


def split(X: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Indices of fitted rows, new rows like them, and far rows."""
    Z = StandardScaler().fit_transform(X)
    along = Z @ rng.normal(size=Z.shape[1])
    far = np.flatnonzero(along > np.quantile(along, 0.9))
    others = rng.permutation(np.setdiff1d(np.arange(len(X)), far))
    return others[:N_FIT], others[N_FIT : N_FIT + N_NEW], rng.permutation(far)[:N_NEW]


def scores(X: np.ndarray, y: np.ndarray, rows: np.ndarray) -> dict[str, np.ndarray]:
    """The score of each method at rows: larger is farther."""
    model = mercer.KernelBoostingRegressor(random_state=0).fit(X, y)
    found = model.predict_uncertainty(rows)
    scale = StandardScaler().fit(X)
    kernel = ConstantKernel() * RBF(np.ones(X.shape[1]), (1e-2, 1e4)) + WhiteKernel()
    process = GaussianProcessRegressor(kernel, normalize_y=True, random_state=0).fit(scale.transform(X[:500]), y[:500])
    forest = IsolationForest(random_state=0).fit(X)
    return {
        "model": found.model,
        "distance": found.distance,
        "Gaussian process": process.predict(scale.transform(rows), return_std=True)[1],
        "isolation forest": -forest.score_samples(rows),
    }


def main() -> None:
    """Print the mean AUC of each table and method."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="directory of tables as .npz files")
    parser.add_argument("--tables", nargs="*", default=TABLES)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    given = parser.parse_args()
    for name in given.tables:
        with np.load(given.data / f"{name}.npz", allow_pickle=False) as table:
            X, y = np.asarray(table["X"], dtype=np.float64), np.asarray(table["y"], dtype=np.float64)
        areas: dict[str, list[float]] = {}
        for seed in range(given.seeds):
            fitted, new, far = split(X, np.random.default_rng(seed))
            rows, truth = np.concatenate([X[new], X[far]]), np.arange(len(new) + len(far)) >= len(new)
            for method, score in scores(X[fitted], y[fitted], rows).items():
                areas.setdefault(method, []).append(roc_auc_score(truth, np.nan_to_num(score)))
        print(name, *(f"{method} {np.mean(area):.3f}" for method, area in areas.items()), sep="  ", flush=True)


if __name__ == "__main__":
    main()

"""Many fits in one process, in threads and in processes: no memory is lost, and none disturbs another."""

from __future__ import annotations

import gc
import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from sklearn.model_selection import cross_val_score

import mercer

QUICK = {"kernel": "gaussian", "tuning_rows": 40, "random_state": 0}
FLAGSHIPS = {
    "KernelBoostingRegressor": {**QUICK, "n_learners": 2, "learner_size": 5, "subset_size": 20},
    "GreedyKernelRegressor": {**QUICK, "n_basis": 5},
}


def table(n: int = 40, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    return X, np.sin(2 * X[:, 0]) + 0.1 * rng.normal(size=n)


def fitted(name: str, seed: int = 0) -> np.ndarray:
    X, y = table(seed=seed)
    return getattr(mercer, name)(**FLAGSHIPS[name]).fit(X, y).predict(X)


def resident() -> int:
    """Bytes of memory that this process holds."""
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * 4096


@pytest.mark.parametrize("name", FLAGSHIPS)
def test_three_hundred_fits_leave_memory_flat(name):
    """Objects are counted by Python's own allocator; what torch holds outside of it, by the whole process.

    A leak of one 40 × 40 matrix of float64 a fit would make 200 fits grow by 2.5 MB.
    """
    for _ in range(100):  # caches fill
        fitted(name)
    gc.collect()
    before = resident()
    tracemalloc.start()
    first, _ = tracemalloc.get_traced_memory()
    for _ in range(200):
        fitted(name)
    gc.collect()
    last, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert last - first < 100_000
    if before:
        assert resident() - before < 20 << 20  # pages that the allocators keep, and tracemalloc's own tables


@pytest.mark.parametrize("name", FLAGSHIPS)
def test_four_threads_fitting_at_once_give_the_models_of_one(name):
    alone = [fitted(name, seed) for seed in range(8)]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda seed: fitted(name, seed), range(8)))
    for one, other in zip(alone, together, strict=True):
        np.testing.assert_array_equal(one, other)


def test_two_processes_give_the_scores_of_one():
    X, y = table(60)
    model = mercer.KernelBoostingRegressor(**FLAGSHIPS["KernelBoostingRegressor"])
    alone, together = (cross_val_score(model, X, y, cv=4, n_jobs=n_jobs) for n_jobs in (1, 2))
    # Processes of joblib's take another number of threads, which may round otherwise.
    np.testing.assert_allclose(alone, together, rtol=1e-6)

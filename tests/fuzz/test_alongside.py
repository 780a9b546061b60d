"""Many fits in one process, in threads and in processes: no memory is lost, and none disturbs another."""

from __future__ import annotations

import gc
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.model_selection import cross_val_score

import mercer
from mercer.kernels import Gaussian

pytestmark = pytest.mark.usefixtures("two_folds")

QUICK = {"kernel": Gaussian(1.0), "regularization": 0.1, "random_state": 0}
FLAGSHIPS = {
    "KernelBoostingRegressor": {"n_learners": 2, "learner_size": 5, "subset_size": 20},
    "GreedyKernelRegressor": {"n_basis": 5},
}
TUNED = {"kernel": "gaussian", "tuning_rows": 20, "random_state": 0}


def table(n: int = 40, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    return X, np.sin(2 * X[:, 0]) + 0.1 * rng.normal(size=n)


def fitted(name: str, seed: int = 0, how: dict[str, Any] = QUICK) -> np.ndarray:
    X, y = table(seed=seed)
    return getattr(mercer, name)(**FLAGSHIPS[name], **how).fit(X, y).predict(X)


def resident() -> int:
    """Bytes of memory that this process holds; 0 where the system does not tell."""
    told = Path("/proc/self/statm")
    return int(told.read_text().split()[1]) * 4096 if told.exists() else 0


@pytest.mark.long
@pytest.mark.parametrize(("how", "warm", "n_fits"), [(QUICK, 10, 16), (TUNED, 1, 4)], ids=["given", "tuned"])
@pytest.mark.parametrize("name", FLAGSHIPS)
def test_many_fits_leave_memory_flat(name, how, warm, n_fits):
    """What a fit leaves behind, be it one tensor, is an object more a fit."""
    for _ in range(warm):  # caches fill
        fitted(name, how=how)
    gc.collect()
    objects, held = len(gc.get_objects()), resident()
    for _ in range(n_fits):
        fitted(name, how=how)
    gc.collect()
    assert len(gc.get_objects()) - objects < n_fits // 2
    assert resident() - held < 20 << 20  # pages that the allocators keep for later


@pytest.mark.parametrize("name", FLAGSHIPS)
def test_three_threads_fitting_at_once_give_the_models_of_one(name):
    alone = [fitted(name, seed, TUNED) for seed in range(3)]
    with ThreadPoolExecutor(3) as pool:
        together = list(pool.map(lambda seed: fitted(name, seed, TUNED), range(3)))
    for one, other in zip(alone, together, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.cluster
def test_two_processes_give_the_scores_of_one():
    X, y = table(60)
    model = mercer.KernelBoostingRegressor(**FLAGSHIPS["KernelBoostingRegressor"], **TUNED)
    alone, together = (cross_val_score(model, X, y, cv=4, n_jobs=n_jobs) for n_jobs in (1, 2))
    # Processes of joblib's take another number of threads, which may round otherwise.
    np.testing.assert_allclose(alone, together, rtol=1e-6)

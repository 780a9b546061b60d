"""Several processes fit the model that one process fits: same basis vectors, same predictions up to rounding."""

import re
from pathlib import Path

import cluster
import numpy as np
import pytest
import torch

import mercer
from mercer import KernelBoostingClassifier, KernelBoostingRegressor
from mercer.data import ArrayRows, Pieces
from mercer.distributed import own_rows
from mercer.kernels import Gaussian

COMMON = {"n_learners": 4, "learner_size": 30, "dtype": "float64", "random_state": 0, "memory_limit": "1GB"}
FIXED = {"kernel": Gaussian(1.0), "regularization": 1e-2}
MODELS = {
    "watched and polished": KernelBoostingRegressor(validation_fraction=0.1, **FIXED, **COMMON),
    "tuned by evidence": KernelBoostingRegressor(kernel="gaussian", tuning_rows=100, **COMMON),
    "one block, few steps": KernelBoostingRegressor(
        absorption="full", criterion="max-res", combination="cg", **FIXED, **COMMON
    ),
    "two classes": KernelBoostingClassifier(loss="logistic", validation_fraction=0.1, **FIXED, **COMMON),
    "three classes": KernelBoostingClassifier(validation_fraction=0.1, **FIXED, **COMMON),
}
#: Sums over rows are rounded otherwise where they are cut otherwise, by some 1e-14; polish and combination solve systems
#: of condition up to 1e7 with them.
TOLERANCE = 1e-6


def table(n=900):
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (n, 3))
    return X, np.sin(2 * X[:, 0]) * X[:, 1] + 0.1 * rng.normal(size=n), rng.integers(0, 3, n).astype(float)


def targets(name, y):
    return {"two": y > 0, "three": np.digitize(y, [-0.5, 0.5])}.get(name.split()[0], y)


def answer(model, X):
    return model.predict_proba(X) if hasattr(model, "predict_proba") else model.predict(X)


def fit_all(group, names):
    X, y, weight = table()
    for name in names:
        model = MODELS[name].fit(X, targets(name, y), weight)
        yield model.basis_indices_, answer(model, X[:200]), model.history_["validation"]


def fits(group, names):
    return list(fit_all(group, names))


@pytest.fixture(scope="module")
def alone():
    with cluster.as_if_large():
        return dict(zip(MODELS, fit_all(None, MODELS), strict=True))


@pytest.mark.parametrize("n", [1, 2, 3])
def test_processes_that_share_an_array_fit_the_model_of_one(n, alone):
    for found in cluster.on_processes(n, fits, list(MODELS)):
        for (index, values, watched), name in zip(found, MODELS, strict=True):
            np.testing.assert_array_equal(index, alone[name][0], err_msg=name)
            np.testing.assert_allclose(values, alone[name][1], atol=TOLERANCE, err_msg=name)
            np.testing.assert_allclose(watched, alone[name][2], rtol=TOLERANCE, err_msg=name)


def fit_own(group, bounds):
    X, y, weight = table()
    own = slice(bounds[group.rank], bounds[group.rank + 1])
    name = "watched and polished"
    model = MODELS[name].fit(own_rows(X[own]), y[own], weight[own])
    return model.basis_indices_, answer(model, X[:200])


def test_a_process_without_rows_takes_part(alone):
    for index, values in cluster.on_processes(3, fit_own, [0, 500, 500, 900]):
        np.testing.assert_array_equal(index, alone["watched and polished"][0])
        np.testing.assert_allclose(values, alone["watched and polished"][1], atol=TOLERANCE)


def fit_file(group, path):
    model = MODELS["watched and polished"].fit(mercer.data.ParquetRows(path, target="y"))
    return model.basis_indices_, answer(model, table()[0][:200])


def test_a_parquet_file_is_dealt_out_by_row_groups(tmp_path):
    pandas = pytest.importorskip("pandas")
    X, y, _ = table()
    frame = pandas.DataFrame(X, columns=["a", "b", "c"]).assign(y=y)
    frame.to_parquet(tmp_path / "t.parquet", row_group_size=200)
    with cluster.as_if_large():
        index, values = fit_file(None, tmp_path / "t.parquet")
    for one in cluster.on_processes(2, fit_file, tmp_path / "t.parquet"):
        np.testing.assert_array_equal(one[0], index)
        np.testing.assert_allclose(one[1], values, atol=TOLERANCE)


class Simulated(mercer.data.Group):
    """One of several processes whose collectives are answered by a function of what each of them would say."""

    def __init__(self, rank, size, runs):
        self.rank, self.size, self.runs = rank, size, runs

    def gather(self, thing):
        return self.runs


@pytest.mark.parametrize("rank", [0, 1, 2])
def test_numbers_and_places_are_inverse_to_each_other(rank):
    runs = [[(40, 10), (0, 15)], [], [(15, 25)]]
    shard = Pieces(Simulated(rank, 3, runs), *zip(*(runs[rank] or [(0, 0)]), strict=True))
    numbers = shard.numbers(np.arange(shard.n_rows))
    at, places = shard.held(np.arange(50))
    assert shard.n_total == 50
    assert sorted(numbers) == at.tolist()
    np.testing.assert_array_equal(shard.numbers(places), at)


def test_torch_distributed_is_imported_in_one_file():
    root = Path(mercer.__file__).parent
    found = {
        str(file.relative_to(root))
        for file in root.rglob("*.py")
        if re.search(r"^\s*(import|from) torch\.distributed", file.read_text(), re.MULTILINE)
    }
    assert found == {"distributed/group.py"}


def test_few_rows_are_learnt_whole_and_give_the_model_of_one_process():
    X, y, weight = table(60)
    plain = KernelBoostingRegressor(**FIXED, random_state=0).fit(X, y, weight).predict(X)
    for one in cluster.on_processes(2, fit_few):
        np.testing.assert_array_equal(one, plain)


def fit_few(group):
    X, y, weight = table(60)
    with cluster.as_if_large(1000):
        return KernelBoostingRegressor(**FIXED, random_state=0).fit(X, y, weight).predict(X)


def test_a_source_of_one_process_sums_to_itself():
    rows = ArrayRows(np.zeros((3, 2)))
    value = torch.ones(2)
    assert rows.total(value) is value

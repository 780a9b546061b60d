"""Several processes fit the model that one process fits: same basis vectors, same predictions up to rounding."""

import subprocess
import sys

import cluster
import numpy as np
import pytest

import mercer
from mercer import (
    ENRBFClassifier,
    ENRBFRegressor,
    GaussianMixtureClassifier,
    GreedyKernelClassifier,
    GreedyKernelRegressor,
    KernelBoostingClassifier,
    KernelBoostingRegressor,
    NRBFRegressor,
    RPEMEKLClassifier,
    RPEMEKLRegressor,
    SparseGPClassifier,
    SparseGPRegressor,
)
from mercer.base.calibration import Temperature
from mercer.data import current_group
from mercer.data.shard import even_run
from mercer.distributed import own_rows
from mercer.distributed.partitions import SpooledRows, write_rows
from mercer.distributed.rows import OwnRows
from mercer.kernels import Gaussian

COMMON = {"n_learners": 4, "learner_size": 30, "dtype": "float64", "random_state": 0, "memory_limit": "1GB"}
FIXED = {"kernel": Gaussian(1.0), "regularization": 1e-2}
MODELS = {
    "watched and polished": KernelBoostingRegressor(validation_fraction=0.1, **FIXED, **COMMON),
    "tuned by evidence": KernelBoostingRegressor(kernel="gaussian", tuning_rows=100, **COMMON),
    "one block, few steps": KernelBoostingRegressor(
        absorption="full", criterion="max-res", combination="cg", **FIXED, **COMMON
    ),
    # normal equations square the condition number of kernel columns, so these are of a short kernel
    "curvature from some rows": KernelBoostingRegressor(
        gram_rows=60, kernel=Gaussian(0.3), regularization=1e-2, **COMMON
    ),
    # its vectors cover so many of these rows that they are counted, and not supposed to lie evenly
    "curvature from rows around": KernelBoostingRegressor(
        gram_rows=300, kernel=Gaussian(1.5), regularization=1e-2, polish=False, **{**COMMON, "learner_size": 8}
    ),
    "two classes": KernelBoostingClassifier(loss="logistic", validation_fraction=0.1, **FIXED, **COMMON),
    "two classes in focus": KernelBoostingClassifier(
        focus="margin", absorption="blocks", block_length=2, validation_fraction=0.1, **FIXED, **COMMON
    ),
    "three classes": KernelBoostingClassifier(validation_fraction=0.1, **FIXED, **COMMON),
    "three classes by softmax": KernelBoostingClassifier(loss="logistic", validation_fraction=0.1, **FIXED, **COMMON),
}
#: Sums over rows are rounded otherwise where they are cut otherwise, by some 1e-14; polish and combination solve
#: systems of condition up to 1e7 with them.
TOLERANCE = 1e-6
GREEDY = {"n_basis": 25, "dtype": "float64", "random_state": 0, "memory_limit": "1GB", **FIXED}
#: Every criterion, update and extra of greedy selection; a vector a step, so that every step is a decision.
SELECTED = {
    "max-res": GreedyKernelRegressor(**GREEDY),
    "by 59 candidates": GreedyKernelRegressor(criterion="mp", update="one", **GREEDY),
    "novel and useful": GreedyKernelRegressor(criterion="ran", **GREEDY),
    "information": GreedyKernelRegressor(criterion="info-gain", tol=1e-3, **GREEDY),
    "all columns": GreedyKernelRegressor(criterion="ormp", update="qr", **GREEDY),
    "at random, one by one": GreedyKernelRegressor(criterion="random", step_size=1, stopping="mdl", **GREEDY),
    "at random, at once": GreedyKernelRegressor(criterion="random", step_size=25, **GREEDY),
    "several a step": GreedyKernelRegressor(step_size=5, prune=True, **GREEDY),
    "exchanged": GreedyKernelRegressor(exchange=True, update="qr", **GREEDY),
    "minimal residuals": GreedyKernelRegressor(update="mrx", exchange=True, **GREEDY),
    "unweighted and refined": GreedyKernelRegressor(refine=True, refine_iter=8, **GREEDY),
    "two classes chosen for": GreedyKernelClassifier(loss="logistic", validation_fraction=0.1, **GREEDY),
}
OTHERS = {
    "moving inducing inputs": SparseGPRegressor(12, kernel="gaussian", max_iter=8, random_state=0, dtype="float64"),
    "the bound": SparseGPRegressor(
        12,
        approximation="variational",
        inducing="random",
        kernel=Gaussian(1.0),
        max_iter=8,  # rounding grows along a search
        random_state=0,
        dtype="float64",
    ),
    "chosen by a criterion": SparseGPRegressor(
        12, inducing="mp", kernel=Gaussian(1.0), max_iter=4, random_state=0, dtype="float64"
    ),
    "two classes by Laplace": SparseGPClassifier(10, max_iter=4, random_state=0, dtype="float64"),
    "three classes by Laplace": SparseGPClassifier(
        10, approximation="pp", multi_class="softmax", kernel="gaussian", max_iter=4, random_state=0, dtype="float64"
    ),
    "counts of measured dispersion": SparseGPRegressor(
        12, loss="poisson", kernel="gaussian", max_iter=4, random_state=0, dtype="float64"
    ),
    "three classes by members": RPEMEKLClassifier(
        n_members=3, subset_size=(20, 30), multiclass="ovr", max_iter=10, random_state=0, dtype="float64"
    ),
    "members of numbers": RPEMEKLRegressor(n_members=5, subset_size=30, random_state=0, dtype="float64"),
    "mixture of experts": ENRBFRegressor(n_components=3, n_init=2, max_iter=20, random_state=0),
    "two classes by shares": ENRBFClassifier(n_components=3, max_iter=10, random_state=0),
    "three classes by densities": GaussianMixtureClassifier(n_components=2, max_iter=20, random_state=0),
    "sizes tried": NRBFRegressor(n_components="auto", max_components=3, max_iter=10, random_state=0),
}


def table(n=900):
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (n, 3))
    return X, np.sin(2 * X[:, 0]) * X[:, 1] + 0.1 * rng.normal(size=n), rng.integers(0, 3, n).astype(float)


def targets(name, y):
    coded = {"two": y > 0, "three": np.digitize(y, [-0.5, 0.5]), "counts": np.round(3 * np.exp(y))}
    return coded.get(name.split()[0], y)


def answer(model, X):
    """Predictions, or probabilities without calibration: a table of so few rows that nobody shares it is calibrated by
    refits, which a shared one is not."""
    if getattr(model, "calibration_", None) is not None:
        model.calibration_ = Temperature()
    return model.predict_proba(X) if hasattr(model, "predict_proba") else model.predict(X)


def said(model):
    """What two fits of one model are compared by."""
    values = answer(model, table()[0][:200])
    chosen = getattr(model, "basis_indices_", getattr(model, "n_components_", None))
    if hasattr(model, "members_"):
        chosen = np.concatenate([one.basis_indices for members in model.members_ for one in members])
    if hasattr(model, "history_"):
        return chosen, values, model.history_["validation"]
    return chosen, values, getattr(model, "log_likelihood_path_", ())


def all_fits(group, path, names, stored):
    """Models of an array, and some of row groups of a file and of partitions, of which some processes have none."""
    X, y, weight = table()
    models = {**MODELS, **SELECTED, **OTHERS}
    found = {}
    for name in names:
        found[name] = said(models[name].fit(X, targets(name, y), None if "unweighted" in name else weight))
    plain = MODELS["watched and polished"]
    found["rows given to watch"] = said(plain.fit(X[:700], y[:700], X_val=X[700:], y_val=y[700:]))
    own = slice(*even_run(current_group(), len(X)))
    found["rows of their own"] = said(plain.fit(own_rows(X[own]), y[own], weight[own]))
    for name in stored:
        target = name.split()[0] if name.split()[0] in ("two", "three") else "y"
        rows = mercer.data.ParquetRows(path, target=target, columns=["a", "b", "c"])
        found[f"{name}, file"] = said(models[name].fit(rows))
        rows, own = partitions(group, path.parent, X)
        found[f"{name}, partitions"] = said(models[name].fit(rows, targets(name, y)[own], weight[own]))
    return found


def partitions(group, folder, X):
    """Eleven pieces on the disk, as the workers of a cluster hold them, of which every second process has none."""
    bounds, rank, full = np.linspace(0, len(X), 12).astype(int), 0, 1
    if group is not None:
        rank, full = group.rank, (group.size + 1) // 2
    places = [k for k in range(11) if 2 * (k * 5 % full) == rank]  # not in order
    sources = [
        SpooledRows(folder / f"{k}.rows", int(bounds[k + 1] - bounds[k]), X.shape[1], X.dtype.str) for k in places
    ]
    own = [np.arange(bounds[k], bounds[k + 1]) for k in places]
    return OwnRows(sources, places, X.shape[1]), np.concatenate([np.arange(0), *own])


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    pandas = pytest.importorskip("pandas")
    X, y, _ = table()
    path = tmp_path_factory.mktemp("table") / "t.parquet"
    columns = {name: targets(name, y) for name in ("y", "two", "three")}
    pandas.DataFrame(dict(zip("abc", X.T, strict=True), **columns)).to_parquet(path, row_group_size=100)
    for k, rows in enumerate(np.split(X, np.linspace(0, len(X), 12).astype(int)[1:-1])):
        write_rows(path.parent / f"{k}.rows", rows)
    return path


#: What every run of the tests asks of two processes; other models and numbers of processes: `make test-cluster`.
QUICK = ["watched and polished", "several a step", "the bound", "mixture of experts"]
ALL = [*MODELS, *SELECTED, *OTHERS]
#: Fitted to a file and to partitions, too: numbers and classes.
OF_EACH_FAMILY = ["watched and polished", "two classes", "exchanged", "two classes chosen for", "the bound"]
OF_EACH_FAMILY += ["two classes by Laplace", "mixture of experts", "three classes by densities"]
OF_EACH_FAMILY += ["two classes by shares", "sizes tried", "members of numbers", "three classes by members"]
SIZES = [(2, QUICK, ["watched and polished"])]
SIZES += [pytest.param(n, ALL, OF_EACH_FAMILY, marks=pytest.mark.cluster) for n in (1, 2, 3, 8)]


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
@pytest.mark.parametrize(
    ("n", "names", "stored"), SIZES, ids=lambda given: str(given if isinstance(given, int) else len(given))
)
def test_processes_that_share_a_table_fit_the_model_of_one(n, names, stored, path):
    """From an array, from row groups of a file, and from partitions, where some processes have none."""
    with cluster.as_if_large():
        alone = all_fits(None, path, names, stored)
    for found in cluster.on_processes(n, all_fits, path, names, stored):
        for name, (index, values, watched) in found.items():
            np.testing.assert_array_equal(index, alone[name][0], err_msg=name)
            np.testing.assert_allclose(values, alone[name][1], atol=TOLERANCE, err_msg=name)
            np.testing.assert_allclose(watched, alone[name][2], rtol=TOLERANCE, err_msg=name)


SCRIPT = """
import numpy as np
import mercer.distributed
from mercer import KernelBoostingRegressor
from mercer.kernels import Gaussian

group = mercer.distributed.init(timeout=60)
X = np.random.default_rng(0).normal(size=(13_000, 3))
model = KernelBoostingRegressor(
    2, learner_size=20, kernel=Gaussian(1.0), regularization=0.1, random_state=0, polish=False, dtype="float64"
)
model.fit(X, np.sin(X[:, 0]))
np.savez(f"{group.rank}-of-{group.size}.npz", index=model.basis_indices_, values=model.predict(X[:100]))
"""


@pytest.mark.cluster
def test_a_script_runs_alike_alone_and_under_torchrun(tmp_path):
    (tmp_path / "fit.py").write_text(SCRIPT)
    torchrun = [
        "-m",
        "torch.distributed.run",
        "--nproc-per-node=2",
        "--rdzv-backend=c10d",
        "--rdzv-endpoint=localhost:0",
    ]
    for arguments in ([], torchrun):
        subprocess.run([sys.executable, *arguments, "fit.py"], cwd=tmp_path, check=True, capture_output=True)
    alone, *both = (np.load(tmp_path / name) for name in ("0-of-1.npz", "0-of-2.npz", "1-of-2.npz"))
    for one in both:
        np.testing.assert_array_equal(one["index"], alone["index"])
        np.testing.assert_allclose(one["values"], alone["values"], atol=TOLERANCE)


@pytest.mark.cluster
def test_few_rows_are_learnt_whole_and_give_the_model_of_one_process():
    X, y, weight = table(60)
    plain = KernelBoostingRegressor(**FIXED, random_state=0).fit(X, y, weight).predict(X)
    for one in cluster.on_processes(2, fit_few):
        np.testing.assert_array_equal(one, plain)


def fit_few(group):
    X, y, weight = table(60)
    with cluster.as_if_large(1000):
        return KernelBoostingRegressor(**FIXED, random_state=0).fit(X, y, weight).predict(X)


@pytest.mark.cluster
def test_a_column_is_constant_only_if_it_is_so_on_all_processes():
    maps, same = zip(*cluster.on_processes(2, fit_constants), strict=True)
    assert all(same)
    assert maps == (["number", "number", "left out: constant"],) * 2


def fit_constants(group):
    X, y, _ = table(60)
    own = np.column_stack([X[:, 0], np.full(len(X), float(group.rank)), np.full(len(X), 5.0)])
    model = GreedyKernelRegressor(**GREEDY).fit(own_rows(own), y)
    later = own + np.array([0.0, 0.0, 3.0])
    return [one["map"] for one in model.columns_], np.array_equal(model.predict(own), model.predict(later))

"""The Dask faces on real worker processes: the model of the plain estimator, lazy predictions, faults that end."""

import os
import pickle
import re
import signal
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import cluster
import numpy as np
import pytest

import mercer.distributed.dask
from mercer import KernelBoostingClassifier, KernelBoostingRegressor
from mercer.base.calibration import Temperature
from mercer.distributed import LostProcessError
from mercer.distributed.dask import (
    DaskGaussianMixtureClassifier,
    DaskKernelBoostingClassifier,
    DaskKernelBoostingRegressor,
    DaskSparseGPRegressor,
)
from mercer.distributed.partitions import each_partition
from mercer.kernels import Gaussian

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")
dd = pytest.importorskip("dask.dataframe")
distributed = pytest.importorskip("distributed")
pd = pytest.importorskip("pandas")

pytestmark = [pytest.mark.cluster, pytest.mark.filterwarnings("ignore")]  # Dask's own warnings are not ours
SETTINGS = {
    "kernel": Gaussian(1.0),
    "regularization": 1e-2,
    "n_learners": 4,
    "learner_size": 30,
    "dtype": "float64",
    "random_state": 0,
    "memory_limit": "1GB",
    "validation_fraction": 0.1,
}


def table(n=900):
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (n, 3))
    return X, np.sin(2 * X[:, 0]) * X[:, 1] + 0.1 * rng.normal(size=n)


def new_client(n_workers=2, share_small=True):
    """Workers and their client; with `share_small` small tables are shared as large ones are."""
    workers = distributed.LocalCluster(
        n_workers=n_workers, threads_per_worker=1, processes=True, dashboard_address=None, memory_limit="2GB"
    )
    client = distributed.Client(workers)
    if share_small:
        client.run(_small())
    return workers, client


def _small():
    def lower():  # travels by value: workers do not know this file
        import mercer.engine
        import mercer.gp.estimator
        import mercer.mixture.estimator
        import mercer.preprocessing.duplicates

        mercer.preprocessing.duplicates.MERGED_ROWS = mercer.preprocessing.duplicates.MERGED_ROWS = 10
        mercer.gp.estimator.MERGED_ROWS = mercer.mixture.estimator.MERGED_ROWS = 10
        mercer.engine.Plan.exact_limits = (10, 10)

    return lower


@pytest.fixture(scope="module")
def client():
    workers, client = new_client()
    with workers, client:
        yield client


def frame():
    X, y = table()
    return pd.DataFrame(X, columns=["a", "b", "c"]), pd.Series(y, name="y")


def test_a_dataframe_of_fifty_partitions_gives_the_model_of_one_process(client):
    X, y = frame()
    dX, dy = dd.from_pandas(X, npartitions=50), dd.from_pandas(y, npartitions=50)
    with cluster.as_if_large():
        plain = KernelBoostingRegressor(**SETTINGS).fit(X, y)
    model = DaskKernelBoostingRegressor(client=client, **SETTINGS).fit(dX, dy)
    np.testing.assert_array_equal(model.basis_indices_, plain.basis_indices_)
    said = model.predict(dX)
    assert isinstance(said, dd.Series)
    np.testing.assert_allclose(said.compute(), plain.predict(X), atol=1e-6)  # see test_distributed.TOLERANCE
    assert said.compute().index.equals(X.index)
    local = pickle.loads(pickle.dumps(model)).to_local()
    sizes = [len(distributed.protocol.pickle.dumps(task)) for task in said.optimize().dask.values()]
    assert sum(size > len(pickle.dumps(local)) / 2 for size in sizes) == 1  # the model is not in every task
    assert type(local) is KernelBoostingRegressor
    # 18 rows at a time are multiplied in another order than 900: 120 terms of size 1 to 100 are rounded by 1e-14 each
    np.testing.assert_allclose(local.predict(X), said.compute(), atol=1e-12)
    assert pickle.loads(pickle.dumps(model)).client is None


def test_an_array_with_classes_and_weights_gives_probabilities_of_its_kind(client):
    X, y = table()
    names, weight = np.where(y > 0, "up", "down"), np.tile([0.0, 1.0, 2.0], len(y) // 3)
    chunks = 200
    dX, dy, dw = (da.from_array(one, chunks=(chunks, *one.shape[1:])) for one in (X, names, weight))
    with cluster.as_if_large():
        plain = KernelBoostingClassifier(**SETTINGS).fit(X, names, weight)
    model = DaskKernelBoostingClassifier(client=client, **SETTINGS).fit(dX, dy, dw)
    plain.calibration_ = model.calibration_ = Temperature()  # a table that is not shared is calibrated by refits
    said = model.predict_proba(dX)
    assert isinstance(said, da.Array)
    np.testing.assert_allclose(said.compute(), plain.predict_proba(X), atol=1e-6)
    assert (model.predict(dX).compute() == plain.predict(X)).all()


@pytest.mark.parametrize(
    "model",
    [
        DaskSparseGPRegressor(12, kernel=Gaussian(1.0), approximation="variational", random_state=0, dtype="float64"),
        DaskGaussianMixtureClassifier(2, max_iter=10, random_state=0),
    ],
    ids=lambda model: type(model).__name__,
)
def test_other_families_run_on_dask(client, model):
    X, y = frame()
    y = y if "Regressor" in type(model).__name__ else (y > 0).astype(int)
    model.fit(dd.from_pandas(X, npartitions=4), dd.from_pandas(y, npartitions=4))
    with cluster.as_if_large():
        plain = model.to_local().fit(X, y)
    if hasattr(plain, "calibration_"):
        plain.calibration_ = model.calibration_ = Temperature()  # a table that is not shared is calibrated by refits
    np.testing.assert_allclose(model.predict(X), plain.predict(X), atol=1e-6)


def collections(kind, rows, n_partitions):
    """Inputs, targets and weights as Dask arrays, or as frames, of some partitions."""
    if kind == "array":
        size = -(-len(rows[0]) // n_partitions)
        return [da.from_array(one, chunks=(size, *one.shape[1:])) for one in rows]
    X = pd.DataFrame(rows[0], columns=["a", "b", "c"])
    return [dd.from_pandas(one, npartitions=n_partitions) for one in (X, *map(pd.Series, rows[1:]))]


@pytest.mark.parametrize("n_workers", [1, 2, 3])
def test_fits_of_one_collection_on_any_number_of_workers_are_the_model_of_one_process(n_workers):
    """Ten fits in all; Dask places the partitions otherwise each time.

    Tables of more than 10 000 rows are shared, in float64; float32 sums would follow the placement. Smaller ones the
    first process learns alone, with everything left open. Sums of different blocks differ by some 1e-14, and weights
    solve systems of condition up to 1e7 with them (see test_distributed.TOLERANCE).
    """
    large, small = table(12_500), table(150)
    weight = [np.tile([1.0, 2.0, 3.0], len(y))[: len(y)] for _, y in (large, small)]
    settings = {"kernel": Gaussian(1.0), "regularization": 1e-2, "n_learners": 2, "learner_size": 30, "random_state": 0}
    plain = KernelBoostingRegressor(dtype="float64", **settings).fit(*large, weight[0])
    alone = KernelBoostingClassifier(random_state=0).fit(small[0], small[1] > 0, weight[1])
    workers, client = new_client(n_workers, share_small=False)
    with workers, client:
        for kind in ("array", "frame", "array")[: 3 if n_workers == 2 else 2]:
            dX, dy, dw = collections(kind, (*large, weight[0]), 7)
            model = DaskKernelBoostingRegressor(client=client, **settings).fit(dX, dy, dw)
            np.testing.assert_array_equal(model.basis_indices_, plain.basis_indices_)
            np.testing.assert_allclose(model.to_local().predict(large[0]), plain.predict(large[0]), atol=1e-6)
        dX, dy, dw = collections("frame", (small[0], small[1] > 0, weight[1]), 5)
        model = DaskKernelBoostingClassifier(client=client, random_state=0).fit(dX, dy, dw).to_local()
        given = pd.DataFrame(small[0], columns=["a", "b", "c"])
        np.testing.assert_allclose(model.predict_proba(given), alone.predict_proba(small[0]), atol=1e-6)


def test_a_fit_in_which_one_process_works_alone_for_longer_than_the_timeout_is_not_lost():
    workers, client = new_client(share_small=False)  # so few rows the first process learns alone
    X, y = frame()
    with workers, client:
        dX, dy = dd.from_pandas(X, npartitions=4), dd.from_pandas(y, npartitions=4)
        DaskKernelBoostingRegressor(client=client, **SETTINGS).fit(dX, dy)  # workers import what they need
        slow = DaskKernelBoostingRegressor(client=client, timeout=5.0, callbacks=_slow(seconds=2.5), **SETTINGS)
        began = time.monotonic()
        slow.fit(dX, dy)
        assert time.monotonic() - began > 2 * 5.0  # four learners


@pytest.mark.parametrize("column", [pd.Categorical(["u", "v"] * 5), pd.Categorical([1, 2] * 5), ["text"] * 10])
def test_columns_that_are_no_numbers_are_refused_by_name(column):
    X = dd.from_pandas(pd.DataFrame({"a": np.arange(10.0), "kind": column}), npartitions=2)
    with pytest.raises(ValueError, match=r"X must be columns of numbers on Dask; .* got \['kind'\]"):
        each_partition(_both, X, X["a"], None)


def short_of_memory(share, least, many, gram):
    def change():  # travels by value: workers do not know this file
        from dataclasses import replace

        import mercer.distributed.partitions as partitions
        import mercer.forward.boosting as boosting

        settings = boosting.Boosting._selection_settings
        kept = partitions.MEMORY_SHARE, partitions.MIN_MEMORY, settings.many_rows, boosting.SAMPLE_ROWS
        partitions.MEMORY_SHARE, partitions.MIN_MEMORY, boosting.SAMPLE_ROWS = share, least, gram
        boosting.Boosting._selection_settings = replace(settings, many_rows=many)
        return kept

    return change


def test_a_fit_beside_another_one_chooses_the_vectors_of_a_fit_alone(client):
    """20 MiB, of which 1000 to 2000 rows at a time fit into what workers may plan with, and 2000 stand for all."""
    X = da.random.default_rng(0).random((5000, 1000), dtype=np.float32, chunks=(250, 1000))
    y = da.sin(3 * X[:, 0]) + 0.3 * X[:, 1:9].sum(1)
    settings = {**SETTINGS, "kernel": Gaussian(40.0), "learner_size": 10, "memory_limit": None, "polish": False}
    models = [DaskKernelBoostingRegressor(client=client, timeout=60.0, **settings) for _ in range(3)]
    kept = next(iter(client.run(short_of_memory(0.06, 2**20, 1000, 2000)).values()))
    try:
        models[0].fit(X, y)
        client.run(lambda dask_worker: setattr(dask_worker, "ballast", bytearray(2**27)))  # less is left from now on
        threads = [threading.Thread(target=model.fit, args=(X, y)) for model in models[1:]]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
    finally:
        client.run(short_of_memory(*kept))
        client.run(lambda dask_worker: delattr(dask_worker, "ballast"))
    for model in models[1:]:
        np.testing.assert_array_equal(model.basis_indices_, models[0].basis_indices_)


def pauses_above(share, places):
    def change(dask_worker):
        if dask_worker.address in places:
            dask_worker.memory_manager.memory_pause_fraction = share

    return change


def states(client):
    """How the scheduler sees its workers, asked anew: what the client knows may be empty for a moment."""
    told = client.sync(client.scheduler.identity)["workers"]
    return {worker: one["status"] for worker, one in told.items()}


@pytest.mark.parametrize("both", [True, False], ids=["both workers", "the second worker"])
def test_workers_that_are_paused_when_the_fit_begins_are_named(client, monkeypatch, both):
    late, began = [], []

    @contextmanager
    def paused(client, workers, timeout):
        assert len(workers) == 2
        late.extend(workers if both else workers[1:])
        client.run(pauses_above(1e-9, late))
        while not all(states(client)[worker] == "paused" for worker in late):
            time.sleep(0.05)
        began.append(time.monotonic())
        yield

    X, y = frame()
    dX, dy = dd.from_pandas(X, npartitions=50), dd.from_pandas(y, npartitions=50)  # each worker has some
    model = DaskKernelBoostingRegressor(client=client, timeout=5.0, **SETTINGS)
    try:
        with monkeypatch.context() as patch:
            patch.setattr(mercer.distributed.dask, "exclusive_workers", paused)
            with pytest.raises(LostProcessError) as error:
                model.fit(dX, dy)
        assert time.monotonic() - began[0] < 5.0 + 20.0  # the timeout, and as much on a busy machine
        assert error.value.ranks == ([0, 1] if both else [1])
        assert all(worker in str(error.value) for worker in late)
        left = client.run(lambda dask_worker: [*Path(dask_worker.local_directory).glob("mercer-*")])
        assert not any(left.values())
    finally:
        client.run(pauses_above(0.8, late))
        while "paused" in states(client).values():
            time.sleep(0.05)
    with cluster.as_if_large():
        plain = KernelBoostingRegressor(**SETTINGS).fit(X, y)
    again = DaskKernelBoostingRegressor(client=client, **SETTINGS).fit(dX, dy)  # the same workers form a group again
    np.testing.assert_array_equal(again.basis_indices_, plain.basis_indices_)


def test_workers_that_a_lost_client_keeps_to_itself_end_the_fit_with_a_sentence(client):
    X, y = frame()
    model = DaskKernelBoostingRegressor(client=client, timeout=1.0, **SETTINGS)
    lock = distributed.MultiLock([f"mercer-{worker}" for worker in client.nthreads()], client=client)
    with lock, pytest.raises(LostProcessError, match=r"another fit .* tcp://127.* 1 s"):
        model.fit(dd.from_pandas(X, npartitions=4), dd.from_pandas(y, npartitions=4))


def test_a_worker_that_joins_late_does_no_harm(client):
    X, y = frame()
    dX, dy = dd.from_pandas(X, npartitions=4), dd.from_pandas(y, npartitions=4)
    model = DaskKernelBoostingRegressor(client=client, callbacks=_slow(), **{**SETTINGS, "n_learners": 10})
    thread = threading.Thread(target=client.cluster.scale, args=(3,))
    thread.start()
    model.fit(dX, dy)
    thread.join()
    with cluster.as_if_large():
        plain = KernelBoostingRegressor(**{**SETTINGS, "n_learners": 10}).fit(X, y)
    np.testing.assert_allclose(model.predict(X), plain.predict(X), atol=1e-6)


def parts_of(*, stuck):
    def part(k):  # travels by value: workers do not know this file
        import distributed
        import numpy as np
        import pandas as pd

        if k and stuck:
            distributed.Event("let go").wait(60)
        return pd.DataFrame(np.full((3, 3), float(k)), columns=list("aby"))

    return dd.from_map(part, range(2), meta=frame_of_none())


def test_partitions_that_nobody_writes_end_the_fit_with_the_names_of_workers(client):
    table = parts_of(stuck=True)
    model = DaskKernelBoostingRegressor(client=client, timeout=5.0, **SETTINGS)
    with pytest.raises(LostProcessError, match=r"5 s .* [12] of 2 partitions .* tcp://127") as error:
        model.fit(table[["a", "b"]], table["y"])
    assert any(worker in str(error.value) for worker in client.nthreads())
    distributed.Event("let go", client=client).set()


def test_a_cluster_without_workers_ends_the_fit_with_a_sentence():
    table = parts_of(stuck=False)
    nobody = distributed.LocalCluster(n_workers=0, processes=False, dashboard_address=None)
    with nobody, distributed.Client(nobody) as alone:
        model = DaskKernelBoostingRegressor(client=alone, timeout=0.5, **SETTINGS)
        with pytest.raises(LostProcessError, match=r"2 of 2 partitions .* none"):
            model.fit(table[["a", "b"]], table["y"])


def test_a_worker_that_is_killed_ends_the_fit_and_a_second_one_goes_on(tmp_path):
    X, y = frame()
    settings = {**SETTINGS, "n_learners": 30, "checkpoint": str(tmp_path / "kept")}
    workers, client = new_client()
    with workers, client:
        dX, dy = dd.from_pandas(X, npartitions=4), dd.from_pandas(y, npartitions=4)
        model = DaskKernelBoostingRegressor(client=client, timeout=20.0, callbacks=_slow(), **settings)
        pids = client.run(os.getpid)
        victim = list(pids)[1]

        def kill():
            end = time.monotonic() + 60
            while not (tmp_path / "kept" / "fit.json").exists() and time.monotonic() < end:
                time.sleep(0.05)
            os.kill(pids[victim], signal.SIGKILL)
            killed.append(time.monotonic())

        killed = []
        thread = threading.Thread(target=kill)
        thread.start()
        with pytest.raises(LostProcessError, match=re.escape(victim)) as error:
            model.fit(dX, dy)
        assert time.monotonic() - killed[0] < 20.0 + 20.0  # the timeout, and as much on a busy machine
        assert len(error.value.ranks) == 1
        thread.join()
    with cluster.as_if_large():
        resumed = KernelBoostingRegressor(**settings).fit(X, y)
        whole = KernelBoostingRegressor(**{**settings, "checkpoint": None}).fit(X, y)
    np.testing.assert_allclose(resumed.predict(X), whole.predict(X), atol=1e-6)


def _slow(seconds=0.1):
    def wait(fit):
        import time

        time.sleep(seconds)

    return wait


def _both(X, y, weight):
    return np.asarray(X), np.asarray(y)


def test_targets_of_a_wide_file_have_the_partitions_of_its_inputs(tmp_path):
    """Dask joins files of which few columns of many are read."""
    X = pd.DataFrame(np.random.default_rng(0).random((40, 60)), columns=[f"x{k}" for k in range(60)])
    dd.from_pandas(X.assign(y=np.arange(40.0)), npartitions=10).to_parquet(tmp_path)
    stored = dd.read_parquet(tmp_path, split_row_groups=False)
    alone = dd.read_parquet(tmp_path, columns=["y"], split_row_groups=False)["y"]
    assert alone.optimize().npartitions < 10
    for inputs, targets in ((stored[list(X)], alone), (stored[["x0", "x1"]], stored["y"])):
        parts = dask.compute(each_partition(_both, inputs, targets, None), scheduler="sync")[0]
        assert len(parts) == 10
        for one, y in parts:
            np.testing.assert_array_equal(one[:, 0], X["x0"][y.astype(int)])


@pytest.mark.parametrize("kinds", ["frame, frame", "array, array", "frame, array", "array, frame"])
def test_a_partition_is_made_once_for_inputs_and_targets(kinds):
    made = []

    def part(k):
        made.append(k)
        return np.full((3, 3), float(k))

    frame = dd.from_map(lambda k: pd.DataFrame(part(k), columns=list("aby")), range(4), meta=frame_of_none())
    numbers = da.from_array(np.arange(4), chunks=1)
    array = numbers.map_blocks(lambda k: part(k[0]), new_axis=1, chunks=((3,) * 4, (3,)), dtype=float)
    inputs, targets = kinds.split(", ")
    X = frame[["a", "b"]] if inputs == "frame" else array[:, :2]
    y = frame["y"] if targets == "frame" else array[:, 2]
    made.clear()
    parts = dask.compute(each_partition(_both, X, y, None), scheduler="sync")[0]
    assert sorted(made) == sorted(range(4) if inputs == targets else 2 * list(range(4)))
    for k, (rows, values) in enumerate(parts):
        np.testing.assert_array_equal(rows, np.full((3, 2), k))
        np.testing.assert_array_equal(values, np.full(3, k))


def frame_of_none():
    return pd.DataFrame(np.empty((0, 3)), columns=list("aby"))

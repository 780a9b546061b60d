"""Fits that are cut off and go on: with the model of an undisturbed fit, or with a sentence about the difference."""

import errno
import json
import os
import re
import shutil
import signal
import time
from types import SimpleNamespace

import cluster
import numpy as np
import pandas as pd
import pytest
import torch

from mercer import KernelBoostingClassifier, KernelBoostingRegressor
from mercer.distributed import LostProcessError
from mercer.forward import checkpoint
from mercer.forward.checkpoint import Checkpoint
from mercer.forward.loop import Ensemble
from mercer.kernels import Function, Gaussian, Matern32

pytestmark = pytest.mark.usefixtures("two_folds")

SIZES = {"n_learners": 6, "learner_size": 20, "subset_size": 60, "memory_limit": "1GB"}
FIXED = {"kernel": Gaussian(1.0), "regularization": 1e-2}


class CutOff(Exception):
    pass


def table(n=500):
    rng = np.random.default_rng(1)
    X = rng.uniform(-2, 2, (n, 2))
    return X, np.sin(2 * X[:, 0]) * X[:, 1] + 0.1 * rng.normal(size=n)


def after(n_steps):
    """A callback that ends the process's work, as a crash would."""

    def callback(event):
        if event.phase == "learners" and event.step == n_steps:
            raise CutOff

    return callback


MODELS = {
    "fixed": (KernelBoostingRegressor, {**FIXED, "random_state": 0}),
    "tuned, of any seed, watched": (
        KernelBoostingRegressor,
        {"kernel": "gaussian", "tuning_rows": 60, "validation_fraction": 0.2},
    ),
    "one block": (KernelBoostingRegressor, {**FIXED, "absorption": "full", "random_state": 0}),
    "in focus": (
        KernelBoostingClassifier,
        {**FIXED, "focus": "margin", "absorption": "blocks", "block_length": 2, "random_state": 0},
    ),
    "classes": (KernelBoostingClassifier, {**FIXED, "loss": "logistic", "absorption": "full", "random_state": 0}),
    "a function": (
        KernelBoostingRegressor,
        {**FIXED, "random_state": 0, "kernel": Function(lambda A, B: (A @ B.T + 1.0) ** 2)},
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_fit_that_was_cut_off_ends_with_the_undisturbed_model(name, tmp_path):
    cls, settings = MODELS[name]
    X, y = table()
    y = y > 0 if cls is KernelBoostingClassifier else y
    begun, done = tmp_path / "begun", tmp_path / "done"
    with cluster.as_if_large():
        # a fit of any seed leaves it in the folder, so the undisturbed one is a copy of the first
        with pytest.raises(CutOff):
            cls(**settings, **SIZES, checkpoint=begun, callbacks=after(1)).fit(X, y)
        os.makedirs(done)
        for file in begun.iterdir():
            (done / file.name).write_bytes(file.read_bytes())
        with pytest.raises(CutOff):
            cls(**settings, **SIZES, checkpoint=begun, callbacks=after(4)).fit(X, y)
        resumed = cls(**settings, **SIZES, checkpoint=begun).fit(X, y)
        whole = cls(**settings, **SIZES, checkpoint=done).fit(X, y)
    np.testing.assert_array_equal(resumed.basis_indices_, whole.basis_indices_)
    np.testing.assert_array_equal(resumed.predict(X), whole.predict(X))
    if settings.get("random_state") is not None:
        with cluster.as_if_large():
            plain = cls(**settings, **SIZES).fit(X, y)
        np.testing.assert_array_equal(plain.predict(X), whole.predict(X))


@pytest.mark.long
def test_stages_go_on_where_they_were_cut_off(tmp_path, monkeypatch, refinement, settings):
    """Learners of further stages, tried ones too, are absorbed again and not made again.

    Both fits begin from one folder, so the selection runs once.
    """
    refinement(first_learners=3, min_gain=0.05)
    settings(smooth_loss=0.0)  # no search for smooth kernels
    monkeypatch.setattr(Checkpoint, "write_share", np.inf)  # written after every learner
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 1, (600, 2))
    y = np.sin(4 * X[:, 0]) + np.sin(30 * X[:, 1])
    begun, done, seen = tmp_path / "begun", tmp_path / "done", []

    def cut(event):
        seen.append(event.phase)
        if seen.count("learners") == 7:
            raise CutOff

    made = []
    propose = Ensemble.next

    def counted(self, block, step, rng):
        made.append(step)
        return propose(self, block, step, rng)

    options = {"random_state": 0, "metric": None, "n_kernels": 1, "memory_limit": "1GB"}
    with cluster.as_if_large():
        with pytest.raises(CutOff):
            KernelBoostingRegressor(**options, checkpoint=begun, callbacks=after(1)).fit(X, y)
        shutil.copytree(begun, done)
        with pytest.raises(CutOff):
            KernelBoostingRegressor(**options, checkpoint=begun, callbacks=cut).fit(X, y)
        monkeypatch.setattr(Ensemble, "next", counted)
        resumed = KernelBoostingRegressor(**options, checkpoint=begun).fit(X, y)
        n_made = len(made)
        whole = KernelBoostingRegressor(**options, checkpoint=done).fit(X, y)
    assert resumed.n_steps_ > 7  # or there would be no stage to cut off
    assert n_made <= len(made) - n_made - 6
    np.testing.assert_array_equal(resumed.predict(X), whole.predict(X))
    assert len(resumed.expansions_) == len(whole.expansions_) > 1


@pytest.fixture
def kept(tmp_path):
    """A checkpoint after three learners, and a fit of the same rows with other settings."""
    X, y = table()
    settings = {**FIXED, **SIZES, "random_state": 0, "checkpoint": tmp_path / "kept"}

    def fit(X=X, y=y, **other):
        with cluster.as_if_large():
            return KernelBoostingRegressor(**{**settings, **other}).fit(X, y)

    with pytest.raises(CutOff):
        fit(callbacks=after(3))
    return fit, tmp_path / "kept"


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"kernel": Matern32(1.0)}, r"kernel must be .*Gaussian.*got .*Matern32"),
        ({"learner_size": 10}, "learner_size must be .*20.*got '10'"),
        ({"y": table()[1] + 1e-12}, "y must be that of the fit in checkpoint"),
        ({"X": table()[0][::-1]}, "X must be .*500 × 2"),
    ],
)
def test_the_checkpoint_of_another_fit_is_refused_with_the_difference(kept, other, said):
    fit, _ = kept
    with pytest.raises(ValueError, match=said):
        fit(**other)


@pytest.mark.parametrize("file", ["fit.json", "learners-*.npz"])
def test_a_checkpoint_cut_short_is_refused(kept, file):
    fit, folder = kept
    (found,) = folder.glob(file)
    found.write_bytes(found.read_bytes()[:-20])
    with pytest.raises(ValueError, match="must be a checkpoint that is whole"):
        fit()


@pytest.mark.parametrize(
    "damage",
    [
        lambda head: head.pop("seen"),
        lambda head: head["seen"].pop("table"),
        lambda head: head.update(state={}),
        lambda head: head.update(state=[1]),
        lambda head: head["state"].update(rng_state={"dict": []}),
        lambda head: head["state"].update(models={"class": "no.Such", "fields": {}}),
        lambda head: head["state"].update(models={"array": "999"}),
    ],
)
def test_a_checkpoint_with_parts_missing_is_refused_in_a_sentence(kept, damage):
    fit, folder = kept
    head = json.loads((folder / "fit.json").read_text())
    damage(head)
    (folder / "fit.json").write_text(json.dumps(head))
    with pytest.raises(ValueError, match="must be a checkpoint that is whole"):
        fit()


def test_a_fit_watched_by_a_mixed_table_goes_on_and_knows_its_targets(tmp_path):
    X, y = table(120)

    def mixed():  # made anew each time: equal values at other addresses
        days = pd.Timestamp("2020-01-01") + pd.to_timedelta(np.arange(120) % 30, unit="D")
        kinds = pd.Categorical(["u" + str(i % 3) for i in range(120)])
        return pd.DataFrame(X, columns=list("ab")).assign(t=["v" + str(i % 2) for i in range(120)], k=kinds, d=days)

    def fit(y_val):
        settings = {**FIXED, "n_learners": 3, "learner_size": 10, "random_state": 0, "checkpoint": tmp_path / "kept"}
        return KernelBoostingRegressor(**settings).fit(mixed(), y, X_val=mixed(), y_val=y_val)

    first = fit(y)
    np.testing.assert_array_equal(fit(y.copy()).predict(mixed()), first.predict(mixed()))
    with pytest.raises(ValueError, match="y_val must be that of the fit in checkpoint"):
        fit(y + 1)


def test_a_full_disk_is_an_error_and_the_old_checkpoint_stands(kept, monkeypatch):
    fit, folder = kept
    before = {file.name: file.read_bytes() for file in folder.iterdir()}

    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("mercer.atomic_write.os.fsync", full)
    with pytest.raises(OSError, match=r"No space left on device.*what was written before stands"):
        fit()
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == before


def test_checkpoints_hold_numbers_and_names_only(kept):
    _, folder = kept
    head = json.loads((folder / "fit.json").read_text())
    with np.load(folder / head["arrays"], allow_pickle=False) as arrays:
        assert all(arrays[name].dtype.kind in "if" for name in arrays.files)


def test_rows_of_a_wide_table_are_hashed_in_blocks_of_bounded_size():
    """A block of a sparse table is dense: 65 536 rows of 50 000 columns would be 26 GB."""
    asked = []

    class Wide:
        n_rows, n_columns = 8, 3_000_000

        def blocks(self, size):
            asked.append(size)
            return iter([(start, torch.zeros(size, 3)) for start in range(0, self.n_rows, size)])

    numbers = [part[1] for part in checkpoint._parts(SimpleNamespace(rows=Wide()), np.arange(8), all_rows=True)]
    assert asked == [checkpoint.HASHED_VALUES // Wide.n_columns]
    np.testing.assert_array_equal(np.concatenate(numbers), np.arange(8))


def test_the_kernel_that_was_chosen_is_kept(tmp_path):
    X, y = table(200)
    with pytest.raises(CutOff), cluster.as_if_large():
        KernelBoostingRegressor(
            kernel="gaussian", tuning_rows=60, random_state=0, **SIZES, checkpoint=tmp_path, callbacks=after(1)
        ).fit(X, y)
    assert json.loads((tmp_path / "fit.json").read_text())["state"]["choice"] is not None


def test_a_checkpoint_of_another_version_is_refused_by_its_format(kept):
    fit, folder = kept
    head = json.loads((folder / "fit.json").read_text())
    (folder / "fit.json").write_text(json.dumps({**head, "format": 2}))
    with pytest.raises(ValueError, match=r"must be of format 3.* remove the folder .* got .format 2 of another"):
        fit()


def fit_slowly(group, folder, slow):
    X, y = table()
    pause = (lambda event: time.sleep(0.2) if slow and event.step >= 2 else None,)
    model = KernelBoostingRegressor(**FIXED, **SIZES, random_state=0, checkpoint=folder, callbacks=pause)
    return model.fit(X, y).predict(X)


@pytest.mark.cluster
def test_a_killed_process_ends_the_fit_of_the_others_and_the_next_fit_goes_on(tmp_path):
    """The error names the rank within the timeout; the second fit has another number of processes."""
    folder, said = tmp_path / "kept", tmp_path / "said"
    said.mkdir()
    processes, store = cluster.started(2, fit_slowly, folder, True, timeout=10.0, folder=said)
    end = time.monotonic() + 60
    while not (folder / "fit.json").exists() and time.monotonic() < end:
        time.sleep(0.05)
    os.kill(processes[1].pid, signal.SIGKILL)
    killed = time.monotonic()
    processes[0].join(60)
    assert time.monotonic() - killed < 10.0 + 10.0  # the timeout, and as much to tell who is silent on a busy machine
    error = cluster.answers(2, said)[0]
    assert isinstance(error, LostProcessError)
    assert error.ranks == [1]
    assert "did not answer: 1" in str(error)
    del store
    (resumed,) = cluster.on_one(fit_slowly, folder, False)
    (whole,) = cluster.on_one(fit_slowly, tmp_path / "other", False)
    np.testing.assert_allclose(resumed, whole, atol=1e-6)  # see test_distributed.TOLERANCE


def meet_faults(group, folder):
    """What each process says where no file may grow, and where one was cut short; and whether all stood meanwhile."""
    import resource

    X, y = table()

    def ended(**other):
        try:
            KernelBoostingRegressor(**FIXED, **SIZES, random_state=0, checkpoint=folder, **other).fit(X, y)
        except Exception as error:
            return f"{type(error).__name__}: {error}"

    def files():
        return {file.name: file.read_bytes() for file in folder.iterdir()}

    cut, before = ended(callbacks=after(3)), group.gather(files())
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))  # as full as a disk that one need not own
    full = ended()
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    stood = group.gather(files()) == before
    if group.rank == 0:
        (file,) = folder.glob("learners-*.npz")
        file.write_bytes(file.read_bytes()[:-20])
    group.gather("cut short")
    return cut, full, stood, ended()


@pytest.mark.cluster
def test_a_full_disk_and_a_checkpoint_cut_short_are_errors_of_every_process(tmp_path):
    pytest.importorskip("resource")
    for cut, full, stood, damaged in cluster.on_processes(2, meet_faults, tmp_path / "kept"):
        assert cut.startswith("CutOff")
        assert re.match(r"OSError: the checkpoint in .*File too large.*what was written before stands", full)
        assert stood
        assert re.match("ValueError: checkpoint=.* must be a checkpoint that is whole", damaged)

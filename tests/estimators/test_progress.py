"""One clock and one stream of events for every fit: phases in order, told to callbacks, the logger and one bar."""

from __future__ import annotations

import logging
import time
from itertools import pairwise
from typing import Any
from unittest import TestCase

import numpy as np
import pytest
import torch

import mercer
from mercer.clock import Clock
from mercer.kernels import Gaussian
from mercer.progress import Event, Progress, current, report_step

pytestmark = pytest.mark.usefixtures("two_folds")

rng = np.random.default_rng(0)
X = rng.uniform(-2, 2, (60, 2))
Y = np.sin(1.5 * X[:, 0]) + 0.5 * X[:, 1]
LABELS = (Y > 0).astype(int)
SMALL: dict[str, dict[str, Any]] = {
    "KernelBoostingRegressor": {"n_learners": 3, "learner_size": 5, "subset_size": 20, "kernel": "gaussian"},
    "KernelBoostingClassifier": {"metric": None},
    "GreedyKernelClassifier": {"n_basis": 5, "kernel": "gaussian"},
    "SparseGPRegressor": {"n_inducing": 5, "max_iter": 3, "approximation": "pp", "kernel": "gaussian"},
    "NRBFRegressor": {"n_components": "auto", "max_components": 2, "n_init": 1, "training": "gradient", "max_iter": 5},
    "RPEMEKLClassifier": {"kernels": "paper", "n_members": 2, "max_iter": 10},
}
PHASES = {
    "KernelBoostingRegressor": ["tuning", "learners", "polish"],
    "KernelBoostingClassifier": ["selection", "learners", "calibration"],
    "GreedyKernelClassifier": ["tuning", "learners", "calibration"],
    "SparseGPRegressor": ["tuning", "evidence"],
    "NRBFRegressor": ["EM", "size", "gradient"],
    "RPEMEKLClassifier": ["passes", "members"],
}


def fitted(name: str, **options: Any) -> Any:
    y = LABELS if "Classifier" in name else Y
    return getattr(mercer, name)(**SMALL[name], random_state=0, **options).fit(X, y)


@pytest.fixture
def set_threads():
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


#: With two threads, selections and ensemble members run in parallel.
THREADS = [*((name, 1) for name in SMALL), ("KernelBoostingClassifier", 2), ("RPEMEKLClassifier", 2)]


@pytest.mark.parametrize(("name", "threads"), THREADS)
def test_every_phase_is_told_in_its_order_and_changes_nothing(name, threads, set_threads, short_selections):
    set_threads(threads)
    events: list[Event] = []
    heard = fitted(name, callbacks=events.append)
    assert list(dict.fromkeys(event.phase for event in events)) == PHASES[name]
    assert all(one.seconds <= other.seconds for one, other in pairwise(events))
    assert all(event.step <= event.total for event in events if event.total is not None)
    np.testing.assert_array_equal(heard.predict(X), fitted(name).predict(X))
    assert current() is None


def test_the_logger_hears_what_callbacks_hear():
    events: list[Event] = []
    with TestCase().assertLogs("mercer", logging.DEBUG) as logged:
        fitted("KernelBoostingRegressor", callbacks=[events.append, lambda event: None])
    steps = [record.getMessage() for record in logged.records if record.levelno == logging.DEBUG]
    assert steps == [str(event) for event in events]
    begun = [record.getMessage().split()[0] for record in logged.records if record.levelno == logging.INFO]
    assert begun == PHASES["KernelBoostingRegressor"]


def test_one_bar_shows_all_phases(capsys):
    fitted("KernelBoostingRegressor", verbose=True)
    shown = capsys.readouterr().err
    assert all(f"{phase}: " in shown for phase in PHASES["KernelBoostingRegressor"])
    assert "learners: 3/3" in shown
    assert shown.count("\n") == 1  # it ends once


def test_the_validation_loss_and_its_best_are_told_and_shown(capsys):
    events: list[Event] = []
    model = mercer.GreedyKernelRegressor(
        6, kernel=Gaussian(), regularization=1e-6, callbacks=events.append, verbose=True
    )
    model.fit(X[:40], Y[:40], X_val=X[40:], y_val=Y[40:])
    losses = model.history_["validation"]
    assert [event.loss for event in events] == losses.tolist()
    assert [event.best for event in events] == np.minimum.accumulate(losses).tolist()
    assert f"validation loss {losses[-1]:.4g}, best {losses.min():.4g}" in capsys.readouterr().err


def test_a_selection_tells_its_steps_of_how_many_and_the_best_candidate(short_selections):
    events: list[Event] = []
    model = mercer.KernelBoostingRegressor(metric=None, random_state=0, callbacks=events.append).fit(X, Y)
    told = [event for event in events if event.phase == "selection"]
    assert {event.total for event in told} == {told[-1].step}
    assert [event.state for event in told if event.loss is not None] == model.tuning_report_
    for event in (one for one in told if one.loss is not None):
        stage = [line["loss"] for line in model.tuning_report_ if line["stage"] == event.state["stage"]]
        assert min(stage) <= event.best <= event.loss
    assert any(event.left is not None for event in told)


class Recorded:
    """A callback of scikit-learn that writes down the tasks that end."""

    def __init__(self):
        self.ended = []

    def setup(self, estimator, context):
        self.ended.append("setup")

    def on_fit_task_begin(self, estimator, context):
        pass

    def on_fit_task_end(self, estimator, context, *, fitted_estimator=None):
        self.ended.append(context.task_name)
        if context.task_name == "fit":
            assert fitted_estimator.predict(X).shape == (60,)
        return context.task_name == "learners step" and self.ended.count("learners step") == 3

    def teardown(self, estimator, context):
        self.ended.append("teardown")


def test_callbacks_of_scikit_learn_hear_phases_and_steps_and_end_a_fit(tmp_path):
    pytest.importorskip("sklearn.callback")
    model, heard = mercer.GreedyKernelRegressor(9, kernel=Gaussian(), regularization=0.1), Recorded()
    model.set_callbacks(heard).fit(X, Y)
    assert heard.ended == ["setup", *3 * ["learners step"], "learners", "fit", "teardown"]
    assert "a callback asked to stop" in model.stop_reason_
    model.save(tmp_path / "model.mercer")
    assert not hasattr(mercer.load(tmp_path / "model.mercer"), "_skl_callbacks")


def test_an_estimator_inside_another_is_heard_by_the_outer_one():
    events: list[Event] = []
    model = mercer.GreedyNystroem(5, kernel="gaussian", random_state=0, callbacks=events.append).fit(X, Y)
    assert [event.step for event in events if event.phase == "learners"] == [1, 2, 3, 4, 5]
    assert "callbacks" not in repr(model.expansions_)


def test_steps_to_go_are_as_long_as_those_before_and_end_with_the_budget():
    events: list[Event] = []
    progress = Progress((events.append,), budget=1.0)
    progress.report_step("learners", 3)
    time.sleep(0.02)
    progress.report_step("learners", 3)
    progress.report_step("learners", 3)
    assert events[0].left is not None
    assert events[0].left > 0.1  # of the first step nobody knows how long it was: the budget's end stands for it
    assert events[1].left is not None
    assert 0.02 <= events[1].left <= 1.0  # one step to go, as long as the one before, however slow the machine
    assert events[2].left == 0
    progress.report_step("polish")
    assert events[3].left is not None
    assert events[3].left <= 1.0
    assert str(Event("polish", 1, None, 2.0, None)) == "polish: step 1 after 2.0 s"


def test_nobody_listens_outside_a_fit():
    assert not report_step("tuning", 3)


def test_an_interrupt_while_the_kernel_is_tuned_leaves_the_old_model_whole():
    model = fitted("GreedyKernelClassifier")
    before = model.predict_proba(X)

    def press(event: Event) -> None:
        if event.phase == "tuning":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        model.set_params(callbacks=press).fit(X[::-1], LABELS)
    np.testing.assert_array_equal(model.predict_proba(X), before)


def test_a_clock_within_another_ends_with_it_and_interrupts_it():
    whole = Clock(100.0)
    part = whole.part(0.5)
    assert 0 < part.remaining() <= 50 < whole.remaining()
    assert Clock(1000.0, parent=part).remaining() <= 50
    assert Clock(parent=part).remaining() <= 50
    assert not part.expired()
    assert part.expired(needing=60)
    assert not part.unlimited
    part.interrupt()
    assert whole.remaining() == 0
    assert whole.expired()
    assert whole.stop_reason() == "interrupted after 0.0 s"
    assert part.part(0.5).reason(3) == "it was interrupted after 3 steps"


def test_a_given_kernel_needs_no_tuning_phase():
    events: list[Event] = []
    mercer.GreedyKernelRegressor(3, kernel=Gaussian(), regularization=0.1, callbacks=events.append).fit(X, Y)
    assert {event.phase for event in events} == {"learners"}

"""Trial fits on all rows: which kernels are tried, which wins, and what becomes of the first learners."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from mercer import KernelBoostingClassifier
from mercer.data.shard import ONE_PROCESS
from mercer.forward import boosting, large_tables
from mercer.forward.combine import JointPursuit
from mercer.forward.criteria import LargestResiduals
from mercer.forward.loop import Ensemble, ForwardFit
from mercer.forward.model_selection import KernelMember, Selection
from mercer.forward.stopping import History
from mercer.kernels import Gaussian, Laplacian, Matern12, Matern32
from tests.families.test_refinement_stages import problem_of


def member(name: str, kernel) -> KernelMember:
    return KernelMember(None, kernel, 1e-2, name=name)


def names(choice: Selection) -> list[str]:
    return [one.name for one in (*choice.members, *choice.runners_up)]


def task_of(*members: KernelMember):
    given = SimpleNamespace(n_alive=1000, shard=SimpleNamespace(group=ONE_PROCESS))
    return SimpleNamespace(data=given, selection=Selection(list(members[:1]), runners_up=list(members[1:])))


def smooth(n: int, seed: int):
    X = np.random.default_rng(seed).uniform(-1, 1, (n, 2))
    return X, np.sin(3 * X[:, 0]) * np.cos(2 * X[:, 1])


@pytest.fixture
def begin():
    """Fits to a smooth function, of whose rows the first five hundred are watched."""
    X, y = smooth(3000, 0)

    def begun(one: KernelMember) -> ForwardFit:
        problem, held = problem_of(X, y, one.kernel, one.lam, watched=range(500)), torch.arange(500)
        learner = Ensemble(LargestResiduals(), JointPursuit(), 10, 100)
        return ForwardFit(problem, learner, np.random.default_rng(1), block_length=1, validation=held)

    return begun


@pytest.mark.parametrize(("order", "tried"), [("abcde", "acd"), ("dbace", "dc"), ("cabde", "c"), ("eabcd", "ecd")])
def test_the_best_member_and_the_best_of_every_smoother_kernel_are_tried(order, tried):
    kernels = {"a": Matern12(), "b": Matern12(2.0), "c": Gaussian(), "d": Matern32(), "e": Laplacian()}
    first, *others = (member(name, kernels[name]) for name in order)
    assert "".join(one.name for one in large_tables.shortlist(Selection([first], runners_up=others))) == tried


def test_the_kernel_that_grows_best_is_taken_with_its_first_learners(begin):
    """A smooth function: the Gaussian kernel wins, whatever few rows said, and no learner is made twice."""
    task = task_of(member("rough", Matern12()), member("alike", Matern12(2.0)), member("smooth", Gaussian(0.5)))
    choice = large_tables.select_by_learning_curve(task, begin, np.inf)
    assert names(choice) == ["smooth", "rough", "alike"]
    assert choice.started_fit.n_steps == large_tables.LEARNERS
    assert choice.started_fit.problem.kernel is choice.members[0].kernel
    lines = {line["candidate"]: line["loss"] for line in choice.report}
    assert list(lines) == ["rough", "smooth"]
    assert lines["smooth"] == choice.started_fit.history.validation[-1] < lines["rough"]
    assert choice.seconds >= sum(line["seconds"] for line in choice.report) > 0


def test_a_choice_without_another_kernel_or_without_time_stays_as_it_is(begin):
    one, other = member("rough", Matern12()), member("smooth", Gaussian())
    task = task_of(one)
    assert large_tables.select_by_learning_curve(task, begin, np.inf) is task.selection
    hurried = large_tables.select_by_learning_curve(task_of(one, other), begin, 0.0)
    assert names(hurried) == ["rough", "smooth"]
    assert hurried.started_fit is None
    assert hurried.report == []


def test_an_interrupted_trial_ends_the_fit(begin, monkeypatch):
    def interrupted(self, rules, callbacks=()):
        self.interrupted = True

    monkeypatch.setattr(ForwardFit, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        large_tables.select_by_learning_curve(
            task_of(member("rough", Matern12()), member("smooth", Gaussian())), begin, np.inf
        )


def history(losses: list[float], each: float) -> History:
    return History(1.0, validation=losses, seconds=[5.0 + each * k for k in range(len(losses))])


def test_learners_are_compared_at_equal_times_however_long_the_first_took():
    """Twenty learners of the quick one take as long as two of the slow one, whose better end is not reached."""
    quick, slow = [1.0 / k for k in range(1, 11)], [0.9**k for k in range(10)]
    assert large_tables.ranked_by_promise([history(slow, 1.0), history(quick, 0.1)]) == [1, 0]
    assert large_tables.ranked_by_promise([history(slow, 0.1), history(quick, 10.0)]) == [0, 1]
    assert large_tables.ranked_by_promise([]) == []


def test_losses_that_follow_a_power_law_are_foretold():
    losses = [3.0 * k**-0.4 for k in range(1, 11)]
    for n in (4, 10, 20, 57):
        assert large_tables.extrapolate_loss(losses, n) == pytest.approx(3.0 * n**-0.4)
    assert large_tables.extrapolate_loss([1.0, 0.0], 10) == 0.0


@pytest.mark.long
def test_a_default_fit_goes_on_from_the_learners_that_were_tried(few_rows, settings, monkeypatch, tmp_path):
    """The model has them among its own; with a checkpoint they are made again, and kept from the first one on."""
    few_settings = {
        "fit_rows": 150,
        "last_fit_rows": 250,
    }
    settings(**few_settings, many_rows=1000, near_ratio=100.0)
    begun = []

    def seen(task, begin, seconds):
        begun.append(large_tables.select_by_learning_curve(task, begin, seconds))
        return begun[-1]

    monkeypatch.setattr(boosting, "select_by_learning_curve", seen)
    X, y = smooth(2000, 0)
    for folder in (None, tmp_path / "kept"):
        model = KernelBoostingClassifier(random_state=0, polish=False, checkpoint=folder).fit(X, y > 0)
        fit, report = begun[-1].started_fit, model.tuning_report_
        tried = {line["candidate"]: line["loss"] for line in report if line.get("stage") == "trial fits"}
        assert len(tried) > 1
        assert (fit.n_steps > large_tables.LEARNERS) == (folder is None)
        if folder is None:
            first = tried[begun[-1].members[0].name]
            assert model.history_["validation"][large_tables.LEARNERS - 1] == first
        assert np.mean(model.predict(X) == (y > 0)) > 0.97
    again = KernelBoostingClassifier(random_state=0, polish=False, checkpoint=tmp_path / "kept").fit(X, y > 0)
    np.testing.assert_allclose(again.decision_function(X), model.decision_function(X), atol=1e-6)

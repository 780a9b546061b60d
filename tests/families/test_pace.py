"""Members that are tried on all rows: who is tried, who wins, and what becomes of the first learners."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from mercer import KernelBoostingClassifier
from mercer.data.group import ALONE
from mercer.forward import boosting_base, pace
from mercer.forward.combine import JointPursuit
from mercer.forward.criteria import LargestResiduals
from mercer.forward.learners import Ensemble
from mercer.forward.loop import ForwardFit
from mercer.forward.members import Choice, Member
from mercer.forward.stopping import History
from mercer.kernels import Gaussian, Laplacian, Matern12, Matern32
from mercer.selection import more_rows
from tests.families.test_scales import problem_of


def member(name: str, kernel) -> Member:
    return Member(None, kernel, 1e-2, name=name)


def names(choice: Choice) -> list[str]:
    return [one.name for one in (*choice.members, *choice.spare)]


def task_of(*members: Member):
    given = SimpleNamespace(n_alive=1000, shard=SimpleNamespace(group=ALONE))
    return SimpleNamespace(given=given, choice=Choice(list(members[:1]), spare=list(members[1:])))


def smooth(n: int, seed: int):
    X = np.random.default_rng(seed).uniform(-1, 1, (n, 2))
    return X, np.sin(3 * X[:, 0]) * np.cos(2 * X[:, 1])


@pytest.fixture
def begin():
    """Fits to a smooth function, of whose rows the first five hundred are watched."""
    X, y = smooth(3000, 0)

    def begun(one: Member) -> ForwardFit:
        problem, held = problem_of(X, y, one.kernel, one.lam, watched=range(500)), torch.arange(500)
        learner = Ensemble(LargestResiduals(), JointPursuit(), 10, 100)
        return ForwardFit(problem, learner, np.random.default_rng(1), block_length=1, validation=held)

    return begun


@pytest.mark.parametrize(("order", "tried"), [("abcde", "acd"), ("dbace", "dc"), ("cabde", "c"), ("eabcd", "ecd")])
def test_the_best_member_and_the_best_of_every_smoother_kernel_are_tried(order, tried):
    kernels = {"a": Matern12(), "b": Matern12(2.0), "c": Gaussian(), "d": Matern32(), "e": Laplacian()}
    first, *others = (member(name, kernels[name]) for name in order)
    assert "".join(one.name for one in pace.contenders(Choice([first], spare=others))) == tried


def test_the_kernel_that_grows_best_is_taken_with_its_first_learners(begin):
    """A smooth function: the Gaussian kernel wins, whatever few rows said, and no learner is made twice."""
    task = task_of(member("rough", Matern12()), member("alike", Matern12(2.0)), member("smooth", Gaussian(0.5)))
    choice = pace.by_pace(task, begin, np.inf)
    assert names(choice) == ["smooth", "rough", "alike"]
    assert choice.begun.n_steps == pace.LEARNERS
    assert choice.begun.problem.kernel is choice.members[0].kernel
    lines = {line["candidate"]: line["loss"] for line in choice.report}
    assert list(lines) == ["rough, first learners", "smooth, first learners"]
    assert lines["smooth, first learners"] == choice.begun.history.validation[-1] < lines["rough, first learners"]
    assert choice.seconds >= sum(line["seconds"] for line in choice.report) > 0


def test_a_choice_without_another_kernel_or_without_time_stays_as_it_is(begin):
    one, other = member("rough", Matern12()), member("smooth", Gaussian())
    task = task_of(one)
    assert pace.by_pace(task, begin, np.inf) is task.choice
    hurried = pace.by_pace(task_of(one, other), begin, 0.0)
    assert names(hurried) == ["rough", "smooth"]
    assert hurried.begun is None
    assert hurried.report == []


def test_an_interrupted_trial_ends_the_fit(begin, monkeypatch):
    def interrupted(self, rules, callbacks=()):
        self.interrupted = True

    monkeypatch.setattr(ForwardFit, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        pace.by_pace(task_of(member("rough", Matern12()), member("smooth", Gaussian())), begin, np.inf)


def history(losses: list[float], each: float) -> History:
    return History(1.0, validation=losses, seconds=[5.0 + each * k for k in range(len(losses))])


def test_learners_are_compared_at_equal_times_however_long_the_first_took():
    """Twenty learners of the quick one take as long as two of the slow one, whose better end is not reached."""
    quick, slow = [1.0 / k for k in range(1, 11)], [0.9**k for k in range(10)]
    assert pace.promising([history(slow, 1.0), history(quick, 0.1)]) == [1, 0]
    assert pace.promising([history(slow, 0.1), history(quick, 10.0)]) == [0, 1]
    assert pace.promising([]) == []


def test_losses_that_follow_a_power_law_are_foretold():
    losses = [3.0 * k**-0.4 for k in range(1, 11)]
    for n in (4, 10, 20, 57):
        assert pace.promise(losses, n) == pytest.approx(3.0 * n**-0.4)
    assert pace.promise([1.0, 0.0], 10) == 0.0


def test_a_default_fit_goes_on_from_the_learners_that_were_tried(few_rows, monkeypatch, tmp_path):
    """The model has them among its own; with a checkpoint they are made again, and kept from the first one on."""
    monkeypatch.setattr(boosting_base, "MANY_ROWS", 1000)
    monkeypatch.setattr(more_rows, "NEARLY", 100.0)
    begun = []

    def seen(task, begin, seconds):
        begun.append(pace.by_pace(task, begin, seconds))
        return begun[-1]

    monkeypatch.setattr(boosting_base, "by_pace", seen)
    X, y = smooth(2000, 0)
    for folder in (None, tmp_path / "kept"):
        model = KernelBoostingClassifier(random_state=0, polish=False, checkpoint=folder).fit(X, y > 0)
        fit, report = begun[-1].begun, model.tuning_report_
        tried = [line["candidate"] for line in report if line["candidate"].endswith("first learners")]
        assert len(tried) > 1
        assert (fit.n_steps > pace.LEARNERS) == (folder is None)
        if folder is None:
            first = next(line for line in report if line["candidate"] == f"{begun[-1].members[0].name}, first learners")
            assert model.history_["validation"][pace.LEARNERS - 1] == first["loss"]
        assert np.mean(model.predict(X) == (y > 0)) > 0.97
    again = KernelBoostingClassifier(random_state=0, polish=False, checkpoint=tmp_path / "kept").fit(X, y > 0)
    np.testing.assert_allclose(again.decision_function(X), model.decision_function(X), atol=1e-6)

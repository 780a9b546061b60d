"""Learners that estimate their curvature, stages of shorter length-scales, and what more rows choose."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from mercer import KernelBoostingClassifier, KernelBoostingRegressor
from mercer.clock import Clock
from mercer.data import TensorRows
from mercer.data.shard import ONE_PROCESS
from mercer.engine import KernelMatrix, Sample, make_plan
from mercer.forward import boosting, refinement_stages
from mercer.forward.combine import JointPursuit, Sketch
from mercer.forward.criteria import LargestResiduals
from mercer.forward.held_out import HeldOutPredictions
from mercer.forward.loop import Ensemble, ForwardFit, HingeFocus
from mercer.forward.model_selection import KernelMember
from mercer.forward.problem import Problem
from mercer.forward.refinement_stages import RefinementSettings, RefinementStages, averaged, best_subset
from mercer.forward.task import FittedMember
from mercer.kernels import Gaussian, Laplacian, Matern12, Matern32, Matern52, RationalQuadratic, Separable
from mercer.selection.halving import select
from mercer.selection.more_rows import MoreRows, scaled
from mercer.selection.settings import DEFAULT_SETTINGS


def problem_of(X, y, kernel, lam=1e-2, watched=()):
    plan = make_plan(len(X), device="cpu", dtype="float64")
    rows = torch.as_tensor(X, dtype=torch.float64)
    targets = torch.as_tensor(y, dtype=torch.float64).reshape(len(X), -1)
    weight = torch.ones(len(X), dtype=torch.float64)
    weight[list(watched)] = 0.0
    return Problem(Sample(TensorRows(rows), targets, weight, plan), kernel, lam)


def wiggly(n, seed=0):
    """A slow wave and a quick one of a tenth of its length."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(0, 1, (n, 2))
    return X, np.sin(4 * X[:, 0]) + 0.3 * np.sin(40 * X[:, 1]) + 0.05 * rng.normal(size=n)


@pytest.mark.parametrize(
    "kernel",
    [Gaussian(), Matern12(), Matern32(), Matern52(), RationalQuadratic(), Laplacian(), Separable(p=1.5, q=0.8)],
    ids=lambda kernel: type(kernel).__name__,
)
@pytest.mark.parametrize("n_inputs", [1, 3, 10])
def test_the_square_root_of_a_stationary_kernel_is_a_kernel(kernel, n_inputs):
    """All of them are infinitely divisible; rounding of the root's entries moves eigenvalues by n eps at most."""
    X = torch.randn(150, n_inputs, dtype=torch.float64, generator=torch.Generator().manual_seed(n_inputs))
    root = kernel(X, X).clamp(min=0).sqrt()
    assert torch.linalg.eigvalsh(root)[0] > -150 * 1e-12


def test_where_rows_lie_evenly_the_estimated_curvature_of_a_gaussian_is_the_curvature():
    """On a grid much finer than the length-scale and far from its edge the sum is an integral to all digits."""
    side = torch.linspace(-3, 3, 121, dtype=torch.float64)
    X = torch.cartesian_prod(side, side)
    inside = ((X.abs() < 1.2).all(1)).nonzero()[::97, 0]
    problem = problem_of(X, X[:, 0], Gaussian(0.3))
    Z, ones = X[inside], torch.ones(len(X), dtype=torch.float64)
    K = problem.kernel(X, Z)
    exact, Q = K.T @ K, problem.gram(Z)
    sketch = Sketch(KernelMatrix(TensorRows(Z), problem.kernel, Z, problem.plan), ones[: len(Z)], share=1e-9)
    estimate = sketch.curvature(problem, Q, exact.diagonal())
    assert float((estimate - exact).abs().max()) < 1e-6 * float(exact.max())


def test_where_rows_drawn_cover_a_vector_they_give_the_curvature():
    """Twice as many rows at half the weight are the same sum, so a sketch of every second row errs by its sampling."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(4000, 2))
    problem = problem_of(X, X[:, 0], Gaussian(2.0))
    rows = problem.rows.take(np.arange(4000))
    Z, K = rows[:40], problem.kernel(rows, rows[:40])
    exact = K.T @ K
    half = KernelMatrix(TensorRows(rows[::2]), problem.kernel, Z, problem.plan)
    estimate = Sketch(half, torch.full((2000,), 2.0, dtype=torch.float64), 0.5).curvature(
        problem, problem.gram(Z), exact.diagonal()
    )
    assert torch.allclose(estimate.diagonal(), exact.diagonal())
    assert float((estimate - exact).abs().max()) < 5 / 2000**0.5 * float(exact.max())


@pytest.mark.parametrize("gram_rows", [1, 200])
@pytest.mark.parametrize("length", [0.02, 0.3])
def test_a_learner_with_estimated_curvature_still_lowers_the_objective(gram_rows, length):
    """Its slope is exact and the estimate is positive definite, so it descends; absorption finds how far."""
    X, y = wiggly(3000)
    problem = problem_of(X, y, Gaussian(length))
    learner = Ensemble(LargestResiduals(), JointPursuit(), 50, 500, gram_rows=gram_rows)
    fit = ForwardFit(problem, learner, np.random.default_rng(0), block_length=1)
    for _ in range(10):
        fit.step()
    path = np.array([float(problem.objective(torch.zeros_like(problem.y), 0.0)), *fit.history.objective])
    assert (np.diff(path) < 0).all()


def test_few_rows_are_never_estimated():
    X, y = wiggly(300)
    fits = []
    for gram_rows in (None, 200):
        learner = Ensemble(LargestResiduals(), JointPursuit(), 20, 100, gram_rows=gram_rows)
        fit = ForwardFit(problem_of(X, y, Gaussian(0.2)), learner, np.random.default_rng(0), block_length=1)
        fit.step()
        fits.append(fit.f)
    assert torch.equal(*fits)


def test_rows_are_drawn_among_those_that_may_still_enter():
    X, y = wiggly(1000)
    fit = ForwardFit(problem_of(X, y, Gaussian(0.2)), Ensemble(LargestResiduals(), JointPursuit(), 50, 100),
                     np.random.default_rng(0))  # fmt: skip
    fit.step()
    block, taken = fit.current, set(fit.current.basis_index.tolist())
    for size in (20, 400, 990):
        drawn = block.draw_available(size, np.random.default_rng(1)).tolist()
        assert len(set(drawn)) == len(drawn) <= size
        assert taken.isdisjoint(drawn)
        assert len(drawn) >= min(size, 950) / 2


def test_what_a_model_leaves_keeps_margins_and_residuals():
    X, y = wiggly(200)
    codes = torch.as_tensor(np.where(y > 0, 1.0, -1.0))[:, None]
    problem = problem_of(X, codes, Gaussian())
    f, more = torch.randn(2, 200, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    rest = problem.residual_problem(f, Gaussian(0.5))
    assert torch.allclose(rest.margins(more), codes * (f + more))
    assert torch.allclose(rest.y - more, codes - (f + more))
    twice = rest.residual_problem(more, Gaussian(0.2))
    assert torch.allclose(twice.margins(f), codes * (2 * f + more))
    rows = torch.tensor([3, 5, 190])
    assert torch.allclose(twice.subset(rows).margins(f[rows]), twice.margins(f, rows))
    hinge = HingeFocus().loss(rest, more, rows)
    assert torch.allclose(hinge, (1 - (codes * (f + more))[rows, 0]).clamp(min=0).square())


@pytest.fixture
def large(few_rows, settings):
    """A thousand rows count as many."""
    settings(many_rows=1000)


def test_a_further_stage_begins_only_where_there_is_time_for_its_first_learners():
    """Of learners that took two seconds each, four take eight."""
    fit = SimpleNamespace(seconds=10.0, n_steps=5)
    begins = [boosting.time_to_begin(fit, Clock(seconds), 0.5) for seconds in (None, 20.0, 15.0)]
    assert begins == [True, True, False]


def test_a_default_fit_of_many_rows_grows_finer_stages_that_help(large, refinement, monkeypatch):
    X, y = wiggly(2000)
    X_test, y_test = wiggly(1000, seed=1)
    refinement(min_gain=0.01)
    model = KernelBoostingRegressor(random_state=0, polish=False, metric=None).fit(X, y)
    steps = list(model.staged_predict(X_test))
    assert np.allclose(steps[-1], model.predict(X_test), atol=1e-6)
    assert len(steps) == model.n_steps_ == sum(one.n_steps for one in model._stages)
    assert np.diff(model.history_["n_basis"]).min() > 0
    assert np.diff(model.history_["seconds"]).min() >= 0
    lengths = [float(np.mean(one.kernel.length_scale)) for one in model.expansions_]
    assert lengths == sorted(lengths, reverse=True)
    monkeypatch.setattr(RefinementStages, "refine", lambda self, first, task: [first])
    first = KernelBoostingRegressor(random_state=0, polish=False, metric=None).fit(X, y)
    assert np.mean((model.predict(X_test) - y_test) ** 2) <= 1.02 * np.mean((first.predict(X_test) - y_test) ** 2)


def test_a_kernel_that_is_done_gives_way_to_a_finer_one_however_much_that_was_asked_to_bring():
    """A kernel of length 0.12 leaves most of the quick wave, one of 0.072 follows it."""
    X, y = wiggly(1000)
    watched = range(0, 1000, 5)
    problem = problem_of(X, y, Gaussian(0.2), watched=watched)

    def make(left, watched):
        learner = Ensemble(LargestResiduals(), JointPursuit(), 200, 800)
        return ForwardFit(left, learner, np.random.default_rng(0), validation=watched, block_length=1)

    settings = RefinementSettings(min_gain=0.01, learners_per_check=2, min_ratio=1e9)
    stages = RefinementStages(make, settings).fit(problem, torch.zeros_like(problem.y), torch.tensor(watched))
    assert len(stages) > 1
    assert stages[-1].history.validation[-1] < 0.5 * stages[0].history.validation[-1]


def test_classes_of_many_rows_are_told_apart_by_stages_that_look_at_small_margins(large, refinement):
    X, y = wiggly(2000)
    labels = np.array(["sea", "land"])[(y > 0.7).astype(int)]
    refinement(min_gain=0.01)
    model = KernelBoostingClassifier(random_state=0, metric=None).fit(X[:1500], labels[:1500])
    assert model.score(X[1500:], labels[1500:]) > 0.5 + 0.5 * np.mean(labels == "sea")  # half of what a guess misses
    probabilities = model.predict_proba(X[1500:])
    assert np.allclose(probabilities.sum(1), 1)
    assert np.isfinite(probabilities).all()


@pytest.mark.long
def test_with_time_to_spare_further_models_are_averaged(large, refinement, monkeypatch):
    monkeypatch.setattr(refinement_stages, "best_subset", lambda task, predictions: list(range(len(predictions))))
    refinement(min_gain=0.02, max_models=2)
    X, y = wiggly(1200)
    model = KernelBoostingRegressor(random_state=0, time_budget=200.0, metric=None).fit(X, y)
    refinement(max_models=1)
    alone = KernelBoostingRegressor(random_state=0, time_budget=200.0, metric=None).fit(X, y)
    assert len(model.expansions_) > len(alone.expansions_)
    assert model.score(X, y) > 0.9


def test_members_keep_their_shares_when_models_are_averaged():
    """A mean of one model is that model, and shares of all members still sum to one where there are several."""

    def grown(share, place):
        member = KernelMember(None, Gaussian(), 1.0, share, place=place)
        return FittedMember(member, None, None, None, 1, "", None)

    first = [grown(0.75, 0), grown(0.25, 1)]
    assert [one.member.share for one in averaged([first])] == [0.75, 0.25]
    both = averaged([first, [grown(1.0, 2)]])
    assert [one.member.share for one in both] == [0.375, 0.125, 0.5]


def test_models_that_rows_held_out_are_better_without_are_left_out_of_the_average():
    """Of errors +1, -1 and +5 the first two cancel, and the third is worth no variance it saves."""
    y = np.random.default_rng(0).normal(size=(50, 1))
    held_out = np.ones(50), torch.zeros(50, 1), torch.arange(50)
    predictions = [HeldOutPredictions(y + off, y, *held_out) for off in (5.0, 1.0, -1.0)]
    assert best_subset(SimpleNamespace(has_classes=False), predictions) == [1, 2]
    assert best_subset(SimpleNamespace(has_classes=False), predictions[:1]) == [0]


class Watch:
    """A clock that goes on as it is told."""

    seconds, now = 100.0, 0.0

    def elapsed(self):
        return self.now

    def remaining(self, until=1.0):
        return max(until * self.seconds - self.now, 0.0)


def grown_within(monkeypatch, takes, first, spare, kept=(0,)):
    """Names of the models that a budget of 100 s has time for, each of which takes its member's seconds."""
    watch, names = Watch(), []
    monkeypatch.setattr(refinement_stages, "model_predictions", lambda model, row_targets: None)
    monkeypatch.setattr(
        refinement_stages, "best_subset", lambda task, predictions: [k for k in kept if k < len(predictions)]
    )
    monkeypatch.setattr(refinement_stages, "averaged", lambda models: models)

    def grow(member):
        watch.now += takes[member.name]
        names.append(member.name)
        return [SimpleNamespace(member=member, fit=SimpleNamespace(interrupted=False))]

    members = [KernelMember(None, Gaussian(), 1.0, name=name) for name in (first, *spare)]
    choice = SimpleNamespace(members=members[:1], runners_up=members[1:], seconds=0.0)
    task = SimpleNamespace(selection=choice, row_targets=None)
    refinement_stages.best_average(task, grow(members[0]), grow, watch, max_models=32)
    return names


def test_a_member_that_takes_too_long_is_passed_over_and_quicker_ones_have_their_turn(monkeypatch):
    """Of 95 s the slow member's second look would not fit into what is left; the quick one's five do."""
    takes = {"slow": 50.0, "quick": 6.0}
    names = grown_within(monkeypatch, takes, "slow", ["quick", "slow", "quick"], kept=(1,))
    assert names == ["slow", *["quick"] * 7]


def test_a_member_without_a_turn_is_tried_while_a_tenth_of_the_time_is_left(monkeypatch):
    assert grown_within(monkeypatch, {"a": 80.0, "b": 1.0}, "a", ["b"]) == ["a", "b"]
    assert grown_within(monkeypatch, {"a": 86.0, "b": 1.0}, "a", ["b"]) == ["a"]


def test_the_only_member_has_as_many_turns_as_there_is_time_for(monkeypatch):
    assert grown_within(monkeypatch, {"a": 20.0}, "a", []) == ["a"] * 4


def test_a_stage_that_gains_nothing_is_not_begun():
    """Where nothing is left but noise no learner helps rows held out."""
    rng = np.random.default_rng(0)
    X, y = rng.uniform(size=(2000, 2)), rng.normal(size=2000)
    problem, held = problem_of(X, y, Gaussian(0.05), watched=range(1000)), torch.arange(1000)

    def make(left, watched):
        learner = Ensemble(LargestResiduals(), JointPursuit(), 50, 500)
        return ForwardFit(left, learner, np.random.default_rng(1), block_length=1, validation=held)

    assert RefinementStages(make).fit(problem, torch.zeros_like(problem.y), held) == []


def test_more_rows_find_length_scales_that_few_rows_miss():
    """One of five inputs matters, and the target varies quickly along it: the best candidate has the least loss."""
    rng = np.random.default_rng(0)
    X = torch.as_tensor(rng.normal(size=(2000, 5)))
    Y = torch.sin(3 * X[:, :1])
    Y = Y - Y.mean()
    weight = torch.ones(len(X), dtype=torch.float64)
    candidates = select(X[:150], Y[:150], weight[:150], classes=False, rng=np.random.default_rng(0)).members
    settings = replace(DEFAULT_SETTINGS, more_evidence_rows=(150, 150), more_fit_rows=(400, 400))
    plan = make_plan(len(X), device="cpu", memory_limit=2**30)
    stage = MoreRows(X, Y, weight, plan, 0, Clock(5.0), settings)
    ranked, report = stage.rescored([*candidates, *stage.evidence_candidates()], ONE_PROCESS)
    assert ranked[0].loss <= min(line["loss"] for line in report) + 1e-12
    assert ranked[0].loss < 0.2 * float(Y.square().mean())
    assert all(other.loss <= settings.near_ratio * ranked[0].loss for other in ranked)
    little = replace(plan, memory_limit=6 * 8 * 100**2)  # six matrices
    _, report = MoreRows(X, Y, weight, little, 0, Clock(5.0), settings).rescored(candidates, ONE_PROCESS)
    assert {line["rows"] for line in report} == {100}


def test_scaling_leaves_other_kernels_alone():
    assert scaled(Gaussian(2.0), 0.5).length_scale == 1.0
    kernel = Gaussian() + Gaussian(3.0)
    assert scaled(kernel, 0.5) is kernel


def test_vectors_do_not_depend_on_the_memory_at_hand():
    """Rows that stand for all in the curvature are read in smaller blocks where memory is short, but are the same."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (DEFAULT_SETTINGS.many_rows, 4))
    y = np.sin(2 * X[:, 0]) * X[:, 1] + X[:, 2]
    settings = {"kernel": Gaussian(1.0), "regularization": 1e-2, "polish": False, "dtype": "float64", "random_state": 0}
    short, ample = (
        KernelBoostingRegressor(3, learner_size=10, memory_limit=limit, **settings).fit(X, y)
        for limit in ("2MiB", "1GiB")
    )
    np.testing.assert_array_equal(short.basis_indices_, ample.basis_indices_)

"""Tables that are not learned from whole: which rows are drawn, with what weights, and what that brings."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch

from mercer import KernelBoostingClassifier, KernelBoostingRegressor
from mercer.data import ArrayRows, ParquetRows, TensorRows
from mercer.engine import Sample, make_plan
from mercer.engine.plan import LEAST_STAGE_ROWS
from mercer.forward.path import FittedExpansion
from mercer.forward.problem import Problem
from mercer.forward.stage_sampling import StageSampler, bernoulli, draw_sample
from mercer.kernels import Gaussian
from mercer.preprocessing.inputs import ClassTargets, InputMap
from mercer.preprocessing.read import TableData


def table(n, seed=0, weight=None):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, 2))
    y = np.where(X[:, 0] > 0.2 * np.sin(6 * X[:, 1]), "land", "sea")
    return TableData(ArrayRows(X), y, np.ones(n) if weight is None else weight)


@pytest.mark.parametrize(("n_rows", "n"), [(1000, 10), (1000, 900), (50_000, 5000)])
def test_every_row_is_drawn_with_the_same_probability(n_rows, n):
    """Counts of 40 draws: each of ten equal parts of the table has its share within five standard deviations."""
    counts = np.zeros(10)
    for seed in range(40):
        drawn = bernoulli(n_rows, n, np.random.default_rng(seed))
        assert np.all(np.diff(drawn) > 0)
        assert drawn[0] >= 0
        assert drawn[-1] < n_rows
        counts += np.histogram(drawn, bins=10, range=(0, n_rows))[0]
    expected = 40 * n / 10
    assert np.all(np.abs(counts - expected) < 5 * (expected * (1 - n / n_rows)) ** 0.5 + 1)


def test_rows_of_weight_zero_are_never_drawn_and_rare_classes_always_are():
    given = table(20_000, weight=np.where(np.arange(20_000) % 2, 1.0, 0.0))
    given.y[[1, 4001, 9001]] = "ice"
    drawn = draw_sample(given, 500, np.random.default_rng(0), classes=True)
    assert np.all(drawn.row_indices % 2 == 1)
    assert np.sum(drawn.y == "ice") == 3
    assert np.array_equal(drawn.y, given.y[drawn.row_indices])
    assert np.array_equal(drawn.rows.X, given.rows.X[drawn.row_indices])
    # what a class weighs beside another is what it weighs in the table, up to chance
    ice, land = (drawn.weight[drawn.y == label].sum() for label in ("ice", "land"))
    assert ice / land == pytest.approx(3 / np.sum((given.y == "land") & (given.weight > 0)), rel=0.5)


def test_a_few_rows_wanted_are_never_none():
    """Of 50 draws of two rows on average, half of which weigh nothing, a share of 1/e would be empty."""
    given = table(60, weight=np.where(np.arange(60) % 2, 1.0, 0.0))
    for seed in range(50):
        drawn = draw_sample(given, 2, np.random.default_rng(seed), classes=False)
        assert len(drawn.y) >= 1
        assert np.all(drawn.weight > 0)


def sampler_of(n=4000, size=400, held=200, memory_limit=None):
    given = table(n)
    sample = draw_sample(given, size + held, np.random.default_rng(0), classes=True)
    order = np.random.default_rng(2).permutation(len(sample.y))  # fits put rows into an order of their own
    sample = sample.rows_at(order, sample.weight[order])
    targets = ClassTargets.of(given.y, given.weight, centred=True)
    plan = make_plan(n, device="cpu", dtype="float64", memory_limit=memory_limit)
    Y = torch.as_tensor(targets.encode(sample.y))
    watched = torch.arange(0, held)
    weight = torch.ones(len(Y), dtype=torch.float64)
    weight[watched] = 0.0
    rows = TensorRows(torch.as_tensor(sample.rows.X))
    first = Problem(Sample(rows, Y, weight, plan), Gaussian(0.5), 1e-2)
    rng = np.random.default_rng(1)
    inputs = InputMap.identity(2)
    sampler = StageSampler(given, sample, targets, inputs, first, watched, size, rng, classes=True)
    return given, sample, targets, sampler


def linear_model(slope=3.0):
    """f(x) = slope·x₀, as a difference of two wide bells."""
    Z = torch.tensor([[20.0, 0.0], [-20.0, 0.0]], dtype=torch.float64)
    kernel = Gaussian(20.0)
    at = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    unit = (kernel(at, Z) @ torch.tensor([[1.0], [-1.0]], dtype=torch.float64)).item()
    W = torch.tensor([[1.0], [-1.0]], dtype=torch.float64) * slope / unit
    return FittedExpansion(torch.tensor([0, 1]), Z, W, kernel, 1e-2)


def test_a_stage_sees_rows_near_the_border_densely_and_others_with_larger_weights():
    _, _, targets, sampler = sampler_of(n=40_000)
    model = linear_model(-3.0)  # land, the first class, is negative
    problem, watched = sampler.problem([model], Gaussian(0.2))
    X, w = problem.rows.X, problem.weight
    assert torch.equal(w[watched], torch.zeros(len(watched), dtype=w.dtype))
    learned = w > 0
    margins = problem.margins(torch.zeros_like(problem.y))[:, 0]
    near = margins < sampler.margin_threshold()
    assert torch.allclose(w[learned & near], torch.ones((), dtype=w.dtype), rtol=1e-6)  # shares are float32
    assert float(w[learned & ~near].min()) > 1
    # weights undo the drawing: rows of the whole table have the same share of the right half
    expected = 0.5
    share = float(w[learned & (X[:, 0] > 0)].sum() / w.sum())
    assert share == pytest.approx(expected, abs=5 * (0.25 * float(w.square().sum() / w.sum() ** 2)) ** 0.5)
    # what the model leaves: codes less what it says, offsets aside
    f = model.kernel(X, model.basis) @ model.weights
    codes = problem.codes
    assert torch.allclose(problem.y, codes - torch.as_tensor(targets.offset) - f, atol=1e-9)
    assert torch.allclose(codes.abs(), torch.ones((), dtype=codes.dtype))


@pytest.mark.parametrize("memory_limit", [None, "1MiB"])
def test_rows_held_out_are_never_learned_from_and_stay_in_order(memory_limit):
    """Also where the table is read in several blocks."""
    _, sample, _, sampler = sampler_of(40_000, memory_limit=memory_limit)
    model = [linear_model()]
    first, watched = sampler.problem(model, Gaussian(0.2))
    second, again = sampler.problem([*model, linear_model(-1.0)], Gaussian(0.1))
    held = torch.as_tensor(sample.rows.X[:200])
    assert torch.equal(first.rows.X[watched], held)
    assert torch.equal(second.rows.X[again], held)
    for problem, places in ((first, watched), (second, again)):
        distances = torch.cdist(problem.rows.X[: places[0]], held)
        assert float(distances.min()) > 0
    both = linear_model(2.0)
    f = both.kernel(held, both.basis) @ both.weights
    assert torch.allclose(second.codes[again] - second.y[again], f + sampler.offset, atol=1e-9)


def test_rows_of_a_stage_keep_to_memory_and_time():
    plan = make_plan(10**7, device="cpu", memory_limit="32MiB")
    assert plan.stage_rows(4) == 2**25 // (4 * 4 * 4)
    hurried = [plan.stage_rows(4, seconds) for seconds in (0.01, 30.0, 60.0, 1e9)]
    assert hurried == sorted(hurried)
    assert hurried[0] == LEAST_STAGE_ROWS
    assert hurried[-1] == 2**25 // (4 * 4 * 4)


@pytest.mark.long
def test_a_classifier_of_some_rows_at_a_time_learns_from_the_whole_table(few_rows, refinement):
    refinement(min_gain=0.02)
    given, test = table(6000), table(2000, seed=9)
    options = {"random_state": 0, "metric": None}
    few = KernelBoostingClassifier(max_rows=600, **options).fit(given.rows.X, given.y)
    assert few.basis_indices_.max() > 1000  # rows of the whole table
    assert np.allclose(few.basis_, given.rows.X[few.basis_indices_])
    right = few.score(test.rows.X, test.y)
    first = KernelBoostingClassifier(max_rows=None, **options).fit(given.rows.X[:600], given.y[:600])
    assert right >= first.score(test.rows.X, test.y) - 0.01
    assert np.allclose(few.predict_proba(test.rows.X).sum(1), 1)


@pytest.mark.parametrize("face", [KernelBoostingRegressor, KernelBoostingClassifier])
def test_basis_indices_of_drawn_rows_count_copies_of_rows_too(few_rows, face):
    given = table(3000)
    X = np.concatenate([given.rows.X[:1000], given.rows.X])
    y = np.concatenate([given.y[:1000], given.y])
    model = face(max_rows=300, n_learners=3, random_state=0, kernel="gaussian")
    model.fit(X, y if face is KernelBoostingClassifier else (y == "sea").astype(float))
    np.testing.assert_array_equal(model.basis_, X[model.basis_indices_])


def test_a_regressor_draws_other_rows_of_a_file_for_every_stage_and_says_how_fast(few_rows, tmp_path, refinement):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (4000, 3))
    y = np.sin(3 * X[:, 0]) * np.cos(2 * X[:, 1] + X[:, 2])
    X = pd.DataFrame(X, columns=["a", "b", "c"])
    X.assign(y=y).to_parquet(tmp_path / "rows.parquet", row_group_size=1000)
    refinement(min_gain=1e-2)
    events = []
    model = KernelBoostingRegressor(max_rows=600, random_state=0, metric=None, polish=False, callbacks=events.append)
    model.fit(ParquetRows(tmp_path / "rows.parquet", target="y"))
    looked = [event for event in events if event.phase == "rows looked through"]
    assert any(event.rows_per_second is not None and "rows/s" in str(event) for event in looked)
    assert model.score(X, y) > 0.9
    steps = list(model.staged_predict(X[:50]))
    assert np.allclose(steps[-1], model.predict(X[:50]), atol=1e-6)

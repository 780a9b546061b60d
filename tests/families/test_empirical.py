"""What theory promises of empirical kernel maps, Ho-Kashyap steps and coupled least squares (MEKL13)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import oracles_empirical as oracle
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import assert_close
from sklearn.kernel_ridge import KernelRidge
from sklearn.preprocessing import KernelCenterer

from mercer.data import TensorRows
from mercer.empirical.coordinates import Factor, MappedRows
from mercer.empirical.cross_validation import PENALTIES, choose_kernels, coupled_leave_one_out, folds
from mercer.empirical.ensemble import EnsembleMember, ballot, tally, values
from mercer.empirical.hokashyap import Margins, hokashyap
from mercer.empirical.kernel_map import empirical_map, mean_distance, resolve_kernels
from mercer.empirical.learners import ClassLearner, NumberLearner, coupled_ridge, joint_moments
from mercer.empirical.problem import member_problem, subset
from mercer.empirical.training import fit_member
from mercer.engine import Sample, make_plan
from mercer.kernels import Gaussian, Linear, Matern12, Matern52, Normalized, Polynomial

PLAN = make_plan(100, device="cpu", dtype="float64", memory_limit=1 << 30)
SHORT = replace(PLAN, memory_limit=1 << 12)  # nothing is kept, blocks are a few rows
KERNELS = [Normalized(Linear()), Linear(), Gaussian(2.0), Gaussian(0.3), Matern12(1.0), Matern52(1.0), Polynomial(2)]
THREE = [Normalized(Linear()), Gaussian(2.0), Gaussian(0.4)]


def table(seed: int, n: int, d: int = 3) -> tuple[torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    signs = np.where(X[:, 0] + 0.5 * X[:, 1] ** 2 + 0.4 * rng.normal(size=n) > 0.4, 1.0, -1.0)
    return torch.as_tensor(X), torch.as_tensor(signs)[:, None]


def seen(X: torch.Tensor, p: int, kernels=THREE, plan=PLAN, uses: int = 1) -> MappedRows:
    return MappedRows(TensorRows(X), [empirical_map(k, X[:p]) for k in kernels], plan, uses)


def coordinates(views: MappedRows) -> list[np.ndarray]:
    blocks: list = []
    views.each(lambda where, features: blocks.append([phi.clone() for phi in features]))
    return [torch.cat(parts).numpy() for parts in zip(*blocks, strict=True)]


def column(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


# --- maps ---------------------------------------------------------------------------------------------------


@settings(max_examples=20, deadline=None)
@given(
    st.sampled_from(KERNELS),
    st.integers(1, 40),
    st.integers(1, 8),
    st.integers(0, 10**6),
    st.sampled_from([0.1, 1, 30]),
)
def test_inner_products_of_a_map_are_the_kernel_on_its_rows(kernel, p, d, seed, scale):
    X = torch.as_tensor(scale * np.random.default_rng(seed).normal(size=(p, d)))
    K = kernel(X, X)
    features = empirical_map(kernel, X).columns(PLAN)(X)
    assert float((features @ features.T - K).abs().max()) <= 1e-10 * float(K.diagonal().max())


def test_the_linear_kernel_maps_to_as_many_coordinates_as_there_are_inputs():
    X, _ = table(0, 30, 4)
    assert empirical_map(Linear(), X).rank == 4


def test_rank_and_tolerance_keep_the_largest_eigenvalues():
    X, _ = table(1, 30)
    values = torch.linalg.eigvalsh(Gaussian(2.0)(X, X)).flip(0)
    cut = empirical_map(Gaussian(2.0), X, rank=5).columns(PLAN)(X)
    assert_close(cut.T @ cut, torch.diag(values[:5]), rtol=1e-9, atol=1e-9)
    assert empirical_map(Gaussian(2.0), X, tol=1e-3).rank == int((values > 1e-3 * values[0]).sum())


def test_a_kernel_without_a_positive_eigenvalue_is_refused_and_a_zero_one_maps_to_zero():
    X, _ = table(2, 5)
    with pytest.raises(ValueError, match="positive eigenvalue"):
        empirical_map(resolve_kernels(lambda a, b: -(a @ b.T), 1.0)[0], X)
    assert not bool(empirical_map(Linear(), torch.zeros(3, 2).double()).columns(PLAN)(X[:, :2]).any())


def test_the_mean_distance_is_that_of_all_pairs():
    X, _ = table(3, 25)
    weight = torch.arange(25.0).double()
    ours = mean_distance(TensorRows(X), weight, np.random.default_rng(0))
    assert ours == pytest.approx(oracle.mean_distance(X.numpy(), weight.numpy()), rel=1e-12)


# --- views and factors ---------------------------------------------------------------------------------------


def test_coordinates_are_the_same_kept_or_made_again_by_blocks():
    X, signs = table(4, 50)
    kept, made = seen(X, 20, uses=9), seen(X, 20, plan=SHORT, uses=9)
    assert kept._kept is not None
    assert made._kept is None
    for one, other in zip(coordinates(kept), coordinates(made), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-12)
    weight = torch.rand(50, dtype=torch.float64)
    for one, other in zip(kept.factors(weight), made.factors(weight), strict=True):
        assert_close(one.values, other.values, rtol=1e-9, atol=1e-11)
    for one, other in zip(kept.transposed(signs)[0], made.transposed(signs)[0], strict=True):
        assert_close(one, other, rtol=1e-9, atol=1e-11)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 30), st.integers(1, 6), st.floats(0.1, 20), st.floats(1e-3, 50))
def test_a_factor_solves_ridge_regression_with_a_free_bias(seed, n, r, alpha, c):
    rng = np.random.default_rng(seed)
    phi, t, s = rng.normal(size=(n, r)), rng.normal(size=n), rng.uniform(0.1, 3, size=n)
    X = np.column_stack([phi, np.ones(n)])
    A = alpha * X.T @ (s[:, None] * X) + c * np.diag([1.0] * r + [0.0])
    expected = np.linalg.solve(A, X.T @ (s * t))
    sums = phi.T @ (s[:, None] * phi), phi.T @ s[:, None], s.sum(), phi.T @ (s * t)
    gram, one, total, down = map(torch.as_tensor, sums)
    factor = Factor.of(gram, one, total)
    inverse = factor.inverse(column(alpha), column(c))
    w, bias = factor.solve(inverse, column(alpha), down[:, None], column(float(s @ t)))
    np.testing.assert_allclose(np.append(w[:, 0], bias), expected, rtol=1e-7, atol=1e-9)


def test_without_a_penalty_directions_that_no_row_has_get_no_weight():
    zero = torch.zeros(2, 2, dtype=torch.float64)
    factor = Factor.of(zero, zero[:, :1], column(3.0)[0])
    w, bias = factor.solve(factor.inverse(column(1.0), column(0.0)), column(1.0), zero[:, :1], column(6.0))
    assert w.tolist() == [[0.0], [0.0]]
    assert bias.tolist() == [2.0]


# --- Ho-Kashyap steps ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("literal", [False, True], ids=["own start", "literal start"])
@pytest.mark.parametrize("kernels", [THREE[:1], THREE[:2], THREE], ids=["one", "two", "three"])
def test_steps_are_those_of_table_1(kernels, literal):
    X, signs = table(5, 40)
    weight = torch.as_tensor(np.random.default_rng(0).uniform(0.5, 2, size=40))
    views = seen(X, 12, kernels)
    rule = Margins(start=1e-6, rate=0.99, tol=0.0, max_iter=7, literal=literal)
    found = hokashyap(views, views.factors(weight), signs, weight, column(0.5), column(2.0), rule)
    given = coordinates(views), signs[:, 0].numpy(), weight.numpy()
    omega, path = oracle.table1(*given, 0.5, 2.0, 0.99, 1e-6, 7, literal)
    np.testing.assert_allclose(found.path[:, 0], path[:7], rtol=1e-8)
    for l, expected in enumerate(omega):
        np.testing.assert_allclose(np.append(found.weights[l][:, 0], found.bias[l]), expected, rtol=1e-6, atol=1e-7)


def test_the_literal_stop_is_absolute():
    X, signs = table(5, 40)
    weight, views = torch.ones(40, dtype=torch.float64), seen(X, 12, THREE)
    rule = Margins(tol=1e-3, max_iter=100, literal=True)
    path = hokashyap(views, views.factors(weight), signs, weight, column(0.5), column(2.0), rule).path[:, 0]
    falls = path[:-1] - path[1:]
    assert falls[-1] <= 1e-3 < falls[-2]


@settings(max_examples=20, deadline=None)
@given(
    st.integers(0, 10**6),
    st.integers(4, 40),
    st.integers(1, 7),
    st.floats(1e-3, 16),
    st.floats(0, 64),
    st.floats(0.01, 1.0),
    st.floats(0.0, 2.0),
)
def test_the_objective_never_rises(seed, n, n_kernels, c, lam, rate, start):
    X, signs = table(seed, n)
    weight = torch.as_tensor(np.random.default_rng(seed).uniform(0, 3, size=n)) + 1e-3
    views = seen(X, max(n // 2, 1), KERNELS[:n_kernels])
    rule = Margins(start, rate, 0.0, 15)
    path = hokashyap(views, views.factors(weight), signs, weight, column(c), column(lam), rule).path[:, 0]
    rounding = 1e-10 * path[:-1] + 1e-24 * n  # rows of one class are met exactly
    assert bool((path[1:] <= path[:-1] + rounding).all())


def test_columns_of_a_grid_are_separate_fits():
    X, signs = table(6, 40)
    views, weight = seen(X, 15), torch.ones(40, dtype=torch.float64)
    factors = views.factors(weight)
    c, lam = column(0.1, 1.0, 10.0), column(4.0, 0.0, 0.5)
    together = hokashyap(views, factors, signs.repeat(1, 3), weight, c, lam)
    for g in range(3):
        alone = hokashyap(views, factors, signs, weight, c[g : g + 1], lam[g : g + 1])
        for w, v in zip(together.weights, alone.weights, strict=True):
            assert_close(w[:, g], v[:, 0], rtol=1e-9, atol=1e-9)


def test_copies_of_one_kernel_are_that_kernel_whatever_the_coupling():
    X, signs = table(7, 40)
    weight = torch.ones(40, dtype=torch.float64)
    rule = Margins(tol=0.0, max_iter=6)
    one, three = seen(X, 15, [Gaussian(1.0)]), seen(X, 15, [Gaussian(1.0)] * 3)
    alone = hokashyap(one, one.factors(weight), signs, weight, column(0.5), column(0.0), rule)
    together = hokashyap(three, three.factors(weight), signs, weight, column(0.5), column(0.0), rule)
    assert_close(together.weights[2], alone.weights[0])
    coupled = hokashyap(three, three.factors(weight), signs, weight, column(0.5), column(9.0), rule)
    assert_close(coupled.weights[0], coupled.weights[1])
    assert float(coupled.path[0, 0]) == pytest.approx(3 * float(alone.path[0, 0]), rel=1e-9)


def test_margins_of_separable_classes_are_met_as_ho_and_kashyap_prove():
    rng = np.random.default_rng(0)
    X = torch.as_tensor(rng.normal(size=(30, 2)))
    X = X[(X[:, 0] + X[:, 1]).abs() > 0.3]
    signs = torch.sign(X[:, :1] + X[:, 1:])
    views, weight = seen(X, len(X), [Linear()]), torch.ones(len(X), dtype=torch.float64)
    rule = Margins(tol=0.0, max_iter=1500)
    found = hokashyap(views, views.factors(weight), signs, weight, column(0.0), column(0.0), rule)
    f = views.values(found.weights, found.bias)[0]
    assert float(found.path[-1]) < 1e-4 * float(found.path[0])
    assert bool((signs * f > 0.98).all())


def test_a_stronger_coupling_makes_views_agree():
    X, signs = table(8, 60)
    views, weight = seen(X, 20), torch.ones(60, dtype=torch.float64)
    lam = column(0.0, 1.0, 30.0)
    rule = Margins(tol=0.0, max_iter=200)
    c = torch.full_like(lam, 0.5)
    found = hokashyap(views, views.factors(weight), signs.repeat(1, 3), weight, c, lam, rule)
    f = views.values(found.weights, found.bias)
    apart = (f - f.mean(0)).square().sum((0, 1))
    assert apart[0] > apart[1] > apart[2]


# --- members -------------------------------------------------------------------------------------------------


def trained(rows, seeds, c: float, lam: float) -> list:
    draws = (rows.choose(rows.size(0.4), np.random.default_rng(seed)) for seed in seeds)
    return [fit_member(rows, chosen, ClassLearner(), c, lam) for chosen in draws]


def by_kernel(member: EnsembleMember, X: torch.Tensor) -> torch.Tensor:
    """The value of each kernel's function at new rows, M × n × P."""
    basis, weights, bias = member.tensors()
    each = [kernel(X, basis.to(X)) @ w for kernel, w in zip(member.kernels, weights.to(X), strict=True)]
    return torch.stack(each) + bias[:, None]


def test_members_of_one_problem_are_heard_together_as_one_by_one():
    rows = problem(3, 40)
    members = [one for one, _ in trained(rows, range(3), 0.5, 1.0)]
    X = TensorRows(table(1, 15)[0])
    for f, member in zip(values(members, X, PLAN), members, strict=True):
        np.testing.assert_allclose(f, by_kernel(member, X.X).mean(0), rtol=1e-8, atol=1e-9)


def test_a_members_kernel_values_make_what_its_coordinates_made():
    rows = problem(5, 60)
    for member, f in trained(rows, range(2), 0.3, 0.7):
        # the map's coefficients grow as the root of one over the smallest eigenvalue kept, eps of the largest
        np.testing.assert_allclose(member.values(rows.sample.rows, PLAN), f, atol=1e-6)
        assert set(vars(member)).isdisjoint({"maps", "weights"})


def test_a_part_of_a_problem_weighs_as_much_as_the_whole():
    rows = problem(6, 50)
    part = rows.part(20, np.random.default_rng(0))
    assert part.sample.n_alive == part.sample.n_rows == 20
    assert float(part.sample.weight.sum()) == pytest.approx(float(rows.sample.weight.sum()))
    assert rows.part(50, np.random.default_rng(0)) is rows


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_directions_known_only_to_rounding_are_left_out_whatever_the_penalty(dtype):
    X = TensorRows(torch.ones(20, 3, dtype=dtype) + 1e-4 * torch.arange(20, dtype=dtype)[:, None])
    plan = replace(PLAN, dtype=dtype)
    mapped = MappedRows(X, [empirical_map(Gaussian(1e3), X.take(range(20)), dtype=dtype)], plan)
    signs = torch.where(torch.arange(20) % 2 == 0, 1.0, -1.0)[:, None].to(dtype)
    tiny = torch.tensor([1e-300], dtype=torch.float64)
    found = hokashyap(
        mapped, mapped.factors(torch.ones(20, dtype=dtype)), signs, torch.ones(20, dtype=dtype), tiny, 0 * tiny
    )
    assert bool(mapped.values(found.weights, found.bias).isfinite().all())


# --- coupled least squares ------------------------------------------------------------------------------------


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10**6), st.integers(3, 40), st.floats(1e-2, 10), st.floats(-1, 20))
def test_coupled_least_squares_is_solved_exactly(seed, n, c, lam):
    X, _ = table(seed, n)
    rng = np.random.default_rng(seed)
    y, weight = rng.normal(size=n) + 3, rng.uniform(0.1, 2, size=n)
    views = seen(X, max(n // 3, 1))
    W, bias, value = coupled_ridge(joint_moments(views, torch.as_tensor(y)[:, None], torch.as_tensor(weight)), c, lam)
    f, expected = oracle.coupled(coordinates(views), y, weight, c, lam)
    ours = views.values(W, bias)[:, :, 0].numpy()
    scale = abs(y).max()
    np.testing.assert_allclose(ours.mean(0), f.mean(0), rtol=1e-6, atol=1e-6 * scale)
    if lam > -0.99:  # at −1 the biases of single views are free
        np.testing.assert_allclose(ours, f, rtol=1e-5, atol=1e-5 * scale)
    assert float(value[0]) == pytest.approx(expected, rel=1e-6, abs=1e-6)


def test_at_coupling_minus_one_it_is_ridge_regression_with_the_sum_of_the_kernels():
    X, _ = table(9, 30)
    y = np.sin(X[:, 0].numpy())
    views, c = seen(X, 30), 0.3
    W, bias, _ = coupled_ridge(joint_moments(views, torch.as_tensor(y)[:, None], torch.ones(30).double()), c, -1.0)
    ours = views.values(W, bias).mean(0)[:, 0].numpy()
    K = KernelCenterer().fit_transform(sum(kernel(X, X) for kernel in THREE).numpy())
    ridge = KernelRidge(alpha=c * len(THREE), kernel="precomputed").fit(K, y - y.mean())
    np.testing.assert_allclose(ours, ridge.predict(K) + y.mean(), atol=1e-9)


# --- ensembles and cross-validation ----------------------------------------------------------------------------


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 9), st.integers(2, 5), st.integers(0, 10**6), st.sampled_from([1e-3, 1.0, 1e6]))
def test_margins_never_outvote_members(n_members, n_classes, seed, scale):
    rng = np.random.default_rng(seed)
    values = [scale * rng.normal(size=(6, 1 if n_classes == 2 else n_classes)) for _ in range(n_members)]
    votes, margins = ballot(values, n_classes)
    assert (votes.sum(1) == n_members).all()
    winner = tally(votes, margins).argmax(1)
    assert (votes[np.arange(6), winner] == votes.max(1)).all()


def test_a_value_of_zero_is_a_vote_for_the_negative_class():
    assert ballot([np.zeros((1, 1))], 2)[0].tolist() == [[1.0, 0.0]]


def problem(seed: int, n: int, targets: torch.Tensor | None = None):
    X, signs = table(seed, n)
    weight = np.ones(n)
    weight[::7] = 0.0
    rng = np.random.default_rng(seed)
    goal = signs if targets is None else targets
    return member_problem(Sample(TensorRows(X), goal, torch.from_numpy(weight), PLAN), np.arange(n), THREE, rng)


def test_folds_share_rows_and_classes_out_evenly():
    given_rows = problem(10, 60)
    fold = folds(given_rows, 4, np.random.default_rng(0))
    alive = given_rows.sample.weight > 0
    assert bool((fold[~alive] == -1).all())
    for sign in (-1, 1):
        counts = torch.bincount(fold[alive & (given_rows.sample.Y[:, 0] == sign)], minlength=4)
        assert int(counts.max() - counts.min()) <= 1


def test_a_grid_is_judged_as_separate_fits_on_the_rows_left():
    rows = problem(11, 50)
    maps = rows.maps(rows.choose(20, np.random.default_rng(0)))
    held = torch.arange(50) % 3 == 0
    views, grid = MappedRows(rows.sample.rows, maps, PLAN, 9), [(0.1, 1.0), (4.0, 0.0)]
    scores = ClassLearner().score(views, rows, held, grid)
    left = np.flatnonzero(~held.numpy())
    part = subset(rows.sample, left)
    for at, (c, lam) in enumerate(grid):
        found = ClassLearner().fit(MappedRows(part.rows, maps, PLAN), part.Y, part.weight, c, lam)
        f = views.values(found.weights, found.bias).mean(0)[held]
        right = (rows.sample.weight[held] * (f * rows.sample.Y[held] > 0)[:, 0]).sum()
        assert float(scores[at, 0]) == pytest.approx(float(right))


def test_numbers_are_judged_by_the_squared_error_of_rows_held_out():
    X, _ = table(12, 40)
    rows = problem(12, 40, torch.sin(X[:, :2]))
    maps = rows.maps(rows.choose(20, np.random.default_rng(0)))
    held = torch.arange(40) % 4 == 1
    views = MappedRows(rows.sample.rows, maps, PLAN, 9)
    scores = NumberLearner().score(views, rows, held, [(0.1, -1.0), (1.0, 2.0)])
    found = NumberLearner().fit(views, rows.sample.Y, rows.sample.weight * ~held, 1.0, 2.0)
    f = views.values(found.weights, found.bias).mean(0)
    error = (rows.sample.weight * held) @ (f - rows.sample.Y).square().sum(1)
    assert float(scores[1, 0]) == pytest.approx(-float(error), rel=1e-9)


@pytest.mark.parametrize("lam", [-1.0, -0.5, 0.0, 2.0])
def test_leave_one_out_in_closed_form_is_a_fit_without_each_row(lam):
    rng = np.random.default_rng(0)
    features = [rng.normal(size=(12, r)) for r in (3, 2)]
    y, weight = rng.normal(size=12), rng.uniform(0.5, 2.0, 12)
    ours = coupled_leave_one_out(*_tensors(features, y[:, None], weight), lam, [0.1, 3.0])
    for c, found in zip([0.1, 3.0], ours, strict=True):
        for row in range(12):
            # a row of next to no weight has no influence, and the oracle still gives its value
            values, _ = oracle.coupled(features, y, np.where(np.arange(12) == row, 1e-13, weight), c, lam)
            assert abs(float(found[row, 0]) - values.mean(0)[row]) < 1e-4


def _tensors(features, *others):
    return [torch.as_tensor(phi) for phi in features], *map(torch.as_tensor, others)


def test_the_selected_kernels_have_the_least_leave_one_out_error_of_the_preferred_sets():
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (120, 3))
    y = np.sin(3 * X[:, 0]) + 0.1 * rng.normal(size=120)
    sample = Sample(TensorRows(torch.as_tensor(X)), torch.as_tensor(y)[:, None], torch.ones(120), PLAN)
    chosen, report = choose_kernels(sample, None, [-1.0], PENALTIES, 120, np.random.default_rng(0))
    losses = {line["kernels"]: line["loss"] for line in report}
    best = min(losses.values())
    preferred = min(loss for name, loss in losses.items() if name.startswith("one width and relevances"))
    assert best <= preferred
    wanted = [line for line in report if line["regularization"] == chosen.c]
    assert min(line["loss"] for line in wanted) in (best, preferred)

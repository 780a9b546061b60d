"""Model selection and its parts: closed forms against really leaving out, metrics against known directions, selected
kernels against tables whose best kernel is known."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from oracles import assert_close

from mercer import KernelBoostingClassifier
from mercer.base.calibration import fit_calibration
from mercer.data.column_maps import KINDS, fit_column_map
from mercer.evidence.exact import log_evidence
from mercer.kernels import Bias, Gaussian, Laplacian, Linear, Matern12, Matern32, Scaled, Sum
from mercer.preprocessing.inputs import code_targets
from mercer.selection.evidence_search import Process, relevances
from mercer.selection.halving import greedy_average, select
from mercer.selection.score import (
    FLOOR,
    UNKNOWN_ROWS,
    Link,
    Score,
    codes_of,
    fitted_link,
    leave_one_out_path,
    log_losses,
    shrinkage_factor,
)
from mercer.selection.search import in_background
from mercer.selection.settings import DEFAULT_SETTINGS, GridPoint
from mercer.selection.view import (
    Fold,
    SelectedEnsemble,
    View,
    apply_transform,
    distances,
    gradient_outer_product,
    gradients,
    metric_root,
    tile,
)

FAMILIES = [Gaussian(1.3), Matern32(2.0), Matern12(2.0), Laplacian(3.0)]


def rows(n: int, D: int, seed: int = 0) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).standard_normal((n, D)))


def run(X: torch.Tensor, y: torch.Tensor, classes: bool = False, seed: int = 0, **options) -> SelectedEnsemble:
    y = y[:, None] if y.ndim == 1 else y
    Y = y - y.mean(0)
    Y = Y if classes else Y / Y.square().mean().sqrt()
    return select(X, Y, torch.ones(len(X)), classes=classes, rng=np.random.default_rng(seed), **options)


# Closed forms


@pytest.mark.parametrize("kernel", FAMILIES, ids=repr)
def test_closed_form_leave_one_out_is_really_leaving_rows_out(kernel):
    X, Y = rows(25, 3), rows(25, 2, seed=1)
    weight = torch.from_numpy(np.random.default_rng(2).uniform(0.5, 2, 25))
    K, penalty = kernel(X, X), 0.3
    slow = torch.empty_like(Y)
    for i in range(25):
        rest = torch.arange(25) != i
        A = K[rest][:, rest] + torch.diag(penalty / weight[rest])
        slow[i] = K[i, rest] @ torch.linalg.solve(A, Y[rest])
    path = leave_one_out_path(K, Y, weight, torch.tensor([penalty, 7.0], dtype=torch.float64))
    # systems of condition below 100 lose two of sixteen digits
    assert_close(path[0], slow, rtol=1e-9, atol=1e-9)


def test_the_link_finds_the_exponent_under_which_probabilities_were_made():
    rng = np.random.default_rng(0)
    shares = rng.dirichlet([1.0, 1.0, 1.0], 20_000)
    true = np.array([rng.choice(3, p=row**2 / (row**2).sum()) for row in shares])
    Y = torch.eye(3, dtype=torch.float64)[torch.from_numpy(true)]
    centred = Y - Y.mean(0)
    link = fitted_link(codes_of(centred), torch.from_numpy(shares) - Y.mean(0), centred, torch.ones(len(Y)))
    assert link.exponent == pytest.approx(2.0, rel=0.05)  # 20 000 rows: a standard error of about 1 %
    assert link.floor == pytest.approx(0.006)


def test_log_loss_is_that_of_the_best_exponent():
    Y = torch.eye(4, dtype=torch.float64)[torch.from_numpy(np.random.default_rng(0).integers(0, 4, 400))]
    F = 0.4 * Y + 0.2 * rows(400, 4) + 0.15
    codes, true, weight = codes_of(Y), Y.argmax(1), torch.full((400,), 1 / 400, dtype=torch.float64)
    doubt = UNKNOWN_ROWS / (UNKNOWN_ROWS + 400)

    def slow(exponent: float) -> float:
        log_p = Link(codes, FLOOR, exponent).probabilities(F).log()
        target = log_p.gather(1, true[:, None])[:, 0]
        return -float(((1 - doubt) * target + doubt * log_p.mean(1)) @ weight)

    losses, exponents = log_losses(codes, torch.stack([F, F.flip(0)]), true, weight)
    grid = np.geomspace(0.5, 10, 2000)  # steps of 0.15 %: the least loss is missed by their square
    assert float(losses[0]) == pytest.approx(min(map(slow, grid)), rel=1e-5)
    assert float(losses[0]) == pytest.approx(slow(float(exponents[0])), rel=1e-9)


def test_probabilities_sum_to_one_and_follow_the_values():
    Y = torch.tensor([[0.5], [-1.5], [0.5], [0.5]], dtype=torch.float64)
    p = Link(codes_of(Y), 0.02, 1.0).probabilities(torch.tensor([[-9.0], [-0.5], [9.0]], dtype=torch.float64))
    assert_close(p.sum(1), torch.ones(3, dtype=torch.float64))
    assert (p[:, 1].diff() > 0).all()
    assert p[1].tolist() == pytest.approx([0.5, 0.5])


def test_an_average_is_no_worse_than_its_best_and_one_is_kept_when_one_is_enough():
    y = rows(500, 1)
    score = Score(y, torch.ones(500))
    noise = [0.3 * rows(500, 1, seed=s) for s in (1, 2, 3)]
    shares, loss = greedy_average([y + e for e in noise], score, DEFAULT_SETTINGS)
    assert loss < float(score((y + noise[0])[None]))
    assert sum(shares) == pytest.approx(1)
    assert greedy_average([y + noise[0], y + 3 * noise[0]], score, DEFAULT_SETTINGS)[0] == [1.0, 0.0]


def test_a_selection_without_time_ends_with_the_columns_as_they_are():
    X = torch.linspace(-2, 2, 60, dtype=torch.float64)[:, None]
    found = select(
        X, X.sin(), torch.ones(60, dtype=torch.float64), classes=False, rng=np.random.default_rng(0), seconds=1e-9
    )
    assert {line["candidate"].split(",")[0] for line in found.report} == {"standard"}
    assert found.loss < 0.1  # of that of the constant


def test_a_gain_without_noise_is_not_shrunk():
    """A parabola has rows of large and of small gain; residuals alone are luck."""
    X = torch.linspace(-2, 2, 60, dtype=torch.float64)[:, None]
    Y = X**2 - (X**2).mean()
    found = select(X, Y, torch.ones(60, dtype=torch.float64), classes=False, rng=np.random.default_rng(0))
    assert sum(member.share for member in found.members) > 1 - 10 * found.loss


def test_the_shrinkage_of_a_gain_follows_its_standard_error():
    gain = torch.tensor([0.0, 2.0], dtype=torch.float64).repeat(50)  # mean 1, standard error 0.1
    assert shrinkage_factor(gain, torch.ones(100)) == pytest.approx(1 - 0.1**2 / 2)
    assert shrinkage_factor(gain - 0.95, torch.ones(100)) == 0.0  # a gain of half its error
    assert shrinkage_factor(-gain, torch.ones(100)) == 0.0
    # only ratios of weights count, and a row of weight 3 is one row
    assert shrinkage_factor(gain[:2], torch.full((2,), 50.0)) == shrinkage_factor(gain[:2], torch.ones(2))
    apart, heavy = gain[torch.tensor([0, 1, 1, 1])], gain[:2]
    assert shrinkage_factor(heavy, torch.tensor([1.0, 3.0])) < shrinkage_factor(apart, torch.ones(4))


def test_a_selection_on_coin_flips_shrinks_its_gain():
    rng = np.random.default_rng(0)
    excess = []
    for _ in range(3):
        X, y = rng.normal(size=(1100, 3)), rng.integers(0, 2, 1100)
        p = KernelBoostingClassifier(random_state=0).fit(X[:100], y[:100]).predict_proba(X[100:])
        excess.append(-np.log(p[np.arange(1000), y[100:]]).mean() - np.log(2))
    # four numbers chosen by 100 rows in full faith lose 4/(2·100) = 0.02 on others; the best of many candidates more
    assert np.mean(excess) < 0.02


@pytest.mark.parametrize("n_classes", [2, 5])
def test_the_probabilities_of_a_model_are_those_of_the_link(n_classes):
    rng = np.random.default_rng(0)
    y = rng.integers(0, n_classes, 400)
    targets = code_targets(y, np.ones(400), classes=True, centred=True)
    Y = targets.encode(y)
    values = Y + rng.standard_normal(Y.shape)
    fitted = fit_calibration(targets, values, Y, np.ones(400))
    link = fitted_link(codes_of(torch.from_numpy(Y)), *(torch.from_numpy(a) for a in (values, Y, np.ones(400))))
    slow = link.probabilities(torch.from_numpy(values)).numpy()
    np.testing.assert_allclose(fitted.probabilities(targets.decisions(values)), slow, rtol=1e-6)


def test_rows_without_a_mistake_do_not_give_probabilities_of_one():
    Y = torch.tensor([[0.5], [-0.5]], dtype=torch.float64).repeat(50, 1)
    link = fitted_link(codes_of(Y), 0.9 * Y, Y, torch.ones(100))
    mistaken = link.probabilities(0.9 * Y[:1])[0, 0]
    assert 1e-4 < mistaken < 0.05  # of the order of one in a hundred, that many rows having been seen


# The evidence


def test_the_gradient_of_the_evidence_is_that_of_differences():
    weight = torch.from_numpy(np.random.default_rng(2).uniform(0.5, 2, 30))
    process = Process(rows(30, 4), rows(30, 2, seed=1), weight, torch.tensor([0, 1, 1, 2]))
    theta, h = np.array([0.1, 0.5, -0.3, 0.2, -2.0, -1.0]), 1e-5
    slow = [(process.evidence(theta + e)[0] - process.evidence(theta - e)[0]) / (2 * h) for e in h * np.eye(6)]
    np.testing.assert_allclose(process.evidence(theta)[1], slow, rtol=1e-6, atol=1e-6)  # h² and rounding over h


def test_the_evidence_is_that_of_the_package():
    X, Y, ones = rows(30, 3), rows(30, 1, seed=1), torch.ones(30, dtype=torch.float64)
    mine = Process(X, Y, ones, torch.arange(3))
    theta = np.array([0.1, 0.5, -0.3, 0.2, -2.0, -1.0])
    for other in (theta, theta + 0.3):
        length, (v, b, noise) = np.exp(other[:3]), np.exp(other[3:])
        kernel = Sum(Scaled(Matern32(length_scale=length.tolist()), float(v)), Bias(float(b)))
        slow = -log_evidence(kernel, float(noise), X, Y, ones)[0] - 15 * np.log(2 * np.pi)
        assert mine.evidence(other)[0] == pytest.approx(slow, rel=1e-9)


def test_inputs_that_matter_are_relevant_and_those_of_a_group_alike():
    X = rows(300, 5)
    y = torch.sin(2 * X[:, :1]) + X[:, 1:2] + 0.1 * rows(300, 1, seed=1)
    ones = torch.ones(300, dtype=torch.float64)
    found = relevances(X, y, ones)
    assert found[:2].min() > 5 * found[2:].max()
    assert float(found.square().mean()) == pytest.approx(1)
    together = relevances(X, y, ones, torch.tensor([0, 1, 2, 2, 2]))
    assert together[2] == together[3] == together[4]


# The metric


@pytest.mark.parametrize("kernel", FAMILIES, ids=repr)
def test_slopes_are_the_gradients_of_autograd(kernel):
    X, Z, alpha = rows(12, 4), rows(30, 4, seed=2), rows(30, 2, seed=1)
    X[:5], Z[:, 3], X[:, 3] = Z[:5], Z[:, 3].sign(), X[:, 3].sign()  # some rows coincide, a column has two values
    at = X.clone().requires_grad_()
    f = kernel(at, Z) @ alpha
    slow = torch.stack([torch.autograd.grad(f[:, o].sum(), at, retain_graph=True)[0] for o in range(2)], 2)
    length = float(kernel.length_scale)
    fast = gradients(kernel, distances(kernel, X, Z).double(), length, X, Z, alpha)
    # distances are kept in single precision: a relative error of 6e-8 each, in sums of 30 terms of size 1
    assert_close(fast, slow, rtol=1e-5, atol=1e-5)


def test_city_block_distances_of_two_valued_columns_are_those_of_differences():
    X = torch.cat([rows(20, 2), (rows(20, 3, seed=1) > 0).double() * 0.7], 1)
    Z = torch.cat([rows(9, 2, seed=2), (rows(9, 3, seed=3) > 0).double() * 0.7], 1)
    slow = (X[:, None] - Z).abs().sum(2)
    assert_close(distances(Laplacian(), X, Z).double(), slow, rtol=1e-5, atol=1e-5)
    assert_close(tile(Laplacian(), slow, 2.0), torch.exp(-slow / 2))


def test_the_gradient_metric_of_a_ridge_function_is_its_direction():
    X = rows(400, 5)
    u = torch.nn.functional.normalize(torch.tensor([3.0, -1.0, 0.0, 2.0, 0.5], dtype=torch.float64), dim=0)
    gradient = torch.cos(X @ u)[:, None, None] * u[:, None]
    M = gradient_outer_product(gradient, torch.ones(400), torch.ones(5, dtype=torch.float64))
    assert_close(M, 5 * torch.outer(u, u))
    assert_close(metric_root(M, 1.0, full=True), 5**0.5 * torch.outer(u, u), rtol=1e-7, atol=1e-7)
    assert_close(metric_root(M, 1.0, full=False), 5**0.5 * u.abs())
    assert float(metric_root(M, 0.5, full=True).square().sum()) == pytest.approx(5)


def test_the_selection_finds_the_three_projections_of_a_sine():
    settings = replace(DEFAULT_SETTINGS, fit_rows=400, last_fit_rows=500, folded_below=600)
    X = rows(1000, 8)
    directions = torch.linalg.qr(rows(8, 3, seed=1))[0]
    y = torch.sin(2 * X @ directions).sum(1) + 0.1 * rows(1000, 1, seed=2)[:, 0]
    found = run(X, y, metric="full", settings=settings)
    A = found.members[0].transform
    assert A.ndim == 2
    M = A.T @ A
    inside = (directions.T @ M @ directions).trace() / M.trace()
    assert inside > 0.9  # three of eight directions hold 0.375 of an isotropic metric
    assert found.loss < 0.5
    rounds = {line["rows"] for line in found.report if "full 1 of" in line["candidate"]}
    assert rounds == {500}  # by the other power in the last round alone


# Column maps


@pytest.mark.parametrize("kind", KINDS)
def test_a_column_map_rises_is_finite_and_standard(kind):
    x = torch.cat([rows(500, 1).mul(3).exp(), rows(500, 1, seed=1).round(), torch.full((500, 1), 4.2)], 1).double()
    fitted = fit_column_map(kind, x, torch.ones(500))
    z = fitted(x)
    assert_close(z.mean(0), torch.zeros(3, dtype=torch.float64), rtol=0, atol=1e-9)
    assert_close(z.square().mean(0), torch.tensor([1.0, 1.0, 0.0], dtype=torch.float64), rtol=1e-9, atol=1e-9)
    wide = torch.linspace(-50, 500, 2001, dtype=torch.float64)[:, None].expand(-1, 3)
    assert (fitted(wide).diff(dim=0) >= 0).all()
    assert fitted(torch.tensor([[1e300, -1e300, 0.0]], dtype=torch.float64)).isfinite().all()
    inner = x[:, :2].clone()
    assert_close(fitted.inverse(z)[:, :2], inner, rtol=1e-6, atol=1e-6)


def test_normal_scores_are_normal_whatever_the_column_was():
    x = rows(4001, 1).mul(4).exp()
    z = fit_column_map("scores", x, torch.ones(4001))(x)[:, 0].sort().values
    probability = (torch.arange(4001, dtype=torch.float64) + 0.5) / 4001
    # a knot for every fourth value: between them, scores follow the values; in the last percent these lie far apart
    inner = slice(40, -40)
    assert_close(z[inner], torch.special.ndtri(probability)[inner], rtol=0.02, atol=0.02)


def test_kept_columns_keep_their_unit():
    x = torch.cat([rows(100, 1), (rows(100, 1, seed=1) > 1.5).double() / 2**0.5], 1)
    for kind in KINDS:
        z = fit_column_map(kind, x, torch.ones(100), torch.tensor([False, True]))(x)[:, 1]
        assert float(z.max() - z.min()) == pytest.approx(0.5**0.5)


# The selection


def test_a_jump_along_one_input_makes_the_city_block_kernel_win(small):
    X = rows(800, 6)
    y = (X[:, 0] > 0.3).double() + (X[:, 1] > -0.2).double() + 0.5 * (X[:, 2] > 0).double()
    assert isinstance(run(X, y, settings=small).members[0].kernel, Laplacian)


def test_a_table_of_noise_ends_in_the_constant(small):
    found = run(rows(1000, 4), rows(1000, 1, seed=1), settings=small)
    assert found.loss <= 1.0  # that of the constant
    share = sum(member.share for member in found.members if not isinstance(member.kernel, Bias))
    # what is not the constant has learned nothing: its loss is the constant's up to the luck of 250 judging rows
    assert isinstance(found.members[0].kernel, Bias) or (found.loss > 0.98 and share <= 1)


def test_the_linear_kernel_is_always_a_candidate(small):
    X = rows(700, 6)
    found = run(X, X @ rows(6, 1, seed=1)[:, 0] + 2 * rows(700, 1, seed=2)[:, 0], settings=small)
    tried = {line["candidate"] for line in found.report}
    assert "standard, none, linear" in tried
    assert isinstance(found.members[0].kernel, Scaled)
    assert isinstance(found.members[0].kernel.kernel, Linear)


def test_the_same_seed_gives_the_same_selection(small):
    X = rows(400, 3)
    y = torch.sin(X[:, 0]) + 0.1 * rows(400, 1, seed=1)[:, 0]
    small = replace(small, families=("matern32", "matern12"))
    first, second = run(X, y, settings=small), run(X, y, settings=small)
    assert [m.name for m in first.members] == [m.name for m in second.members]
    for member, again in zip(first.members, second.members, strict=True):
        assert member.penalty == again.penalty
        assert torch.equal(member.transform, again.transform)


def test_parallel_tasks_select_what_sequential_ones_do(small):
    X = rows(400, 3)
    y = torch.sin(X[:, 0]) + 0.5 * rows(400, 1, seed=1)[:, 0]
    small = replace(small, families=("matern32", "matern12"), column_maps=small.column_maps[:2])
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            found.append(run(X, y, settings=small))
            assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    first, second = ([(line["candidate"], line["rows"]) for line in result.report] for result in found)
    assert first == second
    assert found[0].loss == pytest.approx(found[1].loss, rel=1e-3)  # products of more threads add in another order


def test_a_family_far_behind_is_left_where_it_starts():
    X, y = rows(60, 2), rows(60, 1, seed=1)
    fold = Fold(X[:40], y[:40], torch.ones(40), X[40:])
    start, tried = GridPoint("matern32", 0, 6), []
    for give_up_above in (math.inf, 0.0):
        view = View("standard", [fold], Score(y[40:], torch.ones(20)), [torch.ones(2, dtype=X.dtype)])
        assert view.tuned(start, 4, give_up_above).loss <= view.trial(start).loss
        tried.append(len(view.trials))
    assert tried[0] > tried[1] == 1


def test_a_task_in_background_has_ended_with_the_block():
    done, before = [], torch.get_num_threads()
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            with in_background(lambda: done.append(torch.get_num_threads())):
                assert torch.get_num_threads() == threads
            assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    assert done == [1, 1]
    with pytest.raises(ZeroDivisionError), in_background(lambda: 1 / 0):
        pass


def test_scale_and_shift_of_columns_change_nothing(small):
    X = rows(400, 3).mul(0.7).exp()
    y = torch.sin(X[:, 0]) + 0.1 * rows(400, 1, seed=1)[:, 0]
    small = replace(small, families=("matern32", "matern12"))
    plain, scaled = (
        run(X, y, settings=small),
        run(X * torch.tensor([1024.0, 0.125, 8.0]) + torch.tensor([4.0, -2.0, 0.0]), y, settings=small),
    )
    assert [m.name for m in plain.members] == [m.name for m in scaled.members]
    assert scaled.loss == pytest.approx(plain.loss, rel=1e-3)  # rounding moves single-precision tiles alone


@pytest.mark.parametrize("n_classes", [2, 4])
def test_classes_are_scored_by_log_loss_and_get_probabilities(small, n_classes):
    X = rows(600, 3)
    true = (X[:, 0] * 1.5).round().clamp(0, n_classes - 1).long()
    codes = torch.eye(n_classes, dtype=torch.float64)[true]
    found = run(X, codes if n_classes > 2 else 2 * codes[:, 1] - 1, classes=True, settings=small)
    share = torch.bincount(true) / len(true)
    assert found.loss < 0.5 * float(-(share * share.log()).sum())  # the entropy


def test_small_tables_are_scored_in_folds():
    X = rows(120, 3)
    found = run(X, X[:, 0] ** 2 + 0.1 * rows(120, 1, seed=1)[:, 0])
    assert found.loss < 0.5
    A = apply_transform(found.members[0].columns(X), found.members[0].transform)
    assert A.isfinite().all()


def test_time_is_kept(small):
    quick = run(rows(700, 4), rows(700, 1, seed=1), seconds=0.0, settings=small)
    full = run(rows(700, 4), rows(700, 1, seed=1), settings=small)
    assert len(quick.report) < len(full.report)
    assert quick.members

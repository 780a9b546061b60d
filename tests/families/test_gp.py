"""What theory promises of sparse Gaussian processes: evidence, gradients, posteriors, modes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import oracles_gp as oracle
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import assert_close
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

from mercer.clock import Clock
from mercer.data import TensorRows
from mercer.engine import make_plan
from mercer.engine.plan import Sample
from mercer.evidence.approximations import (
    Approximation,
    ProjectedProcess,
    PseudoInputs,
    SubsetOfRegressors,
    Variational,
)
from mercer.evidence.coordinates import LENGTH_SCALE_PRIOR, Coordinates, Gradient, Point
from mercer.evidence.inducing import JITTER
from mercer.evidence.laplace import LaplaceEvidence, hessian_slope
from mercer.evidence.lbfgs import climb
from mercer.evidence.optimise import ascend, exact_evidence, optimise, refine_basis
from mercer.evidence.posterior import draw
from mercer.evidence.sparse import exact_posterior, sparse_evidence, sparse_posterior
from mercer.gp.classifier import LEAST_PIVOT, lower_roots, mean_softmax
from mercer.gp.leave_one_out import predictive_noise
from mercer.kernels import Gaussian, Linear, Matern52, Scaled, Sum
from mercer.losses import Logistic, Softmax

SPARSE = [SubsetOfRegressors(), ProjectedProcess(), PseudoInputs(), Variational()]
KERNELS = [2.0 * Gaussian([0.8, 1.5]) + 0.3, 0.7 * Matern52(1.2), Linear() + 1.0 * Gaussian()]


def problem(n=30, m=5, p=1, seed=0):
    rng = torch.Generator().manual_seed(seed)
    normal = lambda *shape: torch.randn(*shape, generator=rng, dtype=torch.float64)  # noqa: E731
    X = normal(n, 2)
    Y = torch.stack([torch.sin((c + 1) * X[:, 0]) + X[:, 1].cos() for c in range(p)], 1) + 0.1 * normal(n, p)
    weight = torch.randint(1, 4, (n,), generator=rng).double()
    return X, Y, weight, X[:m] + 0.1 * normal(m, 2)


def table(X, Y, plan, weight=None):
    return Sample(TensorRows(X), Y, torch.ones(len(X), dtype=torch.float64) if weight is None else weight, plan)


def repeated(weight, *tables):
    index = torch.repeat_interleave(torch.arange(len(weight)), weight.long())
    return [table[index] for table in tables]


def cpu(n, memory_limit=None):
    return make_plan(n, device="cpu", memory_limit=memory_limit)


def classes(X, p):
    if p == 1:
        return torch.where(X[:, :1] * X[:, 1:] > 0.2, 1.0, -1.0).double()
    label = (X[:, 0] > 0.3).long() + (X[:, 1] > 0).long()
    return torch.where(torch.nn.functional.one_hot(label, p) > 0, 1.0, -1.0).double()


# --- regression -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize(("kernel", "p"), list(zip(KERNELS, (1, 2, 1), strict=True)), ids=repr)
@pytest.mark.parametrize("approximation", SPARSE, ids=repr)
def test_evidence_and_gradients_are_those_of_the_dense_formula_on_repeated_rows(approximation, kernel, p, known):
    X, Y, weight, Z = problem(p=p)
    row_noise = X[:, 0] ** 2 if known else torch.zeros(len(X), dtype=torch.float64)
    data = replace(table(X, Y, cpu(len(X)), weight), noise=row_noise if known else None)
    found = sparse_evidence(kernel, 0.1, Z, data, approximation)
    names = list(kernel.tunable())
    leaves = [torch.tensor(v, dtype=torch.float64, requires_grad=True) for v in kernel.tunable().values()]
    noise, at = torch.tensor(0.1, dtype=torch.float64, requires_grad=True), Z.clone().requires_grad_()
    bound = kernel.replaced(dict(zip(names, leaves, strict=True)))
    X, Y, row_noise = repeated(weight, X, Y, row_noise)
    value = oracle.sparse_evidence(bound, noise + row_noise, X, Y, at, approximation.alpha, approximation.bound)
    slopes = torch.autograd.grad(value, [*leaves, noise, at])
    assert found.value == pytest.approx(value.item(), rel=1e-9)
    for name, slope in zip(names, slopes, strict=False):
        assert_close(found.by_parameter[name], slope, rtol=1e-6, atol=1e-6)
    assert found.by_noise == pytest.approx(slopes[-2].item(), rel=1e-6)
    assert_close(found.by_basis, slopes[-1], rtol=1e-6, atol=1e-6)


@settings(deadline=None, max_examples=15)
@given(n=st.integers(2, 40), m=st.integers(1, 6), scale=st.sampled_from([1e-3, 1.0, 1e3]), seed=st.integers(0, 99))
def test_the_bound_lies_below_the_full_evidence_and_below_pp(n, m, scale, seed):
    X, Y, _, Z = problem(n, min(m, n), seed=seed)
    X, Z, kernel = scale * X, scale * Z, Gaussian(scale)
    plan = cpu(n)
    bound, pp = (
        sparse_evidence(kernel, 0.1, Z, table(X, Y, plan), a).value for a in (Variational(), ProjectedProcess())
    )
    full = oracle.log_normal(Y, kernel(X, X) + 0.1 * torch.eye(n, dtype=torch.float64)).item()
    assert bound <= full + 1e-6 * abs(full)
    assert bound <= pp + 1e-9 * abs(pp)


@pytest.mark.parametrize("approximation", SPARSE, ids=repr)
def test_all_rows_as_inducing_inputs_give_the_full_model(approximation):
    X, Y, _, _ = problem(p=2)
    kernel, new = KERNELS[0], torch.randn(7, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(3)) * 3
    plan, ones = cpu(len(X)), torch.ones(len(X), dtype=torch.float64)
    full = exact_posterior(kernel, 0.1, X, Y, ones)
    sparse = sparse_posterior(kernel, 0.1, X, table(X, Y, plan), approximation)[0]
    mean, variance = full.moments(kernel, TensorRows(new), plan)
    seen, spread = sparse.moments(kernel, TensorRows(new), plan)
    assert_close(seen, mean, rtol=1e-6, atol=1e-6)
    if approximation.degenerate:
        assert bool((spread <= variance + 1e-8).all())
    else:
        assert_close(spread, variance, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("approximation", SPARSE, ids=repr)
def test_predictions_are_those_of_the_thesis_table(approximation):
    X, Y, _, Z = problem(p=2)
    kernel, new = KERNELS[0], X[:6] + 0.3
    posterior = sparse_posterior(kernel, 0.1, Z, table(X, Y, cpu(len(X))), approximation)[0]
    mean, cov = oracle.sparse_prediction(kernel, 0.1, X, Y, Z, new, approximation.alpha, approximation.degenerate)
    seen, spread = posterior.moments(kernel, TensorRows(new), cpu(6))
    assert_close(seen, mean, rtol=1e-7, atol=1e-7)
    assert_close(spread[:, 0, 0], cov.diagonal(), rtol=1e-6, atol=1e-8)
    assert_close(posterior.covariance(kernel, new), cov, rtol=1e-6, atol=1e-8)


def test_the_variance_of_sr_falls_to_zero_away_from_the_data_and_those_of_pp_and_spgp_do_not():
    X, Y, _, Z = problem()
    far, kernel = torch.full((1, 2), 50.0, dtype=torch.float64), 2.0 * Gaussian()
    spread = {}
    for approximation in SPARSE:
        posterior = sparse_posterior(kernel, 0.1, Z, table(X, Y, cpu(len(X))), approximation)[0]
        spread[approximation.short_name] = float(posterior.moments(kernel, TensorRows(far), cpu(1))[1])
    assert spread["sr"] < 1e-12
    assert [spread[name] for name in ("pp", "spgp", "variational")] == pytest.approx([2.0] * 3)


@pytest.mark.parametrize("approximation", SPARSE, ids=repr)
def test_float32_tiles_and_small_blocks_change_little(approximation, monkeypatch):
    monkeypatch.setitem(JITTER, torch.float64, JITTER[torch.float32])  # what is compared is the rounding of tiles
    X, Y, weight, Z = problem(n=300, m=6)
    wide, narrow = cpu(300), replace(cpu(300, memory_limit=2**20), dtype=torch.float32)
    here = sparse_evidence(KERNELS[0], 0.1, Z, table(X, Y, wide, weight), approximation)
    there = sparse_evidence(KERNELS[0], 0.1, Z, table(X.float(), Y, narrow, weight), approximation)
    assert there.value == pytest.approx(here.value, rel=1e-3, abs=0.05)
    assert_close(there.by_basis, here.by_basis, rtol=0.02, atol=0.02 * float(here.by_basis.abs().max()))


@pytest.mark.parametrize("approximation", [ProjectedProcess(), PseudoInputs(), Variational()], ids=repr)
def test_gradients_of_float32_tiles_survive_inducing_inputs_that_nearly_coincide(approximation):
    """K_mm of condition 1e6 and more, the jitter's doing: products with its inverse would be a thousandfold off."""
    rng = torch.Generator().manual_seed(0)
    X = torch.randn(3000, 3, generator=rng, dtype=torch.float64).float().double()
    Y = (X[:, :1] * X[:, 1:2]).sin() + 0.1 * torch.randn(3000, 1, generator=rng, dtype=torch.float64)
    kernel, Z = 2.0 * Gaussian([2.0, 1.3, 2.0]) + 0.5, X[:200]
    narrow, jitter = replace(cpu(3000), dtype=torch.float32), JITTER[torch.float32]
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(JITTER, torch.float64, jitter)
        exact = sparse_evidence(kernel, 0.02, Z, table(X, Y, cpu(3000)), approximation)
    rough = sparse_evidence(kernel, 0.02, Z, table(X.float(), Y, narrow), approximation)
    assert rough.value == pytest.approx(exact.value, abs=1.0)
    assert (rough.by_basis - exact.by_basis).norm() < exact.by_basis.norm()
    for name, value in exact.by_parameter.items():
        assert (rough.by_parameter[name] - value).norm() < value.norm()


def test_refining_raises_the_bound_and_says_where_it_ends():
    X, Y, _, Z = problem(n=100)
    rows, plan = TensorRows(X), cpu(100)
    before = sparse_evidence(KERNELS[0], 0.1, Z, table(X, Y, plan), Variational()).value
    data, rng = Sample(rows, Y, torch.ones(100, dtype=torch.float64), plan), np.random.default_rng(0)
    kernel, noise, basis, after = refine_basis(KERNELS[0], 0.1, Z, data, max_iter=20, rng=rng)
    assert after > before
    assert sparse_evidence(kernel, noise, basis, data, Variational()).value == pytest.approx(after, rel=1e-9)


# --- the search -----------------------------------------------------------------------------------------


def test_a_climb_moves_only_what_is_free_and_gives_a_reason():
    start = Point(Gaussian(2.0), 0.5, torch.ones(2, 1, dtype=torch.float64))

    def evidence(kernel, noise, basis):  # largest at length-scale 1, noise 0.1, basis 0
        length = torch.tensor(kernel.length_scale, dtype=torch.float64)
        value = -((float(length) - 1) ** 2) - (noise - 0.1) ** 2 - float(basis.square().sum())
        return Gradient(value, {"length_scale": -2 * (length - 1)}, -2 * (noise - 0.1), -2 * basis)

    for free in ({"kernel"}, {"noise"}, {"basis"}, {"kernel", "noise", "basis"}, set()):
        found = climb(evidence, start, free=free, tol=1e-12)
        assert (found.kernel.length_scale == pytest.approx(1.0, abs=1e-3)) == ("kernel" in free)
        assert (found.noise == pytest.approx(0.1, abs=1e-3)) == ("noise" in free)
        assert (float(found.basis.abs().max()) < 1e-3) == ("basis" in free)
        assert found.why


def test_an_ascent_comes_near_the_top_though_every_step_sees_another_noise():
    rng = np.random.default_rng(0)
    start = Point(Gaussian(2.0), 0.5, torch.full((2, 1), 3.0, dtype=torch.float64))

    def part():
        shift = 0.1 * rng.standard_normal()

        def evidence(kernel, noise, basis):
            if shift > 0.25:
                raise ValueError("a part on which the kernel matrix cannot be factored")
            length = torch.tensor(kernel.length_scale, dtype=torch.float64)
            return Gradient(0.0, {"length_scale": -2 * (length - 1 - shift)}, -2 * (noise - 0.1), -2 * (basis - shift))

        return evidence

    found = ascend(part, start, n_steps=150)
    assert found.kernel.length_scale == pytest.approx(1.0, abs=0.1)
    assert found.noise == pytest.approx(0.1, abs=0.05)
    assert float(found.basis.abs().max()) < 0.2


def test_a_search_on_many_rows_starts_on_parts_and_ends_on_all():
    """8200 rows and 4 inducing inputs: parts of 1000 rows, reweighted, then L-BFGS on everything."""
    X, Y, _, Z = problem(n=8200, m=4)
    data, seen = Sample(TensorRows(X), Y, torch.ones(8200, dtype=torch.float64), cpu(8200)), []

    def evidence(some):
        def at(kernel, noise, basis):
            seen.append((some.rows.n_rows, float(some.weight.sum())))
            return sparse_evidence(kernel, noise, basis, some, Variational())

        return at

    start = Point(KERNELS[0], 0.1, Z)
    before = evidence(data)(start.kernel, start.noise, start.basis).value
    found = optimise(evidence, start, data, rng=np.random.default_rng(0), n_rough=8, max_iter=2)
    assert [n for n, _ in seen[1:9]] == [1000] * 8
    assert {n for n, _ in seen[9:]} == {8200}
    assert {round(total) for _, total in seen} == {8200}
    assert found.value > before


def test_a_search_ends_where_the_gradient_is_small():
    """L-BFGS needs a gain of at least 1e-9 a step, so it ends near a point where the gradient vanishes."""
    X, Y, _, Z = problem(n=80)
    data = table(X, Y, cpu(80))
    evidence = lambda rows: lambda *at: sparse_evidence(*at, rows, Variational())  # noqa: E731
    start = Point(KERNELS[0], 0.3, Z)
    options = {"free": {"kernel", "noise"}, "length_scale_prior": None}
    found = optimise(evidence, start, data, rng=np.random.default_rng(0), max_iter=200, tol=1e-14, **options)
    at = Coordinates(start, **options)
    before = np.linalg.norm(at.evaluated(evidence(data), at.vector)[2])
    end = Coordinates(found, **options)
    assert np.linalg.norm(end.evaluated(evidence(data), end.vector)[2]) < 0.01 * before
    assert found.n_iter < 200
    assert "gained" in found.why


@pytest.mark.parametrize("patience", [1, 2, 4])
def test_a_climb_compares_with_the_value_of_as_many_steps_ago_as_it_has_patience(patience):
    X, Y, _, _ = problem()
    found = climb(exact_evidence(X, Y), Point(Gaussian(3.0), 0.5), gain=1e9, patience=patience)
    assert found.n_iter == patience + 1  # no step gains so much


def test_length_scales_have_a_prior_around_their_mean_and_nothing_else_has():
    kernel = Sum(Scaled(Gaussian([0.1, 1.0, 30.0]), 5.0), Scaled(Gaussian(7.0), 2.0))
    at = Coordinates(Point(kernel, 0.5, torch.ones(2, 3)))
    value, slope = at.prior(at.vector)
    logs = np.log([0.1, 1.0, 30.0])
    assert value == pytest.approx(-0.5 * np.sum((logs - logs.mean()) ** 2) / LENGTH_SCALE_PRIOR**2)
    for i, expected in enumerate(slope):
        step = np.zeros_like(at.vector)
        step[i] = 1e-6
        assert (at.prior(at.vector + step)[0] - at.prior(at.vector - step)[0]) / 2e-6 == pytest.approx(
            expected, abs=1e-8
        )
    assert np.count_nonzero(slope) == 3


def test_the_prior_decides_where_the_evidence_does_not_care():
    def flat(kernel, noise, basis):
        return Gradient(-3.0, {"length_scale": torch.zeros(2, dtype=torch.float64)}, 0.0, torch.zeros_like(basis))

    found = climb(flat, Point(Gaussian([0.1, 10.0]), 1.0, torch.ones(1, 2)), free={"kernel"}, tol=1e-12)
    np.testing.assert_allclose(found.kernel.length_scale, [1.0, 1.0], rtol=1e-3)
    assert found.value == -3.0


def test_without_a_prior_the_evidence_alone_decides():
    kernel = Gaussian([0.1, 10.0])
    at = Coordinates(Point(kernel), {"kernel"}, length_scale_prior=None)
    value, slope = at.prior(at.vector)
    assert value == 0.0
    assert not slope.any()
    narrow = Coordinates(Point(kernel), {"kernel"}, length_scale_prior=0.5)
    wide = Coordinates(Point(kernel), {"kernel"}, length_scale_prior=1.0)
    assert narrow.prior(at.vector)[0] == pytest.approx(4 * wide.prior(at.vector)[0])


def test_a_climb_of_the_exact_evidence_ends_as_high_as_scikit_learns():
    X, Y, _, _ = problem(n=60)
    theirs = ConstantKernel(1.0) * RBF([1.0, 1.0]) + WhiteKernel(0.1)
    wanted = GaussianProcessRegressor(theirs, n_restarts_optimizer=3, random_state=0).fit(X.numpy(), Y[:, 0].numpy())
    start = Point(Scaled(Gaussian([1.0, 1.0]), 1.0), 0.1)
    found = climb(exact_evidence(X, Y), start, length_scale_prior=None, max_iter=200, tol=1e-12)
    assert found.basis is None
    assert found.value >= wanted.log_marginal_likelihood_value_ - 1e-3  # both stop where steps gain less than that


def test_a_climb_keeps_to_the_bounds_of_the_noise_wherever_it_starts():
    X, Y, _, Z = problem()
    for noise in (1e-300, 1e300):
        found = climb(exact_evidence(X, Y), Point(Gaussian(), noise), noise_bounds=(0.05, 0.2), max_iter=3)
        assert 0.05 * (1 - 1e-12) <= found.noise <= 0.2 * (1 + 1e-12)
    data, rng = table(X, Y, cpu(len(X))), np.random.default_rng(0)
    _, noise, basis, value = refine_basis(Gaussian(), 1e300, Z, data, max_iter=4, rng=rng)
    assert np.isfinite([noise, value]).all()
    assert bool(basis.isfinite().all())


def test_a_climb_keeps_parameters_below_what_is_the_largest():
    X, Y, _, _ = problem()
    for start in (1.0, 50.0):  # below and above it
        point = Point(Scaled(Gaussian(), start), 0.1)
        found = climb(exact_evidence(X, 100 * Y), point, largest={"variance": 7.0})
        assert found.kernel.variance == pytest.approx(7.0)  # the targets ask for thousands


def test_an_interrupted_climb_keeps_the_best_point_and_ends_what_would_follow():
    X, Y, _, _ = problem()
    exact, left = exact_evidence(X, Y), [4]

    def evidence(kernel, noise, basis):
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt
        return exact(kernel, noise, basis)

    start, clock = Point(Gaussian(3.0), 0.5), Clock()
    found = climb(evidence, start, clock=clock.part(0.5))
    assert found.value >= exact(start.kernel, start.noise, None).value
    assert found.value == pytest.approx(exact(found.kernel, found.noise, None).value, rel=1e-12)
    assert "interrupted" in found.why
    assert clock.expired()  # also what contains the part that was interrupted
    with pytest.raises(KeyboardInterrupt):  # nothing to keep
        climb(evidence, start)


def test_a_clock_that_is_over_still_gives_one_evaluation():
    X, Y, _, _ = problem()
    found = climb(exact_evidence(X, Y), Point(Gaussian(3.0), 0.5), clock=Clock(1e-9))
    assert np.isfinite(found.value)
    assert "time budget" in found.why
    assert Clock(1e6).part(0.5).remaining() == pytest.approx(5e5, rel=1e-3)
    assert Clock().remaining() == np.inf


@pytest.mark.parametrize("approximation", SPARSE, ids=repr)
def test_the_posterior_comes_with_the_evidence_of_its_rows(approximation):
    X, Y, weight, Z = problem(p=2)
    data = table(X, Y, cpu(len(X)), weight)
    _, value = sparse_posterior(KERNELS[0], 0.1, Z, data, approximation)
    assert value == pytest.approx(sparse_evidence(KERNELS[0], 0.1, Z, data, approximation).value, rel=1e-12)


@pytest.mark.parametrize("n_outputs", [1, 2])
def test_predictive_noise_is_that_of_rows_left_out_one_by_one(n_outputs):
    """Every row's residual and variance from a fit without it; a weight of two is a row twice, left out once."""
    rng = np.random.default_rng(0)
    X, noise = torch.as_tensor(rng.uniform(-2, 2, size=(25, 1))), 0.3
    Y = torch.sin(2 * X) + torch.as_tensor(0.7 * rng.normal(size=(25, n_outputs)))
    weight, kernel, Z = torch.ones(25, dtype=torch.float64), Gaussian(0.7), X[:6].clone()
    weight[:4] = 2.0

    def fitted(w: torch.Tensor):
        return sparse_posterior(kernel, noise, Z, table(X, Y, cpu(25), w), Variational())[0]

    square, variance = np.empty(25), np.empty(25)
    for i in range(25):
        without = weight.clone()
        without[i] -= 1
        mean, cov = fitted(without).moments(kernel, TensorRows(X[i : i + 1]), cpu(1))
        square[i], variance[i] = float((Y[i] - mean[0]).square().mean()), float(cov[0, 0, 0])
    grid = np.exp(np.linspace(np.log(noise) - 6, np.log(noise) + 3, 20001))[:, None]
    surprise = (np.log(variance + grid) + square / (variance + grid)) @ weight.numpy()
    found = predictive_noise(fitted(weight), kernel, noise, Sample(TensorRows(X), Y, weight, cpu(25)))
    assert found == pytest.approx(float(grid[surprise.argmin(), 0]), rel=2e-3)


def test_a_climb_survives_points_at_which_the_evidence_fails():
    def evidence(kernel, noise, basis):
        if noise < 0.3:
            raise ValueError("not positive definite")
        return Gradient(-noise, {}, -1.0, torch.zeros_like(basis))

    found = climb(evidence, Point(Gaussian(), 1.0, torch.ones(1, 1)), free={"noise"})
    assert 0.3 <= found.noise <= 1.0


# --- classes --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("p", "loss"), [(1, Logistic()), (3, Softmax())], ids=["logistic", "softmax"])
@pytest.mark.parametrize("approximation", [ProjectedProcess(), PseudoInputs()], ids=repr)
def test_laplace_and_its_gradients_are_those_of_dense_newton_on_repeated_rows(approximation, p, loss):
    X, _, weight, Z = problem(n=20, m=4)
    y, kernel = classes(X, p), KERNELS[0]
    evidence = LaplaceEvidence(table(X, y, cpu(20), weight), loss, approximation)
    found = evidence(kernel, 0.0, Z)
    X_long, y_long = repeated(weight, X, y)

    def dense(kernel, Z):
        return float(oracle.laplace(oracle.prior(kernel, X_long, Z, approximation.alpha), y_long, loss)[0])

    assert found.value == pytest.approx(dense(kernel, Z), rel=1e-8)
    h = 1e-5
    for name, value in kernel.tunable().items():
        value = np.asarray(value, dtype=float)
        for i in range(value.size):
            step = np.zeros(value.size)
            step[i] = h
            ends = [value.reshape(-1) + sign * step for sign in (1, -1)]
            ends = [e.reshape(value.shape) for e in ends]
            up, down = (dense(kernel.replaced({name: e.item() if e.ndim == 0 else e.tolist()}), Z) for e in ends)
            seen = float(found.by_parameter[name].reshape(-1)[i])
            assert seen == pytest.approx((up - down) / (2 * h), rel=1e-4, abs=1e-5)
    for i, d in ((0, 0), (2, 1)):
        step = torch.zeros_like(Z)
        step[i, d] = h
        slope = (dense(kernel, Z + step) - dense(kernel, Z - step)) / (2 * h)
        assert float(found.by_basis[i, d]) == pytest.approx(slope, rel=1e-4, abs=1e-5)


@pytest.mark.parametrize(("p", "loss"), [(1, Logistic()), (3, Softmax())], ids=["logistic", "softmax"])
@pytest.mark.parametrize("approximation", [SubsetOfRegressors(), ProjectedProcess(), PseudoInputs()], ids=repr)
def test_latent_moments_are_those_of_the_dense_posterior(approximation, p, loss):
    X, _, _, Z = problem(n=20, m=4)
    y, kernel, new = classes(X, p), KERNELS[0], X[:3] + 0.4
    ones = torch.ones(20, dtype=torch.float64)
    model = LaplaceEvidence(table(X, y, cpu(20), ones), loss, approximation)
    posterior, _ = model.posterior(kernel, Z)
    mean, cov = posterior.moments(kernel, TensorRows(new), cpu(3))
    C = oracle.prior(kernel, X, Z, approximation.alpha)
    _, f, W = oracle.laplace(C, y, loss)
    across = oracle.low_rank(kernel, torch.cat([X, new]), Z)[20:, :20]
    own = oracle.low_rank(kernel, new, Z) if approximation.degenerate else kernel(new, new)
    wide = torch.block_diag(*[across] * p)
    assert_close(mean, across @ loss.residual(y, f), rtol=1e-5, atol=1e-5)
    R = W @ torch.linalg.inv(torch.eye(20 * p, dtype=torch.float64) + torch.block_diag(*[C] * p) @ W)
    dense = torch.block_diag(*[own] * p) - wide @ R @ wide.T
    dense = dense.reshape(p, 3, p, 3)
    wanted = torch.stack([dense[:, i, :, i] for i in range(3)])
    assert_close(cov, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("size", [0.1, 1e3, 1e9])
def test_a_warm_start_reaches_the_same_mode(size):
    X, _, weight, Z = problem(n=40)
    cold = LaplaceEvidence(table(X, classes(X, 1), cpu(40), weight), Logistic(), PseudoInputs())
    anywhere = size * torch.ones(40, 1, dtype=torch.float64)
    value = cold(KERNELS[0], 0.0, Z).value
    for start in ({"latent": anywhere}, {"latent": None, "known": {"u": anywhere[: len(Z)]}}):
        # Newton ends within 1e-10 of the objective, 1e-5 of the mode, and its last step squares that: 1e-10 of it,
        # times a constant of the problem, which moves the value linearly
        assert replace(cold, **start)(KERNELS[0], 0.0, Z).value == pytest.approx(value, rel=1e-8)


@pytest.mark.parametrize("variance", [1e-8, 1e8])
def test_extreme_amplitudes_keep_modes_and_variances_finite(variance):
    X, _, weight, Z = problem(n=40)
    X[20:] = X[:20]  # duplicates
    for approximation in (ProjectedProcess(), PseudoInputs()):
        model = LaplaceEvidence(table(X, classes(X, 1), cpu(40), weight), Logistic(), approximation)
        found = model(variance * Gaussian(), 0.0, Z)
        posterior, value = model.posterior(variance * Gaussian(), Z)
        mean, cov = posterior.moments(variance * Gaussian(), TensorRows(X), cpu(40))
        assert np.isfinite([found.value, value]).all()
        assert bool(mean.isfinite().all() and cov.isfinite().all() and found.by_basis.isfinite().all())
        assert bool((cov[:, 0, 0] >= 0).all())


def test_third_derivatives_are_differences_of_hessians():
    f = torch.tensor([[0.3, -1.0, 0.5]], dtype=torch.float64)
    A = torch.tensor([[2.0, 0.5, 0.1], [0.5, 1.0, 0.3], [0.1, 0.3, 1.5]], dtype=torch.float64)[None]
    for loss, at, spread in ((Softmax(), f, A), (Logistic(), f[:, :1], A[:, :1, :1])):
        y = torch.ones_like(at)
        slope = hessian_slope(loss, y, at, spread)
        for d in range(at.shape[1]):
            step = torch.zeros_like(at)
            step[0, d] = 1e-6
            up, down = ((spread * loss.hessian(y, at + s)).sum() for s in (step, -step))
            assert float(slope[0, d]) == pytest.approx(float(up - down) / 2e-6, abs=1e-8)


def test_samples_have_the_mean_and_covariance_asked_for():
    cov = torch.tensor([[2.0, 0.9], [0.9, 1.0]], dtype=torch.float64)
    mean = torch.tensor([[1.0], [-1.0]], dtype=torch.float64)
    drawn = draw(mean, cov, 20_000, torch.Generator().manual_seed(0))[:, :, 0]
    assert_close(drawn.mean(0), mean[:, 0], atol=0.05, rtol=0)  # five standard errors
    assert_close(drawn.T.cov(), cov, atol=0.1, rtol=0)


def test_roots_of_covariances_are_cholesky_factors_and_singular_ones_are_no_exception():
    G = np.random.default_rng(0).normal(size=(20, 4, 4))
    cov = G @ G.transpose(0, 2, 1)
    np.testing.assert_allclose(
        lower_roots(cov), np.linalg.cholesky(cov), rtol=0, atol=1e-12 * np.linalg.cond(cov).max()
    )
    thin = G[:, :, :2] @ G[:, :, :2].transpose(0, 2, 1)
    L = lower_roots(np.concatenate([thin, np.zeros((1, 4, 4))]))
    assert np.abs(np.triu(L, 1)).max() == 0
    # a pivot that should be zero is at most rounding, and is divided by no less than the root of the least pivot
    atol = 16 * np.finfo(float).eps / np.sqrt(LEAST_PIVOT) * thin.max()
    np.testing.assert_allclose((L @ L.transpose(0, 2, 1))[:-1], thin, rtol=0, atol=atol)


def test_classes_that_are_alike_are_as_probable_on_average_as_one_would_draw():
    mean, cov = np.array([[0.0, 0.0, 0.0], [2.0, 0.0, -1.0]]), np.stack([np.eye(3), 4 * np.eye(3) + 1])
    f = mean[1] + np.random.default_rng(0).normal(size=(200_000, 3)) @ np.linalg.cholesky(cov[1]).T
    e = np.exp(f)
    p = mean_softmax(mean, cov)
    # 512 draws that fill space evenly are off by less than a percent where as many random ones are by two
    np.testing.assert_allclose(p[0], 1 / 3, rtol=0, atol=0.01)
    np.testing.assert_allclose(p[1], (e / e.sum(1, keepdims=True)).mean(0), rtol=0, atol=0.01)


def test_every_approximation_has_the_name_of_the_thesis():
    assert set(Approximation.choices()) == {"full", "sd", "sr", "pp", "spgp", "variational", "svgp"}

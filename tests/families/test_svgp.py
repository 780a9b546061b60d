"""What theory promises of SVGP: bounds, natural gradients, expectations, other likelihoods."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats
from sklearn.base import clone
from sklearn.linear_model import PoissonRegressor
from sklearn.metrics import log_loss, mean_poisson_deviance
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import SplineTransformer

from mercer import SparseGPClassifier, SparseGPRegressor, load
from mercer.data import TensorRows
from mercer.engine import make_plan
from mercer.engine.plan import Sample
from mercer.evidence.approximations import Variational
from mercer.evidence.coordinates import Point
from mercer.evidence.exact import log_evidence
from mercer.evidence.sparse import sparse_evidence
from mercer.gp.svgp import Bound, Likelihood, NaturalParameters, StochasticEvidence, batches, expected_loss
from mercer.kernels import Gaussian
from mercer.losses import Gamma, Logistic, Poisson, Squared

KERNEL = 1.5 * Gaussian([0.8, 1.5]) + 0.3
EPS = float(np.finfo(np.float64).eps)


def sample(n=40, m=6, targets=None, weighted=True, seed=0):
    """Weighted rows and inducing inputs; targets by a function of sin(x₁) + noise."""
    rng = torch.Generator().manual_seed(seed)
    normal = lambda *shape: torch.randn(*shape, generator=rng, dtype=torch.float64)  # noqa: E731
    X = normal(n, 2)
    Y = torch.sin(2 * X[:, :1]) + 0.3 * normal(n, 1)
    weight = torch.randint(1, 4, (n,), generator=rng).double() if weighted else torch.ones(n, dtype=torch.float64)
    Y = Y if targets is None else targets(Y)
    return Sample(TensorRows(X), Y, weight, make_plan(n, "cpu", "float64")), X[:m] + 0.1 * normal(m, 2)


def some_q(m, seed=1):
    rng = torch.Generator().manual_seed(seed)
    R = torch.randn(m, m, generator=rng, dtype=torch.float64)
    return NaturalParameters(
        R @ R.T + torch.eye(m, dtype=torch.float64), torch.randn(m, 1, generator=rng, dtype=torch.float64)
    )


LIKELIHOODS = [
    (Likelihood(Squared()), None),
    (Likelihood(Gamma()), torch.exp),
    (Likelihood(Poisson(), 0.25), lambda Y: torch.round(4 * Y.exp()) / 4),
    (Likelihood(Logistic(), 1.0), torch.sign),
]
NAMED = pytest.mark.parametrize(("likelihood", "targets"), LIKELIHOODS, ids=lambda v: getattr(v, "loss", None))


def test_one_full_natural_gradient_step_reaches_the_collapsed_bound():
    data, Z = sample()
    bound = Bound(data, Likelihood(Squared()), Point(KERNEL, 0.05, Z))
    for q in (NaturalParameters.start(6, 1, "cpu"), some_q(6)):
        reached = bound.sums(q.toward(bound.sums(q).best, 1.0))
        collapsed = sparse_evidence(KERNEL, 0.05, Z, data, Variational())
        # sums of n terms of size |y|²/2σ² and products of m × m matrices of condition |Λ|
        size = float((data.weight[:, None] * data.Y.square()).sum()) / 0.05 + abs(collapsed.value)
        condition = float(torch.linalg.cond(reached.best.precision))
        assert abs(reached.value - collapsed.value) <= 40 * EPS * size * condition**0.5
        # at the best q the gradient is that of the collapsed bound, since that in q vanishes
        found, _ = bound.gradient(reached.best, inputs=True)
        assert torch.allclose(found.by_basis, collapsed.by_basis, rtol=1e-8, atol=1e-8)
        assert found.by_noise == pytest.approx(collapsed.by_noise, rel=1e-9)
        for name, slope in collapsed.by_parameter.items():
            assert torch.allclose(found.by_parameter[name], slope, rtol=1e-8, atol=1e-8)


def test_inducing_inputs_at_all_rows_give_the_exact_process():
    data, _ = sample(weighted=False)
    X = data.rows.take(np.arange(40))
    evidence = StochasticEvidence(Likelihood(Squared()))
    posterior, value = evidence.posterior(data, Point(KERNEL, 0.05, X), np.random.default_rng(0))
    exact = log_evidence(KERNEL, 0.05, X, data.Y)[0]
    jitter = 1e-10 * float(KERNEL.diag(X).mean()) / 0.05 * 40  # moves the trace term and the quadratic form
    assert abs(value - exact) <= 10 * jitter * float(data.Y.square().sum()) / 0.05
    new = X + 0.3
    mean, cov = posterior.moments(KERNEL, TensorRows(new), data.plan)
    C = KERNEL(X, X) + 0.05 * torch.eye(40, dtype=torch.float64)
    K = KERNEL(new, X)
    assert torch.allclose(mean, K @ torch.linalg.solve(C, data.Y), atol=1e-6)
    variance = KERNEL.diag(new) - (K * torch.linalg.solve(C, K.T).T).sum(1)
    assert torch.allclose(cov[:, 0, 0], variance, atol=1e-6)


@NAMED
def test_gradients_are_those_of_autograd_through_a_dense_bound(likelihood, targets):
    data, Z = sample(targets=targets)
    q, noise = some_q(6), torch.tensor(0.3, dtype=torch.float64, requires_grad=True)
    found, sums = Bound(data, likelihood, Point(KERNEL, 0.3, Z)).gradient(q, inputs=True)
    leaves = {name: torch.tensor(v, dtype=torch.float64, requires_grad=True) for name, v in KERNEL.tunable().items()}
    kernel, free = KERNEL.replaced(leaves), Z.clone().requires_grad_()
    X = data.rows.take(np.arange(40))
    K = kernel(free, free)
    L = torch.linalg.cholesky(K + 1e-10 * K.diagonal().mean() * torch.eye(6, dtype=torch.float64))
    A = torch.linalg.solve_triangular(L, kernel(free, X), upper=False).T
    S = torch.linalg.inv(q.precision)
    mean, variance = A @ S @ q.shift, kernel.diag(X) - A.square().sum(1) + ((A @ S) * A).sum(1)
    phi = noise if likelihood.noise is None else torch.tensor(likelihood.noise, dtype=torch.float64)
    value = -expected_loss(likelihood.loss, data.Y, mean, variance[:, None]).value / phi
    constants = {Squared: lambda y: -0.5 * torch.log(2 * math.pi * phi)}
    constants |= {Gamma: lambda y: -phi.log() / phi - 1 / phi - torch.lgamma(1 / phi) - y.log()}
    constants |= {Poisson: lambda y: torch.xlogy(4 * y, 4 * y) - 4 * y - torch.lgamma(4 * y + 1)}
    value = (data.weight[:, None] * (value + constants.get(type(likelihood.loss), lambda y: 0.0)(data.Y))).sum()
    m = S @ q.shift
    value = value - 0.5 * (S.trace() + m.square().sum() - 6 - torch.logdet(S))  # KL(N(m, S) ‖ N(0, I))
    assert sums.value == pytest.approx(value.item(), rel=1e-10)
    grads = torch.autograd.grad(value, [free, noise, *leaves.values()], allow_unused=True)
    # the slope in v is a second expectation, ½ E V″: equal up to the error of 20 nodes
    assert torch.allclose(found.by_basis, grads[0], rtol=1e-4, atol=1e-4)
    assert found.by_noise == pytest.approx(0.0 if grads[1] is None else float(grads[1]), rel=1e-8)
    for slope, expected in zip(found.by_parameter.values(), grads[2:], strict=True):
        assert torch.allclose(slope, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("loss", "y"), [(Logistic(), 1.0), (Poisson(), 0.7), (Gamma(), 0.7), (Squared(), 0.7)], ids=str
)
def test_expectations_are_those_of_fine_quadrature_and_their_slopes_those_of_autograd(loss, y):
    mean = torch.linspace(-1.5, 1.5, 7, dtype=torch.float64)[:, None].requires_grad_()
    variance = torch.full_like(mean, 0.6).requires_grad_()
    y = torch.full_like(mean, y)
    found = expected_loss(loss, y, mean, variance)
    grid = torch.linspace(-9, 9, 20_001, dtype=torch.float64)
    density = torch.exp(-0.5 * grid**2) / math.sqrt(2 * math.pi)
    f = mean + variance.sqrt() * grid
    for part, of_loss in zip(found, (loss.value, loss.residual, loss.curvature), strict=True):
        fine = torch.trapezoid(of_loss(y.expand_as(f), f) * density, grid)[:, None]
        assert torch.allclose(part, fine, rtol=1e-7, atol=1e-7)
    by_mean, by_variance = torch.autograd.grad(found.value.sum(), [mean, variance])
    assert torch.allclose(by_mean, -found.slope, rtol=1e-10, atol=1e-10)  # Bonnet
    assert torch.allclose(by_variance, 0.5 * found.curvature, rtol=1e-7, atol=1e-7)  # Price


@NAMED
def test_the_best_q_has_no_slope_left_and_is_a_lower_bound(likelihood, targets):
    data, Z = sample(targets=targets, weighted=False)
    bound = Bound(data, likelihood, Point(KERNEL, 0.3, Z))
    q, value = bound.maximised(NaturalParameters.start(6, 1, "cpu"))
    best = bound.sums(q).best
    assert torch.allclose(q.precision, best.precision, rtol=1e-3, atol=1e-3)
    assert torch.allclose(q.shift, best.shift, rtol=1e-3, atol=1e-3)
    for length in (0.1, 0.5):
        assert bound.sums(q.toward(some_q(6), length)).value < value
    # more inducing inputs, the old ones among them, never lower the bound
    more = torch.cat([Z, Z + 0.5])
    _, larger = StochasticEvidence(likelihood).posterior(data, Point(KERNEL, 0.3, more), np.random.default_rng(0))
    assert larger >= value - 1e-6 * abs(value)


def test_batches_are_unbiased_and_read_every_row_equally_often():
    data, _ = sample(n=30)
    drawn = batches(data, 10, np.random.default_rng(0))
    sums = [float((part.weight[:, None] * part.Y).sum()) for _, part in zip(range(3), drawn, strict=False)]
    assert np.mean(sums) == pytest.approx(float((data.weight[:, None] * data.Y).sum()), rel=1e-12)


def test_the_poisson_bound_is_one_of_counts_and_below_their_evidence():
    rng = np.random.default_rng(0)
    X = np.linspace(0, 1, 3)[:, None]
    y = rng.poisson(3.0, 3)
    kernel = 0.5 * Gaussian(1.0) + 0.1
    fixed = {"kernel": kernel, "inducing": X, "scale_inputs": False, "regularization": 1.0}
    model = SparseGPRegressor(3, loss="poisson", **fixed).fit(X, y)
    draws = rng.multivariate_normal(np.zeros(3), kernel(torch.as_tensor(X), torch.as_tensor(X)).numpy(), 200_000)
    each = np.exp(stats.poisson.logpmf(y, y.mean() * np.exp(draws)).sum(1))
    evidence, error = np.log(each.mean()), each.std() / each.mean() / math.sqrt(len(each))
    assert evidence - 0.1 < model.log_marginal_likelihood_ < evidence + 4 * error
    assert model.log_marginal_likelihood(model.theta_, X, y) == pytest.approx(model.log_marginal_likelihood_, rel=1e-6)


def counts(n, seed):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-3, 3, (n, 2))
    mean = np.exp(1 + np.sin(2 * X[:, 0]) + 0.5 * np.cos(X[:, 1]))
    return X, rng.poisson(mean), mean


def test_counts_are_predicted_better_than_by_a_linear_model_of_splines():
    (X, y, _), (X_test, y_test, mean_test) = counts(400, 0), counts(2000, 1)
    model = SparseGPRegressor(40, loss="poisson", kernel="gaussian", random_state=0).fit(X, y)
    splines = make_pipeline(SplineTransformer(8), PoissonRegressor(alpha=1e-3)).fit(X, y)
    mean, std = model.predict(X_test, return_std=True)
    ours, theirs = (mean_poisson_deviance(y_test, found) for found in (mean, splines.predict(X_test)))
    assert model.approximation_ == "svgp"
    assert 1.0 <= model.noise_ < 1.0 + 4 * math.sqrt(2 / 400)  # of Pearson's statistic
    assert ours < theirs
    assert np.mean(((y_test - mean) / std) ** 2) == pytest.approx(1.0, abs=0.15)
    low, high = model.predict_interval(X_test, 0.9).T
    assert 0.86 < np.mean((low <= y_test) & (y_test <= high)) < 0.94
    _, inner = model.predict(X_test, return_std=True, include_noise=False)
    assert np.mean(np.abs(mean - mean_test) < 1.96 * inner) > 0.85
    found = model.predict_uncertainty(X_test[:5])
    assert np.allclose(found.total, std[:5])
    assert np.allclose(found.model, inner[:5])
    _, cov = model.predict(X_test[:5], return_cov=True)
    assert np.allclose(np.sqrt(np.diag(cov)), std[:5], rtol=1e-6)
    draws = model.sample_y(X_test[:5], 4000)
    assert np.allclose(draws.mean(1), mean[:5], rtol=5 * (inner[:5] / mean[:5]).max() / math.sqrt(4000) + 1e-3)


def test_steps_converge_under_a_kernel_of_large_variance():
    # the mean count under the prior is exp(v/2), 5e8 here; from there 50 steps fall short
    data, Z = sample(400, 60, lambda Y: torch.round(4 * Y.exp()) / 4, weighted=False)
    bound = Bound(data, Likelihood(Poisson(), 0.25), Point(40.0 * Gaussian(3.0), 0.25, Z), uses=10)
    q, value = bound.maximised(NaturalParameters.start(60, 1, "cpu"))
    _, further = bound.maximised(q)
    assert value == pytest.approx(further, abs=1e-6 * 400)


def test_counts_that_vary_more_than_a_poisson_distribution_have_a_dispersion():
    (X, _, mean), (X_test, _, mean_test) = counts(400, 0), counts(2000, 1)
    rng = np.random.default_rng(3)
    y, y_test = (rng.negative_binomial(m / 3, 0.25).astype(float) for m in (mean, mean_test))  # variance 4 × mean
    options = {"loss": "poisson", "kernel": "gaussian", "random_state": 0}
    model, poisson = (SparseGPRegressor(40, regularization=r, **options).fit(X, y) for r in ("auto", 1.0))
    assert poisson.noise_ == pytest.approx(1.0)
    # a kurtosis of 3 + 6 φ/μ makes the variance of Pearson's terms 2 + 6 · 4 / 3
    assert model.noise_ == pytest.approx(4.0, abs=4 * 4 * math.sqrt(10 / 400))
    errors = [mean_poisson_deviance(mean_test + 1e-9, found.predict(X_test)) for found in (model, poisson)]
    assert errors[0] < 0.8 * errors[1]
    low, high = model.predict_interval(X_test, 0.9).T
    assert 0.85 < np.mean((low <= y_test) & (y_test <= high)) < 0.95


def test_counts_among_which_few_rows_are_not_zero_have_a_model():
    X = np.random.default_rng(0).normal(size=(3000, 2))
    y = np.zeros(3000)
    y[[5, 2500]] = 1.0  # of 1000 rows that measure the dispersion perhaps none
    for seed in range(2):
        options = {"loss": "poisson", "kernel": "gaussian", "max_iter": 1, "random_state": seed}
        model = SparseGPRegressor(10, **options).fit(X, y)
        assert model.noise_ == pytest.approx(1.0)
        assert model.predict(X).mean() == pytest.approx(2 / 3000, rel=0.5)


def test_exposures_as_weights_of_rates_do_not_change_the_dispersion():
    X, _, mean = counts(400, 0)
    exposure = np.random.default_rng(4).uniform(0.5, 2.0, 400)
    events = np.random.default_rng(5).poisson(mean * exposure)
    options = {"loss": "poisson", "kernel": "gaussian", "random_state": 0, "max_iter": 5}
    found = [
        SparseGPRegressor(20, **options).fit(X, events / part, sample_weight=part).noise_
        for part in (exposure, exposure / 100)
    ]
    assert found[0] < 1.0 + 4 * math.sqrt(2 / 400)
    assert found[1] == pytest.approx(found[0], rel=0.05)


@pytest.mark.long
def test_gamma_targets_find_their_coefficient_of_variation_and_an_offset_of_scale():
    X, _, mean = counts(300, 0)
    y = mean * np.random.default_rng(2).gamma(4.0, 0.25, 300)
    model, larger = (
        SparseGPRegressor(15, loss="gamma", kernel="gaussian", random_state=0).fit(X, k * y) for k in (1.0, 1000.0)
    )
    assert model.noise_ == pytest.approx(0.25, rel=0.3)
    assert np.allclose(larger.predict(X), 1000 * model.predict(X), rtol=1e-3)
    shift = model.log_marginal_likelihood_ - larger.log_marginal_likelihood_
    assert shift == pytest.approx(300 * math.log(1000), rel=1e-4)


@pytest.mark.long
def test_batches_come_near_the_bound_of_all_rows():
    rng = np.random.default_rng(0)
    X = rng.uniform(-3, 3, (4500, 2))
    y = np.sin(2 * X[:, 0]) + 0.2 * rng.normal(size=4500)
    options = {"kernel": "gaussian", "random_state": 0, "max_iter": 40}
    stochastic, collapsed = (
        SparseGPRegressor(20, approximation=a, **options).fit(X, y) for a in ("svgp", "variational")
    )
    assert stochastic.n_iter_ == 400
    assert stochastic.log_marginal_likelihood_ > collapsed.log_marginal_likelihood_ - 0.03 * len(y)
    assert stochastic.noise_ == pytest.approx(0.04, rel=0.1)
    # at given parameters both are the same model
    fixed = {
        "kernel": collapsed.kernel_,
        "regularization": 0.04,
        "inducing": collapsed.basis_,
        "optimize_inducing": False,
    }
    one, two = (
        SparseGPRegressor(20, approximation=a, dtype="float64", **fixed).fit(X, y) for a in ("svgp", "variational")
    )
    assert one.log_marginal_likelihood_ == pytest.approx(two.log_marginal_likelihood_, rel=1e-8)
    assert np.allclose(one.predict(X), two.predict(X), atol=1e-6)


def test_classes_have_probabilities_and_rows_of_weight_two_are_rows_twice():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 2))
    y = np.where(rng.random(300) < 1 / (1 + np.exp(-4 * np.sin(2 * X[:, 0]))), "yes", "no")
    model = SparseGPClassifier(15, approximation="svgp", kernel="gaussian", max_iter=10, random_state=0)
    model.fit(X[:200], y[:200])
    shares = np.tile([np.mean(y == c) for c in model.classes_], (100, 1))
    assert log_loss(y[200:], model.predict_proba(X[200:])) < 0.8 * log_loss(y[200:], shares)
    fixed = {"approximation": "svgp", "kernel": Gaussian(), "inducing": X[:10], "optimize_inducing": False}
    weight = np.where(np.arange(200) < 50, 2.0, 1.0)
    one = SparseGPClassifier(**fixed).fit(X[:200], y[:200], sample_weight=weight)
    two = SparseGPClassifier(**fixed).fit(np.vstack([X[:200], X[:50]]), np.append(y[:200], y[:50]))
    assert one.log_marginal_likelihood_ == pytest.approx(two.log_marginal_likelihood_, rel=1e-6)
    several = np.array(["low", "mid", "high"])[np.digitize(X[:, 0], [-0.5, 0.5])]
    many = SparseGPClassifier(10, approximation="svgp", kernel="gaussian", max_iter=5).fit(X, several)
    assert many.score(X, several) > 0.8


def test_frames_files_and_clones_of_a_count_model(tmp_path):
    X, y, _ = counts(120, 0)
    frame = pd.DataFrame({"a": X[:, 0], "b": np.where(X[:, 1] > 0, "up", "down")})
    model = SparseGPRegressor(8, loss="poisson", kernel="gaussian", max_iter=3, random_state=0)
    first, again = model.fit(frame, y).predict(frame), clone(model).fit(frame, y).predict(frame)
    assert np.array_equal(first, again)
    model.save(tmp_path / "counts.mercer")
    loaded = load(tmp_path / "counts.mercer")
    assert np.array_equal(loaded.predict(frame), first)
    assert np.array_equal(loaded.predict_interval(frame), model.predict_interval(frame))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"loss": "poisson", "approximation": "spgp"}, "approximation must be 'svgp' or 'auto'"),
        ({"loss": "pinball"}, r"loss must be one of \['gamma', 'poisson', 'squared'\]"),
        ({"loss": "logistic"}, "loss must be one for regression"),
        ({"loss": "poisson", "regularization": 0.0}, "regularization must be"),
        ({"approximation": "svgp", "alpha": 0.1}, "alpha must be None"),
    ],
)
def test_combinations_that_make_no_sense_are_refused_in_a_sentence(options, words):
    with pytest.raises(ValueError, match=words):
        SparseGPRegressor(3, **options).fit(np.arange(6.0)[:, None], np.arange(6.0))


def test_rows_of_a_file_give_the_model_of_the_array(tmp_path):
    X, y, _ = counts(12_000, 0)  # fewer rows of an array would be sorted
    np.save(tmp_path / "X.npy", X.astype(np.float32))
    options = {"loss": "poisson", "kernel": "gaussian", "random_state": 0, "max_iter": 2}
    of_file = SparseGPRegressor(10, **options).fit(tmp_path / "X.npy", y)
    of_array = SparseGPRegressor(10, **options).fit(X.astype(np.float32), y)
    assert of_file.n_iter_ == 20
    assert np.allclose(of_file.predict(X[:50]), of_array.predict(X[:50]), rtol=1e-4)

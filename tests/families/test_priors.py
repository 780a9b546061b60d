"""Priors of kernel parameters and noise: densities, limits, and the posterior density that a search maximises."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats
from scipy.optimize import check_grad

from mercer import SparseGPClassifier, SparseGPRegressor, load
from mercer.evidence.coordinates import Coordinates, Point
from mercer.evidence.priors import ParameterPrior, resolve_priors
from mercer.kernels import Gaussian

DENSITIES = {
    ("gamma", 3.0, 6.0): stats.gamma(3.0, scale=1 / 6.0),
    ("inverse_gamma", 2.0, 0.5): stats.invgamma(2.0, scale=0.5),
    ("lognormal", -1.0, 0.7): stats.lognorm(0.7, scale=np.exp(-1.0)),
    ("half_normal", 0.4): stats.halfnorm(scale=0.4),
}


@pytest.mark.parametrize("given", DENSITIES, ids=lambda given: given[0])
def test_densities_are_those_of_scipy_up_to_a_constant(given):
    prior, theta = ParameterPrior(given[0], given[1:]), np.array([0.1, 0.5, 2.0])
    value, slope = prior.at(np.log(theta))
    exact = DENSITIES[given].logpdf(theta)
    assert np.allclose(value - value[0], exact - exact[0])
    for x, expected in zip(np.log(theta), slope, strict=True):
        error = check_grad(lambda t: prior.at(t)[0][0], lambda t, s=expected: s, np.array([x]))
        assert error < 1e-5 * max(1, abs(expected))


def test_the_slope_of_coordinates_is_that_of_the_sum_of_all_priors():
    kernel = 1.5 * Gaussian([0.8, 1.5]) + 0.3
    given = {"length_scale": ("gamma", 3, 6), "variance": ("half_normal", 2), "noise": ("lognormal", -3, 1)}
    priors = resolve_priors(given, kernel, noisy=True)
    assert set(priors) == {"left__variance", "left__kernel__length_scale", "noise"}  # the constant has none
    at = Coordinates(Point(kernel, 0.2, torch.zeros(2, 2, dtype=torch.float64), priors=priors))
    assert check_grad(lambda x: at.prior(x)[0], lambda x: at.prior(x)[1], at.vector) < 1e-5
    assert at.point(at.vector).priors == priors  # a further search has them too


def smooth(n=150):
    rng = np.random.default_rng(0)
    X = rng.uniform(-3, 3, (n, 2))
    return X, np.sin(2 * X[:, 0]) + 0.1 * rng.normal(size=n)


@pytest.mark.long
@pytest.mark.parametrize("approximation", ["full", "variational", "spgp", "svgp"])
def test_a_tight_prior_decides_and_none_changes_nothing(approximation):
    X, y = smooth(60)
    options = {"approximation": approximation, "kernel": "gaussian", "ard": True, "random_state": 0, "max_iter": 25}
    free, empty = (SparseGPRegressor(6, priors=p, **options).fit(X, y) for p in (None, {}))
    assert np.array_equal(free.predict(X), empty.predict(X))
    priors = {"length_scale": ("lognormal", np.log(1.3), 1e-4), "noise": ("lognormal", np.log(0.2), 1e-4)}
    tight = SparseGPRegressor(6, priors=priors, **options).fit(X, y)
    assert np.allclose(1 / tight.inverse_length_scales_, 1.3, rtol=0.01)
    assert tight.noise_ / tight.targets_.scale**2 == pytest.approx(0.2, rel=0.01)
    assert tight.log_marginal_likelihood_ < free.log_marginal_likelihood_


def test_the_end_of_a_search_has_a_larger_posterior_density_than_that_of_the_evidence():
    X, y = smooth(60)
    given = ("gamma", 20.0, 10.0)
    options = {"approximation": "full", "kernel": "gaussian", "length_scale_prior": None, "tol": 1e-10}
    plain = SparseGPRegressor(**options).fit(X, y)
    found = SparseGPRegressor(priors={"length_scale": given}, **options).fit(X, y)

    def density(model):
        return model.log_marginal_likelihood_ + DENSITY.logpdf(1 / model.inverse_length_scales_).sum()

    DENSITY = stats.gamma(given[1], scale=1 / given[2])
    assert density(found) > density(plain)
    assert found.log_marginal_likelihood_ < plain.log_marginal_likelihood_


def test_classes_take_priors_and_files_keep_them(tmp_path):
    X, y = smooth(80)
    model = SparseGPClassifier(8, kernel="gaussian", priors={"length_scale": ("lognormal", 0.5, 1e-4)}, max_iter=20)
    model.fit(X, y > 0)
    assert np.allclose(1 / model.inverse_length_scales_, np.exp(0.5), rtol=0.01)
    model.save(tmp_path / "model.mercer")
    again = load(tmp_path / "model.mercer")
    assert np.array_equal(again.predict_proba(X), model.predict_proba(X))
    assert again.get_params()["priors"]["length_scale"][0] == "lognormal"


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (SparseGPRegressor(priors={"length_scale": ("gamma", 3)}), "priors must be"),
        (SparseGPRegressor(priors={"length_scale": ("cauchy", 3, 1)}), "priors must be"),
        (
            SparseGPRegressor(priors={"lengthscale": ("gamma", 3, 1)}, kernel="gaussian"),
            "priors must be for parameters",
        ),
        (SparseGPClassifier(priors={"noise": ("gamma", 3, 1)}, kernel="gaussian"), "priors must be for parameters"),
    ],
)
def test_unknown_priors_are_refused_in_a_sentence(model, words):
    X, y = smooth(20)
    with pytest.raises(ValueError, match=words):
        model.fit(X, y > 0)

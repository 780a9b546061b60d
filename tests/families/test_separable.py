"""Kernels of absolute differences are first-class: tuned by evidence, chosen by name, used by every family."""

from __future__ import annotations

import numpy as np
import oracles
import pytest
import torch
from oracles import assert_close

import mercer
from mercer.evidence.exact import log_evidence
from mercer.kernels import Bias, Gaussian, Laplacian, Matern12, Scaled, Separable, Sum
from mercer.selection import tune_kernel

pytestmark = pytest.mark.usefixtures("two_folds")


def steps(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """A function of two inputs, rough along each, and one input that does not matter."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, 3))
    return X, np.sign(X[:, 0]) + np.abs(X[:, 1]) + 0.05 * rng.normal(size=n)


@pytest.mark.parametrize("kernel", [Laplacian([1.5, 0.9]), Separable([1.5, 0.9], p=1.0, q=0.8)], ids=repr)
def test_the_evidence_and_its_gradient_are_those_of_the_definition(kernel):
    rng = np.random.default_rng(1)
    X, Y = rng.normal(size=(12, 2)), rng.normal(size=(12, 1))
    whole = Sum(Scaled(kernel, 1.3), Bias(0.2))
    value, by_parameter, by_noise = log_evidence(whole, 0.3, torch.from_numpy(X), torch.from_numpy(Y))
    # A matrix of condition below 1e3, and central differences: see `oracles.slopes`.
    assert value == pytest.approx(oracles.log_evidence(whole, 0.3, X, Y), rel=1e-11)
    wanted = oracles.parameter_slopes(whole, lambda changed: oracles.log_evidence(changed, 0.3, X, Y))
    for name, slope in wanted.items():
        np.testing.assert_allclose(by_parameter[name], slope, rtol=1e-6, atol=1e-7)
    noise = oracles.slopes(lambda s: oracles.log_evidence(whole, float(s), X, Y), 0.3)
    assert by_noise == pytest.approx(float(noise), rel=1e-6)


def test_tuning_by_name_finds_what_matters_in_the_right_distance():
    X = np.random.default_rng(0).uniform(-2, 2, (160, 3))
    y = oracles.draw(Laplacian([1.0, 2.0, 1e6]), X, 1e-3, np.random.default_rng(1))[:, 0]
    tuned = tune_kernel(X, y, "laplacian", ard=True, random_state=0)
    assert isinstance(tuned.kernel.left.kernel, Laplacian)
    assert tuned.relevance[:2].min() > 10 * tuned.relevance[2]
    euclidean = tune_kernel(X, y, "matern12", ard=True, random_state=0)
    assert isinstance(euclidean.kernel.left.kernel, Matern12)
    assert tuned.log_marginal_likelihood > euclidean.log_marginal_likelihood + 5  # not by chance: e⁵ to one


def test_rbf_is_another_name_for_gaussian():
    X, y = steps(60)
    named = [tune_kernel(X, y, name, random_state=0) for name in ("rbf", "gaussian")]
    assert isinstance(named[0].kernel.left.kernel, Gaussian)
    assert named[0].kernel.tunable() == named[1].kernel.tunable()


def test_tuning_refuses_a_bad_length_scale_in_a_sentence():
    with pytest.raises(ValueError, match=r"length_scale must be positive .* got \[1, -1, 1\]"):
        tune_kernel(*steps(20), Gaussian([1, -1, 1]))


@pytest.mark.parametrize(
    "model",
    [
        mercer.KernelBoostingRegressor(3, kernel="laplacian", learner_size=20, random_state=0),
        mercer.GreedyKernelRegressor(20, kernel=2.0 * Laplacian(2.0) + 1.0, regularization=1e-2, random_state=0),
        mercer.SparseGPRegressor(20, kernel="laplacian", max_iter=10, random_state=0),
        mercer.RPEMEKLRegressor(["laplacian", "linear"], n_members=2, random_state=0),
    ],
    ids=lambda model: type(model).__name__,
)
def test_every_family_fits_with_it(model):
    X, y = steps(300)
    new, wanted = steps(200, seed=5)
    error = np.mean((model.fit(X, y).predict(new) - wanted) ** 2) / wanted.var()
    assert error < 0.3  # a constant has 1


def test_features_of_a_nystroem_map_have_the_kernel_as_inner_products():
    X = steps(40)[0]
    model = mercer.GreedyNystroem(40, kernel="laplacian", random_state=0).fit(X)
    assert model.kernel_.length_scale == 3.0  # three inputs, each about one apart
    features = model.transform(X)
    Z = (X - X.mean(0)) / X.std(0)
    # All rows are basis vectors, so the map is exact up to what whitening leaves out.
    np.testing.assert_allclose(features @ features.T, oracles.tile(model.kernel_, Z, Z), atol=1e-8)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("numbers", [0, 2], ids=["indicators alone", "beside numbers"])
def test_columns_of_two_values_are_summed_by_a_product_and_a_third_value_is_seen(numbers, dtype):
    rng = torch.Generator().manual_seed(0)
    bits = 0.7 * (torch.rand(60, 9, generator=rng) > 0.6)
    X = torch.cat([bits, torch.randn(60, numbers, generator=rng)], 1).to(dtype)
    other = X.clone()
    other[3, 1] = 0.3  # neither of the two
    columns = Laplacian([1.0 + 0.1 * k for k in range(X.shape[1])]).columns(X[:20])
    assert columns.block is not None
    assert columns.block.distances(columns.scaled(X)) is not None
    assert columns.block.distances(columns.scaled(other)) is None
    lengths = torch.tensor([1.0 + 0.1 * k for k in range(X.shape[1])], dtype=torch.float64)
    for rows in (X, other):
        slow = torch.exp(-((rows[:, None].double() - X[:20].double()).abs() / lengths).sum(2))
        # a sum of D terms of size one rounds by D/2 units at most
        slack = 10 * X.shape[1] * torch.finfo(dtype).eps
        assert_close(columns(rows).double(), slow, rtol=slack, atol=slack)

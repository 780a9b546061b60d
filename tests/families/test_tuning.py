"""What tuning by evidence promises: the formula, the optimum, and what draws of known processes reveal."""

from __future__ import annotations

import math
import warnings

import numpy as np
import oracles
import pytest
import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process import kernels as skgp

from mercer import tune_kernel
from mercer.evidence.coordinates import Gradient, Point
from mercer.evidence.lbfgs import climb
from mercer.kernels import (
    Bias,
    Function,
    Gaussian,
    Linear,
    Matern12,
    Matern32,
    Matern52,
    Normalized,
    Polynomial,
    Product,
    RationalQuadratic,
    Scaled,
    Sum,
)
from mercer.selection import Tuned, log_evidence, tune_noise

KERNELS = [
    Gaussian(1.2),
    Gaussian([0.8, 2.0]),
    Matern12([1.5, 0.9]),
    Matern32(0.9),
    Sum(Scaled(Matern52([1.1, 0.6]), 1.7), Bias(0.3)),
    Scaled(RationalQuadratic(0.8, alpha=0.7), 2.0),
    Scaled(Product(Gaussian(1.5), Polynomial(degree=2, gamma=0.5, offset=0.8)), 0.4),
    Sum(Linear(), Normalized(Polynomial(degree=2))),
]
over_kernels = pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: " ".join(repr(kernel).split()))
NOISE = 0.2


def uniform(n: int, d: int = 2, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-2, 2, (n, d))


def drawn(kernel, X: np.ndarray, noise: float, seed: int = 1, outputs: int = 1) -> np.ndarray:
    return oracles.draw(kernel, X, noise, np.random.default_rng(seed), outputs)


def lengths(tuned: Tuned) -> np.ndarray:
    return 1 / tuned.relevance


def assert_within_factor(seen, wanted, factor: float) -> None:
    assert (np.abs(np.log(np.asarray(seen) / np.asarray(wanted))) <= math.log(factor)).all(), (seen, wanted)


# --- the evidence -----------------------------------------------------------------------------------


@pytest.mark.parametrize("outputs", [1, 3])
@over_kernels
def test_the_evidence_is_the_density_of_the_targets(kernel, outputs):
    X = uniform(15)
    Y = drawn(kernel, X, NOISE, outputs=outputs)
    seen, _, _ = log_evidence(kernel, NOISE, torch.from_numpy(X), torch.from_numpy(Y))
    # Both factor a matrix of condition below 1e3; the Matérn 1/2's entries are good to √eps where points meet.
    assert seen == pytest.approx(oracles.log_evidence(kernel, NOISE, X, Y), rel=1e-7, abs=1e-6)


@over_kernels
def test_the_gradient_of_the_evidence_is_a_finite_difference(kernel):
    X = uniform(12)
    Y = drawn(kernel, X, NOISE, outputs=2)
    _, by_parameter, by_noise = log_evidence(kernel, NOISE, torch.from_numpy(X), torch.from_numpy(Y))
    wanted = oracles.parameter_slopes(kernel, lambda changed: oracles.log_evidence(changed, NOISE, X, Y))
    assert set(by_parameter) == set(wanted)
    # Central differences of a value near 50: 1e-10 of it in rounding over a step of 1e-5.
    for name, slope in wanted.items():
        np.testing.assert_allclose(by_parameter[name], slope, rtol=1e-5, atol=1e-6, err_msg=name)
    slope = oracles.slopes(lambda s2: oracles.log_evidence(kernel, float(s2), X, Y), NOISE)
    assert by_noise == pytest.approx(float(slope), rel=1e-6)


def test_float32_rows_have_the_evidence_of_float64_within_their_rounding():
    """Random rounding of entries moves the evidence by eps·|α|², and |α|² is below y'y / noise² = 60 / 0.04."""
    X = uniform(60, 3)
    Y = drawn(Matern52(1.0), X, NOISE)
    kernel = Sum(Scaled(Matern52([1.0, 0.5, 2.0]), 1.3), Bias(0.2))
    value, by_parameter, by_noise = log_evidence(kernel, NOISE, torch.from_numpy(X), torch.from_numpy(Y))
    rough = log_evidence(kernel, NOISE, torch.from_numpy(X).float(), torch.from_numpy(Y).float())
    assert rough[0] == pytest.approx(value, abs=1e-3)
    assert rough[1]["left__variance"].dtype == torch.float32
    for name, slope in by_parameter.items():
        np.testing.assert_allclose(rough[1][name], slope, atol=1e-2, err_msg=name)
    assert rough[2] == pytest.approx(by_noise, abs=1e-2)


def test_a_matrix_that_rounding_makes_indefinite_is_factored_in_float64():
    X = torch.linspace(0, 1, 50)[:, None]
    value, by_parameter, _ = log_evidence(Gaussian(1.0), 1e-7, X, X.sin())
    wanted, _, _ = log_evidence(Gaussian(1.0), 1e-7, X.double(), X.double().sin())
    assert math.isfinite(value)
    assert by_parameter["length_scale"].isfinite()
    assert wanted > 100


@pytest.mark.parametrize(("least_rise", "expected"), [(0.05, "8 evaluations"), (0.0, "no step along")])
def test_a_search_in_rounding_ends_after_few_evaluations(least_rise, expected):
    """A slope that the values do not follow, as in rounding: a line search tries 20 steps."""

    def flat(kernel, noise, basis) -> Gradient:
        return Gradient(1.0, {"length_scale": torch.ones((), dtype=torch.float64)}, 0.0)

    found = climb(flat, Point(Gaussian(1.0), 0.5), tol=0.0, least_rise=least_rise)
    assert expected in found.why
    assert found.kernel.length_scale == 1.0


@over_kernels
def test_a_weight_is_a_number_of_repeated_rows(kernel):
    X, repeats = uniform(8), np.array([1, 2, 3, 1, 1, 4, 2, 1])
    Y = drawn(kernel, X, NOISE, outputs=2)
    twice, Y_twice = np.repeat(X, repeats, 0), np.repeat(Y, repeats, 0)
    weight = torch.from_numpy(repeats.astype(float))
    value, by_parameter, by_noise = log_evidence(kernel, NOISE, torch.from_numpy(X), torch.from_numpy(Y), weight)
    assert value == pytest.approx(oracles.log_evidence(kernel, NOISE, twice, Y_twice), rel=1e-7, abs=1e-6)
    wanted = oracles.parameter_slopes(kernel, lambda changed: oracles.log_evidence(changed, NOISE, twice, Y_twice))
    for name, slope in wanted.items():
        np.testing.assert_allclose(by_parameter[name], slope, rtol=1e-5, atol=1e-6, err_msg=name)
    slope = oracles.slopes(lambda s2: oracles.log_evidence(kernel, float(s2), twice, Y_twice), NOISE)
    assert by_noise == pytest.approx(float(slope), rel=1e-6)


def test_the_evidence_of_outputs_is_the_sum_of_theirs():
    X = torch.from_numpy(uniform(20))
    Y = torch.from_numpy(drawn(Gaussian(), X, NOISE, outputs=2))
    both, *_ = log_evidence(Gaussian(), NOISE, X, Y)
    apart = [log_evidence(Gaussian(), NOISE, X, Y[:, [o]])[0] for o in range(2)]
    assert both == pytest.approx(sum(apart), rel=1e-12)


# --- what a draw lets us find ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def relevant_and_not() -> tuple[np.ndarray, np.ndarray]:
    """A draw with length-scales 0.8 and 2, an input that does not matter, and noise 0.05."""
    X = uniform(250, 3)
    return X, drawn(Gaussian([0.8, 2.0]), X[:, :2], 0.05)[:, 0]


def test_length_scales_and_noise_of_a_draw_are_recovered(relevant_and_not):
    X, y = relevant_and_not
    tuned = tune_kernel(X[:, :2], y, "gaussian", ard=True, random_state=0)
    # 250 residuals less some 50 degrees of freedom leave the noise variance a standard error of 10 %, and
    # about 40 independent patches leave a length-scale one of 10 to 15 %: the factors are three of those.
    assert_within_factor(tuned.noise, 0.05, 1.35)
    assert_within_factor(lengths(tuned), [0.8, 2.0], 1.5)
    assert isinstance(tuned.kernel.left.kernel, Gaussian)


def test_the_input_that_does_not_matter_is_found(relevant_and_not):
    X, y = relevant_and_not
    tuned = tune_kernel(X, y, "gaussian", random_state=0)
    assert lengths(tuned).shape == (3,)
    assert tuned.relevance[2] < 0.2 * tuned.relevance[:2].min()


def test_one_length_scale_is_kept_where_more_do_not_pay():
    X = uniform(80)
    y = drawn(Gaussian(1.0), X, 0.05)
    tuned = tune_kernel(X, y, "gaussian", random_state=0)
    assert lengths(tuned).shape == (1,)
    assert lengths(tune_kernel(X, y, "gaussian", ard=True)).shape == (2,)
    assert lengths(tune_kernel(X[:, [0, 0]] * [1, 9], y, "gaussian", ard=False)).shape == (1,)


def test_a_rough_kernel_is_preferred_on_rough_draws():
    X = uniform(100, 1)
    tuned = tune_kernel(X, drawn(Matern12(1.0), X, 1e-4), random_state=0)
    assert isinstance(tuned.kernel.left.kernel, Matern12)
    assert list(tuned.families) == ["Gaussian", "Matern52", "Matern32", "Matern12"]
    assert tuned.families["Matern12"] > tuned.families["Gaussian"] + 10  # not by chance: e¹⁰ to one


def test_a_smooth_kernel_is_preferred_on_smooth_draws():
    X = uniform(150, 1)
    tuned = tune_kernel(X, drawn(Gaussian(0.7), X, 1e-4), random_state=0)
    assert isinstance(tuned.kernel.left.kernel, Gaussian)
    assert tuned.log_marginal_likelihood == max(tuned.families.values())
    assert "Matern12" not in tuned.families  # a rougher family was worse, so still rougher ones are not tried


def test_two_outputs_share_a_kernel():
    X = uniform(150, 1)
    Y = drawn(Gaussian(0.6), X, 0.05, outputs=2)
    tuned = tune_kernel(X, Y, "gaussian", random_state=0)
    assert_within_factor(lengths(tuned), 0.6, 1.4)
    assert_within_factor(tuned.noise, 0.05, 1.35)
    swapped = tune_kernel(X, Y[:, ::-1].copy(), "gaussian", random_state=0)
    assert swapped.log_marginal_likelihood == pytest.approx(tuned.log_marginal_likelihood, abs=1e-3)


# --- the optimum --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", ["auto", "matern32", Matern52(0.5), Linear() + 1.0, "linear"], ids=repr)
def test_the_evidence_reported_is_that_of_the_kernel_returned(kernel):
    X = uniform(60)
    Y = 30 + 7 * drawn(Matern52(1.0), X, 0.05, outputs=2)
    tuned = tune_kernel(X, Y, kernel, random_state=0)
    wanted = oracles.log_evidence(tuned.kernel, tuned.noise, X, Y - Y.mean(0))
    # The Matérn 1/2's √eps where points meet, over a noise of at least 0.05, in 120 terms.
    assert tuned.log_marginal_likelihood == pytest.approx(wanted, abs=1e-4)
    assert max(tuned.families.values()) == pytest.approx(tuned.log_marginal_likelihood)


def test_a_kernel_object_keeps_its_form():
    X = uniform(60)
    y = drawn(Matern52(1.0), X, 0.05)
    given = Matern52([0.5, 0.6])
    tuned = tune_kernel(X, y, given, random_state=0)
    assert isinstance(tuned.kernel, Scaled)
    assert isinstance(tuned.kernel.kernel, Matern52)
    assert lengths(tuned).shape == (2,)
    assert given.length_scale == [0.5, 0.6]
    assert tune_kernel(X, y, Function(lambda A, B: A @ B.T)).relevance is None


@pytest.mark.parametrize(
    ("name", "theirs"),
    [("gaussian", skgp.RBF), ("matern52", lambda l: skgp.Matern(l, nu=2.5))],
    ids=["rbf", "matern"],
)
def test_the_evidence_is_at_least_scikit_learns(name, theirs):
    X = uniform(80)
    y = drawn(Gaussian([0.7, 1.8]), X, 0.05)[:, 0]
    y = (y - y.mean()) / y.std()
    form = 1.0 * theirs([1.0, 1.0]) + skgp.ConstantKernel(1.0) + skgp.WhiteKernel(0.1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # a variance of the bias at its lower bound
        model = GaussianProcessRegressor(form, random_state=0).fit(X, y)
    tuned = tune_kernel(X, y, name, ard=True, random_state=0)
    # Both stop when a step gains little: 1e-7 of a value near 100 a step, some hundred steps.
    assert tuned.log_marginal_likelihood >= model.log_marginal_likelihood_value_ - 1e-2


@pytest.mark.parametrize("seed", range(2))
def test_restarts_never_lower_the_evidence(seed):
    X = uniform(40, seed=seed)
    y = np.sin(3 * X[:, 0]) + 0.3 * np.random.default_rng(seed).normal(size=40)
    values = [tune_kernel(X, y, "gaussian", restarts=r, random_state=seed).log_marginal_likelihood for r in (0, 1)]
    assert values == sorted(values)


def test_the_same_random_state_gives_the_same_result():
    X = uniform(80)
    y = drawn(Gaussian(), X, 0.05)[:, 0]
    how = {"n_rows": 25, "restarts": 1, "max_iter": 10}
    first, again, other = (tune_kernel(X, y, "gaussian", **how, random_state=seed) for seed in (3, 3, 4))
    assert repr(first) == repr(again)
    assert first.log_marginal_likelihood != other.log_marginal_likelihood  # other rows
    tensors = tune_kernel(torch.from_numpy(X), torch.from_numpy(y), "gaussian", **how, random_state=3)
    assert repr(tensors) == repr(first)


def test_weighted_rows_are_repeated_rows_to_the_search():
    X, repeats = uniform(60, 1), np.arange(60) % 3
    y = drawn(Gaussian(0.8), X, 0.1)[:, 0]
    weighted = tune_kernel(X, y, "gaussian", sample_weight=repeats, random_state=0)
    repeated = tune_kernel(np.repeat(X, repeats, 0), np.repeat(y, repeats), "gaussian", random_state=0)
    # Two searches that start apart (the spread of rows differs) end at one optimum, as far as they go.
    assert weighted.log_marginal_likelihood == pytest.approx(repeated.log_marginal_likelihood, abs=0.01)
    assert_within_factor(weighted.noise, repeated.noise, 1.05)
    assert_within_factor(lengths(weighted), lengths(repeated), 1.05)


# --- data that are hard on numbers ----------------------------------------------------------------------


def assert_finite(tuned: Tuned) -> None:
    values = [np.atleast_1d(value) for value in tuned.kernel.tunable().values()]
    assert np.isfinite(np.concatenate([*values, [tuned.noise, tuned.log_marginal_likelihood]])).all()
    assert tuned.noise > 0
    assert all((value > 0).all() for value in values)


SPOILED = {
    "constant targets": lambda X, y: (X, np.full_like(y, 0.1)),
    "zero targets": lambda X, y: (X, np.zeros_like(y)),
    "a constant column": lambda X, y: (np.column_stack([X[:, 0], np.full(len(X), 0.1)]), y),
    "constant columns": lambda X, y: (np.full_like(X, 1e8 / 3), y),
    "repeated rows": lambda X, y: (np.repeat(X[:10], 3, 0), y),
    "repeated rows and targets": lambda X, y: (np.repeat(X[:10], 3, 0), np.repeat(y[:10], 3)),
    "large offsets": lambda X, y: (X + 1e6, y - 1e6),
    "two rows": lambda X, y: (X[:2], y[:2]),
    "no noise": lambda X, y: (X, X[:, 0]),
}
#: Rows that coincide, where the slope of the roughest kernel has no end.
COINCIDING = ["constant columns", "repeated rows", "repeated rows and targets"]


@pytest.mark.parametrize(
    ("spoiled", "kernel"), [*((name, "auto") for name in SPOILED), *((name, "matern12") for name in COINCIDING)]
)
def test_hard_data_give_finite_results(spoiled, kernel):
    X = uniform(30)
    X, y = SPOILED[spoiled](X, np.sin(X[:, 0]))
    assert_finite(tune_kernel(X, y, kernel, max_iter=5, random_state=0))


@pytest.fixture(scope="module")
def in_plain_units():
    X = uniform(50)
    y = drawn(Gaussian(1.0), X, 0.05)[:, 0]
    return X, y, tune_kernel(X, y, "gaussian", random_state=0)


@pytest.mark.parametrize(("X_scale", "y_scale"), [(1e-8, 1e8), (1e8, 1e-8)])
def test_units_do_not_matter(X_scale, y_scale, in_plain_units):
    X, y, here = in_plain_units
    there = tune_kernel(X_scale * X, y_scale * y, "gaussian", random_state=0)
    assert_finite(there)
    # The search is the same but for rounding, which it may magnify until it stops.
    np.testing.assert_allclose(lengths(there), X_scale * lengths(here), rtol=1e-3)
    np.testing.assert_allclose(there.noise, y_scale**2 * here.noise, rtol=1e-3)
    shift = 50 * math.log(y_scale)
    assert there.log_marginal_likelihood == pytest.approx(here.log_marginal_likelihood - shift, abs=1e-3)


def test_an_input_of_other_units_gets_a_length_scale_of_its_own():
    X = uniform(60)
    y = drawn(Gaussian(1.0), X, 0.01)[:, 0]
    tuned = tune_kernel(X * [1e-8, 1e8], y, "gaussian", ard=True, random_state=0)
    assert_finite(tuned)
    assert_within_factor(lengths(tuned), [1e-8, 1e8], 2.0)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"n_rows": 1}, "n_rows must be an integer of at least 2, got 1"),
        ({"ard": "maybe"}, "ard must be True, False or 'auto', got 'maybe'"),
        ({"kernel": "gausian"}, r"kernel must be one of \[.*\] or a Kernel object, got 'gausian'"),
        ({"X": np.full((30, 2), np.nan)}, "X and y must be finite numbers"),
        ({"y": np.full(30, np.inf)}, "X and y must be finite numbers"),
        ({"X": torch.eye(30).to_sparse()}, "X must be a dense tensor, got torch.sparse_coo"),
    ],
    ids=["n_rows", "ard", "kernel", "X", "y", "sparse"],
)
def test_what_cannot_be_tuned_is_refused_in_a_sentence(change, words):
    X = uniform(30)
    with pytest.raises(ValueError, match=words):
        tune_kernel(**{"X": X, "y": X[:, 0], "kernel": "gaussian"} | change)


# --- the noise of a fixed kernel ------------------------------------------------------------------------


@pytest.mark.parametrize("outputs", [1, 2])
@pytest.mark.parametrize(
    ("kernel", "noise"),
    [(Gaussian(0.8), 0.3), (Matern32([0.5, 2.0]), 0.5), (50.0 * Matern12(), 25.0), (Linear() + 1.0, 0.3)],
    ids=repr,
)
def test_the_tuned_noise_is_the_best_of_a_fine_grid(kernel, noise, outputs):
    X = uniform(30)
    Y = 5 + drawn(kernel, X, noise, outputs=outputs)
    lam = tune_noise(kernel, torch.from_numpy(X), torch.from_numpy(Y))
    K, centred = oracles.tile(kernel, X, X), Y - Y.mean(0)
    grid = np.linalg.eigvalsh(K)[-1] * np.logspace(-4, 1, 110)
    values = [oracles.best_amplitude_log_evidence(K, trial, centred) for trial in grid]
    # The evidence is flat at its top: the search's 1e-5 in log λ is far below 1e-6 of evidence.
    assert oracles.best_amplitude_log_evidence(K, lam, centred) >= max(values) - 1e-6
    assert 0 < np.argmax(values) < 109  # the draws have their optimum inside the grid
    assert abs(math.log(lam / grid[np.argmax(values)])) <= math.log(grid[1] / grid[0])


def test_the_noise_of_weighted_rows_is_that_of_repeated_rows():
    X, repeats = uniform(30), np.arange(30) % 4
    Y = drawn(Gaussian(), X, 0.1)
    weighted = tune_noise(Gaussian(), torch.from_numpy(X), torch.from_numpy(Y), sample_weight=repeats)
    again = (torch.from_numpy(np.repeat(A, repeats, 0)) for A in (X, Y))
    assert weighted == pytest.approx(tune_noise(Gaussian(), *again), rel=1e-4)  # 1e-5 in log λ, twice


@pytest.mark.parametrize("scale", [1e-8, 1e8])
def test_the_noise_is_in_units_of_the_kernel_not_of_the_targets(scale):
    X = torch.from_numpy(uniform(40))
    Y = torch.from_numpy(drawn(Gaussian(), X, 0.1))
    lam = tune_noise(Gaussian(), X, Y)
    assert tune_noise(Gaussian(), X, scale * Y) == pytest.approx(lam, rel=1e-4)
    assert tune_noise(scale * Gaussian(), X, Y) == pytest.approx(scale * lam, rel=1e-4)


@pytest.mark.parametrize("targets", [torch.zeros(20, 1), torch.full((20, 2), 3.0)], ids=["zero", "constant"])
def test_constant_targets_leave_a_positive_noise(targets):
    lam = tune_noise(Gaussian(), torch.from_numpy(uniform(20)), targets)
    assert 0 < lam < math.inf


def test_inputs_of_a_group_share_their_length_scale():
    rng = np.random.default_rng(0)
    level = rng.integers(0, 3, 45)
    X = np.column_stack([rng.normal(size=45), np.eye(3)[level] / 2**0.5])
    y = np.sin(2 * X[:, 0]) + level
    apart, tied = (
        tune_kernel(X, y, "gaussian", ard=True, groups=groups, random_state=0) for groups in (None, [5, 7, 7, 7])
    )
    assert len(np.unique(tied.length_scale)) == 2
    assert len(np.unique(apart.length_scale)) == 4
    assert tied.log_marginal_likelihood <= apart.log_marginal_likelihood + 1e-6  # fewer parameters
    with pytest.raises(ValueError, match="groups must be one number for each of 4 inputs"):
        tune_kernel(X, y, groups=[0, 1])

"""Where tuning must not end: in white noise, by the luck of a start, by the scale of weights, or in a raw error."""

from __future__ import annotations

import numpy as np
import oracles
import pytest
import torch

from mercer import tune_kernel
from mercer.evidence.exact import left_out
from mercer.kernels import Gaussian, Matern32, Matern52, Polynomial, Scaled
from mercer.selection import Tuned, tune_noise
from mercer.selection.evidence_search import LARGEST_VARIANCE, EvidenceSearch


def noisy_classes(seed: int, n: int = 200) -> tuple[np.ndarray, np.ndarray]:
    """Two classes of which four fifths of the variance are noise: one split in three ended in white noise."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 6))
    return X, np.where(X[:, 0] + X[:, 1] + 2 * rng.normal(size=n) > 0, 1.0, -1.0)


def left_out_error(tuned: Tuned, X: np.ndarray, y: np.ndarray) -> float:
    """Squared error at rows left out, as a share of that of their mean."""
    Y = torch.from_numpy(y.reshape(len(y), -1) - y.mean(0))
    seen = left_out(tuned.kernel, tuned.noise, torch.from_numpy(X), Y)
    return float((seen - Y).square().sum() / Y.square().sum())


# --- rows left out ----------------------------------------------------------------------------------


@pytest.mark.parametrize("weighted", [False, True], ids=["equal weights", "weights"])
def test_rows_left_out_are_predicted_by_the_others(weighted):
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(25, 2)), rng.normal(size=(25, 2))
    w = rng.uniform(0.3, 3, 25) if weighted else np.ones(25)
    kernel, noise = 2.0 * Matern52([0.7, 1.5]) + 0.5, 0.2
    seen = left_out(kernel, noise, *(torch.from_numpy(a) for a in (X, Y, w)))
    K = oracles.tile(kernel, X, X)
    for i in range(25):
        rest = np.arange(25) != i
        a = np.linalg.solve(K[np.ix_(rest, rest)] + noise * np.diag(1 / w[rest]), Y[rest])
        np.testing.assert_allclose(seen[i], K[i, rest] @ a, atol=1e-10)  # systems of condition below 1e4


# --- white noise ------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_noisy_classes_do_not_end_as_white_noise(seed):
    X, y = noisy_classes(seed)
    tuned = tune_kernel(X, y, "gaussian", ard=False, random_state=0)
    assert left_out_error(tuned, X, y) < 0.95  # the optimum explains 15 to 25 %, white noise nothing
    assert tuned.noise > 0.5
    assert tuned.length_scale[0] > 1.0


@pytest.mark.parametrize("kernel", ["auto", "matern12", Gaussian(1e-3)], ids=repr)
@pytest.mark.parametrize("seed", range(2))
def test_targets_that_are_noise_are_called_noise(seed, kernel):
    """A kernel may not call signal what it cannot predict: then the constant is the better model."""
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(80, 3)), rng.normal(size=80)
    tuned = tune_kernel(X, y, kernel, random_state=0)
    assert tuned.noise > 0.5 * y.var() or left_out_error(tuned, X, y) < 1
    assert left_out_error(tuned, X, y) < 1.2  # some rows are met by chance; white noise with hardly any noise has 1.01


def test_a_search_from_white_noise_ends_elsewhere():
    X, y = (torch.from_numpy(a) for a in noisy_classes(0))
    Y = (y - y.mean())[:, None] / y.std(correction=0)
    search = EvidenceSearch(X, Y, torch.ones(200, dtype=torch.float64), False, 50)
    white = Scaled(Gaussian(0.01))
    assert search._local_maximum(white, 0.1, 1e-8, 0.0).noise < 0.5  # where the evidence alone leads
    found = search.maximise(white, 0.1)
    assert found.noise > 0.5
    assert found.value > search._local_maximum(white, 0.1, 1e-8, 0.0).value + 5


# --- families and length-scales ---------------------------------------------------------------------


@pytest.mark.long
def test_the_family_does_not_depend_on_which_rows_were_drawn():
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (500, 2))
    y = oracles.draw(Matern32(0.7), X, 0.02, rng)[:, 0]
    # 200 rows tell them apart by more than four in the logarithm of the evidence, 120 by 0.1
    seen = {type(tune_kernel(X, y, n_rows=200, max_iter=10, random_state=s).kernel.left.kernel) for s in range(3)}
    assert Gaussian not in seen
    assert len(seen) <= 2  # its neighbours have nearly the same evidence


def test_several_copies_of_an_output_ask_no_more_of_the_inputs_than_one():
    """Evidence of p equal outputs is p times that of one, and so is what length-scales cost."""
    X = np.random.default_rng(0).uniform(-2, 2, (60, 3))
    y = oracles.draw(Gaussian([1.0, 1.1, 1.2]), X, 0.3, np.random.default_rng(4))
    single, copies = (tune_kernel(X, Y, "gaussian", random_state=0) for Y in (y, np.repeat(y, 8, 1)))
    assert single.length_scale.shape == copies.length_scale.shape == (1,)
    np.testing.assert_allclose(copies.length_scale, single.length_scale, rtol=0.01)
    # the test bites: at the price of one output the copies would have been worth it
    finer = tune_kernel(X, np.repeat(y, 8, 1), "gaussian", ard=True, random_state=0)
    gain = finer.log_marginal_likelihood - copies.log_marginal_likelihood
    assert 0.5 * 2 * np.log(60) < gain < 8 * 0.5 * 2 * np.log(60)


def test_a_linear_target_needs_no_endless_variance():
    """Length-scales of a thousand spreads and a variance of a million are a straight line by another name."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(150, 3))
    y = X @ [1.0, 2.0, 0.5] + 0.1 * rng.normal(size=150)
    tuned = tune_kernel(X, y, "gaussian", ard=True, random_state=0)
    assert tuned.kernel.tunable()["left__variance"] <= 1.001 * LARGEST_VARIANCE * y.var()
    assert left_out_error(tuned, X, y) < 1.3 * 0.01 / y.var()  # the noise, and a few parameters of 150 rows


# --- class codes ------------------------------------------------------------------------------------


def test_class_codes_are_chosen_by_the_leave_one_out_log_loss():
    """On classes that are easy to tell apart the evidence shrinks length-scales to the gaps between rows."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(200, 4))
    y = np.where(X[:, 0] + 0.5 * X[:, 1] ** 2 + 0.2 * rng.normal(size=200) > 0.4, 1.0, -1.0)
    tuned = tune_kernel(X, y, random_state=0)
    measured = tune_kernel(X, y + 1e-9 * rng.normal(size=200), random_state=0)  # not codes: as measurements
    assert tuned.noise >= 0.01 * y.var() * 0.999
    errors = [_log_loss(result, X, y) for result in (tuned, measured)]
    assert errors[0] < errors[1]


def _log_loss(tuned: Tuned, X: np.ndarray, y: np.ndarray) -> float:
    Y = torch.from_numpy(y[:, None] - y.mean())
    margin = y * (left_out(tuned.kernel, tuned.noise, torch.from_numpy(X), Y)[:, 0].numpy() + y.mean())
    return min(float(np.logaddexp(0, -margin / t).mean()) for t in np.logspace(-2, 1, 30))


def test_the_noise_of_codes_has_a_floor():
    """Two classes far apart: interpolating their codes has unbounded evidence."""
    X = np.random.default_rng(0).normal(size=(80, 2))
    codes = np.where(X[:, :1] > 0, 1.0, -1.0)
    X[:, 0] += 4 * codes[:, 0]
    kernel = 5.0 * Gaussian(1.0)
    lam = tune_noise(kernel, torch.from_numpy(X), torch.from_numpy(codes))
    assert lam >= 0.05
    assert tune_noise(kernel, torch.from_numpy(X), torch.from_numpy(codes + 1e-3 * X)) < 0.05  # numbers have none


# --- weights ----------------------------------------------------------------------------------------


def test_the_scale_of_weights_does_not_matter():
    rng = np.random.default_rng(0)
    X, weight = rng.uniform(-2, 2, (150, 2)), rng.uniform(0.5, 2, 150)
    y = np.sin(1.5 * X[:, 0]) + 0.5 * X[:, 1] + 0.1 * rng.normal(size=150)
    rows = torch.from_numpy(X), torch.from_numpy(y[:, None])

    def tuned(weight):
        kernel = tune_kernel(X, y, "gaussian", sample_weight=weight, random_state=0)
        return kernel, tune_noise(Gaussian(), *rows, sample_weight=weight)

    first, lam = tuned(weight)
    for scale in (1 / 150, 1e-290, 1e290):
        other, scaled = tuned(scale * weight)
        assert first.log_marginal_likelihood == pytest.approx(other.log_marginal_likelihood, rel=1e-6)
        np.testing.assert_allclose(other.length_scale, first.length_scale, rtol=1e-3)
        assert other.noise == pytest.approx(scale * first.noise, rel=1e-3)  # so λ/w, and with it the model, is the same
        assert scaled == pytest.approx(scale * lam, rel=1e-4)


def test_a_table_twice_is_the_table():
    """With merged rows of mean weight one, repeating all rows adds no evidence that there were more of them."""
    X = np.random.default_rng(0).uniform(-2, 2, (60, 1))
    y = oracles.draw(Gaussian(0.8), X, 0.1, np.random.default_rng(1))[:, 0]
    once, twice = (tune_kernel(np.tile(X, (k, 1)), np.tile(y, k), "gaussian", random_state=0) for k in (1, 2))
    assert twice.log_marginal_likelihood == pytest.approx(once.log_marginal_likelihood, rel=1e-6)
    assert twice.noise == pytest.approx(2 * once.noise, rel=1e-3)


# --- arguments --------------------------------------------------------------------------------------

X30 = np.random.default_rng(0).uniform(-2, 2, (30, 2))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"n_rows": "x"}, "n_rows must be an integer of at least 2, got 'x'"),
        ({"n_rows": True}, "n_rows must be an integer"),
        ({"max_iter": [1]}, r"max_iter must be an integer of at least 1, got \[1\]"),
        ({"max_iter": 0}, "max_iter must be an integer of at least 1, got 0"),
        ({"tol": "x"}, "tol must be a finite number of at least 0, got 'x'"),
        ({"tol": -1e300}, "tol must be a finite number of at least 0"),
        ({"tol": float("nan")}, "tol must be a finite number of at least 0"),
        ({"restarts": None}, "restarts must be an integer of at least 0, got None"),
        ({"restarts": -1}, "restarts must be an integer of at least 0, got -1"),
        ({"restarts": 10**400}, "restarts must be an integer"),
        ({"ard": None}, "ard must be True, False or 'auto', got None"),
        ({"ard": np.array([True, False])}, "ard must be True, False or 'auto'"),
        ({"y": 3.0}, r"y must be one- or two-dimensional, got \(\)"),
        ({"y": np.zeros(29)}, "y must be of the length of X, 30, got 29"),
        ({"X": X30[:, 0]}, "X must be two-dimensional"),
        ({"X": X30[:, :0]}, "X must be two-dimensional, with at least one column"),
        ({"X": X30.astype(str).astype(object) + "a"}, "X must be real numbers, got dtype object"),
        ({"X": np.full((30, 2), "a")}, "X must be real numbers, got dtype <U1"),
        ({"X": X30 + 1j}, "X must be real numbers"),
        ({"y": torch.zeros(30, dtype=torch.complex64)}, "y must be real numbers"),
        ({"sample_weight": np.r_[np.inf, np.ones(29)]}, "sample_weight must be finite and non-negative, some positive"),
        ({"sample_weight": -np.ones(30)}, "sample_weight must be finite and non-negative"),
        ({"sample_weight": np.zeros(30)}, "sample_weight must be finite and non-negative, some positive"),
        ({"sample_weight": np.ones(29)}, r"sample_weight must be of shape \(30,\), got \(29,\)"),
        ({"kernel": Gaussian([1, -1])}, "length_scale must be positive"),
        ({"kernel": Gaussian(0.0)}, "length_scale must be positive"),
        ({"kernel": Gaussian(float("inf"))}, "length_scale must be positive"),
        ({"kernel": Gaussian(float("nan"))}, "length_scale must be positive"),
        ({"kernel": Gaussian("x")}, "length_scale must be positive .*got 'x'"),
        ({"kernel": Gaussian(None)}, "length_scale must be positive"),
        ({"kernel": Gaussian(1e-320)}, "length_scale must be positive .*got 1e-320"),
    ],
    ids=lambda value: str(value)[:40],
)  # fmt: skip
def test_every_argument_is_refused_in_a_sentence(change, words):
    with pytest.raises(ValueError, match=words):
        tune_kernel(**{"X": X30, "y": X30[:, 0], "kernel": "gaussian"} | change)


@pytest.mark.parametrize(
    "same",
    [
        lambda X: X.astype(">f8"),
        lambda X: X.astype(np.longdouble),
        lambda X: X.astype(object),
        lambda X: torch.tensor(X, requires_grad=True),
        lambda X: X.tolist(),
        lambda X: np.broadcast_to(X[None], (1, *X.shape))[0],
    ],
    ids=["big-endian", "long double", "objects", "a tensor with gradients", "lists", "read-only"],
)
def test_numbers_may_come_in_any_form(same):
    plain, other = (tune_kernel(X, X30[:, 0], "gaussian", max_iter=5, random_state=0) for X in (X30, same(X30)))
    assert repr(other) == repr(plain)


@pytest.mark.parametrize("kernel", [Gaussian(float("nan")), Gaussian(-1.0), Gaussian(1e-320), Polynomial(gamma=-1.0)])
def test_the_noise_of_an_impossible_kernel_is_refused(kernel):
    X = torch.from_numpy(X30)
    with pytest.raises(ValueError, match=r"must be (positive|one number)"):
        tune_noise(kernel, X, X[:, :1])


@pytest.mark.parametrize("size", [1e-200, 1e154, 1e200])
def test_targets_near_the_ends_of_float64_have_the_noise_of_their_units(size):
    X = torch.from_numpy(X30)
    y = X[:, :1].sin() + 0.1 * torch.from_numpy(np.random.default_rng(0).normal(size=(30, 1)))
    assert tune_noise(Gaussian(), X, size * y) == pytest.approx(tune_noise(Gaussian(), X, y), rel=1e-4)


@pytest.mark.parametrize("ard", ["auto", True])
def test_two_inputs_that_matter_are_found_among_many_that_do_not(ard):
    """One length-scale for all inputs sees noise alone here, and what it led to was a constant."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(200, 20))
    y = np.sin(2 * X[:, 0]) * X[:, 1] + 0.1 * rng.normal(size=200)
    tuned = tune_kernel(X, y, "gaussian", ard=ard, max_iter=50, tol=1e-6, random_state=0)
    assert set(np.argsort(tuned.relevance)[-2:]) == {0, 1}
    assert left_out_error(tuned, X, y) < 0.2

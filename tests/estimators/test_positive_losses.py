"""Poisson, gamma and Tweedie losses, exposures, and losses of the user: against scikit-learn's linear models."""

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import TweedieRegressor
from sklearn.metrics import mean_tweedie_deviance

import mercer
from mercer import GreedyKernelRegressor, KernelBoostingRegressor, load
from mercer.kernels import Bias, Gaussian, Linear, Sum
from mercer.losses import Gamma, Loss, Poisson, Tweedie

QUICK = {"kernel": Gaussian(1.5), "regularization": 1.0}
LOSSES = {1.0: "poisson", 1.5: Tweedie(1.5), 2.0: "gamma"}


class LogCosh(Loss):
    """log cosh(y − f), a loss of the user."""

    def value(self, y, f):
        return torch.logaddexp(y - f, f - y) - np.log(2)

    def residual(self, y, f):
        return torch.tanh(y - f)

    def curvature(self, y, f):
        return 1 - torch.tanh(y - f) ** 2


class LeastSquares(LogCosh):
    """½ (y − f)², not known to be quadratic."""

    def value(self, y, f):
        return 0.5 * (y - f) ** 2

    def residual(self, y, f):
        return y - f

    def curvature(self, y, f):
        return torch.ones_like(f)


def rows(n: int, seed: int, power: float = 1.0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Inputs, positive means, and targets whose variance is about the power of the mean."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    mean = np.exp(1 + np.sin(2 * X[:, 0]) + 0.5 * X[:, 1])
    if power == 2:
        return X, mean, mean * rng.gamma(4.0, 0.25, n)
    y = rng.poisson(mean).astype(float)
    return X, mean, y if power == 1 else np.array([rng.gamma(2.0, 0.5, int(k)).sum() for k in y])


@pytest.mark.parametrize("power", LOSSES)
def test_a_linear_kernel_agrees_with_scikit_learns_generalised_linear_models(power) -> None:
    """scikit-learn minimises half the mean deviance + α/2 |β|², so λ = α N m^(p − 2) in units of the mean m.

    The objective is λ-strongly convex in β: a gap g bounds the error of the coefficients by √(2g/λ). Newton's method
    ends when a step gains 1e-5 a row, and the next steps would gain less. The intercept has the prior variance 1e4.
    """
    X, _, y = rows(120, 0, power)
    weight = np.random.default_rng(1).uniform(0.5, 2.0, 120)
    alpha, mean = 0.3, np.average(y, weights=weight)
    theirs = TweedieRegressor(power=power, link="log", alpha=alpha, tol=1e-10, max_iter=10_000).fit(X, y, weight)
    lam, kernel = alpha * weight.sum() * mean ** (power - 2), Sum(Linear(), Bias(1e4))
    ours = KernelBoostingRegressor(kernel=kernel, loss=LOSSES[power], regularization=lam, scale_inputs=False)
    logs = np.log(ours.fit(X, y, weight).predict(X))
    coef = np.linalg.lstsq(np.column_stack([X, np.ones(120)]), logs, rcond=None)[0]
    intercept = lam / 2 * (coef[3] - np.log(mean)) ** 2 / 1e4  # what its penalty adds at most
    gap = 1e-5 * weight.sum() + intercept
    assert np.linalg.norm(coef[:3] - theirs.coef_) <= 2 * (2 * gap / lam) ** 0.5 < 0.05
    deviance = mean_tweedie_deviance(y, np.exp(logs), power=power, sample_weight=weight)
    least = mean_tweedie_deviance(y, theirs.predict(X), power=power, sample_weight=weight)
    objective = deviance / 2 + alpha / 2 * coef[:3] @ coef[:3]
    bound = least / 2 + alpha / 2 * theirs.coef_ @ theirs.coef_
    assert bound * (1 - 1e-8) <= objective <= bound + gap * mean ** (2 - power) / weight.sum()


@pytest.mark.parametrize("power", LOSSES)
def test_exposure_is_an_offset_of_the_logarithm(power) -> None:
    """d(y, eμ) = e^(2 − p) d(y/e, μ): totals with exposure equal rates with these weights."""
    X, mean, _ = rows(80, 2, power)
    rng = np.random.default_rng(3)
    exposure, weight = rng.uniform(0.1, 5.0, 80), rng.uniform(0.5, 2.0, 80)
    y = rng.poisson(exposure * mean) + (1.0 if power == 2 else 0.0)
    model = KernelBoostingRegressor(loss=LOSSES[power], **QUICK)
    by_exposure = clone(model).fit(X, y, weight, exposure=exposure).predict(X)
    by_weight = clone(model).fit(X, y / exposure, weight * exposure ** (2 - power)).predict(X)
    np.testing.assert_allclose(by_exposure, by_weight, rtol=1e-12)


def test_kernels_selected_for_counts_beat_trees() -> None:
    X, mean, y = rows(1150, 4)
    train, new = slice(150), slice(150, None)

    def error(model) -> float:
        return mean_tweedie_deviance(mean[new], model.fit(X[train], y[train]).predict(X[new]), power=1)

    ours = error(KernelBoostingRegressor(loss="poisson", random_state=0))
    assert ours < 0.7 * error(HistGradientBoostingRegressor(loss="poisson", random_state=0))


@pytest.mark.usefixtures("two_folds")
@pytest.mark.parametrize("power", LOSSES)
@pytest.mark.parametrize("kind", [KernelBoostingRegressor, GreedyKernelRegressor])
def test_positive_losses_have_intervals_files_stages_and_reports(power, kind, tmp_path) -> None:
    X, mean, y = rows(1200, 5, power)
    greedy = kind is GreedyKernelRegressor
    options = {**QUICK, "n_basis": 16} if greedy else QUICK
    model = kind(loss=LOSSES[power], random_state=0, **options).fit(X[:200], y[:200])
    found = model.predict(X[200:])
    assert (found > 0).all()
    constant = mean_tweedie_deviance(mean[200:], np.full(1000, y[:200].mean()), power=power)
    assert mean_tweedie_deviance(mean[200:], found, power=power) < 0.5 * constant
    low, high = model.predict_interval(X[200:], 0.9).T
    assert (low >= 0).all()
    if not greedy:  # three standard deviations of a share of 200 rows and one of 1000 rows: 0.07
        assert 0.83 < np.mean((low <= y[200:]) & (y[200:] <= high)) < 0.97
    np.testing.assert_allclose(list(model.staged_predict(X[:5]))[-1], model.predict(X[:5]), rtol=0.1)
    model.save(tmp_path / "model.mercer")
    np.testing.assert_array_equal(load(tmp_path / "model.mercer").predict(X), model.predict(X))


@pytest.mark.parametrize("loss", ["poisson", "huber", LogCosh()], ids=str)
def test_validation_rows_do_not_change_an_exact_solution(loss) -> None:
    X, _, y = rows(90, 15)
    model = KernelBoostingRegressor(loss=loss, **QUICK)
    plain = clone(model).fit(X[:60], y[:60])
    watched = clone(model).fit(X[:60], y[:60], X_val=X[60:], y_val=y[60:])
    np.testing.assert_allclose(watched.predict(X), plain.predict(X), rtol=1e-9)
    if loss == "poisson":  # half the deviance, in units of the mean
        half = mean_tweedie_deviance(y[60:], plain.predict(X[60:]), power=1) / 2 / y[:60].mean()
        np.testing.assert_allclose(watched.history_["validation"], [half], rtol=1e-6)


def test_a_weight_of_two_equals_the_row_twice() -> None:
    X, _, y = rows(60, 6)
    weight = np.where(np.arange(60) % 3 == 0, 2.0, 1.0)
    model = KernelBoostingRegressor(loss="poisson", **QUICK)
    twice = clone(model).fit(np.repeat(X, weight.astype(int), axis=0), np.repeat(y, weight.astype(int)))
    np.testing.assert_allclose(clone(model).fit(X, y, weight).predict(X), twice.predict(X), rtol=1e-9)


def test_units_of_the_targets_do_not_matter() -> None:
    X, _, y = rows(100, 7)
    model = KernelBoostingRegressor(loss="poisson", **QUICK)
    np.testing.assert_allclose(clone(model).fit(X, 1000 * y).predict(X), 1000 * clone(model).fit(X, y).predict(X))


@pytest.mark.filterwarnings("ignore:y holds")
def test_learners_that_are_no_exact_solution_lower_the_deviance() -> None:
    X, mean, y = rows(400, 8)
    y[0] = 1e4  # Newton steps from zero are far too long there
    model = KernelBoostingRegressor(4, learner_size=10, loss="poisson", random_state=0, **QUICK).fit(X[:200], y[:200])
    assert (np.diff(model.objective_path_) <= 1e-9 * model.objective_path_[0]).all()
    many = KernelBoostingRegressor(4, learner_size=10, loss="poisson", random_state=0, **QUICK).fit(X[1:200], y[1:200])
    constant = mean_tweedie_deviance(mean[200:], np.full(200, y[1:200].mean()), power=1)
    assert mean_tweedie_deviance(mean[200:], many.predict(X[200:]), power=1) < 0.3 * constant


def test_shapley_values_and_influences_are_those_of_the_logarithm() -> None:
    X, _, y = rows(60, 9)
    model = KernelBoostingRegressor(loss="poisson", **QUICK).fit(X, y)
    shares = mercer.shapley_values(model, X[:3])
    total = np.asarray(shares.values).sum(1) + np.ravel(shares.base_values)
    np.testing.assert_allclose(total, np.log(model.predict(X[:3])), rtol=1e-8)
    without = clone(model).fit(X[1:], y[1:])  # its unit is another mean
    effect = model.row_influence(X[:1], X, y)[0, 0]
    assert abs(effect - np.log(model.predict(X[:1]) / without.predict(X[:1]))[0]) < 0.2 * abs(effect) + 0.02


def test_the_report_of_counts_is_written(tmp_path) -> None:
    X, _, y = rows(150, 10)
    model = KernelBoostingRegressor(loss="poisson", **QUICK).fit(X[:100], y[:100])
    mercer.report(model, X[100:], y[100:], tmp_path / "report.html")
    assert (tmp_path / "report.html").stat().st_size > 1000


def test_a_loss_of_the_user_is_fitted_like_a_known_one() -> None:
    X, _, y = rows(90, 11)
    squared = KernelBoostingRegressor(**QUICK).fit(X, y).predict(X)
    user = KernelBoostingRegressor(loss=LeastSquares(), **QUICK).fit(X, y).predict(X)
    spread = y.std()  # the constant of least loss is the mean, by bisection to 2^-30
    np.testing.assert_allclose(user, squared, atol=1e-2 * spread)
    assert KernelBoostingRegressor(loss=LogCosh(), **QUICK).fit(X, y).score(X, y) > 0.5


def test_a_model_with_a_loss_of_the_user_is_pickled_but_not_saved(tmp_path) -> None:
    X, _, y = rows(40, 12)
    model = KernelBoostingRegressor(loss=LogCosh(), **QUICK).fit(X, y)
    with pytest.raises(ValueError, match="LogCosh"):
        model.save(tmp_path / "model.mercer")


BAD = {
    "negative counts": ({"loss": "poisson"}, {"y": -1.0}, "y must be non-negative for a loss with positive means"),
    "zero of gamma": ({"loss": "gamma"}, {"y": 0.0}, "y must be positive for the gamma loss, got 0.0"),
    "only zeros": ({"loss": "poisson"}, {"y": np.zeros(40)}, "y must be positive in some row"),
    "power of 3": ({"loss": Tweedie(3)}, {}, "power must be a number from 1"),
    "power of text": ({"loss": Tweedie("two")}, {}, "power must be a number from 1"),
    "exposure of squares": ({}, {"exposure": np.ones(40)}, "exposure must be None unless the loss is 'poisson'"),
    "missing exposure": ({"loss": "poisson"}, {"exposure": np.full(40, np.nan)}, "exposure must be positive and fin"),
    "no exposure": ({"loss": "poisson"}, {"exposure": np.zeros(40)}, "exposure must be positive and finite"),
    "short exposure": ({"loss": "poisson"}, {"exposure": np.ones(3)}, r"exposure must be of shape \(40,\)"),
    "text": ({"loss": "poisson"}, {"exposure": ["a"] * 40}, "exposure must be numbers"),
}


@pytest.mark.parametrize("case", BAD)
@pytest.mark.parametrize("kind", [KernelBoostingRegressor, GreedyKernelRegressor])
def test_bad_input_gets_a_sentence(case, kind) -> None:
    X, _, y = rows(40, 13)
    options, change, sentence = BAD[case]
    given = dict(change)
    if "y" in given:
        y = np.where(np.arange(40) == 0, given.pop("y"), y + 1) if np.ndim(given["y"]) == 0 else given.pop("y")
    with pytest.raises(ValueError, match=sentence):
        kind(**options).fit(X, y, **given)


@pytest.mark.parametrize("ask", ["predict_uncertainty", "compress"])
def test_what_needs_the_squared_loss_is_refused(ask) -> None:
    X, _, y = rows(60, 14)
    model = KernelBoostingRegressor(loss="poisson", **QUICK).fit(X, y)
    with pytest.raises(ValueError, match="loss"):
        mercer.compress(model, X, y) if ask == "compress" else model.predict_uncertainty(X)


@pytest.mark.parametrize("loss", [Poisson(), Gamma(), Tweedie(1.0), Tweedie(1.3), Tweedie(2.0)], ids=repr)
def test_losses_are_half_the_deviances_of_scikit_learn(loss) -> None:
    rng = np.random.default_rng(0)
    y, f = rng.gamma(2.0, 1.0, 50), rng.normal(size=50)
    value = loss.value(torch.as_tensor(y), torch.as_tensor(f)).numpy()
    want = [mean_tweedie_deviance([a], [b], power=loss.variance_power()) / 2 for a, b in zip(y, np.exp(f), strict=True)]
    np.testing.assert_allclose(value, want, rtol=1e-9, atol=1e-12)

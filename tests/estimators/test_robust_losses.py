"""Huber's loss and the absolute error: gross errors in y, scikit-learn's objective, and the median."""

from functools import cache

import numpy as np
import pytest
from sklearn.linear_model import HuberRegressor

from mercer import GreedyKernelRegressor, KernelBoostingRegressor, load
from mercer.kernels import Bias, Linear, Matern52, Sum
from mercer.losses import Absolute, Huber, Pinball

pytestmark = pytest.mark.usefixtures("short_selections")


def rows(n: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Inputs, a smooth function of them, and its values with noise."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    f = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2]
    return X, f, f + 0.1 * rng.normal(size=n)


def with_gross_errors(y: np.ndarray, seed: int) -> np.ndarray:
    """One target in twenty moved by a hundred noise deviations and more."""
    rng = np.random.default_rng(seed)
    bad, index = y.copy(), rng.choice(len(y), len(y) // 20, replace=False)
    bad[index] += rng.choice([-1, 1], len(index)) * rng.uniform(20, 100, len(index))
    return bad


@cache
def error_of_a_fit(loss: str, spoiled: bool) -> float:
    """Error on 1000 new rows of a fit to 300, made once for both robust losses."""
    X, f, y = rows(1300, 0)
    targets = with_gross_errors(y[:300], 0) if spoiled else y[:300]
    model = KernelBoostingRegressor(loss=loss, random_state=0).fit(X[:300], targets)
    return float(np.sqrt(np.mean((model.predict(X[300:]) - f[300:]) ** 2)))


@pytest.mark.filterwarnings("ignore:y holds")
@pytest.mark.parametrize("loss", ["huber", "absolute"])
def test_gross_errors_hardly_change_a_fit_by_a_robust_loss(loss) -> None:
    robust = error_of_a_fit(loss, spoiled=True)
    assert robust < 1.5 * error_of_a_fit("squared", spoiled=False)
    assert error_of_a_fit("squared", spoiled=True) > 10 * robust


def test_kernels_are_selected_as_by_squared_error_where_no_target_is_a_gross_error() -> None:
    X, _, y = rows(300, 0)
    robust, squared = (KernelBoostingRegressor(loss=loss, random_state=0).fit(X, y) for loss in ("huber", "squared"))
    assert {type(part.kernel) for part in robust.expansions_} <= {type(part.kernel) for part in squared.expansions_}


def test_gross_errors_do_not_hide_rounding_of_predictions() -> None:
    """500 weights of up to 1/λ would lose the first digit of predictions in single precision."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 2))
    y = np.sin(X[:, 0]) + 0.02 * rng.normal(size=500)
    y[::20] += 50
    settings = {"kernel": Matern52(2.0), "regularization": 1e-5, "loss": "absolute", "random_state": 0}
    found, precise = (KernelBoostingRegressor(**settings, dtype=dtype).fit(X, y) for dtype in ("auto", "float64"))
    assert np.abs(found.predict(X[:200]) - precise.predict(X[:200])).max() < 0.01


def test_a_linear_kernel_reaches_the_objective_of_scikit_learn() -> None:
    """With its scale σ, HuberRegressor minimises Σ H(r) + ασ/2 |β|² for residuals r and δ = εσ."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 3))
    y = X @ [1.0, -2.0, 0.5] + 3 + 0.3 * rng.standard_t(2, size=80)
    alpha, epsilon = 2.0, 1.35
    theirs = HuberRegressor(epsilon=epsilon, alpha=alpha, tol=1e-10, max_iter=10_000).fit(X, y)
    delta, lam = epsilon * theirs.scale_, alpha * theirs.scale_
    kernel = Sum(Linear(), Bias(1e4))
    unit = KernelBoostingRegressor(kernel=kernel, loss="huber", regularization=lam, scale_inputs=False).fit(X, y)
    ours = KernelBoostingRegressor(
        kernel=kernel, loss=Huber(delta / unit.targets_.scale), regularization=lam, scale_inputs=False
    ).fit(X, y)
    design = np.column_stack([X, np.ones(80)])
    found = np.linalg.lstsq(design, ours.predict(X), rcond=None)[0]

    def objective(coef: np.ndarray) -> float:
        r = np.abs(y - design @ coef)
        near = np.minimum(r, delta)
        return float((near * (r - near / 2)).sum() + lam / 2 * coef[:3] @ coef[:3])

    least = objective(np.append(theirs.coef_, theirs.intercept_))
    assert least * (1 - 1e-6) <= objective(found) <= least * (1 + 1e-3)  # Newton steps end at 1e-5 a row


def test_the_absolute_error_is_twice_the_pinball_loss_of_the_median() -> None:
    torch = pytest.importorskip("torch")
    y, f = torch.randn(50, 2, dtype=torch.float64), torch.randn(50, 2, dtype=torch.float64)
    np.testing.assert_allclose(Absolute().value(y, f), 2 * Pinball(0.5).value(y, f), rtol=1e-7, atol=1e-7)
    np.testing.assert_allclose(Absolute().residual(y, f), 2 * Pinball(0.5).residual(y, f), rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("loss", [Huber(0.5), Absolute()])
def test_the_parabola_of_a_robust_loss_lies_above_it(loss) -> None:
    torch = pytest.importorskip("torch")
    generator = torch.Generator().manual_seed(0)
    y, f, u = torch.randn(3, 500, 1, dtype=torch.float64, generator=generator)
    above = loss.value(y, f) - loss.residual(y, f) * u + 0.5 * u * loss.bent(y, f, u)
    assert bool((loss.value(y, f + u) <= above + 1e-12).all())


@pytest.mark.usefixtures("two_folds")
@pytest.mark.parametrize(("kind", "loss"), [(KernelBoostingRegressor, "huber"), (GreedyKernelRegressor, "absolute")])
def test_robust_fits_have_intervals_and_files(loss, kind, tmp_path) -> None:
    X, _, y = rows(600, 1)
    options = {"n_basis": 15, "kernel": Matern52(2.0)} if kind is GreedyKernelRegressor else {}
    model = kind(loss=loss, random_state=0, **options).fit(X[:200], y[:200])
    low, high = model.predict_interval(X[200:], 0.9).T
    if loss == "huber":  # docs/explain.md has the coverage of the other
        assert 0.85 < np.mean((low <= y[200:]) & (y[200:] <= high)) < 0.97
    model.save(tmp_path / "model.mercer")
    np.testing.assert_array_equal(load(tmp_path / "model.mercer").predict(X), model.predict(X))


@pytest.mark.parametrize("delta", [0.0, -1, np.inf, np.nan, "wide"])
def test_a_bad_delta_gets_a_sentence(delta) -> None:
    X, _, y = rows(40, 2)
    with pytest.raises(ValueError, match="delta must be a positive number"):
        KernelBoostingRegressor(loss=Huber(delta)).fit(X, y)

"""Kernel ridge by guided steps against the dense solution, with all rows and with each fold left out."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mercer import KernelBoostingRegressor
from mercer.data import TensorRows
from mercer.engine import make_plan
from mercer.forward.solve import exact, guided
from mercer.forward.solve.guided import folds_in_steps, ridge_by_steps, single_steps
from mercer.kernels import Gaussian, Laplacian, Matern12


def table(n, p, seed):
    rng = np.random.default_rng(seed)
    X = torch.as_tensor(rng.normal(size=(n, 3)))
    y = torch.as_tensor(rng.normal(size=(n, p))) + X[:, :1].sin()
    return X, y, torch.as_tensor(rng.uniform(0.5, 2.0, n))


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    """Tables of some hundred rows may take as many steps as ten thousand rows."""
    monkeypatch.setattr(guided, "ROWS_A_STEP", 0.5)
    monkeypatch.setattr(guided, "STEPS_A_ROOT", 0)


@given(
    n=st.integers(40, 120),
    p=st.integers(1, 3),
    folds=st.integers(0, 3),
    kernel=st.sampled_from([Gaussian(1.0), Matern12(2.0), Laplacian(2.0)]),
    lam=st.sampled_from([1.0, 1e-2, 1e-4]),
    seed=st.integers(0, 10_000),
)
def test_steps_lead_to_kernel_ridge_and_to_what_other_rows_predict(n, p, folds, kernel, lam, seed):
    X, y, weight = table(n, p, seed)
    K, ridge = kernel(X, X), lam / weight
    kept = K.float() if folds and single_steps(n, float(ridge.min())) else K.clone()
    found = ridge_by_steps(kept, ridge, y, folds, K.__getitem__)
    assert found is not None
    a, others = found
    seen = others.isfinite().all(1)
    wrong = ((others - y)[seen].square().mean(0) / y.square().mean(0)).sqrt() if folds else torch.zeros(1)
    # steps end by the error of the folds at their coarse end, which differs from the last one by the coarse bound
    tol = max(guided.SHARE * (float(wrong.min()) + 10 * guided.COARSE), guided.TOLERANCE) if folds else guided.TOLERANCE
    # K(K + D)⁻¹ has norm one at most where weights are equal, √4 for weights within a factor of four
    whole = torch.linalg.solve(K + ridge.diag(), y)
    rounding = float((ridge[:, None] * whole).norm(dim=0).max()) if folds else 0.0
    bound = 4 * tol * float(y.norm(dim=0).max()) + rounding
    assert float((K @ (a - whole)).norm(dim=0).max()) <= bound
    assert int(seen.sum()) == folds * int(guided.FOLD_SHARE * n)
    spaced = torch.linspace(0, n - 1, int(seen.sum())).long()
    for fold in range(folds):
        out = spaced[fold::folds]
        rest = torch.ones(n, dtype=torch.bool)
        rest[out] = False
        weights = torch.linalg.solve(K[rest][:, rest] + ridge[rest].diag(), y[rest])
        slack = float((K[out][:, rest] @ torch.linalg.inv(K[rest][:, rest] + ridge[rest].diag())).norm())
        assert float((others[out] - K[out][:, rest] @ weights).abs().max()) <= (1 + slack) * bound


def test_steps_that_do_not_end_are_given_up(monkeypatch):
    X, y, weight = table(200, 1, 0)
    monkeypatch.setattr(guided, "GUIDES", 3)
    monkeypatch.setattr(guided, "ROWS_A_STEP", 100)
    K = Matern12(0.3)(X, X)
    assert ridge_by_steps(K, 1e-6 / weight, y, 1, K.__getitem__) is None


def test_no_row_guides_that_a_fold_leaves_out(monkeypatch):
    """What a row guides is exact at that row, and nowhere else: one that a fold leaves out doubled its steps."""
    X, _, weight = table(300, 1, 0)
    K, kept = Matern12(2.0)(X, X), torch.ones(300, 3, dtype=torch.float64)
    for fold in range(2):
        kept[fold::30, 1 + fold] = 0.0
    monkeypatch.setattr(guided, "GUIDES", 40)
    left = K.diagonal() - guided.Guide.of(K.__getitem__, K.diagonal(), 0.1 / weight, kept).B.square().sum(1)
    assert int((left < 1e-10).sum()) == 40
    assert bool((left[(kept == 0).any(1)] > 1e-10).all())


def test_no_steps_begin_where_they_would_be_too_many(monkeypatch):
    X, y, weight = table(200, 1, 0)
    monkeypatch.setattr(guided, "GUIDES", 3)
    monkeypatch.setattr(guided, "STEPS_A_ROOT", 6)
    monkeypatch.setattr(guided, "conjugate_gradients", None)
    K = Matern12(0.3)(X, X)
    assert ridge_by_steps(K, 1e-6 / weight, y, 1, K.__getitem__) is None


def test_more_outputs_leave_fewer_folds_and_then_a_factor():
    assert [folds_in_steps(6000, p, True) for p in (1, 2, 5, 6)] == [3, 3, 1, None]
    assert folds_in_steps(guided.FEWEST_ROWS - 1, 1, False) is None


def test_a_factor_after_steps_that_did_not_end_leaves_the_same_rows_out(monkeypatch):
    """Members of one average are put together row by row, whichever way they went."""
    X, y, weight = table(90, 1, 0)
    problem = SimpleNamespace(
        rows=TensorRows(X), y=y, weight=weight, lam=0.1, kernel=Matern12(2.0), plan=make_plan(90, "cpu", "float64")
    )
    monkeypatch.setattr(guided, "FEWEST_ROWS", 50)
    monkeypatch.setattr(guided, "ROWS_A_COLUMN", 20)
    solve = lambda: exact.exact_ridge(problem, torch.arange(90), leaves_out=True)  # noqa: E731
    by_steps = solve()
    monkeypatch.setattr(exact, "ridge_by_steps", lambda *_: None)
    by_factor = solve()
    assert torch.equal(by_steps[1].isfinite(), by_factor[1].isfinite())
    assert int(by_factor[1].isfinite().sum()) == 3 * 9


def test_a_fit_by_steps_predicts_as_the_fit_by_a_factor(monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 4))
    y = np.sin(X[:, 0]) + X[:, 1] + 0.1 * rng.normal(size=400)
    fit = lambda: KernelBoostingRegressor(kernel=Matern12(3.0), regularization=0.1, random_state=0).fit(X, y)  # noqa: E731
    by_factor = fit()
    monkeypatch.setattr(guided, "FEWEST_ROWS", 100)
    monkeypatch.setattr(guided, "ROWS_A_COLUMN", 50)
    by_steps = fit()
    X_new = rng.normal(size=(200, 4))
    # a hundredth of the error in the mean over rows; a factor of ten for single ones
    error = np.sqrt(np.mean((by_factor.predict(X_new) - np.sin(X_new[:, 0]) - X_new[:, 1]) ** 2))
    np.testing.assert_allclose(
        by_steps.predict(X_new), by_factor.predict(X_new), atol=10 * guided.SHARE * (error + 0.1)
    )
    widths = [np.ptp(model.predict_interval(X_new, coverage=0.9), axis=-1).mean() for model in (by_steps, by_factor)]
    assert widths[0] == pytest.approx(
        widths[1], rel=0.35
    )  # 120 rows left out instead of 400: a tenth of spread, thrice

"""Kernel ridge by conjugate gradients against the dense solution, with all rows and with each fold left out."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st
from oracles import assert_close

from mercer import KernelBoostingRegressor
from mercer.data import TensorRows
from mercer.engine import make_plan
from mercer.engine.plan import EASIEST, READ, Plan
from mercer.forward.solve import exact
from mercer.forward.solve import iterative_ridge as iterative
from mercer.forward.solve.iterative_ridge import (
    NystroemPreconditioner,
    float32_storage_suffices,
    iterative_folds,
    iterative_ridge,
    neighbour_blocks,
    nystroem_factor,
)
from mercer.kernels import Gaussian, Laplacian, Linear, Matern12


def table(n, p, seed):
    rng = np.random.default_rng(seed)
    X = torch.as_tensor(rng.normal(size=(n, 3)))
    y = torch.as_tensor(rng.normal(size=(n, p))) + X[:, :1].sin()
    return X, y, torch.as_tensor(rng.uniform(0.5, 2.0, n))


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    """Tables of some hundred rows may take as many steps as ten thousand rows, and have as many blocks."""
    monkeypatch.setattr(iterative, "ROWS_PER_STEP", 0.5)
    monkeypatch.setattr(iterative, "FIRST_SHARE", 1)
    monkeypatch.setattr(iterative, "NYSTROEM_PER_ROOT", 2)
    monkeypatch.setattr(iterative, "BLOCK_ROWS", 20)


@examples(max_examples=40)
@given(
    n=st.integers(40, 120),
    p=st.integers(1, 3),
    folds=st.integers(1, 3),
    kernel=st.sampled_from([Gaussian(1.0), Matern12(2.0), Laplacian(2.0)]),
    lam=st.sampled_from([1.0, 1e-2, 1e-4]),
    seed=st.integers(0, 10_000),
)
def test_steps_lead_to_kernel_ridge_and_to_what_other_rows_predict(n, p, folds, kernel, lam, seed):
    X, y, weight = table(n, p, seed)
    K, ridge = kernel(X, X), lam / weight
    kept = K.float() if float32_storage_suffices(n, float(ridge.min())) else K.clone()
    found = iterative_ridge(kept, ridge, y, folds, K.__getitem__)
    assert found is not None
    a, others = found
    seen = others.isfinite().all(1)
    wrong = ((others - y)[seen].square().mean(0) / y.square().mean(0)).sqrt()
    # steps end by the error of the folds at their coarse end, which differs from the last one by the coarse bound
    tol = max(iterative.SHARE * (float(wrong.min()) + 10 * iterative.COARSE), iterative.TOLERANCE)
    # K(K + D)⁻¹ has norm one at most where weights are equal, √4 for weights within a factor of four
    whole = torch.linalg.solve(K + ridge.diag(), y)
    rounding = float((ridge[:, None] * whole).norm(dim=0).max())
    bound = 4 * tol * float(y.norm(dim=0).max()) + rounding
    assert float((K @ (a - whole)).norm(dim=0).max()) <= bound
    assert int(seen.sum()) == folds * int(iterative.FOLD_SHARE * n)
    spaced = torch.linspace(0, n - 1, int(seen.sum())).long()
    for fold in range(folds):
        out = spaced[fold::folds]
        rest = torch.ones(n, dtype=torch.bool)
        rest[out] = False
        weights = torch.linalg.solve(K[rest][:, rest] + ridge[rest].diag(), y[rest])
        slack = float((K[out][:, rest] @ torch.linalg.inv(K[rest][:, rest] + ridge[rest].diag())).norm())
        assert float((others[out] - K[out][:, rest] @ weights).abs().max()) <= (1 + slack) * bound


@pytest.mark.parametrize(("rows_a_step", "begun"), [(100, False), (2, True)])
def test_steps_that_do_not_end_are_given_up(monkeypatch, rows_a_step, begun):
    X, y, weight = table(200, 1, 0)
    taken = []
    steps = iterative.conjugate_gradients
    monkeypatch.setattr(iterative, "NYSTROEM_PER_ROOT", 0.2)
    monkeypatch.setattr(iterative, "BLOCK_ROWS", 2)
    monkeypatch.setattr(iterative, "ROWS_PER_STEP", rows_a_step)
    monkeypatch.setattr(iterative, "FIRST_SHARE", 1 / 3)
    monkeypatch.setattr(iterative, "conjugate_gradients", lambda *a, **k: taken.append(steps(*a, **k)) or taken[0])
    K = Matern12(30.0)(X, X)
    assert iterative_ridge(K, 1e-6 / weight, y, 1, K.__getitem__) is None
    # of a hundred steps a third show that it is hopeless
    assert taken[0].n_iter == (34 if begun else 1)


@examples(max_examples=40)
@given(
    n=st.integers(30, 90),
    size=st.integers(5, 90),
    sets=st.integers(1, 2),
    kernel=st.sampled_from([Matern12(2.0), Linear()]),
)
def test_a_preconditioner_is_the_inverse_of_its_matrix_with_and_without_rows(n, size, sets, kernel):
    """P = BBᵀ + the blocks of K + D − BBᵀ, made densely; without rows it is the inverse of what is left of P."""
    X, y, weight = table(n, 1 + sets, 0)
    K, ridge, outs = kernel(X, X), 0.1 / weight, [torch.arange(fold, n, 10) for fold in range(sets)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(iterative, "BLOCK_ROWS", size)
        found, blocks = NystroemPreconditioner.of(K, K.__getitem__, ridge, outs, 30), neighbour_blocks(K)
        assert sorted(blocks[blocks < n].tolist()) == list(range(n))
        assert blocks.shape[1] <= size
        assert bool(((blocks < n).sum(1) >= blocks.shape[1] - 1).all())
        rest = torch.ones(n, dtype=torch.bool)
        rest[torch.cat(outs)] = False
        B = nystroem_factor(K.__getitem__, rest.nonzero()[:, 0], 30)
    near = (blocks[:, :, None] == torch.arange(n)).any(1).double()
    P = B @ B.T + (K - B @ B.T + ridge.diag()) * (near.T @ near)
    for number, out in enumerate(outs, 1):
        y[out, number] = 0.0
    told = found.solve(y)
    for number, out in enumerate([torch.zeros(0, dtype=torch.long), *outs]):
        kept = torch.ones(n, dtype=torch.bool)
        kept[out] = False
        truth = torch.zeros(n, dtype=torch.float64)
        truth[kept] = torch.linalg.solve(P[kept][:, kept], y[kept, number])
        # the condition of P is below 1e4 here, and Woodbury's identity takes differences that are as large
        assert_close(told[:, number], truth, rtol=0, atol=1e-6 * float(truth.abs().max()))


def test_no_nystroem_row_is_left_out_by_a_fold():
    """The approximation is exact at its rows, and nowhere else: a row that a fold leaves out doubled its steps."""
    X, _, weight = table(300, 1, 0)
    K, asked = Matern12(2.0)(X, X), []
    outs = [torch.arange(fold, 300, 30) for fold in range(2)]
    NystroemPreconditioner.of(K, lambda rows: asked.append(rows) or K[rows], 0.1 / weight, outs, 30)
    assert len(asked[0]) == 30
    assert not set(asked[0].tolist()) & set(torch.cat(outs).tolist())


def test_many_outputs_take_the_folds_that_hold_the_rows_wanted_and_then_a_factor():
    assert [iterative_folds(6000, p) for p in (1, 2, 5, 6)] == [3, 3, 3, None]
    assert [iterative_folds(17_000, p) for p in (1, 2, 28, 29)] == [3, 1, 1, None]
    assert iterative_folds(iterative.MIN_ROWS - 1, 1) is None


def test_a_factor_after_steps_that_did_not_end_leaves_the_same_rows_out(monkeypatch):
    """Members of one average are put together row by row, whichever way they went."""
    X, y, weight = table(90, 1, 0)
    problem = SimpleNamespace(
        rows=TensorRows(X), y=y, weight=weight, lam=0.1, kernel=Matern12(2.0), plan=make_plan(90, "cpu", "float64")
    )
    monkeypatch.setattr(iterative, "MIN_ROWS", 50)
    monkeypatch.setattr(iterative, "ROWS_PER_COLUMN", 20)
    solve = lambda: exact.exact_ridge(problem, torch.arange(90))  # noqa: E731
    by_steps = solve()
    monkeypatch.setattr(exact, "iterative_ridge", lambda *_: None)
    by_factor = solve()
    assert torch.equal(by_steps[1].isfinite(), by_factor[1].isfinite())
    assert int(by_factor[1].isfinite().sum()) == 3 * 9


def test_a_fit_by_steps_predicts_as_the_fit_by_a_factor(monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 4))
    y = np.sin(X[:, 0]) + X[:, 1] + 0.1 * rng.normal(size=400)
    fit = lambda: KernelBoostingRegressor(kernel=Matern12(3.0), regularization=0.1, random_state=0).fit(X, y)  # noqa: E731
    by_factor = fit()
    monkeypatch.setattr(iterative, "MIN_ROWS", 100)
    monkeypatch.setattr(iterative, "ROWS_PER_COLUMN", 50)
    by_steps = fit()
    X_new = rng.normal(size=(200, 4))
    # a hundredth of the error in the mean over rows; a factor of ten for single ones
    error = np.sqrt(np.mean((by_factor.predict(X_new) - np.sin(X_new[:, 0]) - X_new[:, 1]) ** 2))
    np.testing.assert_allclose(
        by_steps.predict(X_new), by_factor.predict(X_new), atol=10 * iterative.SHARE * (error + 0.1)
    )
    widths = [np.ptp(model.predict_interval(X_new, coverage=0.9), axis=-1).mean() for model in (by_steps, by_factor)]
    assert widths[0] == pytest.approx(
        widths[1], rel=0.35
    )  # 120 rows left out instead of 400: a tenth of spread, thrice


def test_rows_of_an_exact_solution_grow_with_the_penalty_and_end_with_the_memory():
    plan = make_plan(1000, device="cpu", memory_limit="64GB")
    rows = [plan.exact_rows(penalty) for penalty in (0.0, 1e-8, 1e-4, 1e-2, 1.0)]
    assert rows[0] == rows[1] == Plan.exact_limits[0]
    assert rows[1] < rows[2] < rows[3] <= rows[4] == EASIEST * Plan.exact_limits[0]
    little = make_plan(1000, device="cpu", memory_limit="1GB")
    assert READ * 4 * little.exact_rows(1.0) ** 2 <= 1e9


@pytest.mark.usefixtures("two_folds", "short_selections")
@pytest.mark.parametrize(("noise", "exact_at_last"), [(0.5, True), (0.0, False)])
def test_rows_that_were_held_out_are_learned_from_where_the_penalty_allows_an_exact_solution(
    monkeypatch, settings, noise, exact_at_last
):
    """Four hundred rows are too many whatever the penalty, and few enough for that of targets with noise."""
    settings(smooth_loss=0.0)  # no search for smooth kernels
    monkeypatch.setattr(Plan, "exact_limits", (150, 150))
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (400, 2))
    y = np.sin(X[:, 0]) + X[:, 1] + noise * rng.normal(size=400)
    model = KernelBoostingRegressor(random_state=0, metric=None, n_kernels=1).fit(X, y)
    exactly = "all rows are basis vectors" in model.stop_reason_
    assert exactly == exact_at_last
    assert (len(model.basis_indices_) == 400) == exact_at_last
    held = KernelBoostingRegressor(random_state=0, metric=None, n_kernels=1, validation_fraction=0.2).fit(X, y)
    assert len(held.basis_indices_) <= 320  # asked to hold rows out, it does


def test_steps_that_run_out_of_time_give_the_iterate_they_have_reached():
    """After k steps it is the k-th iterate of conjugate gradients, whose energy norm of the error only falls."""
    X, y, ridge = table(200, 1, 0)
    K = Gaussian(1.0)(X, X)
    G = K + torch.diag(ridge)
    exact_solution = torch.linalg.solve(G, y)
    errors = []
    for allowed in (1, 3, 8):
        calls = iter(range(1000))
        found = iterative_ridge(K, ridge, y, 1, lambda rows: K[rows], lambda: next(calls) + 1 >= allowed)  # noqa: B023
        assert found is not None
        left = found[0] - exact_solution
        errors.append(float((left * (G @ left)).sum()))
    assert errors[0] > errors[1] > errors[2]

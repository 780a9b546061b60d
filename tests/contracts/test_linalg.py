"""What `mercer.linalg` promises, against dense float64 oracles, over condition numbers and scales."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from mercer.linalg import (
    GrowingCholesky,
    GrowingQR,
    TiledCholesky,
    cholesky,
    conjugate_gradients,
    minimize_newton,
    refined_solve,
    whitening,
)
from mercer.linalg.cholesky import EPS

CONDITIONS = [1e0, 1e4, 1e8, 1e12, 1e14]
M = 24
few = settings(max_examples=20, deadline=None, derandomize=True)
sizes = st.integers(1, 40)
scales = st.floats(-8, 8).map(lambda e: 10.0**e)
seeds = st.integers(0, 2**20)
over_conditions = pytest.mark.parametrize("cond", CONDITIONS, ids="cond={:g}".format)
over_dtypes = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)


def rotation(n: int, m: int, rng: np.random.Generator) -> np.ndarray:
    return np.linalg.qr(rng.standard_normal((n, m)))[0]


def spd(m: int, cond: float = 10.0, scale: float = 1.0, seed: int = 0) -> Tensor:
    """A symmetric matrix with eigenvalues spread evenly in the logarithm from scale/cond to scale."""
    U = rotation(m, m, np.random.default_rng(seed))
    A = (U * (scale * np.logspace(0, -np.log10(cond), m))) @ U.T
    return torch.from_numpy((A + A.T) / 2)


def tall(n: int, m: int, cond: float = 10.0, scale: float = 1.0, seed: int = 0) -> Tensor:
    """An n×m matrix with singular values from scale/cond to scale."""
    rng = np.random.default_rng(seed)
    values = scale * np.logspace(0, -np.log10(cond), m)
    return torch.from_numpy((rotation(n, m, rng) * values) @ rotation(m, m, rng).T)


def normal(*shape: int, seed: int = 1) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape))


def norm(A: Tensor) -> float:
    return float(torch.linalg.norm(A))


def factor_error(A: Tensor) -> float:
    """Cholesky's backward error |A − LLᵀ|_ij ≤ (m + 1) eps √(a_ii a_jj), summed in the Frobenius norm."""
    return (len(A) + 1) * EPS * float(A.diagonal().sum())


# --- cholesky ---------------------------------------------------------------------------------------


@over_conditions
def test_the_factor_reproduces_the_matrix_and_its_jitter(cond):
    A = spd(M, cond)
    L, jitter = cholesky(A)
    jittered = A + jitter * A.diagonal().mean() * torch.eye(M)
    assert norm(L @ L.T - jittered) <= factor_error(A)
    assert jitter <= 1e-14


@given(m=sizes, rank=sizes, scale=scales, seed=seeds)
@few
def test_a_rank_deficient_matrix_of_any_scale_is_factored(m, rank, scale, seed):
    half = scale * normal(m, min(m, rank), seed=seed)
    A = half @ half.T
    L, jitter = cholesky(A)
    assert torch.isfinite(L).all()
    assert jitter <= m * m * EPS * 10  # rounding turns eigenvalues negative by m eps tr(A) at most, and a rung
    assert norm(L @ L.T - A) <= factor_error(A) + jitter * float(A.diagonal().mean()) * m**0.5


def test_zeros_are_factored_with_an_absolute_jitter():
    L, jitter = cholesky(torch.zeros(3, 3))
    assert jitter == 1e-15
    assert torch.allclose(L, jitter**0.5 * torch.eye(3, dtype=torch.float64))


@pytest.mark.parametrize(
    ("A", "words"),
    [
        (torch.tensor([[1.0, 0.0], [0.0, float("nan")]]), "NaN or infinite"),
        (torch.tensor([[float("inf"), 0.0], [0.0, 1.0]]), "NaN or infinite"),
        (torch.diag(torch.tensor([1.0, -0.5])), "negative value -0.5 on its diagonal"),
        (-torch.eye(2), "negative value -1 on its diagonal"),
        (torch.tensor([[1.0, 2.0], [2.0, 1.0]]), "not positive semi-definite"),
        (torch.ones(2, 3), r"must be square, got \(2, 3\)"),
    ],
    ids=["nan", "inf", "negative", "all negative", "indefinite", "oblong"],
)
def test_a_matrix_without_a_factor_is_refused_in_a_sentence(A, words):
    with pytest.raises(ValueError, match=words):
        cholesky(A)


def test_gradients_flow_through_the_factor():
    A = spd(3).requires_grad_()
    assert torch.autograd.gradcheck(lambda A: cholesky((A + A.T) / 2)[0], A)


# --- GrowingCholesky --------------------------------------------------------------------------------


def grow(A: Tensor, cuts: list[int]) -> GrowingCholesky:
    grown = GrowingCholesky(capacity=1)
    for first, last in zip([0, *cuts], [*cuts, len(A)], strict=True):
        assert grown.append(A[first:last, :first], A[first:last, first:last])
    return grown


@over_conditions
def test_a_factor_grown_and_shrunk_is_the_factor_of_what_is_left(cond):
    A = spd(M, cond) + 1e-13 * torch.eye(M)  # away from the threshold of dependence, 4 M eps
    grown = grow(A, [1, 2, 5, 6, 20])
    assert norm(grown.factor @ grown.factor.T - A) <= factor_error(A)
    left = list(range(M))
    for j in (0, 22, 10, 5):
        grown.remove(j)
        del left[j]
    A = A[left][:, left]
    assert grown.size == M - 4
    assert torch.equal(grown.factor, grown.factor.tril())
    # A rotation adds a few eps of each row's norm: four removals, each at most one pass of M rotations.
    assert norm(grown.factor @ grown.factor.T - A) <= 5 * factor_error(A)
    assert (grown.factor.diagonal() > 0).all()


@given(m=st.integers(2, 40), scale=scales, seed=seeds, data=st.data())
@few
def test_growing_in_any_blocks_and_removing_any_row_solves_as_the_dense_matrix_does(m, scale, seed, data):
    A = spd(m, 100.0, scale, seed)
    cuts = sorted(data.draw(st.sets(st.integers(1, m - 1))))
    grown = grow(A, cuts)
    j = data.draw(st.integers(0, m - 1))
    grown.remove(j)
    left = [i for i in range(m) if i != j]
    b = normal(m - 1, 2, seed=seed)
    x = torch.linalg.solve(A[left][:, left], b)
    assert norm(grown.solve(b) - x) <= 100 * m * m * EPS * norm(x)  # condition number times m² eps
    assert torch.equal(grown.solve(b[:, 0]), grown.solve(b[:, :1])[:, 0])


@given(m=sizes, scale=scales, seed=seeds)
@few
def test_a_dependent_row_is_refused_and_leaves_the_factor_unharmed(m, scale, seed):
    half = scale * normal(m, m + 1, seed=seed)
    A = half @ half.T
    grown = grow(A, [])
    before = grown.factor.clone()
    weights = normal(m, seed=seed + 1)
    assert not grown.append(weights @ A, weights @ A @ weights)
    assert not grown.append(torch.stack([A[0], A[0]]), A[0, 0].expand(2, 2))
    assert torch.equal(grown.factor, before)


def test_a_matrix_of_rank_r_keeps_about_r_rows_and_never_a_nan():
    half = normal(30, 7)
    A = half @ half.T
    grown, kept = GrowingCholesky(), []
    for i in range(30):
        if grown.append(A[i, kept], A[i, i]):
            kept.append(i)
    # Rounding leaves every later row a remainder of a few eps of its square: it decides which of those are refused.
    assert kept[:7] == list(range(7))
    assert torch.isfinite(grown.factor).all()


def test_growing_factors_refuse_nan_and_absent_rows_in_a_sentence():
    with pytest.raises(ValueError, match="NaN or infinite"):
        GrowingCholesky().append([], float("nan"))
    with pytest.raises(ValueError, match="NaN or infinite"):
        GrowingQR(2).append(torch.tensor([1.0, float("inf")]))
    with pytest.raises(ValueError, match=r"must be of shape \(2, k\), got \(3, 1\)"):
        GrowingQR(2).append(torch.ones(3))
    with pytest.raises(ValueError, match="j must be between 0 and 0, got 1"):
        grow(torch.eye(1), []).remove(1)


# --- refined_solve ----------------------------------------------------------------------------------


@over_conditions
@pytest.mark.parametrize("n_rhs", [None, 1, 3])
def test_a_refined_solution_has_the_residual_of_a_float64_one(cond, n_rhs):
    A = spd(M, cond)
    b = normal(M, *([] if n_rhs is None else [n_rhs]))
    x = refined_solve(A, b)
    assert x.shape == b.shape
    # Forming the residual of the exact solution already rounds by up to about √M eps ‖A‖ ‖x‖.
    attainable = M**0.5 * EPS * norm(A) * torch.linalg.vector_norm(x, dim=0)
    wanted = torch.maximum(1e-12 * torch.linalg.vector_norm(b, dim=0), attainable)
    assert (torch.linalg.vector_norm(b - A @ x, dim=0) <= wanted).all()
    true = torch.linalg.solve(A, b)
    assert norm(x - true) <= max(1e-11, M * EPS) * cond * norm(true)


@given(m=sizes, scale=scales, seed=seeds)
@few
def test_refined_solutions_do_not_depend_on_scale(m, scale, seed):
    spread = torch.logspace(-4, 4, m, dtype=torch.float64)
    A = scale * spread[:, None] * spd(m, 100.0, seed=seed) * spread  # rows of very different size
    x = normal(m, 2, seed=seed) / spread[:, None]
    b = A @ x
    found = refined_solve(A, b / scale) * scale
    # The equilibrated matrix has a condition number of at most m · 100; the residual is 1e-12 of b.
    error = spread[:, None] * (found - x)
    assert norm(error) <= 1e-12 * 100 * m * norm(b) / float(scale * spread[0])


def test_a_zero_right_hand_side_and_a_singular_matrix_are_solved():
    assert torch.equal(refined_solve(spd(4), torch.zeros(4)), torch.zeros(4, dtype=torch.float64))
    A = torch.ones(3, 3)
    assert torch.allclose(A.double() @ refined_solve(A, torch.ones(3)), torch.ones(3, dtype=torch.float64))


# --- GrowingQR --------------------------------------------------------------------------------------


def check_factors(qr: GrowingQR, K: Tensor, slack: float = 1.0) -> None:
    """Gram-Schmidt done twice: Q orthonormal and K = QR, both to m eps of Q's precision, columnwise."""
    m, eps = qr.size, torch.finfo(qr.Q.dtype).eps
    Q = qr.Q.double()
    assert K.shape[1] == m
    assert norm(Q.T @ Q - torch.eye(m)) <= slack * m * eps
    assert norm((Q @ qr.R - K) / torch.linalg.vector_norm(K, dim=0)) <= slack * m * eps
    assert torch.equal(qr.R, qr.R.triu())
    assert (qr.R.diagonal() > 0).all()


@over_conditions
@over_dtypes
@pytest.mark.parametrize("block", [1, 5, M])
def test_q_stays_orthonormal_whatever_the_condition_number(cond, dtype, block):
    K = tall(200, M, cond)
    qr = GrowingQR(200, capacity=2, dtype=dtype)
    rconds = torch.cat([qr.extend(k) for k in K.split(block, 1)])
    kept = rconds >= qr.min_rcond
    check_factors(qr, K[:, kept])
    if 1 / cond > 100 * qr.min_rcond:  # well away from the threshold nothing is refused
        assert kept.all()


@over_conditions
@over_dtypes
def test_removing_columns_gives_the_factors_of_those_left(cond, dtype):
    K = tall(200, M, cond)
    qr = GrowingQR(200, dtype=dtype)
    left = torch.arange(M)[qr.extend(K) >= qr.min_rcond].tolist()
    for j in (0, len(left) - 2, 3, 0):
        qr.remove(j)
        del left[j]
    check_factors(qr, K[:, left], slack=5.0)  # four downdates, each a product with a rounded rotation


def test_a_removal_over_several_products_of_rotations_agrees_with_dense_qr():
    K = tall(300, 100)
    qr = GrowingQR(300)
    qr.extend(K)
    qr.remove(2)
    K = K[:, [0, 1, *range(3, 100)]]
    check_factors(qr, K)
    R = torch.linalg.qr(K).R
    R = R * R.diagonal().sign()[:, None]
    assert norm(qr.R - R) <= 10 * 100 * EPS * norm(R)  # condition number times m eps
    qr.append(normal(300))
    assert qr.size == 100


@given(rho=st.floats(-7, 0).map(lambda e: 10.0**e), m=st.integers(1, 20), scale=scales, seed=seeds)
@few
def test_the_condition_estimate_is_the_ratio_of_singular_values(rho, m, scale, seed):
    Q = torch.from_numpy(rotation(50, m + 1, np.random.default_rng(seed)))
    qr = GrowingQR(50)
    qr.extend(scale * Q[:, :m])
    k = (1 - rho**2) ** 0.5 * Q[:, 0] + rho * Q[:, m]
    values = torch.linalg.svdvals(torch.cat([qr.Q, k[:, None] / norm(k)], 1))
    # The oracle knows its smallest singular value, at least rho/2, to about eps.
    assert qr.append(scale * k) == pytest.approx(float(values[-1] / values[0]), rel=100 * EPS / rho + 1e-12)


@given(m=sizes, scale=scales, seed=seeds, dtype=st.sampled_from([torch.float32, torch.float64]))
@few
def test_a_dependent_or_zero_column_is_refused(m, scale, seed, dtype):
    K = scale * normal(60, m, seed=seed)
    qr = GrowingQR(60, dtype=dtype)
    qr.extend(K)
    assert qr.append(K.to(dtype) @ normal(m, seed=seed + 1).to(dtype)) < qr.min_rcond
    assert qr.append(torch.zeros(60)) == 0.0
    assert qr.size == m


@given(m=sizes, scale=scales, seed=seeds)
@few
def test_qr_solves_least_squares(m, scale, seed):
    K, Y = tall(60, m, 100.0, scale, seed), normal(60, 2, seed=seed)
    qr = GrowingQR(60, capacity=1)
    qr.extend(K)
    X = torch.linalg.lstsq(K, Y, driver="gelsd").solution
    # Least squares: eps (cond ‖x‖ + cond² ‖r‖ / ‖K‖), with a factor m for the oracle and for us.
    bound = m * EPS * (100 * norm(X) + 1e4 * norm(Y) / norm(K))
    assert norm(qr.solve(Y) - X) <= bound
    assert torch.equal(qr.solve(Y[:, 0]), qr.solve(Y[:, :1])[:, 0])
    assert norm(qr.Q.T @ qr.residual(Y)) <= 60 * EPS * norm(Y)  # inner products of N = 60 terms
    # The oracle's own residual is backward stable only: N eps of the terms it cancels.
    assert norm(Y - K @ X - qr.residual(Y)) <= 60 * EPS * (norm(Y) + norm(K) * norm(X))


# --- whitening --------------------------------------------------------------------------------------


@over_conditions
def test_the_whitened_kernel_matrix_is_the_identity(cond):
    Q = spd(M, cond)
    white = whitening(Q)
    B = white.map
    # Entries of Q are rounded by eps of the largest eigenvalue, which B magnifies by its squared norm.
    kept_cond = float(B.square().sum())
    assert norm(B.T @ Q @ B - torch.eye(white.rank)) <= M**0.5 * EPS * kept_cond
    assert white.rank == M or cond > 1 / (M * EPS)
    if cond <= 1e8:
        assert torch.equal(B, B.triu())


@over_conditions
@over_dtypes
def test_whitening_loses_no_more_of_the_kernel_matrix_than_its_tolerance(cond, dtype):
    Q = spd(M, cond)
    white = whitening(Q, dtype=dtype)
    tol = max(torch.finfo(dtype).eps, M * EPS)
    rows = white.apply(Q.to(dtype))
    assert rows.dtype == dtype
    assert rows.shape == (M, white.rank)
    # QB(QB)ᵀ is Q without the eigenvalues dropped. Rounding the tile by eps makes an error of eps ‖B‖ in a
    # whitened row, whose length is at most 1; ‖B‖ is at most √(M/tol) and M rows add as √M.
    eps = torch.finfo(dtype).eps
    error = norm((rows.double() @ rows.double().T) - Q)
    assert error <= M**0.5 * tol + 2 * M**0.5 * eps * norm(white.map)


@given(m=sizes, rank=sizes, scale=scales, seed=seeds)
@few
def test_whitening_finds_the_rank_at_any_scale(m, rank, scale, seed):
    half = normal(m, min(m, rank), seed=seed)
    white = whitening(scale * (half @ half.T), tol=1e-10)
    true_rank = int((torch.linalg.svdvals(half) > 1e-5 * torch.linalg.svdvals(half)[0]).sum())
    assert white.rank == true_rank
    w = normal(white.rank, 2)
    K = scale * half @ half.T
    assert torch.allclose(K @ white.back(w), white.apply(K) @ w, atol=1e-9 * scale**0.5, rtol=1e-7)


def test_a_kernel_matrix_without_positive_eigenvalues_is_refused():
    with pytest.raises(ValueError, match="must have a positive eigenvalue, the largest is 0"):
        whitening(torch.zeros(2, 2))
    with pytest.raises(ValueError, match="NaN or infinite"):
        whitening(torch.full((2, 2), float("nan")))


# --- conjugate gradients ----------------------------------------------------------------------------


@over_conditions
def test_cg_with_a_float64_factor_as_preconditioner_converges_at_once(cond):
    A, b = spd(M, cond), normal(M, 3)
    L, _ = cholesky(A)
    found = conjugate_gradients(lambda p: A @ p, b, precondition=lambda r: torch.cholesky_solve(r, L))
    residual = torch.linalg.vector_norm(b - A @ found.x, dim=0) / torch.linalg.vector_norm(b, dim=0)
    assert found.n_iter <= (2 if cond < 1e12 else 12)
    # What is attainable is eps times the condition number; beyond it cg says that it stopped for rounding.
    assert (residual <= max(1e-7, M * EPS * cond)).all()
    assert torch.allclose(found.residual, residual, atol=M * EPS * cond)
    assert ("fell to" in found.stop_reason) == bool((found.residual <= 1e-7).all())


@given(m=sizes, scale=scales, seed=seeds, dtype=st.sampled_from([torch.float32, torch.float64]))
@few
def test_cg_solves_several_columns_of_different_scale(m, scale, seed, dtype):
    A = spd(m, 10.0, scale, seed).to(dtype)
    b = (normal(m, 3, seed=seed) * torch.tensor([1e-8, 1.0, 1e8])).to(dtype)
    b[:, 1] = 0.0
    found = conjugate_gradients(lambda p: A @ p, b, x0=torch.ones(m, 3), tol=1e-5, max_iter=200)
    assert "fell to 1e-05" in found.stop_reason
    assert (found.residual <= 1e-5).all()
    assert torch.equal(found.x[:, 1], torch.zeros(m, dtype=dtype))
    X = torch.linalg.solve(A.double(), b.double())
    error = torch.linalg.vector_norm(found.x - X, dim=0)
    assert (error <= 10 * 2e-5 * torch.linalg.vector_norm(X, dim=0)).all()  # condition number times tol


def test_cg_ends_in_as_many_steps_as_there_are_distinct_eigenvalues():
    U = torch.from_numpy(rotation(M, M, np.random.default_rng(0)))
    A = U @ torch.diag(torch.tensor([1.0, 2.0, 5.0, 9.0], dtype=torch.float64).repeat(M // 4)) @ U.T
    found = conjugate_gradients(lambda p: A @ p, normal(M))
    assert found.n_iter == 4
    assert found.stop_reason == "the relative residual fell to 1e-07 or below after 4 steps"
    again = conjugate_gradients(lambda p: A @ p, normal(M), x0=found.x)
    assert again.n_iter == 0


def test_a_column_that_has_converged_rests():
    A = torch.diag(torch.arange(1.0, 21.0, dtype=torch.float64))
    b = torch.ones(20, 2, dtype=torch.float64)
    b[1:, 0] = 0.0  # an eigenvector: done after one step
    seen = []
    found = conjugate_gradients(lambda p: A @ p, b, tol=1e-12, callback=lambda n, x: seen.append(x[:, 0].clone()))
    assert torch.equal(found.x[:, 0], b[:, 0])
    assert all(torch.equal(x, seen[0]) for x in seen)
    assert found.n_iter == len(seen) > 5


def test_cg_says_why_it_stopped():
    A, b = spd(M, 1e8), normal(M)
    assert "after the 3 steps allowed" in conjugate_gradients(lambda p: A @ p, b, max_iter=3).stop_reason
    found = conjugate_gradients(lambda p: A @ p, b, callback=lambda n, _: n == 2)
    assert found.stop_reason.startswith("the callback asked to stop after 2 steps")
    found = conjugate_gradients(lambda p: -p, b)
    assert "not positive definite" in found.stop_reason
    assert torch.equal(found.x, torch.zeros_like(b))
    found = conjugate_gradients(lambda p: p * float("nan"), b)
    assert "not positive definite" in found.stop_reason
    found = conjugate_gradients(lambda p: spd(M, 100.0).float() @ p, b.float(), tol=1e-9, max_iter=1000)
    assert "rounding held" in found.stop_reason
    assert found.residual <= 100 * torch.finfo(torch.float32).eps  # condition number times eps


# --- Newton -----------------------------------------------------------------------------------------


@over_conditions
def test_newton_minimises_a_quadratic_in_one_step(cond):
    H, x_best = spd(M, cond), normal(M)

    def quadratic(x):
        return (x - x_best) @ H @ (x - x_best) / 2 + 1.0, H @ (x - x_best), H

    found = minimize_newton(quadratic, torch.zeros(M))
    assert found.n_iter == 1
    assert found.value == pytest.approx(1.0, abs=1e-10)  # the tolerance on the promised decrease


def logistic(seed: int, scale: float, lam: float, m: int):
    X = scale * normal(50, m, seed=seed)
    t = normal(50, seed=seed + 1).sign()

    def objective(w):
        margin = t * (X @ w)
        p = torch.sigmoid(-margin)
        value = torch.nn.functional.softplus(-margin).sum() + lam * w @ w / 2
        return value, lam * w - X.T @ (t * p), X.T @ ((p * (1 - p))[:, None] * X) + lam * torch.eye(m)

    return objective


@given(m=st.integers(1, 10), scale=scales, seed=seeds, start=st.floats(0, 100))
@few
def test_newton_never_raises_the_value_and_ends_at_a_flat_point(m, scale, seed, start):
    objective = logistic(seed, scale, 1e-2 * scale**2, m)
    values = []
    w = start / scale * normal(m, seed=seed + 2)
    previous = minimize_newton(objective, w, max_iter=0)
    for n in range(1, 8):
        values.append(previous.value)
        previous = minimize_newton(objective, w, max_iter=n)
        assert previous.value <= values[-1]
    found = minimize_newton(objective, w)
    assert "allowed" not in found.stop_reason
    # A strongly convex function: value − minimum ≤ ‖g‖²/(2λ), and the step promised no more than tol.
    gradient = objective(found.x)[1]
    H = objective(found.x)[2]
    promise = gradient @ torch.linalg.solve(H, gradient) / 2
    assert float(promise) <= 1e-9 * found.value


def test_newton_backtracks_where_the_full_step_overshoots():
    def pseudo_huber(x):  # full Newton steps from |x| > 1 diverge as x³
        root = (1 + x @ x).sqrt()
        return root - 1, x / root, torch.eye(1) / root**3

    found = minimize_newton(pseudo_huber, torch.tensor([5.0]))
    assert found.value <= 1e-9
    assert abs(float(found.x)) <= 1e-4


def test_newton_survives_a_singular_hessian_and_values_that_are_not_finite():
    def barrier(x):  # x₀ − log x₀, flat in x₁, NaN for x₀ < 0
        return x[0] - x[0].log(), torch.stack([1 - 1 / x[0], 0 * x[1]]), torch.diag(
            torch.stack([x[0] ** -2, 0 * x[1]])
        )  # fmt: skip

    found = minimize_newton(barrier, torch.tensor([10.0, 3.0]))
    assert found.x.tolist() == pytest.approx([1.0, 3.0], abs=1e-4)
    with pytest.raises(ValueError, match="must be finite at the start"):
        minimize_newton(barrier, torch.tensor([-1.0, 0.0]))


def test_newton_says_when_its_steps_are_used_up_or_rounding_stops_it():
    objective = logistic(0, 1.0, 1e-3, 5)
    found = minimize_newton(objective, torch.full((5,), 9.0), max_iter=1)
    assert "after the 1 step allowed" in found.stop_reason
    found = minimize_newton(objective, torch.full((5,), 9.0), tol=0.0)
    assert "no step along the Newton direction" in found.stop_reason


def test_conjugate_gradients_in_float32_reach_float64_by_exact_residuals():
    """Products rounded to float32 alone stall where the residual is their rounding; exact residuals go on."""
    generator = torch.Generator().manual_seed(0)
    U = torch.linalg.qr(torch.randn(40, 40, generator=generator, dtype=torch.float64))[0]
    A = (U * torch.logspace(0, -5, 40, dtype=torch.float64)) @ U.T
    x = torch.randn(40, generator=generator, dtype=torch.float64)
    rounded = lambda p: (A.float() @ p.float()).double()  # noqa: E731
    options = {"precondition": lambda r: torch.linalg.solve(A.float(), r.float()).double(), "tol": 1e-11}
    plain = conjugate_gradients(rounded, A @ x, **options)
    refined = conjugate_gradients(rounded, A @ x, apply_exactly=lambda p: A @ p, **options)
    assert float(refined.residual) <= 1e-11
    assert torch.linalg.vector_norm(refined.x - x) < 1e-3 * torch.linalg.vector_norm(plain.x - x)


# --- factors by panels --------------------------------------------------------------------------------


@few
@given(st.integers(1, 60), st.integers(1, 70), st.integers(0, 10**6), st.sampled_from([1e-3, 1.0, 1e4]))
def test_a_factor_by_panels_solves_to_the_digits_of_float32_whatever_the_width(n, width, seed, scale):
    rng = np.random.default_rng(seed)
    B = rng.normal(size=(n, n + 5))
    A, x = torch.as_tensor(scale * (B @ B.T + np.eye(n))), torch.as_tensor(rng.normal(size=(n, 2)))
    factor = TiledCholesky(n, lambda start, stop: A[start:, start:stop], width)
    condition = float(torch.linalg.cond(A))
    assert float((factor.solve(A @ x) - x).norm()) <= 1e-5 * condition * float(x.norm())


def test_a_factor_by_panels_bears_a_matrix_without_full_rank():
    K = torch.ones(50, 50, dtype=torch.float64)
    factor = TiledCholesky(50, lambda start, stop: K[start:, start:stop], 16)
    assert bool(factor.L.tril().isfinite().all())
    lower = factor.L.tril().double()
    assert float((lower @ lower.T - K).abs().max()) < 1e-3

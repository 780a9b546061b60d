"""What `mercer.linalg` promises, against dense float64 oracles, over condition numbers and scales."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import assert_close
from torch import Tensor

from mercer.linalg import (
    TiledCholesky,
    cholesky,
    conjugate_gradients,
    inverse_factor,
    lifted,
    spectral_map,
    spread_out,
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
    A, step = spd(3), 1e-6

    def factor(A: torch.Tensor) -> torch.Tensor:
        return cholesky((A + A.T) / 2)[0]

    slopes = torch.autograd.functional.jacobian(factor, A)
    for i, j in itertools.product(range(3), repeat=2):
        moved = torch.zeros_like(A)
        moved[i, j] = step
        differences = (factor(A + moved) - factor(A - moved)) / (2 * step)
        assert norm(slopes[:, :, i, j] - differences) < 1e-8  # rounding over the step, and its square


# --- whitening --------------------------------------------------------------------------------------


@over_conditions
def test_the_whitened_kernel_matrix_is_the_identity(cond):
    Q = spd(M, cond)
    B = whitening(Q)
    # Entries of Q are rounded by eps of the largest eigenvalue, which B magnifies by its squared norm.
    kept_cond = float(B.square().sum())
    assert norm(B.T @ Q @ B - torch.eye(B.shape[1])) <= M**0.5 * EPS * kept_cond
    assert B.shape[1] == M or cond > 1 / (M * EPS)
    if cond <= 1e8:
        assert torch.equal(B, B.triu())


@over_conditions
@over_dtypes
def test_whitening_loses_no_more_of_the_kernel_matrix_than_its_tolerance(cond, dtype):
    Q = spd(M, cond)
    B = whitening(Q, dtype)
    tol = max(torch.finfo(dtype).eps, M * EPS)
    rows = Q.to(dtype) @ B.to(dtype)
    # QB(QB)ᵀ is Q without the eigenvalues dropped. Rounding the tile by eps makes an error of eps ‖B‖ in a
    # whitened row, whose length is at most 1; ‖B‖ is at most √(M/tol) and M rows add as √M.
    eps = torch.finfo(dtype).eps
    error = norm((rows.double() @ rows.double().T) - Q)
    assert error <= M**0.5 * tol + 2 * M**0.5 * eps * norm(B)


@given(m=sizes, rank=sizes, scale=scales, seed=seeds)
@few
def test_a_spectral_map_finds_the_rank_at_any_scale(m, rank, scale, seed):
    half = normal(m, min(m, rank), seed=seed)
    _, kept = spectral_map(scale * (half @ half.T), tol=1e-10)
    true_rank = int((torch.linalg.svdvals(half) > 1e-5 * torch.linalg.svdvals(half)[0]).sum())
    assert int(kept) == true_rank


def test_a_kernel_matrix_without_positive_eigenvalues_is_refused():
    with pytest.raises(ValueError, match="must have a positive eigenvalue, the largest is 0"):
        whitening(torch.zeros(2, 2))
    with pytest.raises(ValueError, match="NaN or infinite"):
        whitening(torch.full((2, 2), float("nan")))


@over_conditions
def test_a_lifted_matrix_is_whitened_by_its_triangular_factor(cond):
    A, eye = spd(M, cond), torch.eye(M, dtype=torch.float64)
    Q = lifted(A, 1e-6)
    assert torch.allclose(Q, A + 1e-6 * A.diagonal().mean() * eye, rtol=0, atol=EPS)
    P = inverse_factor(Q)
    assert torch.equal(P, P.triu())
    # As above; the lift keeps the condition number below 1e6 times M.
    assert norm(P.T @ Q @ P - eye) <= M**0.5 * EPS * float(P.square().sum())


def test_spectral_maps_side_by_side_are_those_one_by_one():
    half = normal(3, 8, 4)
    K = half @ half.mT
    K[1, :, 5:] = K[1, 5:] = 0.0  # a smaller problem, filled up with zeros
    K[2] = 0.0
    maps, kept = spectral_map(K)
    assert kept.tolist() == [4, 4, 1]
    for one, alone in zip(maps, (K[0], K[1, :5, :5], K[2]), strict=True):
        wanted, rank = spectral_map(alone)
        m, r = alone.shape[0], int(rank)
        features = (alone @ one[:m, :r], alone @ wanted[:, :r])
        assert torch.allclose(features[0] @ features[0].T, features[1] @ features[1].T, atol=1e-9)
        assert not one[m:].any()
        assert not one[:, r:].any()
    assert spectral_map(K[0], rank=2)[1] == 2
    with pytest.raises(ValueError, match="must have a positive eigenvalue, the largest is -1"):
        spectral_map(-torch.eye(2, dtype=torch.float64))


# --- k-means++ --------------------------------------------------------------------------------------


def kmeans_probability(X: np.ndarray, w: np.ndarray, order: tuple[int, ...]) -> float:
    """Arthur and Vassilvitskii's draws, one after the other."""
    chance, chosen = 1.0, []
    for j in order:
        nearest = np.min([(X - X[i]) ** 2 for i in chosen], axis=0) if chosen else np.ones(len(X))
        share = w * nearest
        chance *= share[j] / share.sum()
        chosen.append(j)
    return float(chance)


def test_weighted_draws_have_the_probabilities_of_the_paper():
    rng = np.random.default_rng(0)
    X, w, n = np.array([0.0, 0.5, 2.0, 2.2, 7.0]), np.array([1.0, 3.0, 0.0, 2.0, 1.0]), 600
    rows, weight = torch.from_numpy(X[:, None]), torch.from_numpy(w)
    seen = [tuple(spread_out(rows, 3, rng, weight).tolist()) for _ in range(n)]
    for order in itertools.permutations(range(5), 3):
        p = kmeans_probability(X, w, order)
        # Five standard deviations of a share of n draws, and one draw of what is hardly ever seen.
        assert abs(seen.count(order) / n - p) <= 5 * (p * (1 - p) / n) ** 0.5 + 1 / n


def test_copies_are_taken_only_where_rows_need_not_differ():
    X = torch.tensor([[0.0], [0.0], [1.0], [1.0], [2.0]], dtype=torch.float64)
    weight = torch.tensor([1.0, 1.0, 1.0, 1.0, 0.0], dtype=torch.float64)
    rng = np.random.default_rng(0)
    chosen = spread_out(X, 4, rng, weight).tolist()
    assert sorted(chosen) == [0, 1, 2, 3]
    assert {float(X[i]) for i in chosen[:2]} == {0.0, 1.0}
    assert sorted(X[spread_out(X, 4, rng, weight, distinct=True), 0].tolist()) == [0.0, 1.0]
    with pytest.raises(ValueError, match="m must be at most the 4 rows of positive weight, got 5"):
        spread_out(X, 5, rng, weight)


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
    tol = max(
        1e-5, 4 * m * torch.finfo(dtype).eps * 10.0
    )  # rounding leaves m · eps · condition number, a restart twice
    found = conjugate_gradients(lambda p: A @ p, b, tol=tol, max_iter=200)
    assert f"fell to {tol:g}" in found.stop_reason
    assert (found.residual <= tol).all()
    assert torch.equal(found.x[:, 1], torch.zeros(m, dtype=dtype))
    X = torch.linalg.solve(A.double(), b.double())
    error = torch.linalg.vector_norm(found.x - X, dim=0)
    assert (error <= 10 * 2 * tol * torch.linalg.vector_norm(X, dim=0)).all()  # condition number times tol


def test_cg_ends_in_as_many_steps_as_there_are_distinct_eigenvalues():
    U = torch.from_numpy(rotation(M, M, np.random.default_rng(0)))
    A = U @ torch.diag(torch.tensor([1.0, 2.0, 5.0, 9.0], dtype=torch.float64).repeat(M // 4)) @ U.T
    found = conjugate_gradients(lambda p: A @ p, normal(M))
    assert found.n_iter == 4
    assert found.stop_reason == "the relative residual fell to 1e-07 or below after 4 steps"


def test_directions_that_are_conjugate_to_all_keep_rounding_from_growing():
    """Two ways of rounding a product agree to rounding after any steps, and as many steps as rows end at the solution.

    Directions conjugate to the last one alone lose both: of a condition of 1e8 they take some 500 steps for 40 rows,
    and after 20 of them the two ways differ by 1e-4.
    """
    n = 40
    A, b = spd(n, 1e8), spd(n, 1e8) @ normal(n, 2)
    ways = (lambda p: A @ p, lambda p: A.flip(1) @ p.flip(0))
    found = [conjugate_gradients(way, b, tol=1e-9, max_iter=n // 2, conjugate_to_all=True).x for way in ways]
    apart = found[0] - found[1]
    energy = (apart * (A @ apart)).sum(0) / (found[0] * (A @ found[0])).sum(0)
    assert (energy.sqrt() < 1e-9).all()  # some steps of n roundings, each by the root of the condition: 1e-10
    assert conjugate_gradients(ways[0], b, tol=1e-9, max_iter=1000, conjugate_to_all=True).n_iter <= n


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


def test_a_finer_tolerance_is_asked_for_once_and_steps_go_on_from_there():
    """Asked where all columns have reached the first one; going on takes no more steps than without the question."""
    generator = torch.Generator().manual_seed(0)
    U = torch.linalg.qr(torch.randn(60, 60, generator=generator, dtype=torch.float64))[0]
    A = (U * torch.logspace(0, -3, 60, dtype=torch.float64)) @ U.T
    b, asked = torch.randn(60, 2, generator=generator, dtype=torch.float64), []

    def finer(x):
        asked.append(float((torch.linalg.vector_norm(b - A @ x, dim=0) / torch.linalg.vector_norm(b, dim=0)).max()))
        return 1e-8

    options = {"max_iter": 500, "recompute": False}
    found = conjugate_gradients(lambda p: A @ p, b, tol=1e-2, finer=finer, **options)
    plain = conjugate_gradients(lambda p: A @ p, b, tol=1e-8, **options)
    assert len(asked) == 1
    assert asked[0] <= 1e-2
    assert float(found.residual.max()) <= 1e-8
    assert found.n_iter == plain.n_iter


def test_without_recomputed_residuals_a_step_is_one_product():
    generator = torch.Generator().manual_seed(0)
    A = torch.diag(torch.logspace(0, 2, 50, dtype=torch.float64))
    b, products = torch.randn(50, generator=generator, dtype=torch.float64), []

    def apply(p):
        products.append(p)
        return A @ p

    found = conjugate_gradients(apply, b, tol=1e-8, recompute=False)
    assert len(products) == found.n_iter
    # in double precision the recursion keeps to b − A x: rounding is a thousandth of the tolerance
    assert float(torch.linalg.vector_norm(b - A @ found.x) / b.norm()) <= 1.001e-8


# --- factors by panels --------------------------------------------------------------------------------


@few
@given(st.integers(1, 60), st.integers(1, 70), st.integers(0, 10**6), st.sampled_from([1e-3, 1.0, 1e4]))
def test_a_factor_by_panels_solves_to_the_digits_of_float64_whatever_the_width(n, width, seed, scale):
    rng = np.random.default_rng(seed)
    B = rng.normal(size=(n, n + 5))
    A, x = torch.as_tensor(scale * (B @ B.T + np.eye(n))), torch.as_tensor(rng.normal(size=(n, 2)))
    factor = TiledCholesky(A.diagonal(), lambda start, stop: A[start:, start:stop], width)
    condition = float(torch.linalg.cond(A))
    # a solution by a Cholesky factor errs by a small multiple of n roundings times the condition
    assert float((factor.solve(A @ x) - x).norm()) <= 10 * n * EPS * condition * float(x.norm())
    m = seed % (n + 1)
    assert factor.jitter == 0
    assert_close(factor.corner(m), torch.linalg.cholesky(A)[n - m :, n - m :], rtol=0, atol=1e-9 * scale**0.5)


def test_a_factor_by_panels_bears_a_matrix_without_full_rank():
    K = torch.ones(50, 50, dtype=torch.float64)
    factor = TiledCholesky(K.diagonal(), lambda start, stop: K[start:, start:stop], 16)
    L = factor.corner(50)
    assert factor.jitter <= 1e-13  # fifty roundings, and the ladder's step of ten
    assert float((L @ L.T - K).abs().max()) <= 2 * factor.jitter + 50 * EPS


def test_a_factor_by_panels_refuses_what_the_whole_factor_refuses():
    for A, words in (
        (torch.diag(torch.tensor([1.0, -1.0, 1.0])), "negative value -1 on its diagonal"),
        (torch.tensor([[1.0, 2.0, 0.0], [2.0, 1.0, 0.0], [0.0, 0.0, 1.0]]), "not positive semi-definite"),
        (torch.full((3, 3), torch.nan), "NaN or infinite"),
    ):
        with pytest.raises(ValueError, match=words):
            cholesky(A)
        with pytest.raises(ValueError, match=words):
            TiledCholesky(A.diagonal(), lambda start, stop, A=A: A[start:, start:stop], 2)

"""What forward fits promise: theorems of Boost10 and Greedy02, and dense oracles for every part.

Unless a test is about precision, problems are small and in float64, and the Gram matrix is conditioned
well enough (`LAM` on a spectrum that reaches 1e-6) that solutions agree to about 1e-8.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import pairwise, product
from typing import Any

import numpy as np
import oracles
import pytest
import torch
from oracles import assert_close
from sklearn.kernel_ridge import KernelRidge
from torch import Tensor

from mercer import GreedyKernelRegressor
from mercer.data import RowSource, TensorRows
from mercer.engine import Plan, Sample, make_plan
from mercer.forward.absorb import Block
from mercer.forward.candidates import RowCandidates
from mercer.forward.combine import ChosenVectors, Combination, ConjugateGradients, JointPursuit, Rayleigh, Separate
from mercer.forward.criteria import Criterion, LargestResiduals, MatchingPursuit, MaxResidual, OrderRecursive, Random
from mercer.forward.exchange import ExchangeBlock, MinimalResidualBlock, PlainMinimalResidualBlock, prune
from mercer.forward.loop import Ensemble, ForwardFit, Learner, MarginFocus, SingleVector, size_at
from mercer.forward.problem import Problem
from mercer.forward.solve import exact
from mercer.forward.solve.exact import _symmetric, _values, affordable_polish_steps, exact_ridge
from mercer.forward.solve.polish import polish, sparse_ridge
from mercer.forward.span import Functions
from mercer.forward.stopping import (
    AkaikeInformation,
    Dependence,
    History,
    MaxSteps,
    MinimumDescriptionLength,
    TimeBudget,
    Tolerance,
    Validation,
    information_criterion,
)
from mercer.kernels import Gaussian, Linear
from mercer.losses import Loss

N, LAM = 60, 1e-2
KERNEL = Gaussian(0.5)
LOSSES = ["squared", "logistic", "squared-hinge", "softmax"]
CRITERIA = sorted(Criterion.choices())
SCORED = [name for name in CRITERIA if name not in ("random", "largest-residuals")]
COMBINATIONS = sorted(Combination.choices())
LENGTHS = {"full": None, "one": 1, "blocks of 2": 2, "blocks of 3": 3}

over_losses = pytest.mark.parametrize("loss", LOSSES)
over_criteria = pytest.mark.parametrize("criterion", CRITERIA)
over_scores = pytest.mark.parametrize("criterion", SCORED)
over_lengths = pytest.mark.parametrize("length", LENGTHS.values(), ids=LENGTHS)
over_outputs = pytest.mark.parametrize("p", [1, 3], ids=["one output", "three outputs"])


# --- problems and fits ------------------------------------------------------------------------------


def targets(X: np.ndarray, loss: str, p: int, rng: np.random.Generator) -> np.ndarray:
    """Smooth functions with noise, or classes that follow them with some errors."""
    F = np.column_stack([np.sin((2 + o) * X[:, 0]) + X[:, 1] ** (1 + o) for o in range(p)])
    F = F + 0.3 * rng.standard_normal(F.shape)
    if loss == "squared":
        return F
    return np.where(np.arange(p) == F.argmax(1)[:, None], 1.0, -1.0) if loss == "softmax" else np.sign(F)


def make_problem(
    loss: str = "squared",
    p: int = 1,
    lam: float = LAM,
    n: int = N,
    dtype: torch.dtype = torch.float64,
    weight: Any = None,
    seed: int = 0,
) -> Problem:
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, 2)).astype(np.float32).astype(np.float64)  # the same rows in both precisions
    Y = targets(X, loss, 3 if loss == "softmax" else p, rng)
    w = np.ones(n) if weight is None else np.asarray(weight, dtype=float)
    rows, Y, w = (torch.from_numpy(part).to(dtype) for part in (X, Y, w))
    sample = Sample(TensorRows(rows), Y, w, Plan(torch.device("cpu"), dtype, 1 << 30))
    return Problem(sample, KERNEL, lam, Loss.resolve(loss, "loss"))


def dense(problem: Problem) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """K, Y and w as float64 arrays."""
    X = problem.rows.take(np.arange(problem.rows.n_rows)).double().numpy()
    return gram(X.tobytes(), len(X)), problem.y.double().numpy(), problem.weight.double().numpy()


@cache
def gram(rows: bytes, n: int) -> np.ndarray:
    X = np.frombuffer(rows).reshape(n, -1)
    return oracles.tile(KERNEL, X, X)


def part(kind: Any, name: str) -> Any:
    return kind.choices()[name]()


def grown(problem: Problem, learner: Learner, n_steps: int = 6, seed: int = 0, **options: Any) -> ForwardFit:
    fit = ForwardFit(problem, learner, np.random.default_rng(seed), **options)
    fit.run([MaxSteps(n_steps)])
    return fit


def ensemble(criterion: Any = None, combination: Any = None, size: Any = 4, subset_size: int = 25) -> Ensemble:
    return Ensemble(criterion or MaxResidual(), combination or JointPursuit(), size, subset_size)


def expansion(fit: ForwardFit, n_steps: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    path = fit.path()
    return path.rows, path.weights(path.n_steps if n_steps is None else n_steps)


def assert_never_rises(values: list[float], share: float) -> None:
    """No value exceeds the one before it by more than a share of the first: rounding of the sum it is."""
    rises = np.diff(values)
    assert rises.max(initial=0.0) <= share * abs(values[0]), f"rises by {rises.max()} of {values[0]}"


# --- the objective ----------------------------------------------------------------------------------


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("combination", COMBINATIONS)
def test_the_objective_never_rises_under_any_combination(length, combination):
    """Of each two of the combination, the length of blocks and the loss, all pairs meet."""
    loss = LOSSES[(list(LENGTHS).index(length) + COMBINATIONS.index(combination)) % len(LOSSES)]
    learner = ensemble(combination=part(Combination, combination))
    fit = grown(make_problem(loss), learner, block_length=LENGTHS[length])
    assert_never_rises([start_of(fit), *fit.history.objective], 1e-12)


@over_losses
@over_criteria
def test_the_objective_never_rises_under_any_criterion(loss, criterion):
    for make, length in ((SingleVector, None), (ensemble, 1)):
        fit = grown(make_problem(loss), make(part(Criterion, criterion)), n_steps=5, block_length=length)
        assert_never_rises([start_of(fit), *fit.history.objective], 1e-12)


@over_lengths
@over_losses
def test_the_objective_never_rises_in_float32_with_shrinkage_and_weights(loss, length):
    weight = np.random.default_rng(1).uniform(0, 3, N)
    problem = make_problem(loss, dtype=torch.float32, weight=weight)
    fit = grown(problem, ensemble(), n_steps=12, block_length=length, shrinkage=0.3)
    assert_never_rises([start_of(fit), *fit.history.objective], N * 2.0**-23)


def start_of(fit: ForwardFit) -> float:
    """The objective of f = 0."""
    problem = fit.problem
    return float(problem.objective(torch.zeros_like(problem.y), 0.0))


@over_lengths
@over_losses
def test_the_recorded_objective_is_that_of_the_weights(loss, length):
    """The penalty is followed by recursion across blocks; the weights are another way to it.

    Functions that nearly depend on each other, as those of the softmax's classes, cost both ways some digits: weights a
    are a triangular solve, which errs by m·eps·cond(R)·|a|, and the penalty λaᵀKa by 2λ|K||a| times that.
    """
    problem = make_problem(loss, weight=np.random.default_rng(1).uniform(0.5, 2, N))
    fit = grown(problem, ensemble(), block_length=length)
    K, Y, w = dense(problem)
    blocks = [*fit.blocks, *([] if fit.current is None else [fit.current])]
    solved = max(block.span.size * float(torch.linalg.cond(block.span.R[: block.span.size, : block.span.size]))
                 for block in blocks)  # fmt: skip
    for step in range(1, fit.n_steps + 1):
        rows, a = expansion(fit, step)
        wanted = oracles.objective(K, rows, a, Y, w, LAM, loss)
        rounding = 2 * LAM * np.linalg.norm(K, 2) * np.square(a).sum() * 2.0**-52 * solved
        assert fit.history.objective[step - 1] == pytest.approx(wanted, rel=1e-9, abs=rounding)


@over_lengths
@over_losses
def test_the_weights_of_a_path_reproduce_the_values_of_the_fit_at_every_step(loss, length):
    problem, values = make_problem(loss), []
    fit = ForwardFit(problem, ensemble(), np.random.default_rng(0), block_length=length)
    fit.run([MaxSteps(6)], callbacks=[lambda fit: values.append(fit.f.clone())])
    K, _, _ = dense(problem)
    for step, f in enumerate(values, start=1):
        rows, a = expansion(fit, step)
        np.testing.assert_allclose(K[:, rows] @ a, f.numpy(), atol=1e-8)


def test_the_path_of_no_steps_is_zero():
    fit = grown(make_problem(), ensemble())
    assert not expansion(fit, 0)[1].any()


# --- theorems ---------------------------------------------------------------------------------------


@over_outputs
def test_one_vector_at_a_time_by_mp_is_forward_selection(p):
    """Every vector is the one along which the objective falls most, found by trying them all."""
    problem = make_problem(p=p)
    learner = SingleVector(MatchingPursuit(n_candidates=None))
    fit = grown(problem, learner)
    K, Y, w = dense(problem)
    chosen = fit.path().rows.tolist()
    for step, j in enumerate(chosen):
        I = chosen[:step]
        a = oracles.ridge(K, I, Y, w, LAM) if I else np.zeros((0, p))
        gains = [-np.inf if i in I else oracles.line_gain(K, I, a, i, Y, w, LAM) for i in range(N)]
        assert j == int(np.argmax(gains))


def test_an_ensemble_of_one_vector_is_forward_selection():
    """Boosting with S = 1: each vector is the best by MP on the rows still open, all weights are solved again."""
    problem = make_problem()
    fit = grown(problem, ensemble(MatchingPursuit(), size=1, subset_size=N))
    K, Y, w = dense(problem)
    chosen = fit.path().rows
    for step, j in enumerate(chosen):
        rows, a = expansion(fit, step)
        rest = np.setdiff1d(np.arange(N), rows[:step])
        best = oracles.select("mp", K[np.ix_(rest, rest)], (Y - K[:, rows] @ a)[rest], LAM, 1)[0]
        assert j == rest[best]
        _, a = expansion(fit, step + 1)
        np.testing.assert_allclose(a[: step + 1], oracles.ridge(K, rows[: step + 1], Y, w, LAM), rtol=1e-6)


@over_losses
def test_cg_run_to_the_end_equals_mp(loss):
    """S steps solve a system of S unknowns up to its condition number; ten times as many leave no doubt."""
    problem = make_problem(loss, lam=0.1)
    fits = [grown(problem, ensemble(combination=c)) for c in (JointPursuit(), ConjugateGradients(max_iter=200))]
    assert fits[0].path().rows.tolist() == fits[1].path().rows.tolist()
    np.testing.assert_allclose(fits[0].history.objective, fits[1].history.objective, rtol=1e-8)
    np.testing.assert_allclose(fits[0].f, fits[1].f, atol=1e-6)


@over_outputs
def test_all_rows_in_one_learner_is_kernel_ridge(p):
    problem = make_problem(p=p, weight=np.random.default_rng(1).uniform(0.5, 2, N))
    fit = grown(problem, ensemble(LargestResiduals(), size=N, subset_size=N), n_steps=1)
    K, Y, w = dense(problem)
    ridge = KernelRidge(alpha=LAM, kernel="precomputed").fit(K, Y, sample_weight=w)
    np.testing.assert_allclose(fit.f, ridge.predict(K), atol=1e-9)
    np.testing.assert_allclose(fit.f, K @ oracles.ridge(K, np.arange(N), Y, w, LAM), atol=1e-9)


@over_outputs
@pytest.mark.parametrize("lam", [10.0, 1e-2, 1e-6])
def test_where_memory_is_short_kernel_ridge_is_the_same_by_panels(p, lam):
    problem = replace(make_problem(p=p, weight=np.random.default_rng(1).uniform(0.5, 2, N)), lam=lam)
    whole, _, _ = exact_ridge(problem, torch.arange(N))
    tight = problem.with_sample(plan=replace(problem.plan, memory_limit=8 * N * N))
    assert not tight.plan.holds_square(N)
    assert tight.plan.exact_rows() >= N
    K, Y, w = dense(problem)
    residual = K @ (by_panels := exact_ridge(tight, torch.arange(N))[0].numpy()) + lam / w[:, None] * by_panels - Y
    assert np.abs(residual).max() <= 1e-9 * np.abs(Y).max()
    np.testing.assert_allclose(K @ by_panels, K @ whole.numpy(), atol=1e-8)


@over_outputs
def test_a_factor_of_single_precision_leads_to_the_same_kernel_ridge(p, monkeypatch):
    problem = replace(make_problem(p=p, weight=np.random.default_rng(1).uniform(0.5, 2, N)), lam=0.1)
    whole, others, _ = exact_ridge(problem, torch.arange(N))
    monkeypatch.setattr(exact, "FLOAT32_FACTOR_ROWS", 2)
    by_steps, nearly, _ = exact_ridge(problem, torch.arange(N))
    assert_close(by_steps, whole, rtol=0, atol=1e-9 * float(whole.abs().max()))
    # the diagonal of the inverse has the digits of single precision, less the condition number's three
    assert_close(nearly, others, rtol=0, atol=1e-3)


@over_outputs
def test_rows_left_out_are_what_the_others_predict_wherever_they_stand(p, monkeypatch):
    monkeypatch.setattr(exact, "LEFT_OUT_ROWS", 7)
    problem = replace(make_problem(p=p, weight=np.random.default_rng(1).uniform(0.5, 2, N)), lam=0.1)
    K, Y, w = dense(problem)
    a, others, _ = exact_ridge(problem, torch.arange(N))
    np.testing.assert_allclose(K @ a.numpy() + 0.1 / w[:, None] * a.numpy(), Y, atol=1e-9)
    seen = np.flatnonzero(torch.isfinite(others).all(1).numpy())
    assert len(seen) == 7
    for i in seen:
        rest = np.arange(N) != i
        weights = np.linalg.solve(K[rest][:, rest] + np.diag(0.1 / w[rest]), Y[rest])
        np.testing.assert_allclose(others[i].numpy(), K[i, rest] @ weights, atol=1e-9)


@over_losses
def test_a_block_longer_than_the_fit_is_the_full_update(loss):
    full, long = (grown(make_problem(loss), ensemble(), block_length=length) for length in (None, 100))
    np.testing.assert_array_equal(full.f, long.f)


def test_one_update_is_the_best_step_along_the_newest_function():
    """Boost10 eq. 31, squared loss, against a parabola through three points."""
    problem = make_problem()
    fit = grown(problem, SingleVector(MaxResidual()), block_length=1)
    K, Y, w = dense(problem)
    for step, block in enumerate(fit.blocks):
        rows, a = expansion(fit, step)
        _, then = expansion(fit, step + 1)
        gain = oracles.line_gain(K, rows, a, int(block.basis_index[0]), Y, w, LAM)
        fall = oracles.objective(K, rows, a, Y, w, LAM) - oracles.objective(K, rows, then, Y, w, LAM)
        assert fall == pytest.approx(gain, rel=1e-7)


def test_shrinkage_takes_that_share_of_the_step():
    whole, half = (
        grown(make_problem(), ensemble(), n_steps=1, block_length=1, shrinkage=share) for share in (1.0, 0.5)
    )
    np.testing.assert_allclose(half.f, whole.f / 2, atol=1e-14)


@over_criteria
@over_outputs
def test_the_full_update_solves_the_normal_equations_at_every_step(criterion, p):
    problem = make_problem(p=p, weight=np.random.default_rng(1).uniform(0.5, 2, N))
    fit = grown(problem, SingleVector(part(Criterion, criterion)))
    K, Y, w = dense(problem)
    for step in range(1, fit.n_steps + 1):
        rows, a = expansion(fit, step)
        np.testing.assert_allclose(a[:step], oracles.ridge(K, rows[:step], Y, w, LAM), rtol=1e-6, atol=1e-7)


def test_several_separate_vectors_a_step_are_as_good_as_one_after_the_other():
    """The span is what counts, not the order in which it was filled."""
    problem = make_problem()
    fit = grown(problem, ensemble(combination=Separate(), size=4), n_steps=3)
    K, Y, w = dense(problem)
    rows, a = expansion(fit)
    assert len(rows) == 12
    np.testing.assert_allclose(K[:, rows] @ a, K[:, rows] @ oracles.ridge(K, rows, Y, w, LAM), atol=1e-8)


@pytest.mark.parametrize("combination", [Rayleigh(), JointPursuit()], ids=repr)
def test_a_learner_has_the_weights_of_its_formula(combination):
    """Boost10 eq. 25 and 29, on the dense matrix, for a model that is not zero."""
    problem = make_problem(p=2)
    fit = grown(problem, ensemble(), n_steps=2)
    block, index = fit.current, torch.arange(5)
    K, Y, _ = dense(problem)
    f, Q, K_S = block.f.numpy(), K[:5, :5], K[:, :5]
    u = K_S.T @ (Y - f) - LAM * f[:5]
    wanted = np.linalg.solve(Q if isinstance(combination, Rayleigh) else LAM * Q + K_S.T @ K_S, u)
    Z = problem.basis(index)
    chosen = ChosenVectors(problem, problem.matrix(Z), block.gradient(), block.f[index], block.metric)
    A = combination.weights(chosen)
    np.testing.assert_allclose(A, wanted, rtol=1e-6, atol=1e-8 * np.abs(wanted).max())


# --- weights of the rows ----------------------------------------------------------------------------

MAKERS = {
    "full": {},
    "one": {"block_length": 1},
    "blocks": {"block_length": 2},
    "exchange": {"make_block": ExchangeBlock},
    "mrx": {"make_block": MinimalResidualBlock},
}
over_updates = pytest.mark.parametrize("update", MAKERS.values(), ids=MAKERS)


@dataclass(eq=False)
class Given(Learner):
    """Row after row in a given order, so that a test is about absorption alone."""

    order: list[int]

    def next(self, block: Block, step: int, rng: np.random.Generator) -> Functions:
        index, one = torch.tensor(self.order[step : step + 1]), torch.ones(1, 1, dtype=torch.float64)
        values = block.problem.matrix(block.problem.basis(index)).product(one)
        return Functions(index, one, values.T.contiguous())


def repeated(problem: Problem, times: Tensor) -> Problem:
    """The problem with row n written times[n] times, each of weight one; first copies come first."""
    first = (times > 0).nonzero()[:, 0]
    rest = torch.repeat_interleave(torch.arange(len(times)), (times - 1).clamp(min=0))
    index = torch.cat([first, rest])
    rows = TensorRows(problem.rows.take(index))
    return problem.with_sample(rows=rows, Y=problem.y[index], weight=torch.ones(len(index), dtype=problem.y.dtype))


@over_updates
@over_losses
def test_a_weight_of_two_is_the_row_twice(update, loss):
    if "make_block" in update and loss != "squared":
        pytest.skip("exchange and minimal residuals are for the squared loss")
    times = torch.from_numpy(np.random.default_rng(3).integers(1, 3, N))
    weighted = make_problem(loss).with_sample(weight=times.double())
    learner = Given([5, 17, 40, 3, 28, 55])
    fits = [grown(problem, learner, **update) for problem in (weighted, repeated(weighted, times))]
    np.testing.assert_allclose(fits[0].history.objective, fits[1].history.objective, rtol=1e-10)
    np.testing.assert_allclose(fits[0].f, fits[1].f[:N], atol=1e-9)


@pytest.mark.parametrize(
    ("update", "criterion"),
    [(update, name) for name in CRITERIA for update in MAKERS if update in ("full", "exchange") or name == "max-res"],
)
def test_rows_of_weight_zero_are_ignored(update, criterion):
    """Whatever stands in them: they neither move the fit nor become basis vectors.

    Every criterion meets blocks of both kinds, and every update one criterion.
    """
    weight = np.r_[np.ones(40), np.zeros(20)]
    problem = make_problem(weight=weight)
    wild = problem.y.clone()
    wild[40:] = 1e6
    few = problem.subset(torch.arange(40))
    learner = SingleVector(part(Criterion, criterion))
    fits = [grown(case, learner, **MAKERS[update]) for case in (problem.with_sample(Y=wild), few)]
    assert fits[0].path().rows.tolist() == fits[1].path().rows.tolist()
    np.testing.assert_allclose(fits[0].f[:40], fits[1].f, atol=1e-9)


# --- the span ---------------------------------------------------------------------------------------


def metric_of(problem: Problem, rows: np.ndarray) -> np.ndarray:
    """⟨k_i, k_j⟩ = Σ w k_i k_j + λ k_ij on the chosen rows."""
    K, _, w = dense(problem)
    return K[:, rows].T @ (w[:, None] * K[:, rows]) + problem.lam * K[np.ix_(rows, rows)]


def test_the_span_is_orthonormal_in_its_metric():
    problem = make_problem(weight=np.random.default_rng(1).uniform(0.5, 2, N))
    fit = grown(problem, SingleVector(MaxResidual()), n_steps=15)
    span, rows = fit.current.span, fit.path().rows
    R = span.R[:15, :15].numpy()
    assert np.array_equal(R, np.triu(R))
    A = metric_of(problem, rows)
    np.testing.assert_allclose(R.T @ R, A, atol=1e-12 * A.max())
    K, _, w = dense(problem)
    values = span.values[:15].numpy()
    back = np.linalg.inv(R)
    product = values @ np.diag(w) @ values.T + LAM * back.T @ K[np.ix_(rows, rows)] @ back
    np.testing.assert_allclose(product, np.eye(15), atol=1e-8)
    np.testing.assert_allclose(span.H[:15, :15], LAM * back.T @ K[np.ix_(rows, rows)] @ back, atol=1e-9)


@pytest.mark.parametrize("j", [0, 3, 7])
def test_removing_a_function_equals_refitting_without_it(j):
    problem = make_problem(p=2)
    fit = grown(problem, SingleVector(MaxResidual()), n_steps=8)
    span, rows = fit.current.span, fit.path().rows
    f = fit.f + span.remove(j)
    left = np.delete(rows, j)
    K, Y, w = dense(problem)
    np.testing.assert_allclose(f, K[:, left] @ oracles.ridge(K, left, Y, w, LAM), atol=1e-9)
    R = span.R[:7, :7].numpy()
    np.testing.assert_allclose(R.T @ R, metric_of(problem, left), atol=1e-11)
    a = oracles.ridge(K, left, Y, w, LAM)
    assert float(span.norm2()) == pytest.approx(LAM * (a * (K[np.ix_(left, left)] @ a)).sum(), rel=1e-8)


def test_a_function_of_the_span_gets_no_weight():
    problem = make_problem()
    fit = grown(problem, SingleVector(MaxResidual()), n_steps=3)
    block, f = fit.current, fit.f.clone()
    old = block.basis_index[:1]
    values = problem.matrix(problem.basis(old)).product(torch.ones(1, 1)).T.contiguous()
    where = block.span.extend(values, old, torch.ones(1, 1))
    assert float(block.span.novelty) <= 1e-7  # the root of a difference that is rounding
    assert not block.span.values[where].any()
    assert not block.span.descent_slope(where, block.gradient()).any()
    np.testing.assert_array_equal(block.f, f)


# --- criteria ---------------------------------------------------------------------------------------


@over_outputs
@over_scores
@pytest.mark.parametrize("gram_noise", [0.0, LAM], ids=["penalty in the RKHS", "penalty on the diagonal"])
@pytest.mark.parametrize("n_steps", [0, 5])
def test_a_score_is_its_formula(criterion, p, gram_noise, n_steps):
    """The table of criteria, for a model of a few vectors; ORMP by orthogonalising every column again."""
    options = {"lam": 0.0, "gram_noise": gram_noise} if gram_noise else {}
    problem = make_problem(p=p, weight=np.random.default_rng(1).uniform(0.5, 2, N))
    fit = ForwardFit(problem, SingleVector(MaxResidual()), np.random.default_rng(0))
    fit.make_block = lambda *args: Block(*args, **options)
    fit.run([MaxSteps(n_steps)])
    block = fit.current if n_steps else fit._open_block()
    rows, a = expansion(fit) if n_steps else (np.empty(0, dtype=int), np.zeros((0, p)))
    index = block.available_rows()
    seen = RowCandidates(block, index, fit.rng)
    K, Y, w = dense(problem)
    wanted = oracles.scores(criterion, K, Y, w, LAM, LAM, rows, a, gram=bool(gram_noise))[index]
    np.testing.assert_allclose(part(Criterion, criterion).score(seen), wanted, rtol=1e-6, atol=1e-9 * wanted.max())


@over_outputs
@over_scores
def test_a_small_selection_follows_the_criterion_on_the_regularised_gram_matrix(criterion, p):
    problem = make_problem(p=p)
    X, r = problem.rows.take(np.arange(N)), problem.y
    chosen = part(Criterion, criterion).select(KERNEL, X, r, LAM, 10, np.random.default_rng(0))
    K, Y, _ = dense(problem)
    start = chosen[:1].tolist() if criterion == "ald" else []  # to whom all rows are equally new at first
    assert chosen.tolist() == oracles.select(criterion, K, Y, LAM, 10, start)


def test_the_largest_residuals_are_taken_at_once():
    problem = make_problem(p=2)
    chosen = LargestResiduals().select(KERNEL, problem.rows.take(np.arange(N)), problem.y, LAM, 7, None)
    size = problem.y.square().sum(1).numpy()
    assert chosen.tolist() == np.argsort(-size)[:7].tolist()


def test_random_selection_is_without_replacement_and_reproducible():
    rows = [Random().select(KERNEL, torch.zeros(9, 1), None, LAM, 9, np.random.default_rng(4)) for _ in range(2)]
    assert rows[0].tolist() == rows[1].tolist()
    assert sorted(rows[0].tolist()) == list(range(9))


@pytest.mark.parametrize("criterion", ["ald", "ran"])
def test_candidates_below_the_threshold_end_the_fit(criterion):
    learner = SingleVector(Criterion.choices()[criterion](n_candidates=None, threshold=0.5))
    fit = ForwardFit(make_problem(), learner, np.random.default_rng(0))
    why = fit.run([MaxSteps(N)])
    assert why == "no further row is worth adding as a basis vector"
    assert 0 < fit.n_steps < N


@pytest.mark.parametrize("criterion", ["ald", "ran"])
def test_a_row_below_the_threshold_is_passed_over_and_the_fit_goes_on(criterion):
    """Looked at three by three, most draws hold nothing new; the end comes when no row is above the threshold."""
    part = Criterion.choices()[criterion](n_candidates=3, threshold=0.05)
    fit = ForwardFit(make_problem(), SingleVector(part), np.random.default_rng(0))
    assert fit.run([MaxSteps(N)]) == "no further row is worth adding as a basis vector"
    assert 3 < fit.n_steps < N
    left = RowCandidates(fit.current, fit.current.available_rows(), fit.rng)
    assert float(part.score(left).max()) <= 0.05
    if criterion == "ald":
        K, members = dense(fit.problem)[0], fit.current.basis_index.tolist()
        pivots = np.linalg.cholesky(K[np.ix_(members, members)]).diagonal() ** 2
        assert (pivots > 0.05).all()


def test_the_growing_factor_knows_what_is_new_for_few_rows_and_for_all():
    """By a product with the span or by the factor itself, also after vectors have left, and with one in the span."""
    problem = make_problem(seed=EXCHANGING[0])
    fit = ForwardFit(problem, SingleVector(MaxResidual()), np.random.default_rng(0), make_block=ExchangeBlock)
    K = dense(problem)[0]
    for _ in range(6):
        fit.step()
        block, everything = fit.current, torch.arange(N)
        I = block.basis_index.tolist()
        wanted = K.diagonal() - np.einsum("ij,ij->j", K[I], np.linalg.solve(K[np.ix_(I, I)], K[I]))
        for index in (everything[:7], everything):
            found = RowCandidates(block, index, fit.rng).novelty
            np.testing.assert_allclose(found, wanted[index].clip(0), atol=1e-9)
    factor = block.factor.extend_to(torch.cat([block.basis_index, block.basis_index[:1]]))
    assert len(factor.positions) == len(block.basis_index)


@pytest.mark.parametrize("criterion", ["ald", "ran"])
def test_the_first_vector_is_taken_whatever_its_score(criterion):
    """Targets of zero offer RAN nothing, and a short kernel column offers ALD less than its threshold."""
    problem = replace(make_problem().with_sample(Y=torch.zeros(N, 1, dtype=torch.float64)), kernel=1e-3 * Gaussian())
    fit = ForwardFit(problem, SingleVector(Criterion.choices()[criterion]()), np.random.default_rng(0))
    assert fit.run([MaxSteps(5)]) == "no further row is worth adding as a basis vector"
    assert fit.n_steps == 1
    assert bool((fit.f == 0).all())


@over_scores
def test_a_row_whose_column_is_zero_is_never_preferred(criterion):
    """The linear kernel at the origin: 0/0 must not be the best score."""
    problem = make_problem()
    X = problem.rows.take(np.arange(N)).clone()
    X[7] = 0.0
    y = X[:, :1] + 0.1 * problem.y
    y[7] = 0.0
    problem = replace(problem.with_sample(rows=TensorRows(X), Y=y), kernel=Linear())
    learner = SingleVector(Criterion.choices()[criterion]())
    if learner.criterion.n_candidates:
        learner.criterion.n_candidates = None
    fit = grown(problem, learner, n_steps=1)
    assert fit.path().rows[0] != 7
    assert part(Criterion, criterion).select(Linear(), X, y, 0.0, 1, np.random.default_rng(0))[0] != 7


def test_ormp_reduces_the_objective_at_least_as_much_as_any_other_vector():
    """Its score is twice the fall of the objective after all weights are solved again."""
    problem = make_problem()
    fit = grown(problem, SingleVector(OrderRecursive()), n_steps=5)
    K, Y, w = dense(problem)
    chosen = fit.path().rows.tolist()
    for step in range(5):
        best = min(
            oracles.objective(K, J, oracles.ridge(K, J, Y, w, LAM), Y, w, LAM)
            for J in ([*chosen[:step], j] for j in range(N) if j not in chosen[:step])
        )
        assert fit.history.objective[step] == pytest.approx(best, rel=1e-9)


# --- Greedy02's weight updates ----------------------------------------------------------------------


SIGMA2 = 1e-3
EXCHANGING = [1, 2]  # seeds of problems on which the algorithms do exchange vectors


def noisy(kind: type[Block]) -> Any:
    """Blocks with the penalty on the diagonal, σ² that of the problem."""
    return lambda problem, *args: kind(problem, *args, lam=0.0, gram_noise=problem.lam)


@over_outputs
def test_qr_is_least_squares_on_the_columns_of_the_regularised_gram_matrix(p):
    problem = make_problem(p=p)
    fit = grown(problem, SingleVector(MaxResidual()), n_steps=12, make_block=noisy(Block))
    K, Y, _ = dense(problem)
    C = K + LAM * np.eye(N)
    r, chosen = Y.copy(), []
    for step in range(12):  # Greedy02 eq. 5 to 9
        chosen.append(int(np.where(np.isin(np.arange(N), chosen), -1.0, (r**2).sum(1)).argmax()))
        alpha = np.linalg.lstsq(C[:, chosen], Y, rcond=None)[0]
        r = Y - C[:, chosen] @ alpha
        rows, a = expansion(fit, step + 1)
        assert rows[: step + 1].tolist() == chosen
        np.testing.assert_allclose(a[: step + 1], alpha, rtol=1e-6, atol=1e-7)
        assert fit.history.residual_norm[step] == pytest.approx(np.linalg.norm(r), rel=1e-9)


@pytest.mark.parametrize("seed", EXCHANGING)
@pytest.mark.parametrize("exchange", [False, True], ids=["plain", "with exchange"])
def test_mrx_follows_algorithm_2_step_by_step(exchange, seed):
    problem = make_problem(seed=seed, lam=SIGMA2)
    kind = MinimalResidualBlock if exchange else PlainMinimalResidualBlock
    fit = grown(problem, SingleVector(MaxResidual()), n_steps=20, make_block=noisy(kind))
    K, Y, _ = dense(problem)
    C = K + SIGMA2 * np.eye(N)
    path = oracles.minimal_residual(C, Y[:, 0], 20, exchange)
    for step, (_, alpha) in enumerate(path, start=1):
        rows, a = expansion(fit, step)
        np.testing.assert_allclose(a[:, 0], alpha[rows], atol=1e-10)
        assert np.count_nonzero(alpha) == np.count_nonzero(a)
    assert_never_rises(fit.history.residual_norm, 1e-14)


def test_some_vectors_are_exchanged_in_these_tests():
    """Else those above and below would prove nothing."""
    by_mrx = by_qr = 0
    for seed in EXCHANGING:
        K, Y, _ = dense(make_problem(seed=seed))
        C = K + SIGMA2 * np.eye(N)
        by_mrx += departures(oracles.minimal_residual(C, Y[:, 0], 20, True))
        by_qr += departures(oracles.qr_with_exchange(C, Y[:, 0], 20))
    assert by_mrx > 0
    assert by_qr > 0


def departures(path: list[tuple[list[int], np.ndarray]]) -> int:
    return sum(bool(set(before) - set(after)) for (before, _), (after, _) in pairwise(path))


@pytest.mark.parametrize("seed", EXCHANGING)
def test_exchange_follows_algorithms_1_and_3(seed):
    problem = make_problem(seed=seed, lam=SIGMA2)
    fit = grown(problem, SingleVector(MaxResidual()), n_steps=20, make_block=noisy(ExchangeBlock))
    K, Y, _ = dense(problem)
    path = oracles.qr_with_exchange(K + SIGMA2 * np.eye(N), Y[:, 0], 20)
    for step, (_, alpha) in enumerate(path, start=1):
        rows, a = expansion(fit, step)
        np.testing.assert_allclose(a[:, 0], alpha[rows], rtol=1e-6, atol=1e-7)
    assert_never_rises(fit.history.residual_norm, 1e-14)


@over_outputs
@pytest.mark.parametrize("lam", [pytest.param(1e-4, marks=pytest.mark.long), LAM, 1.0, 10.0])
def test_exchange_never_raises_the_objective(p, lam):
    """Penalties matter: a swap that lowers the residual may raise λ‖f‖² by more, from λ = 1 on in most problems."""
    on_the_diagonal = [noisy(ExchangeBlock), noisy(MinimalResidualBlock)] if lam == LAM else []
    for seed in range(2):
        weight = None if seed % 2 else 1 + np.arange(N) % 3
        problem = make_problem(p=p, seed=seed, lam=lam, weight=weight)
        for make in (ExchangeBlock, *on_the_diagonal):
            fit = grown(problem, SingleVector(MaxResidual()), n_steps=25, make_block=make)
            assert_never_rises([start_of(fit), *fit.history.objective], 1e-12)


@over_outputs
def test_an_exchange_under_a_penalty_lowers_the_objective_by_what_it_says(p):
    """The swap's test is the objective of the model without s and with the best weight of l, made in full."""
    for seed, lam in product(range(6), (LAM, 1.0)):
        problem = make_problem(p=p, seed=seed, lam=lam, weight=1 + np.arange(N) % 2)
        block = grown(problem, SingleVector(MaxResidual()), n_steps=8, make_block=ExchangeBlock).current
        K, Y, w = dense(problem)
        members, a, r = block.basis_index.tolist(), block.span.weights().numpy(), Y - block.f.numpy()
        s = int((r[members] ** 2).sum(1).argmin())
        l = int(np.where(np.isin(np.arange(N), members), -1.0, (r**2).sum(1)).argmax())
        rest, J = np.delete(a, s, 0), [*members[:s], *members[s + 1 :]]
        left = Y - K[:, J] @ rest
        gamma = (K[l] @ (w[:, None] * left) - lam * K[l, J] @ rest) / (w @ K[l] ** 2 + lam * K[l, l])
        after = oracles.objective(K, [*J, l], np.vstack([rest, gamma]), Y, w, lam)
        before = oracles.objective(K, members, a, Y, w, lam)
        swap = block._swap(block.span.weights())
        assert (swap is not None) == (after < before)
        if swap is not None:
            np.testing.assert_allclose(swap[3].numpy(), gamma, rtol=1e-6)


# --- pruning and the number of basis vectors --------------------------------------------------------


@pytest.mark.parametrize("rule", ["mdl", "aic"])
def test_pruning_equals_refitting_without_each_vector(rule):
    """Penalty zero, where the rise of the objective is exactly that of the residual."""
    problem = make_problem(lam=0.0)
    fit = grown(problem, SingleVector(Random()), n_steps=15)
    K, Y, _ = dense(problem)
    rows, a = expansion(fit)
    r2 = fit.history.residual_norm[-1] ** 2
    kept, weights = prune(fit.current.span.R[:15, :15], torch.from_numpy(a), r2, N, rule)
    left = oracles.prune(K, rows.tolist(), Y, rule)
    assert rows[kept.numpy()].tolist() == left
    assert 1 <= len(left) < 15
    np.testing.assert_allclose(
        K[:, left] @ weights.numpy(), K[:, left] @ np.linalg.lstsq(K[:, left], Y, rcond=None)[0], atol=1e-8
    )


@pytest.mark.parametrize("rule", [MinimumDescriptionLength, AkaikeInformation], ids=["mdl", "aic"])
def test_size_criteria_are_their_formulas_and_cut_back_to_their_minimum(rule):
    problem = make_problem(lam=1e-6)
    fit = ForwardFit(problem, SingleVector(MaxResidual()), np.random.default_rng(0))
    stop = rule(patience=8)
    why = fit.run([stop, MaxSteps(N)])
    K, Y, _ = dense(problem)
    costs = []
    for step in range(1, fit.n_steps + 1):
        rows, a = expansion(fit, step)
        r = Y - K[:, rows] @ a
        costs.append(oracles.size_cost(stop.short_name, float((r**2).sum()), step, N))
    np.testing.assert_allclose(stop.curve(fit.history), costs, rtol=1e-9)
    best = 1 + int(np.argmin(costs))
    assert stop.best(fit.history) == best == fit.n_steps - 8
    assert f"had its minimum at step {best}, 8 steps before the last" in why


def test_aic_has_no_value_for_as_many_vectors_as_rows():
    history = History(n_rows=5, n_basis=[1, 2, 3, 4], residual_norm=[1.0, 0.9, 0.8, 0.7])
    assert np.isinf(history.prices(information_criterion)).tolist() == [False, False, True, True]


@pytest.mark.parametrize(
    ("rule", "history", "words"),
    [
        (MaxSteps(2), {"seconds": [0.1, 0.2]}, "all 2 learners were added"),
        (TimeBudget(1.0), {"seconds": [2.5]}, "the time budget of 1 s was used up: 1 step took 2.5 s of it"),
        (Tolerance(0.1, 10.0), {"residual_norm": [0.5]}, "the residual norm fell to 0.5, within tol=0.1"),
        (
            Dependence(1e-6, 2),
            {"novelty": [[1], [1e-8], [1e-9]]},
            "the last 2 basis vectors lie in the span of those before them, up to less than 1e-06 of their norm",
        ),
        (Validation(2), {"validation": [1.0, 2.0, 3.0], "seconds": [0, 0, 0]}, "the validation error had its minimum"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_rule_says_why_in_words_and_not_before_it_is_time(rule, history, words):
    assert rule.reason(History(n_rows=10.0)) is None
    assert words in rule.reason(History(n_rows=10.0, **history))


def test_dependent_vectors_are_passed_over_and_a_run_of_them_is_cut_off():
    rule, few = Dependence(1e-6, 3), History(n_rows=10.0, novelty=[[1], [1e-9], [1e-9], [0.5], [1e-9], [1e-9]])
    assert rule.reason(few) is None
    assert rule.best(few) is None
    assert rule.best(History(n_rows=10.0, novelty=[*few.novelty, [1e-9]])) == 4
    together = [[1, 1e-9, 0.5], [1, 1e-9, 1e-9]]  # learners of several vectors: the second one is kept
    assert rule.best(History(n_rows=10.0, novelty=together)) is None
    assert rule.best(History(n_rows=10.0, novelty=[*together, [1e-9, 1e-9, 1e-9]])) == 2


@pytest.mark.usefixtures("two_folds")
def test_a_row_beside_a_basis_vector_with_another_target_does_not_end_a_fit():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 2))
    y = np.sin(2 * X[:, 0]) + X[:, 1]
    X, y = np.concatenate([X, X[:1] + 1e-9]), np.append(y, y[0] + 9.0)  # never to be met by both
    model = GreedyKernelRegressor(60, kernel=Gaussian(1.0), step_size=1, regularization=1e-3, random_state=0).fit(X, y)
    assert model.n_steps_ == 60
    alike = np.isin(model.basis_indices_, [0, 200])
    assert alike.sum() <= 2
    assert np.abs(model.predict(X[1:-1]) - y[1:-1]).mean() < 0.5


# --- polish -----------------------------------------------------------------------------------------


@over_losses
@pytest.mark.parametrize("start", ["from zero", "from the boosted weights"])
def test_polish_reaches_the_dense_optimum(loss, start):
    """An objective above its minimum by Δ has ‖f − f*‖² ≤ 2Δ/λ, and values of f are off by no more (k(x, x) = 1).

    The softmax's Newton step leaves the coupling of its classes out, so it ends closer and closer, not there.
    """
    tolerance = 1e-4 if loss == "softmax" else 1e-9
    problem = make_problem(loss, weight=np.random.default_rng(1).uniform(0.5, 2, N))
    fit = grown(problem, ensemble(), n_steps=3, block_length=1)
    rows, a = expansion(fit)
    begin = torch.from_numpy(a) if start.endswith("weights") else None
    done = polish(problem, torch.from_numpy(rows), begin, tol=1e-12, max_iter=200)
    K, Y, w = dense(problem)
    best = oracles.best_weights(K, rows, Y, w, LAM, loss)
    found, wanted = (oracles.objective(K, rows, x, Y, w, LAM, loss) for x in (done.weights, best))
    assert found == pytest.approx(wanted, rel=tolerance)
    np.testing.assert_allclose(done.f, K[:, rows] @ best, atol=(2 * tolerance * wanted / LAM) ** 0.5)
    assert done.stop_reason


def test_polish_never_ends_above_where_it_began():
    for loss in LOSSES:
        problem = make_problem(loss)
        fit = grown(problem, ensemble(), n_steps=3, block_length=1)
        rows, a = expansion(fit)
        K, Y, w = dense(problem)
        done = polish(problem, torch.from_numpy(rows), torch.from_numpy(a), max_iter=2)
        before, after = (oracles.objective(K, rows, x, Y, w, LAM, loss) for x in (a, done.weights))
        assert after <= before


@over_losses
def test_polish_keeps_the_weights_that_rows_held_out_like_best(loss):
    """Hardly any penalty: the rows held out soon see the fit turn to noise."""
    weight, held = np.ones(N), np.arange(0, N, 3)
    weight[held] = 0.0
    problem = replace(make_problem(loss, weight=weight), lam=1e-6)
    rows, K = torch.arange(1, N, 3), dense(problem)[0]

    def error(a) -> float:
        f = torch.as_tensor(K[np.ix_(held, rows)] @ np.asarray(a))
        return float(problem.loss.value(problem.y[held].double(), f).mean())

    watched = polish(problem, rows, tol=0.0, max_iter=15, validation=torch.from_numpy(held))
    steps = [polish(problem, rows, tol=0.0, max_iter=k) for k in range(watched.n_iter + 2)]
    errors = [error(step.weights) for step in steps]
    assert error(watched.weights) == pytest.approx(min(errors), rel=1e-6)
    assert "the validation error was lowest after" in watched.stop_reason
    np.testing.assert_allclose(watched.f, K[:, rows] @ watched.weights.numpy(), atol=1e-9)


def test_steps_of_a_polish_are_as_many_as_fit_beside_what_comes_before_them(monkeypatch):
    """A pass over forty rows and the square of as many basis vectors take a second each."""
    problem, index = make_problem("squared"), torch.arange(40)
    monkeypatch.setattr(exact, "seconds_of", lambda work: 1.0)
    a_pass = problem.n_candidates / 40
    before = exact.POLISH_CUBES + exact.POLISH_PASSES * a_pass
    assert affordable_polish_steps(problem, index, before) == 0
    for steps in (1, 7):
        assert affordable_polish_steps(problem, index, before + (steps + 0.5) * exact.STEP_PASSES * a_pass) == steps


def test_what_a_polish_takes_is_measured():
    problem, index = make_problem("squared"), torch.arange(20)
    assert affordable_polish_steps(problem, index, 0.0) == 0
    assert affordable_polish_steps(problem, index, 1e6) > 100


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_sparse_ridge_is_the_dense_solution(dtype):
    """Float32 tiles have errors of eps, which the sum over N rows and the penalty pass on as N eps/λ."""
    problem = make_problem(p=2, dtype=dtype, weight=np.random.default_rng(1).uniform(0.5, 2, N))
    index = torch.arange(0, N, 3)
    K, Y, w = dense(problem)
    a = sparse_ridge(problem, index).numpy()
    best = oracles.ridge(K, index.numpy(), Y, w, LAM)
    tolerance = N / LAM * torch.finfo(dtype).eps
    np.testing.assert_allclose(K[:, index] @ a, K[:, index] @ best, atol=tolerance)


# --- focus ------------------------------------------------------------------------------------------


def test_focus_takes_the_rows_of_small_margin():
    problem = make_problem("squared-hinge", n=400)
    f = torch.from_numpy(np.random.default_rng(2).normal(0.6, 1.0, (400, 1))) * problem.y
    margins = (problem.y * f)[:, 0]
    rows = MarginFocus(margin=0.5, share=0.9).rows(problem, f)
    assert set(rows.tolist()) == set((margins < 0.5).nonzero()[:, 0].tolist())


def test_focus_takes_the_smallest_margins_where_too_many_are_small():
    problem = make_problem("squared-hinge", n=400)
    f = torch.from_numpy(np.random.default_rng(2).normal(-0.6, 1.0, (400, 1))) * problem.y
    rows = MarginFocus(margin=0.5, share=0.5).rows(problem, f)
    assert rows.tolist() == sorted((problem.y * f)[:, 0].argsort()[:200].tolist())


def test_focus_leaves_out_rows_without_weight_and_is_never_empty():
    problem = make_problem("squared-hinge", n=400, weight=np.r_[np.ones(300), np.zeros(100)])
    rows = MarginFocus().rows(problem, 10 * problem.y)  # every margin is large
    assert len(rows) >= 100  # of equal margins all, since none is smaller
    assert int(rows.max()) < 300


@pytest.mark.parametrize("loss", ["squared", "logistic", "squared-hinge"])
def test_focused_blocks_leave_the_values_of_their_weights(loss):
    """Blocks see a part of the rows; when one ends, all rows have followed."""
    problem = make_problem("squared-hinge", n=400)
    problem = replace(problem, loss=Loss.resolve(loss, "loss"))
    pools = []

    def make_block(problem: Problem, f: Tensor, capacity: int, pool: Tensor | None) -> Block:
        pools.append(pool)
        return Block(problem, f, capacity, pool)

    fit = grown(problem, ensemble(), 6, block_length=2, focus=MarginFocus(share=0.4), make_block=make_block)
    assert [pool is None for pool in pools] == [True, False, False]
    rows, a = expansion(fit)
    X = problem.rows.take(np.arange(400))
    np.testing.assert_allclose(KERNEL(X, X[rows]).numpy() @ a, fit.f, atol=1e-9)
    for block, pool in zip(fit.blocks[1:], pools[1:], strict=True):
        assert len(pool) <= 160
        assert all(set(term.index.tolist()) <= set(pool.tolist()) for term in block.terms)


def test_watched_rows_follow_within_a_focused_block():
    """Else the validation error would stand still until the block ends and patience would run out."""
    problem = make_problem("squared-hinge", n=400, weight=np.r_[np.ones(300), np.zeros(100)])
    watched = torch.arange(300, 400)
    fit = grown(problem, ensemble(), 9, block_length=4, focus=MarginFocus(share=0.4), validation=watched)
    rows, a = expansion(fit)
    X = problem.rows.take(np.arange(400))
    f = torch.from_numpy(KERNEL(X, X[rows]).numpy() @ a)
    np.testing.assert_allclose(fit.f[watched], f[watched], atol=1e-9)
    wanted = problem.loss.value(problem.y[watched], f[watched]).mean()
    assert fit.history.validation[-1] == pytest.approx(float(wanted), rel=1e-9)


# --- learners ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "wanted"),
    [(3, [3, 6, 9, 12]), ([2, 5], [2, 7, 12, 17]), (lambda step: step + 1, [1, 3, 6, 10])],
    ids=["number", "schedule", "function"],
)
def test_the_size_of_learners_follows_its_schedule(size, wanted):
    fit = grown(make_problem(), ensemble(size=size), n_steps=4)
    assert fit.history.n_basis == wanted
    assert [size_at(size, step) for step in range(4)] == np.diff([0, *wanted]).tolist()


def test_a_learner_is_no_larger_than_the_rows_left():
    fit = grown(make_problem(n=10), ensemble(size=7, subset_size=20), n_steps=5)
    assert fit.history.n_basis == [7, 10]  # a full update uses every row once


@pytest.mark.parametrize("draw", ["random", "largest"])
def test_a_learner_chooses_within_its_subset(draw):
    problem = make_problem(n=400)
    learner = Ensemble(LargestResiduals(), JointPursuit(), 10, 20, draw)
    rows = grown(problem, learner, n_steps=1).path().rows
    size = problem.y.square().sum(1).numpy()
    top = set(np.argsort(-size)[:10].tolist())
    assert (set(rows.tolist()) == top) == (draw == "largest")


def test_rows_serve_again_in_a_later_block_but_not_in_the_same():
    fit = grown(make_problem(n=12), ensemble(size=6, subset_size=12), n_steps=4, block_length=2)
    for block in fit.blocks:
        assert len(set(block.basis_index.tolist())) == len(block.basis_index) == 12
    assert len(fit.path().rows) == 12


@over_losses
@over_lengths
def test_float32_grows_the_same_model(loss, length):
    """Same rows drawn, same choices by the largest residuals; values differ by rounding, and by the
    ridge of 10 eps that learners in float32 carry, over six learners.

    The classes' functions of one softmax learner sum to nearly zero: after the first learner float32 cannot
    tell, drops one of them, and goes its own way.
    """
    learner, n_steps = ensemble(LargestResiduals()), 1 if loss == "softmax" else 6
    single, double = (
        grown(make_problem(loss, lam=0.1, dtype=dtype), learner, n_steps, block_length=length)
        for dtype in (torch.float32, torch.float64)
    )
    assert single.path().rows.tolist() == double.path().rows.tolist()
    assert single.f.dtype == torch.float32
    np.testing.assert_allclose(single.f, double.f, atol=3e-3)


@over_lengths
def test_several_outputs_share_vectors_and_are_fitted_as_well_as_alone(length):
    """With one vector a learner, the outputs' weights are separate least-squares problems."""
    problem = make_problem(p=3)
    learner = SingleVector(Random())
    together = grown(problem, learner, block_length=length)
    for o in range(3):
        alone = grown(problem.with_sample(Y=problem.y[:, o : o + 1]), learner, block_length=length)
        assert alone.path().rows.tolist() == together.path().rows.tolist()
        np.testing.assert_allclose(alone.f[:, 0], together.f[:, o], atol=1e-10)


def test_a_fit_goes_on_where_it_stopped():
    long = grown(make_problem(), ensemble(), n_steps=6, block_length=4)
    fit = grown(make_problem(), ensemble(), n_steps=3, block_length=4)
    fit.run([MaxSteps(6)])
    np.testing.assert_array_equal(fit.f, long.f)
    assert fit.history.objective == long.history.objective


def test_closed_blocks_hold_nothing_of_the_size_of_the_rows():
    fit = grown(make_problem(), ensemble(), block_length=2)
    for block in fit.blocks:
        held = [*vars(block).values(), *vars(block.span).values()]
        assert not any(isinstance(value, Problem | RowSource) for value in held)
        assert all(N not in value.shape for value in held if isinstance(value, Tensor))


def test_a_callback_sees_every_step_and_may_stop():
    seen = []
    fit = ForwardFit(make_problem(), ensemble(), np.random.default_rng(0))
    why = fit.run(
        [MaxSteps(6)], callbacks=[lambda fit: seen.append(fit.history.objective[-1]), lambda fit: len(seen) == 3]
    )
    assert why == "a callback asked to stop"
    assert seen == fit.history.objective
    assert len(seen) == 3


# --- dependent columns ------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_columns_alike_to_six_digits_are_skipped(dtype):
    rng = np.random.default_rng(0)
    X = torch.from_numpy(rng.normal(size=(400, 3)))
    y = (X[:, :1] + 0.3 * X[:, 1:2] ** 2 + 0.1 * torch.from_numpy(rng.normal(size=(400, 1)))).to(dtype)
    plan = make_plan(400, device="cpu", dtype=dtype)
    sample = Sample(TensorRows(X.to(dtype)), y, torch.ones(400, dtype=dtype), plan)
    problem = Problem(sample, 100.0 * Gaussian(20.0), 0.05)
    fit = grown(problem, SingleVector(MaxResidual()), 40, capacity=4, make_block=partial(Block, min_novelty=1e-6))
    assert 5 < int(fit.current.span.nonzero.sum()) < 40


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_steps_on_a_gpu_are_those_on_a_cpu():
    problem = make_problem()
    there = problem.with_sample(
        rows=TensorRows(problem.rows.take(torch.arange(N)).cuda()),
        Y=problem.y.cuda(),
        weight=problem.weight.cuda(),
        plan=replace(problem.plan, device=torch.device("cuda")),
    )
    on_cpu, on_gpu = (grown(at, SingleVector(MaxResidual()), 20, capacity=4) for at in (problem, there))
    assert_close(on_gpu.f.cpu(), on_cpu.f, rtol=1e-8, atol=1e-8)


@pytest.mark.usefixtures("two_folds")
@pytest.mark.parametrize("step", [1, pytest.param(2, marks=pytest.mark.long), 16])
def test_columns_alike_to_the_last_digit_of_float32_leave_a_sound_model(step):
    """A kernel so long that it is nearly linear: what is left of a column is mostly penalty and rounding."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2000, 6))
    y = X[:, 0] + 0.3 * X[:, 1] ** 2 + 0.3 * rng.normal(size=2000)
    options = {"kernel": 130.0 * Gaussian(30.0), "regularization": 0.08, "scale_inputs": False, "random_state": 0}
    narrow, wide = (
        GreedyKernelRegressor(160, step_size=step, dtype=dtype, **options).fit(X, y) for dtype in ("float32", "float64")
    )
    truth = X[:, 0] + 0.3 * X[:, 1] ** 2
    errors = [np.sqrt(np.mean((model.predict(X) - truth) ** 2)) for model in (narrow, wide)]
    assert errors[0] < 1.5 * errors[1] < 0.2


def test_the_exact_solution_has_the_values_of_its_kernel_matrix_and_leaves_the_targets_alone():
    problem = make_problem(weight=np.random.default_rng(1).uniform(0.5, 2, N))
    index, before = torch.arange(N), problem.y.clone()
    A = exact_ridge(problem, index)[0]
    slow = problem.matrix(problem.basis(index)).product(A).T
    assert_close(_values(problem, index, A), slow.contiguous(), rtol=1e-8, atol=1e-8)
    assert torch.equal(problem.y, before)
    X = problem.basis(index)
    assert_close(_symmetric(problem.kernel, X, tile_rows=7, tile_columns=21), problem.kernel(X, X))

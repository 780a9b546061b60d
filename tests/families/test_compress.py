"""Compression of exact solutions: against direct solutions, refits without rows, and the models it comes from."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from oracles import assert_close

import mercer
from mercer import KernelBoostingClassifier, KernelBoostingRegressor, kernels
from mercer.data import TensorRows
from mercer.engine import Sample, make_plan
from mercer.forward.compress import CompressionPath, GrowingBasis, JointSizes, Judges, Sizes, compression_path
from mercer.forward.problem import Problem
from mercer.reporting.growth import growth_section
from mercer.reporting.subject import Subject

N, LAM = 150, 0.05
KERNEL = kernels.Matern32(0.8)


def noisy_table(n: int, seed: int, noise: float = 0.3) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (n, 2))
    return X, np.sin(2 * X[:, 0]) * X[:, 1] + noise * rng.normal(size=n)


@pytest.fixture(scope="module")
def problem() -> Problem:
    X, y = noisy_table(N, 0)
    Y = torch.as_tensor(np.stack([y, X[:, 0]], 1))
    weight = torch.as_tensor(np.random.default_rng(1).uniform(0.5, 2.0, N))
    return Problem(Sample(TensorRows(torch.as_tensor(X)), Y, weight, make_plan(N, "cpu")), KERNEL, LAM)


def exact_weights(problem: Problem) -> torch.Tensor:
    K = problem.gram(problem.rows.X)
    return torch.linalg.solve(K + torch.diag(problem.lam / problem.weight), problem.y)


def subset_weights(problem: Problem, basis: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """The penalised least-squares weights of basis vectors, fitted to some rows, by the normal equations."""
    X = problem.rows.X
    K, Q = problem.kernel(X[rows], X[basis]), problem.gram(X[basis])
    D = problem.weight[rows, None]
    return torch.linalg.solve(K.T @ (D * K) + problem.lam * Q, K.T @ (D * problem.y[rows]))


def path_of(problem: Problem, n_folds: int = 0, most: int = 60, tol: float = 0.0) -> CompressionPath:
    K, a, places = problem.gram(problem.rows.X), exact_weights(problem), torch.arange(0, N, 10)
    values = (K @ a)[places] - 0.1
    folds = torch.arange(len(places)) % n_folds if n_folds else None
    judges = Judges(places, values, values, problem.y[places], problem.weight[places], folds)
    return compression_path(problem, torch.arange(N), K @ a, judges, most, tol)


def test_weights_at_every_size_solve_the_penalised_normal_equations(problem):
    path = path_of(problem)
    assert len(path.sizes) > 3
    for size in path.sizes:
        wanted = subset_weights(problem, path.rows[:size], torch.arange(N))
        assert_close(path.weights(size), wanted, rtol=1e-6, atol=1e-8)


def test_with_all_rows_the_fit_is_the_exact_solution(problem):
    f = problem.gram(problem.rows.X) @ exact_weights(problem)
    basis = GrowingBasis(problem, torch.arange(N), f, torch.ones(N, dtype=torch.bool), N)
    while basis.size < N and basis.grow(40, np.random.default_rng(0)):
        pass
    assert_close(basis.fitted, f, rtol=1e-6, atol=1e-8)


def test_the_objective_exceeds_its_minimum_by_half_the_squared_distance(problem):
    K, a = problem.gram(problem.rows.X), exact_weights(problem)
    path = path_of(problem, most=20)
    W = torch.zeros_like(a)
    W[path.rows] = path.weights(20)

    def objective(W):
        return float(problem.objective(K @ W, problem.lam * (W * (K @ W)).sum()))

    change = W - a
    distance = problem.weight[:, None] * (K @ change).square() + problem.lam * change * (K @ change)
    assert objective(W) - objective(a) == pytest.approx(0.5 * float(distance.sum()), rel=1e-8)


@pytest.mark.parametrize("n_folds", [0, 1, 2])
def test_left_out_predictions_are_those_of_refits_with_the_same_basis(problem, n_folds):
    path = path_of(problem, n_folds, most=40)
    places, basis, X = path.judges.places, path.rows[:40], problem.rows.X
    folds = [places[fold::n_folds] for fold in range(n_folds)] or list(places[:, None])
    for fold in folds:
        others = torch.tensor([i for i in range(N) if i not in fold.tolist()])
        wanted = problem.kernel(X[fold], X[basis]) @ subset_weights(problem, basis, others)
        found = path.predictions[-1][torch.isin(places, fold)]
        assert_close(found, wanted, rtol=1e-6, atol=1e-8)


def test_judging_rows_are_never_basis_vectors(problem):
    path = path_of(problem, most=N)
    assert not torch.isin(path.rows, path.judges.places).any()
    assert len(path.rows) <= N - len(path.judges.places)
    assert len(path.rows.unique()) == len(path.rows)


def test_a_path_ends_at_its_tolerance(problem):
    free = path_of(problem)
    rises = [free.rise(size) for size in free.sizes]
    tol = rises[2]
    first = next(place for place, rise in enumerate(rises) if rise <= tol)
    assert path_of(problem, tol=tol).sizes == free.sizes[: first + 1]


def test_columns_that_agree_to_all_digits_enter_once():
    X = torch.linspace(0, 1, 40, dtype=torch.float64)[:, None].repeat(2, 1)
    X[40:] += 1e-14
    y = X.sin()
    sample = Sample(TensorRows(X), y, torch.ones(80).double(), make_plan(80, "cpu"))
    problem = Problem(sample, kernels.Gaussian(1.0), 1e-3)
    basis = GrowingBasis(problem, torch.arange(80), y, torch.ones(80, dtype=torch.bool), 80)
    while basis.grow(16, np.random.default_rng(0)):
        pass
    assert basis.size < 20
    assert bool(basis.fitted.isfinite().all())
    assert float((basis.fitted - y).abs().max()) < 0.01


def test_members_are_judged_together():
    """Two members whose changes cancel may be smaller than each of them could be alone."""
    left_out, targets = torch.zeros(50, 1).double(), torch.ones(50, 1).double()
    judges = Judges(torch.arange(50), left_out, left_out, targets, torch.ones(50).double())
    d = torch.linspace(-1, 1, 50, dtype=torch.float64)[:, None]
    none = torch.empty(0)

    def path(sign):
        return CompressionPath(none, none, none, none, judges, [10, 20], [sign * d, sign * 0.01 * d])

    curve = JointSizes([path(1.0), path(-1.0)], [0.5, 0.5]).curve(tol=1e-3)
    assert [at.sizes for at in curve if at.rise <= 1e-3][-1] == (10, 10)
    curve = JointSizes([path(1.0), path(1.0)], [0.5, 0.5]).curve(tol=1e-2)
    assert [at.sizes for at in curve if at.rise <= 1e-2][-1] == (20, 20)
    kept = JointSizes([path(1.0), path(1.0)], [0.5, 0.5]).curve(tol=1e-9)[0]
    assert kept.sizes == (None, None)
    assert Sizes((10, None), 0.0).n_basis == 10


@pytest.mark.usefixtures("short_selections")
def test_a_noisy_table_keeps_few_rows_and_its_error():
    X, y = noisy_table(1200, 0)
    X_new, truth = noisy_table(4000, 1, noise=0.0)
    few = KernelBoostingRegressor(random_state=0).fit(X, y)
    full = KernelBoostingRegressor(random_state=0, n_basis=None).fit(X, y)
    sizes = [len(expansion.basis) for expansion in few.expansions_]
    assert all(len(expansion.basis) == 1200 for expansion in full.expansions_)
    assert sum(sizes) <= 1200 * len(sizes) / 10
    assert str(sizes[0]) in few.compression_reason_
    noise = 0.3**2
    errors = [np.mean((model.predict(X_new) - truth) ** 2) + noise for model in (few, full)]
    assert errors[0] <= 1.01 * errors[1]
    np.testing.assert_array_equal(few.basis_, X[few.basis_indices_])
    assert set(np.diff(few.compression_path_["n_basis"]) > 0) == {True}


def test_a_given_number_of_basis_vectors_is_kept():
    X, y = noisy_table(600, 0)
    model = KernelBoostingRegressor(kernel="matern32", n_basis=40, random_state=0).fit(X, y)
    assert model.basis_.shape == (40, 2)
    assert model.dual_coef_.shape == (40, 1)
    assert model.score(X, y) > 0.8
    all_rows = KernelBoostingRegressor(kernel="matern32", n_basis=5000, random_state=0).fit(X, y)
    assert len(all_rows.basis_) == 600
    assert "5000 basis vectors were asked for" in all_rows.compression_reason_


def test_intervals_of_a_strong_compression_know_its_error():
    """Five basis vectors cannot follow the function: intervals must widen accordingly."""
    X, y = noisy_table(1500, 0, noise=0.05)
    X_new, y_new = noisy_table(2000, 1, noise=0.05)
    model = KernelBoostingRegressor(kernel="matern32", n_basis=5, random_state=0).fit(X, y)
    low, high = model.predict_interval(X_new, coverage=0.9).T
    assert 0.86 < np.mean((low <= y_new) & (y_new <= high)) < 0.94


def test_a_function_without_noise_that_needs_its_rows_keeps_them():
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (600, 4))
    y = np.abs(X).sum(1) * np.sign(np.sin(3 * X[:, 0]))
    model = KernelBoostingRegressor(kernel="matern12", regularization=1e-6, random_state=0).fit(X, y)
    assert len(model.basis_) == 600
    assert model.compression_reason_.startswith("all 600 rows are kept")


@pytest.mark.parametrize("n_basis", ["auto", 5])
def test_constant_and_perfectly_known_targets_are_no_trouble(n_basis):
    X, _ = noisy_table(500, 0)
    model = KernelBoostingRegressor(kernel="gaussian", n_basis=n_basis, random_state=0)
    np.testing.assert_allclose(model.fit(X, np.full(500, 3.0)).predict(X), 3.0)
    assert model.compression_reason_ == "left out: a fitted function is zero"
    model.fit(X, X[:, 0])
    assert n_basis == 5 or model.score(X, X[:, 0]) > 0.999


@pytest.mark.usefixtures("short_selections")
def test_few_rows_are_all_kept():
    X, y = noisy_table(100, 0)
    model = KernelBoostingRegressor(random_state=0).fit(X, y)
    assert len(model.basis_) == 100
    assert model.compression_reason_ == "left out: 100 rows are few"


@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_compressed_classifiers_keep_their_probabilities(tmp_path, loss):
    X, y = noisy_table(900, 0)
    labels = np.where(y > 0.2, "high", np.where(y < -0.2, "low", "mid"))
    options = {"kernel": kernels.Matern32(1.0), "regularization": 1.0, "loss": loss, "random_state": 0}
    few = KernelBoostingClassifier(**options).fit(X, labels)
    full = KernelBoostingClassifier(**options, n_basis=None).fit(X, labels)
    assert len(few.basis_) < 900 / 3
    assert np.abs(few.predict_proba(X) - full.predict_proba(X)).mean() < 0.02
    few.save(tmp_path / "few.mercer")
    again = mercer.load(tmp_path / "few.mercer")
    np.testing.assert_array_equal(again.predict_proba(X), few.predict_proba(X))
    assert again.compression_reason_ == few.compression_reason_
    (staged,) = few.staged_predict(X)
    np.testing.assert_array_equal(staged, few.predict(X))


def test_a_projected_function_that_lies_in_the_span_is_found_again(problem):
    """A function of the chosen vectors is its own projection, which a fit to targets would not give back."""
    X, chosen = problem.rows.X, torch.arange(0, N, 4)
    a = torch.as_tensor(np.random.default_rng(3).normal(size=(len(chosen), 2)))
    f = problem.kernel(X, X[chosen]) @ a
    is_candidate = torch.zeros(N, dtype=torch.bool)
    is_candidate[chosen] = True
    basis = GrowingBasis(problem, torch.arange(N), f, is_candidate, len(chosen), projects=True)
    while basis.grow(16, np.random.default_rng(0)):
        pass
    assert_close(basis.fitted, f, rtol=1e-6, atol=1e-7)


@pytest.mark.usefixtures("short_selections")
def test_a_fitted_model_is_compressed_afterwards(tmp_path):
    X, y = noisy_table(900, 0)
    X_new, y_new = noisy_table(2000, 1)
    model = KernelBoostingRegressor(n_basis=None, random_state=0).fit(X, y)
    small = mercer.compress(model, X, y)
    before, after = (sum(len(part.basis) for part in each.expansions_) for each in (model, small))
    assert after <= before / 3
    assert str(after) in small.compression_reason_
    errors = [np.mean((each.predict(X_new) - y_new) ** 2) for each in (small, model)]
    assert errors[0] <= 1.01 * errors[1]
    assert len(model.basis_) == 900
    np.testing.assert_allclose(small.basis_, X[small.basis_indices_])
    small.save(tmp_path / "small.mercer")
    np.testing.assert_array_equal(mercer.load(tmp_path / "small.mercer").predict(X), small.predict(X))


def test_intervals_widen_with_the_error_of_a_strong_compression():
    X, y = noisy_table(900, 0, noise=0.05)
    X_new, y_new = noisy_table(2000, 1, noise=0.05)
    model = KernelBoostingRegressor(kernel="matern32", random_state=0).fit(X, y)
    tiny = mercer.compress(model, X, y, n_basis=8)
    low, high = tiny.predict_interval(X_new, coverage=0.9).T
    assert np.mean((low <= y_new) & (y_new <= high)) > 0.88


def test_compress_refuses_what_it_cannot_do():
    X, y = noisy_table(100, 0)
    model = KernelBoostingRegressor(kernel="matern32", random_state=0).fit(X, y)
    with pytest.raises(ValueError, match="n_basis must be"):
        mercer.compress(model, X, y, n_basis=0)
    with pytest.raises(ValueError, match="model must be a fitted boosted or greedy kernel model"):
        mercer.compress(object(), X, y)
    with pytest.raises(ValueError, match="y must be of the length of X, 100"):
        mercer.compress(model, X, y[:50])


@pytest.mark.usefixtures("short_selections")
def test_few_rows_are_predicted_as_many_are(monkeypatch):
    X, y = noisy_table(600, 0)
    constant = KernelBoostingRegressor(kernel="laplacian").fit(np.c_[X, np.full(len(X), 7.0)], y)
    new = np.c_[X[:5], np.full(5, 8.0)]  # a constant column keeps its value
    with monkeypatch.context() as patched:
        patched.setattr("mercer.forward.estimator.make_plan", None)  # few rows in memory need no plan
        few = constant.predict(new)
    np.testing.assert_allclose(few, constant.predict(np.tile(new, (20, 1)))[:5], rtol=1e-9, atol=1e-12)
    labels = np.where(y > 0, "above", "below")
    for model in (
        KernelBoostingRegressor(random_state=0).fit(X, y),
        KernelBoostingRegressor(kernel="laplacian").fit(X, y),
    ):
        np.testing.assert_allclose(model.predict(X[:5]), model.predict(X)[:5], rtol=1e-9, atol=1e-12)
    classifier = KernelBoostingClassifier(kernel=KERNEL, regularization=0.1, random_state=0).fit(X, labels)
    np.testing.assert_allclose(classifier.predict_proba(X[:1]), classifier.predict_proba(X)[:1], rtol=1e-9)


def test_the_report_shows_errors_of_other_sizes():
    X, y = noisy_table(900, 0)
    model = KernelBoostingRegressor(kernel="matern32", random_state=0).fit(X, y)
    section = growth_section(Subject.of(model, X[:200], y[:200], None))
    assert model.compression_reason_ in section.words[1]
    assert len(section.figures) == 1
    np.testing.assert_array_equal(section.numbers["compression"]["n_basis"], model.compression_path_["n_basis"])


def test_the_cost_of_a_model_is_stated():
    X, y = noisy_table(600, 0)
    model = KernelBoostingRegressor(kernel="matern32", n_basis=40, random_state=0).fit(X, y)
    cost = model.cost_
    assert cost["n_basis"] == 40
    assert cost["bytes"] == 8 * 40 * (2 + 1)
    assert 0 < cost["microseconds_per_row"] < cost["microseconds_single"]

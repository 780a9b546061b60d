"""Kernels within cells, their exact solution, and the stage of large tables that uses them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from oracles import assert_close

import mercer
from mercer import KernelBoostingClassifier, KernelBoostingRegressor
from mercer.clock import Clock
from mercer.forward.boosting import Boosting
from mercer.forward.local_stage import local_stage, ridge_in_cells
from mercer.kernels import Gaussian, Laplacian, Matern32
from mercer.kernels.partitioned import Cells, Partitioned
from tests.families.test_refinement_stages import problem_of, wiggly

KERNELS = [Gaussian(0.5), Matern32(0.5), Laplacian(0.5)]


def rows_and_cells(n=400, n_columns=3, size=60, seed=0):
    X = torch.randn(n, n_columns, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return X, Cells.split(X, size, np.random.default_rng(seed))


@pytest.mark.parametrize(("n", "size"), [(400, 60), (64, 64), (65, 64), (1000, 7)])
def test_cells_halve_rows_until_none_has_more_than_wanted(n, size):
    """A split at the median leaves parts that differ by one row, so cells of one depth differ by one."""
    X, cells = rows_and_cells(n, size=size)
    counts = torch.bincount(cells.of(X), minlength=cells.n_cells)
    assert counts.sum() == n
    assert counts.max() <= size
    assert counts.max() - counts.min() <= 1


def test_equal_rows_stay_in_one_cell():
    X = torch.tensor([[0.0, 1.0]], dtype=torch.float64).expand(100, 2)
    assert len(Cells.split(X, 10, np.random.default_rng(0)).of(X).unique()) == 1


def test_a_row_has_one_cell_in_both_precisions():
    """Thresholds lie between rows, so that the rounding of a projection to float32 moves none of them."""
    X = torch.randint(0, 4, (3000, 5), generator=torch.Generator().manual_seed(0)).double()
    cells = Cells.split(X, 100, np.random.default_rng(0))
    assert torch.equal(cells.of(X), cells.of(X.float()))
    assert torch.equal(torch.cat([cells.of(row[None]) for row in X[:200].float()]), cells.of(X[:200]))


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: type(kernel).__name__)
def test_a_partitioned_kernel_is_zero_between_cells_and_the_kernel_within(kernel):
    X, cells = rows_and_cells()
    Z, W = X[::3], torch.randn(134, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    partitioned = Partitioned(kernel, cells)
    same = cells.of(X)[:, None] == cells.of(Z)
    dense = torch.where(same, kernel(X, Z), 0.0)
    columns = partitioned.columns(Z)
    assert_close(partitioned(X, Z), dense)
    assert_close(columns.product(X, W), dense @ W)
    assert_close(columns.transposed(X, W.new_ones(400, 1)), dense.T @ W.new_ones(400, 1))
    assert torch.linalg.eigvalsh(partitioned(X, X))[0] > -400 * 1e-13  # a kernel: no eigenvalue below rounding


def test_slopes_are_those_of_the_sum_within_the_cell():
    X, cells = rows_and_cells()
    Z, W = X[::3], torch.ones(134, 1, dtype=torch.float64)
    columns, step = Partitioned(Gaussian(0.7), cells).columns(Z), 1e-6
    slopes = columns.slopes(X[1:20], W)[:, 0, 0]
    moved = torch.tensor([step, 0.0, 0.0], dtype=torch.float64)
    differences = (columns.product(X[1:20] + moved, W) - columns.product(X[1:20] - moved, W))[:, 0] / (2 * step)
    same = cells.of(X[1:20] + moved) == cells.of(X[1:20] - moved)
    assert float((slopes - differences)[same].abs().max()) < 1e-7  # f'''h²/6, and rounding over h


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: type(kernel).__name__)
def test_the_solution_in_cells_is_that_of_the_whole_block_diagonal_system(kernel):
    X, cells = rows_and_cells()
    rng = np.random.default_rng(0)
    problem = problem_of(X, rng.normal(size=(400, 2)), Partitioned(kernel, cells), lam=0.1)
    weight = torch.as_tensor(rng.uniform(0.5, 2.0, 400))
    problem = problem.with_sample(weight=weight)
    A = ridge_in_cells(problem, torch.arange(400))
    whole = problem.kernel(X, X) + torch.diag(0.1 / weight)
    assert_close(whole @ A, problem.y, rtol=0, atol=1e-10)  # a condition number of 400/0.05, times eps


def test_the_stage_learns_what_a_smooth_model_has_left():
    """The quick wave has a variance of 0.045 and the noise one of 0.0025; the stage starts from the slow wave."""
    X, y = wiggly(3000)
    validation = torch.arange(0, 3000, 10)
    problem = problem_of(X, y, Gaussian(0.3), lam=0.05, watched=validation.tolist())
    slow = torch.as_tensor(np.sin(4 * X[:, 0]))[:, None]
    fit = local_stage(problem, slow, validation, 300, 0.0, Clock(), 1.0)
    assert fit is not None
    assert fit.history.validation[-1] < 0.5 * 0.2 * 0.045  # the loss is half of the squared error
    predicted = fit.problem.matrix(X_of(problem)[problem.candidates()]).product(weights_of(fit))
    assert_close(predicted, fit.f, rtol=0, atol=1e-8)


def test_a_length_scale_ten_times_too_long_is_halved_although_validation_rows_are_few():
    """The kernel of 0.3 learns the wave and 3 does not; one of sixty validation rows is in each cell."""
    X, y = wiggly(3000)
    validation = torch.arange(0, 3000, 50)
    problem = problem_of(X, y, Gaussian(3.0), lam=0.05, watched=validation.tolist())
    slow = torch.as_tensor(np.sin(4 * X[:, 0]))[:, None]
    fit = local_stage(problem, slow, validation, 50, 0.0, Clock(), 1.0)
    assert fit is not None
    assert fit.problem.kernel.kernel.length_scale <= 3 / 4
    assert fit.history.validation[-1] < 0.5 * 0.5 * 0.045


def X_of(problem):
    return problem.rows.X


def weights_of(fit):
    return torch.as_tensor(fit.path().weights(1))


def test_few_rows_have_no_local_stage():
    X, y = wiggly(900)
    problem = problem_of(X, y, Gaussian(0.3), watched=range(100))
    assert local_stage(problem, torch.zeros_like(problem.y), torch.arange(100), 300, 0.0, Clock(), 1.0) is None


@pytest.fixture
def boosted(monkeypatch, few_rows, refinement, small):
    """Makes models that are boosted, with cells that a small table fills."""
    monkeypatch.setattr(Boosting, "_selection_settings", replace(small, many_rows=1000))
    refinement(cell_rows=(150, 150), first_learners=10)
    return lambda estimator, **options: estimator(random_state=0, metric=None, **options)


def squares(n, seed=0):
    """Nine by nine squares of alternating classes, which few basis vectors do not tell apart."""
    X = np.random.default_rng(seed).uniform(0, 9, (n, 2))
    return X, np.floor(X).sum(1) % 2


def test_a_sampled_table_fits_the_stage_to_all_rows_and_files_keep_it(boosted, tmp_path):
    X, y = squares(3500)
    model = boosted(KernelBoostingRegressor, max_rows=1500).fit(X[:2500], y[:2500])
    local = model.expansions_[-1]
    assert isinstance(local.kernel, Partitioned)
    assert len(local.basis) > 2000  # all rows but those of validation
    values = model.predict(X[2500:])
    assert model.score(X[2500:], y[2500:]) > 0.5
    np.testing.assert_allclose(model.predict(X[2500:2505]), values[:5], rtol=0, atol=1e-4)
    mercer.save(model, tmp_path / "model")
    np.testing.assert_array_equal(mercer.load(tmp_path / "model").predict(X[2500:]), values)
    with pytest.raises(ValueError, match="local_stage must be False"):
        mercer.shapley_values(model, X[:2])


@pytest.mark.long
def test_classes_with_a_local_stage(boosted):
    X, y = squares(3500)
    model = boosted(KernelBoostingClassifier).fit(X[:2500], y[:2500])
    assert isinstance(model.expansions_[-1].kernel, Partitioned)
    assert model.score(X[2500:], y[2500:]) > 0.85
    assert np.abs(model.predict_proba(X[2500:]).sum(1) - 1).max() < 1e-12

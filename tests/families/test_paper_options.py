"""Options by which estimators take the papers' own steps."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch

from mercer import GreedyKernelClassifier, GreedyKernelRegressor, KernelBoostingRegressor
from mercer.data import TensorRows
from mercer.datasets import make_ripley, make_smooth_regression
from mercer.engine import Sample, make_plan
from mercer.forward.absorb import Block
from mercer.forward.combine import Rayleigh
from mercer.forward.criteria import MaxResidual
from mercer.forward.loop import Ensemble, ForwardFit
from mercer.forward.problem import Problem
from mercer.forward.stopping import MaxSteps
from mercer.kernels import Gaussian

pytestmark = pytest.mark.usefixtures("two_folds")

KERNEL, NOISE = Gaussian(1.0), 0.01


def rows(n: int = 200) -> tuple[np.ndarray, np.ndarray]:
    X, y = make_smooth_regression(n, random_state=0)
    return X[:, :3], y + 5.0


def columns(X: np.ndarray, basis: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Columns of K + σ²I that belong to basis vectors, and of K."""
    K = KERNEL(torch.as_tensor(X), torch.as_tensor(X[basis])).numpy()
    noisy = K.copy()
    noisy[basis, np.arange(len(basis))] += NOISE
    return noisy, K


@pytest.mark.parametrize("how", [{"update": "qr"}, {"update": "mrx", "exchange": True, "recompute": True}])
def test_without_an_intercept_weights_are_those_of_least_squares_on_the_chosen_columns(how):
    X, y = rows()
    fixed = {"kernel": KERNEL, "regularization": NOISE, "penalty": "gram", "scale_inputs": False, "dtype": "float64"}
    model = GreedyKernelRegressor(30, fit_intercept=False, random_state=0, **fixed, **how).fit(X, y)
    noisy, K = columns(X, model.basis_indices_)
    weights = np.linalg.lstsq(noisy, y, rcond=None)[0]
    # normal equations cost half of the digits of a condition number of 1e3
    np.testing.assert_allclose(model.predict(X), K @ weights, rtol=1e-8)


def test_recomputed_weights_leave_the_smaller_residual():
    X, y = rows()
    fixed = {"kernel": KERNEL, "regularization": NOISE, "update": "mrx", "scale_inputs": False, "dtype": "float64"}
    own, again = (GreedyKernelRegressor(30, recompute=r, random_state=0, **fixed).fit(X, y) for r in (False, True))
    np.testing.assert_array_equal(own.basis_indices_, again.basis_indices_)
    assert np.abs(again.predict(X) - y).mean() < np.abs(own.predict(X) - y).mean()


def test_recomputing_is_refused_for_other_updates():
    with pytest.raises(ValueError, match="recompute must be False unless update is 'mrx'"):
        GreedyKernelRegressor(recompute=True).fit(*rows(50))


def test_classes_without_an_intercept_are_fitted_as_they_are():
    X, y = make_ripley(100, random_state=0)
    fixed = {"kernel": KERNEL, "regularization": NOISE, "scale_inputs": False, "dtype": "float64", "update": "qr"}
    model = GreedyKernelClassifier(20, fit_intercept=False, random_state=0, **fixed).fit(X, y)
    noisy, K = columns(X, model.basis_indices_)
    weights = np.linalg.lstsq(noisy, np.where(y == y.max(), 1.0, -1.0), rcond=None)[0]
    np.testing.assert_array_equal(model.predict(X) == y.max(), K @ weights > 0)


#: Boost10 with ensembles of 5 vectors from 40 rows: tables II and III have 50 and 500.
BOOST10 = {"learner_size": 5, "subset_size": 40, "redraw": True, "criterion": "max-res", "combination": "rayleigh",
           "polish": False, "gram_rows": None, "max_rows": None, "validation_fraction": None,
           "kernel": KERNEL, "regularization": 0.1, "scale_inputs": False, "n_basis": None}  # fmt: skip


def standardised(n: int = 300) -> tuple[np.ndarray, np.ndarray]:
    X, y = rows(n)
    return X, (y - y.mean()) / y.std()


@pytest.mark.parametrize(("absorption", "length"), [("full", None), ("blocks", 3)])
def test_the_settings_of_boost10_are_the_steps_of_the_paper(absorption, length):
    X, y = standardised(40)  # all rows are drawn each time, so that random numbers play no part
    how = {"absorption": absorption, "block_length": length or 50, "block_penalty": True, "dtype": "float64"}
    model = KernelBoostingRegressor(8, **BOOST10, **how, random_state=0).fit(X, y)
    plan, ones = make_plan(len(y), "cpu", "float64"), torch.ones(len(y), dtype=torch.float64)
    sample = Sample(TensorRows(torch.as_tensor(X)), torch.as_tensor(y)[:, None], ones, plan)
    learner, rng = Ensemble(MaxResidual(), Rayleigh(), 5, 40, "all"), np.random.default_rng(0)
    block = partial(Block, own_penalty=True)
    fit = ForwardFit(Problem(sample, KERNEL, 0.1), learner, rng, block_length=length, make_block=block)
    fit.run([MaxSteps(8)])
    np.testing.assert_allclose(model.predict(X), fit.f[:, 0].numpy(), atol=1e-9)


def test_rows_are_drawn_again_from_all():
    X, y = standardised(60)
    with_all, without = (
        KernelBoostingRegressor(11, **BOOST10 | {"redraw": redraw}, absorption="full", random_state=0).fit(X, y)
        for redraw in (True, False)
    )
    assert len(np.unique(without.basis_indices_)) == 55  # eleven learners of five vectors, none of them twice
    assert len(np.unique(with_all.basis_indices_)) < 55


def test_a_block_with_its_own_penalty_minimises_its_own_objective():
    X, y = standardised()
    one, two = (
        KernelBoostingRegressor(n, **BOOST10, absorption="one", block_penalty=True, random_state=0).fit(X, y)
        for n in (1, 2)
    )
    new = two.predict(X) - one.predict(X)
    places = {index: i for i, index in enumerate(two.basis_indices_)}
    weights = two.dual_coef_.ravel().copy()
    for index, weight in zip(one.basis_indices_, one.dual_coef_.ravel(), strict=True):
        weights[places[index]] -= weight
    basis = torch.as_tensor(X[two.basis_indices_])
    norm = weights @ KERNEL(basis, basis).numpy() @ weights
    residual = y - one.predict(X)
    # along its own direction the objective ½‖r − h‖² + ½λ‖h‖² of the second learner h has no slope
    assert new @ (residual - new) == pytest.approx(0.1 * norm, rel=1e-5)

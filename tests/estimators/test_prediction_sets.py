"""Prediction sets of classifiers: they cover as promised on new rows, and follow the definition."""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.utils.validation import NotFittedError

import mercer
from mercer import kernels
from mercer.base.classifier import fit_set_scores, sums_before
from mercer.data import TensorRows
from mercer.engine import Sample, make_plan
from mercer.gp.leave_one_out import leave_one_out_latent
from mercer.losses import class_likelihood

QUICK = {"kernel": kernels.Gaussian(1.5), "max_iter": 2}
MODELS = {
    "exact": mercer.KernelBoostingClassifier(kernel="gaussian"),
    "held out": mercer.KernelBoostingClassifier(4, learner_size=20, kernel="gaussian", validation_fraction=0.4),
    "greedy": mercer.GreedyKernelClassifier(10, kernel=kernels.Gaussian(1.5)),
    "spgp": mercer.SparseGPClassifier(8, **QUICK),
    "softmax": mercer.SparseGPClassifier(8, multi_class="softmax", **QUICK),
    "projected": mercer.SparseGPClassifier(8, approximation="pp", **QUICK),
    "subset": mercer.SparseGPClassifier(40, approximation="sd", **QUICK),
    "mhks": mercer.MHKSClassifier(kernels.Gaussian(1.5), max_iter=10),
    "rpemekl": mercer.RPEMEKLClassifier(kernels.Gaussian(1.5), n_members=2),
    "nrbf": mercer.NRBFClassifier(6),
    "densities": mercer.GaussianMixtureClassifier(2, n_init=1, max_iter=20),
}


def overlapping(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Three classes of which no model is right about more than 0.85 of the rows."""
    rng = np.random.default_rng(seed)
    classes = rng.integers(0, 3, n)
    centres = 1.2 * np.array([[0, 0], [2, 0], [0, 2]])
    return rng.normal(size=(n, 2)) + centres[classes], np.array(["a", "b", "c"])[classes]


def covered(model, X, y, coverage: float) -> float:
    sets = model.predict_set(X, coverage)
    return float(sets[np.arange(len(y)), np.searchsorted(model.classes_, y)].mean())


@pytest.mark.parametrize("name", MODELS)
def test_sets_cover_as_they_promise(name):
    """n calibration rows know a coverage c to √(c(1 − c)/n), 1000 test rows see it to √(c(1 − c)/1000): 4σ of both.

    Sets of one class cover as often as they are right; above that, coverage is no larger than promised.
    """
    X, y = overlapping(150, 0)
    X_new, y_new = overlapping(1000, 1)
    model = MODELS[name].set_params(random_state=0).fit(X, y)
    n, right = 60 if name == "held out" else 150, model.score(X_new, y_new)
    for coverage in (0.5, 0.8, 0.9, 0.95):
        sigma = np.sqrt(coverage * (1 - coverage) * (1 / n + 1 / 1000))
        seen = covered(model, X_new, y_new, coverage)
        assert seen > coverage - 4 * sigma, coverage
        assert seen < max(coverage + 4 * sigma, right + 1e-3), coverage


def test_sets_are_those_of_the_definition():
    rng = np.random.default_rng(0)
    for n, n_classes, coverage in [(7, 3, 0.6), (40, 2, 0.95), (150, 5, 0.83), (199, 4, 0.99)]:
        p, true = rng.dirichlet(np.ones(n_classes), n), rng.integers(0, n_classes, n)
        scores = sorted(sum(q for q in row if q > row[k]) for row, k in zip(p, true, strict=True))
        bound = scores[math.ceil((n + 1) * coverage) - 1]
        assert fit_set_scores(p, true, np.ones(n)).upper(coverage) == pytest.approx(bound, abs=1e-15)
        new = rng.dirichlet(np.ones(n_classes), 20)
        sums = [[sum(q for q in row if q > one) for one in row] for row in new]
        np.testing.assert_allclose(sums_before(new), sums, atol=1e-15)


def test_many_scores_are_thinned_to_a_bound_that_is_not_smaller():
    rng = np.random.default_rng(0)
    p, true = rng.dirichlet(np.ones(4), 1500), rng.integers(0, 4, 1500)
    scores = np.sort([sum(q for q in row if q > row[k]) for row, k in zip(p, true, strict=True)])
    found = fit_set_scores(p, true, np.ones(1500))
    assert len(found.scores) <= 200
    for coverage in (0.5, 0.9, 0.99):
        place = math.ceil(1501 * coverage) - 1
        assert scores[place] - 1e-12 <= found.upper(coverage)[0] <= scores[place + 11] + 1e-12  # 1500/150 apart


def test_a_new_row_is_covered_with_the_promised_probability_whatever_the_probabilities_are():
    """The theorem of split conformal prediction, with 9 calibration rows and probabilities that are wrong."""
    rng = np.random.default_rng(0)
    p, true = rng.dirichlet(np.ones(5), (2000, 10)), rng.integers(0, 5, (2000, 10))
    inside = [
        sums_before(q[9:])[0, t[9]] <= fit_set_scores(q[:9], t[:9], np.ones(9)).upper(0.8)[0]
        for q, t in zip(p, true, strict=True)
    ]
    assert np.mean(inside) == pytest.approx(0.8, abs=4 * np.sqrt(0.16 / 2000))


def test_sets_hold_the_most_probable_class_and_grow_with_coverage():
    X, y = overlapping(200, 0)
    model = MODELS["exact"].set_params(random_state=0).fit(X, y)
    sets = [model.predict_set(X, coverage) for coverage in (0.1, 0.5, 0.9, 0.99)]
    assert sets[0][np.arange(200), model.predict_proba(X).argmax(1)].all()
    assert all((large >= small).all() for small, large in pairwise(sets))
    assert model.predict_set(X, 1 - 1e-6).all(), "200 rows are too few for this coverage"
    assert sets[0].dtype == bool


def test_bad_coverage_and_models_without_scores_are_refused_in_a_sentence():
    X, y = overlapping(60, 0)
    model = mercer.GreedyKernelClassifier(5, kernel=kernels.Gaussian(1.0), regularization=0.1)
    with pytest.raises(NotFittedError):
        model.predict_set(X)
    model.fit(X, y)
    for coverage in (0, 1, 90, "0.9", None):
        with pytest.raises(ValueError, match="coverage must be a number above 0 and below 1, got"):
            model.predict_set(X, coverage)
    old = mercer.load(Path(__file__).parents[1] / "golden" / "0.2.0" / "GreedyKernelClassifier.mercer")
    with pytest.raises(ValueError, match=r"must be fitted again to have prediction sets, got"):
        old.predict_set(np.zeros((1, old.n_features_in_)))


@pytest.mark.parametrize("approximation", ["spgp", "pp"])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_a_row_left_out_in_closed_form_is_that_of_a_refit(approximation, n_classes):
    """Laplace's method in closed form: the error is of second order in the effect of a row."""
    X, y = overlapping(60, 0)
    X, y = (X, y) if n_classes == 3 else (X[y != "c"], y[y != "c"])
    how = {"kernel": 4.0 * kernels.Gaussian(1.5), "inducing": X[:6], "approximation": approximation}
    how |= {"optimize_inducing": False, "optimize_kernel": False, "max_iter": 0, "multi_class": "softmax"}
    how |= {"scale_inputs": False, "dtype": "float64"}
    model = mercer.SparseGPClassifier(6, **how).fit(X, y)
    plan = make_plan(len(X), "cpu", "float64")
    Y = torch.as_tensor(model.targets_.encode(y))
    rows = Sample(TensorRows(torch.as_tensor(X)), Y, torch.ones(len(X), dtype=torch.float64), plan)
    alpha = 1.0 if approximation == "spgp" else 0.0
    mean, cov = leave_one_out_latent(model._models[0], alpha, rows, class_likelihood(Y.shape[1]))
    whole = model.latent_mean_and_covariance(X)[0]
    for i in range(0, len(X), 9):
        others = np.arange(len(X)) != i
        m, C = mercer.SparseGPClassifier(6, **how).fit(X[others], y[others]).latent_mean_and_covariance(X[[i]])
        effect = np.abs(m[0] - whole[i]).max()
        assert np.abs(mean[i].numpy() - m[0]).max() < 0.2 * effect + 0.2 * effect**2
        assert np.abs(cov[i].numpy() - C[0]).max() < 0.1 * np.abs(C[0]).max()

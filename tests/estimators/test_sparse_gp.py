"""The faces of sparse Gaussian processes: agreement with scikit-learn, weights, sources, hard data, relevance."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch
from sklearn.gaussian_process import GaussianProcessClassifier, GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline

from mercer import ARDSelector, GreedyKernelRegressor, SparseGPClassifier, SparseGPRegressor
from mercer.base.probability_calibration import PowerAndBias
from mercer.data import TensorRows
from mercer.datasets import make_redundant_gaussians, make_ripley, make_three_gaussians
from mercer.engine import make_plan
from mercer.engine.plan import Sample
from mercer.forward.criteria import InformationGain
from mercer.forward.nystroem import select_rows
from mercer.kernels import Gaussian

pytestmark = pytest.mark.usefixtures("two_folds")

APPROXIMATIONS = ["full", "sd", "sr", "pp", "spgp", "variational"]
FOR_CLASSES = APPROXIMATIONS[:-1]


def wave(n=120, outputs=1, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-3, 3, (n, 2))
    Y = np.stack([np.sin(X[:, 0] + c) + 0.1 * rng.normal(size=n) for c in range(outputs)], 1)
    return X, Y[:, 0] if outputs == 1 else Y


def quick(**options):
    small = {"n_inducing": 15, "kernel": "gaussian", "tuning_rows": 60, "max_iter": 8, "random_state": 0}
    return SparseGPRegressor(**(small | options))


def quick_classifier(**options):
    small = {"kernel": "gaussian", "tuning_rows": 40, "max_iter": 6, "random_state": 0}
    return SparseGPClassifier(10, **(small | options))


# --- agreement with scikit-learn ------------------------------------------------------------------------


def test_the_full_regression_is_scikit_learns():
    X, y = wave(60)
    noise = 0.05
    ours = SparseGPRegressor(
        approximation="full", kernel=1.5 * Gaussian([0.7, 1.3]), regularization=noise, scale_inputs=False
    ).fit(X, y)
    kernel = ConstantKernel(1.5) * RBF([0.7, 1.3])
    theirs = GaussianProcessRegressor(kernel, alpha=noise, optimizer=None, normalize_y=True).fit(X, y)
    new = wave(20, seed=1)[0]
    for flag in ("return_std", "return_cov"):
        mean, spread = ours.predict(new, **{flag: True}, include_noise=False)
        wanted, their_spread = theirs.predict(new, **{flag: True})
        np.testing.assert_allclose(mean, wanted, atol=1e-6)
        np.testing.assert_allclose(spread, their_spread, atol=1e-6)
    shift = len(y) * np.log(y.std())  # theirs is the evidence of the standardised targets
    assert ours.log_marginal_likelihood_ + shift == pytest.approx(theirs.log_marginal_likelihood_value_, rel=1e-6)


def test_known_noise_of_rows_is_scikit_learns_alpha():
    X, y = wave(60)
    alpha = np.random.default_rng(3).uniform(0.01, 1.0, 60) * y.var()
    theirs = GaussianProcessRegressor(ConstantKernel(y.var()) * RBF([0.7, 1.3]), alpha=alpha, optimizer=None)
    theirs.fit(X, y - y.mean())
    options = {"kernel": Gaussian([0.7, 1.3]), "regularization": 1e-12, "scale_inputs": False}  # targets are scaled
    new = wave(20, seed=1)[0]
    mean, std = theirs.predict(new, return_std=True)
    for sparse in ({"approximation": "full"}, {"approximation": "pp", "inducing": X, "optimize_inducing": False}):
        ours = SparseGPRegressor(alpha=alpha, **options, **sparse).fit(X, y)
        found, spread = ours.predict(new, return_std=True, include_noise=False)
        np.testing.assert_allclose(found, mean + y.mean(), atol=1e-6)
        np.testing.assert_allclose(spread, std, atol=1e-6)
        assert ours.log_marginal_likelihood_ == pytest.approx(theirs.log_marginal_likelihood_value_, rel=1e-6)


def test_noise_beside_a_known_part_is_found():
    X, y = wave(300)  # of noise 0.01
    rng = np.random.default_rng(5)
    known = rng.uniform(0.0, 1.0, 300)
    y = y + known**0.5 * rng.normal(size=300)
    model, without = (SparseGPRegressor(kernel="gaussian", alpha=a, random_state=0).fit(X, y) for a in (known, None))
    assert model.noise_ < 0.1 < 0.3 < without.noise_  # the mean of the known part is 0.5


def test_the_evidence_at_other_parameters_is_scikit_learns():
    X, y = wave(60)
    ours = SparseGPRegressor(kernel=1.5 * Gaussian([0.7, 1.3]), regularization=0.05, scale_inputs=False).fit(X, y)
    assert ours.approximation_ == "full"
    np.testing.assert_allclose(np.exp(ours.theta_), [1.5, 0.7, 1.3, 0.05], rtol=1e-12)
    theirs = GaussianProcessRegressor(
        ConstantKernel() * RBF([1.0, 1.0]) + WhiteKernel(), alpha=0.0, optimizer=None, normalize_y=True
    ).fit(X, y)
    shift = len(y) * np.log(y.std())
    for values in ([1.5, 0.7, 1.3, 0.05], [0.3, 2.0, 0.4, 0.2]):
        theta = np.log(values)
        wanted = theirs.log_marginal_likelihood(theta) - shift
        assert ours.log_marginal_likelihood(theta, X, y) == pytest.approx(wanted, rel=1e-9)
    assert ours.log_marginal_likelihood(None, X, y) == pytest.approx(ours.log_marginal_likelihood(), rel=1e-9)
    with pytest.raises(ValueError, match=r"theta must be 4 numbers, as in theta_, got \(1,\)"):
        ours.log_marginal_likelihood([0.0], X, y)
    with pytest.raises(ValueError, match="X must be the rows at which theta is to be evaluated"):
        ours.log_marginal_likelihood(theta)


def test_a_linear_mean_goes_on_where_there_are_no_rows():
    """Far away, a stationary kernel knows nothing: the mean function alone remains."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (120, 2))
    y = 3 * X[:, 0] - X[:, 1] + np.cos(4 * X[:, 0]) + 0.05 * rng.normal(size=120)
    far = np.array([[40.0, 0.0], [0.0, -40.0]])
    slopes = {}
    for mean in ("constant", "linear"):
        model = SparseGPRegressor(kernel="gaussian", mean=mean, random_state=0).fit(X, y)
        slopes[mean] = (model.predict(far) - y.mean()) / [40.0, -40.0]
    np.testing.assert_allclose(slopes["linear"], [3.0, -1.0], atol=0.3)  # 120 random rows: the cosine has a slope, too
    assert abs(slopes["constant"]).max() < 0.1


def test_the_full_classifier_is_scikit_learns():
    X, y = make_ripley(80, random_state=0)
    ours = SparseGPClassifier(approximation="full", kernel=3.0 * Gaussian(0.5), scale_inputs=False).fit(X, y)
    theirs = GaussianProcessClassifier(
        ConstantKernel(3.0) * RBF(0.5), optimizer=None, max_iter_predict=500
    ).fit(X, y)  # fmt: skip
    assert ours.log_marginal_likelihood_ == pytest.approx(theirs.log_marginal_likelihood_value_, rel=1e-6)
    new, _ = make_ripley(30, random_state=1)
    ours.calibration_ = PowerAndBias.identity(2)  # scikit-learn has no calibration
    # scikit-learn averages by five error functions, accurate to a few times 1e-4; ours is a quadrature
    np.testing.assert_allclose(ours.predict_proba(new), theirs.predict_proba(new), atol=1e-3)
    mean, cov = ours.latent_mean_and_covariance(new)
    if hasattr(theirs, "latent_mean_and_variance"):
        wanted, variance = theirs.latent_mean_and_variance(new)
        np.testing.assert_allclose(mean[:, 0], wanted, atol=1e-5)
        np.testing.assert_allclose(cov[:, 0, 0], variance, atol=1e-5)


def test_tuning_the_full_model_reaches_scikit_learns_evidence():
    X, y = make_ripley(60, random_state=0)
    ours = SparseGPClassifier(
        approximation="full", kernel="gaussian", ard=False, scale_inputs=False, tol=1e-8, max_iter=40
    ).fit(X, y)
    theirs = GaussianProcessClassifier(ConstantKernel(1.0) * RBF(1.0) + ConstantKernel(1.0), random_state=0).fit(X, y)
    assert ours.log_marginal_likelihood_ >= theirs.log_marginal_likelihood_value_ - 0.05


# --- what every approximation must do -------------------------------------------------------------------


@pytest.mark.parametrize("approximation", APPROXIMATIONS)
def test_regression_predicts_samples_and_is_kept_by_pickle(approximation):
    X, Y = wave(outputs=2)
    kernel = {"spgp": "auto", "variational": "gaussian"}.get(approximation, Gaussian([1.5, 1.5]))
    model = quick(approximation=approximation, kernel=kernel, optimize_kernel=True).fit(X, Y)
    mean, std = model.predict(X, return_std=True)
    assert np.sqrt(np.mean((mean - Y) ** 2)) < (0.6 if approximation == "sd" else 0.2)
    assert (std >= np.sqrt(model.predictive_noise_) * (1 - 1e-9)).all()
    assert approximation == "variational" or model.predictive_noise_ == model.noise_
    _, cov = model.predict(X[:5], return_cov=True)
    np.testing.assert_allclose(np.sqrt(np.diag(cov)), std[:5], rtol=1e-4)
    drawn = model.sample_y(X[:5], 300, random_state=0)
    assert drawn.shape == (5, 2, 300)
    np.testing.assert_allclose(drawn.mean(2), mean[:5], atol=5 * std.max() / np.sqrt(300))
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(X), mean)
    assert model.stop_reason_
    assert np.isfinite(model.log_marginal_likelihood_)


@pytest.mark.parametrize(
    ("approximation", "multi_class"),
    [("spgp", "one_vs_rest"), ("sd", "one_vs_rest"), *((name, "softmax") for name in FOR_CLASSES)],
)
def test_classes_are_found_with_probabilities_that_sum_to_one(approximation, multi_class):
    rng = np.random.default_rng(0)
    centre = np.array([[0, 0], [3, 0], [0, 3]])
    y = np.arange(60) % 3
    X = centre[y] + 0.6 * rng.normal(size=(60, 2))
    kernel = 4.0 * Gaussian([1.0, 1.0])
    model = quick_classifier(approximation=approximation, multi_class=multi_class, kernel=kernel, optimize_kernel=True)
    model.fit(X, np.array(list("abc"))[y])
    p = model.predict_proba(X)
    assert model.score(X, np.array(list("abc"))[y]) > 0.9
    np.testing.assert_allclose(p.sum(1), 1, rtol=1e-12)
    assert (p >= 0).all()
    assert model.relevance_.shape == ((3, 2) if multi_class == "one_vs_rest" else (2,))


def test_far_from_the_data_a_classifier_does_not_know():
    X, y = make_three_gaussians(100, random_state=0)
    model = quick_classifier(kernel=4.0 * Gaussian(1.0)).fit(X, y)
    share = (y == model.classes_[1]).mean()  # calibration moves ignorance towards the class frequencies
    assert abs(model.predict_proba([[100.0, 100.0]])[0, 1] - 0.5) <= abs(share - 0.5) + 0.02
    model.calibration_ = PowerAndBias.identity(2)
    np.testing.assert_allclose(model.predict_proba([[100.0, 100.0]]), 0.5, atol=1e-6)


@pytest.mark.parametrize("approximation", ["full", "pp", "spgp", "variational"])
def test_a_row_of_weight_two_is_the_row_twice(approximation):
    X, y = wave(40)
    weight = 1.0 + np.arange(40) % 3
    here = quick(approximation=approximation).fit(X, y, sample_weight=weight)
    twice = np.repeat(np.arange(40), weight.astype(int))
    there = quick(approximation=approximation).fit(X[twice], y[twice])
    np.testing.assert_allclose(here.predict(X), there.predict(X), atol=1e-6)
    # rounding sends the two searches along slightly different ways up the same hill
    assert here.log_marginal_likelihood_ == pytest.approx(there.log_marginal_likelihood_, rel=1e-4)


def test_optimised_inducing_inputs_have_more_evidence_than_the_rows_they_started_from():
    X, y = wave()
    fixed = quick(optimize_inducing=False, max_iter=40).fit(X, y)
    moved = quick(optimize_inducing=True, max_iter=40).fit(X, y)
    assert moved.log_marginal_likelihood_ > fixed.log_marginal_likelihood_
    np.testing.assert_allclose(fixed.basis_, X[fixed.basis_indices_], atol=1e-10)


@pytest.mark.long
def test_columns_with_heavy_tails_are_bent_unless_only_standardised():
    rng = np.random.default_rng(0)
    X = np.exp(3 * rng.normal(size=(600, 1)))
    y, options = np.sin(np.log1p(X[:, 0])), {"kernel": "gaussian", "max_iter": 5, "random_state": 0}
    bent = SparseGPRegressor(20, **options | {"max_iter": 40}).fit(X[:400], y[:400])
    plain = SparseGPRegressor(20, scale_inputs="standard", **options | {"max_iter": 40}).fit(X[:400], y[:400])
    assert bent.score(X[400:], y[400:]) > 0.99 > plain.score(X[400:], y[400:])
    assert np.abs(X[:400] - bent.basis_[0]).min() < np.ptp(X)  # inducing inputs are told in the units of the rows
    classes = SparseGPClassifier(15, **options).fit(X[:400], y[:400] > 0)
    assert classes.inputs_.columns is not None
    assert classes.score(X[400:], y[400:] > 0) > 0.97
    given = SparseGPRegressor(15, **{**options, "kernel": Gaussian()}).fit(X[:400], y[:400])
    assert given.inputs_.columns is None
    with pytest.raises(ValueError, match="scale_inputs must be True or False or 'standard', got 'robust'"):
        SparseGPRegressor(scale_inputs="robust").fit(X, y)


def test_of_several_starts_the_one_with_most_evidence_is_kept():
    X, y = make_ripley(120, random_state=0)
    points, options = [], {"max_iter": 6, "kernel": "gaussian", "inducing": "random", "random_state": 0}
    once = SparseGPClassifier(3, **options).fit(X, y)
    several = SparseGPClassifier(3, n_restarts=2, callbacks=[points.append], **options).fit(X, y)
    assert several.log_marginal_likelihood_ > once.log_marginal_likelihood_
    assert [event.phase for event in points] == ["evidence"] * len(points)
    assert len(points) >= 3 * 6
    again = SparseGPClassifier(3, **options | {"max_iter": 1}).fit(X, y)
    np.testing.assert_array_equal(once.basis_indices_, again.basis_indices_)
    for model in (several, quick(n_restarts=2, optimize_inducing=False, max_iter=3).fit(*wave())):
        assert np.isfinite(model.log_marginal_likelihood_)
    with pytest.raises(ValueError, match="n_restarts must be an integer of at least 0, got -1"):
        quick(n_restarts=-1).fit(*wave())


@pytest.mark.parametrize("inducing", ["random", "k-means++", "max-res", "mp", np.zeros((3, 2)) + np.arange(3)[:, None]])
def test_inducing_inputs_start_where_they_are_told(inducing):
    X, y = wave()
    model = quick(inducing=inducing, kernel=Gaussian(1.5), max_iter=3, optimize_inducing=False).fit(X, y)
    assert model.basis_.shape == ((15, 2) if isinstance(inducing, str) else (3, 2))
    if not isinstance(inducing, str):
        np.testing.assert_allclose(model.basis_, inducing, atol=1e-12)


@pytest.mark.parametrize("criterion", ["max-res", InformationGain(n_candidates=None)], ids=["max-res", "info-gain"])
def test_rows_by_a_criterion_are_those_of_the_greedy_model(criterion):
    """What those models choose by the residual (or the information) of all rows, without an estimator around it."""
    X, y = wave()
    y = (y - y.mean()) / y.std()
    data = Sample(TensorRows(torch.as_tensor(X)), torch.as_tensor(y)[:, None], torch.ones(120), make_plan(120, "cpu"))
    chosen = select_rows(data, Gaussian(1.0), 0.1, criterion, 9, np.random.default_rng(0))
    greedy = GreedyKernelRegressor(
        9, criterion=criterion, kernel=Gaussian(1.0), regularization=0.1, scale_inputs=False
    ).fit(X, y)  # fmt: skip
    np.testing.assert_array_equal(chosen, greedy.basis_indices_)


def test_a_subset_of_data_is_the_rows_given():
    X, y = wave()
    rows = np.array([7, 3, 50, 110, 64])
    for model in (quick(approximation="sd"), quick_classifier(approximation="sd", kernel=Gaussian())):
        targets = y if isinstance(model, SparseGPRegressor) else y > 0
        model.set_params(inducing=X[rows]).fit(X, targets)
        np.testing.assert_array_equal(np.sort(model.basis_indices_), np.sort(rows))
        np.testing.assert_allclose(model.basis_, X[model.basis_indices_], atol=1e-12)
        with pytest.raises(ValueError, match="inducing must be rows of X where the model sees those alone"):
            model.set_params(inducing=X[rows] + 0.5).fit(X, targets)
        with pytest.raises(ValueError, match="inducing must be a name where approximation is 'full'"):
            model.set_params(approximation="full").fit(X, targets)


def test_of_several_subsets_the_one_that_knows_other_rows_best_is_kept():
    X, y = wave(100)
    options = {"approximation": "sd", "inducing": "random", "kernel": "gaussian", "random_state": 0, "max_iter": 5}
    once, several = (SparseGPRegressor(10, n_restarts=k, **options).fit(X, y) for k in (0, 4))
    assert set(once.basis_indices_) != set(several.basis_indices_)

    def density(model):
        rest = np.setdiff1d(np.arange(100), once.basis_indices_)
        mean, std = model.predict(X[rest], return_std=True)
        return -np.sum(np.log(std) + 0.5 * ((y[rest] - mean) / std) ** 2)

    assert density(several) >= density(once)
    labels = SparseGPClassifier(10, n_restarts=1, **options).fit(X, y > 0)
    assert labels.score(X, y > 0) > 0.6


@pytest.mark.parametrize("approximation", ["full", "spgp"])
def test_the_scale_of_weights_means_nothing_where_something_is_tuned(approximation):
    """Powers of two scale without rounding, so that nothing at all may change."""
    X, y = wave(40)
    weight = np.random.default_rng(0).uniform(0.5, 2.0, 40)
    for make, targets in ((quick, y), (quick_classifier, y > 0)):
        here, small, large = (
            make(approximation=approximation, max_iter=2, tuning_rows=25).fit(X, targets, sample_weight=scale * weight)
            for scale in (1.0, 2.0**-20, 2.0**20)
        )
        np.testing.assert_array_equal(here.basis_, small.basis_)
        np.testing.assert_array_equal(here.dual_coef_, small.dual_coef_)
        np.testing.assert_array_equal(here.dual_coef_, large.dual_coef_)
        assert here.log_marginal_likelihood_ == small.log_marginal_likelihood_


def test_no_time_at_all_still_gives_a_model_that_knows_why():
    rng = np.random.default_rng(0)
    X = rng.uniform(-3, 3, (12_000, 2))
    y = np.sin(X[:, 0]) * X[:, 1] + 0.1 * rng.normal(size=12_000)
    model = SparseGPRegressor(250, time_budget=1e-3, random_state=0).fit(X, y)
    assert model.score(X, y) > 0.5
    assert "time budget was spent" in model.stop_reason_
    assert "the last pass saw 2000 of 12000 rows" in model.stop_reason_
    classes = SparseGPClassifier(30, time_budget=1e-3, random_state=0).fit(X, y > 0)
    assert classes.score(X, y > 0) > 0.8
    assert "time budget was spent" in classes.stop_reason_


@pytest.mark.parametrize("approximation", ["full", "pp", "spgp"])
def test_an_interrupted_search_keeps_its_best_point(approximation):
    X, y = wave()
    seen = []

    def interrupt(event):
        seen.extend([event] if event.phase == "evidence" else [])
        if len(seen) == 3:
            raise KeyboardInterrupt

    model = quick(approximation=approximation, kernel="gaussian", max_iter=50, callbacks=[interrupt])
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, y)
    assert "interrupted" in model.stop_reason_
    assert len(seen) == 3
    assert np.isfinite(model.predict(X)).all()


def test_the_prior_on_length_scales_can_be_narrowed_and_left_out():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100, 2))
    y = np.sin(2 * X[:, 0]) + 0.1 * rng.normal(size=100)  # the second input does not matter
    ratios = [
        np.ptp(
            np.log(
                quick(kernel="gaussian", ard=True, length_scale_prior=prior, max_iter=20)
                .fit(X, y)
                .inverse_length_scales_
            )
        )
        for prior in (0.05, 2.0, None)
    ]
    assert ratios[0] < 1 < min(ratios[1:])


def test_files_tensors_and_frames_give_the_model_of_the_array(tmp_path):
    pd = pytest.importorskip("pandas")
    X, y = wave()
    np.save(tmp_path / "X.npy", X)
    wanted = quick().fit(X, y).predict(X)
    for given in (torch.as_tensor(X), pd.DataFrame(X, columns=["a", "b"])):
        np.testing.assert_allclose(quick().fit(given, y).predict(given), wanted, atol=1e-6)
    from_file = quick().fit(str(tmp_path / "X.npy"), y)  # rows of a file keep their order, so the start differs
    assert np.sqrt(np.mean((from_file.predict(str(tmp_path / "X.npy")) - y) ** 2)) < 0.15


def test_many_rows_are_climbed_in_two_stages_within_the_memory_limit():
    rng = np.random.default_rng(0)
    X = rng.uniform(-3, 3, (12_000, 2))
    y = np.sin(X[:, 0]) * X[:, 1] + 0.1 * rng.normal(size=12_000)
    seen = []
    model = quick(max_iter=5, memory_limit=2**24, callbacks=[seen.append]).fit(X, y)
    assert model.dtype_ == "float32"
    assert len(seen) > 5
    mean, std = model.predict(X, return_std=True)
    assert np.mean(np.abs(mean - y) < 1.96 * std) > 0.9


# --- data that are hard on numbers ----------------------------------------------------------------------


@pytest.mark.parametrize("approximation", APPROXIMATIONS)
@pytest.mark.parametrize(
    "spoil",
    [
        lambda X, y: (X, np.full_like(y, 3.0)),
        lambda X, y: (np.repeat(X[:5], 8, 0), y),
        lambda X, y: (1e8 * X, 1e-8 * y),
        lambda X, y: (np.column_stack([X[:, 0], np.ones(len(X))]), y),
        lambda X, y: (X[:2], y[:2]),
    ],
    ids=["constant targets", "duplicates", "large inputs", "a constant column", "two rows"],
)
def test_hard_data_give_finite_predictions(spoil, approximation):
    X, y = spoil(*wave(40))
    model = quick(n_inducing=8, approximation=approximation, max_iter=3).fit(X, y)
    mean, std = model.predict(X, return_std=True)
    assert np.isfinite(mean).all()
    assert np.isfinite(std).all()
    assert (std >= 0).all()
    assert np.abs(mean - y).max() <= 2 * np.ptp(y) + 1e-6 * np.abs(y).max()


@pytest.mark.parametrize("approximation", FOR_CLASSES)
def test_hard_classes_give_finite_probabilities(approximation):
    X, y = make_ripley(60, random_state=0)
    y = np.where(np.arange(60) < 2, 7, y)  # a class of two rows, which a subset of data may miss
    for given in (np.repeat(X[:6], 10, 0), 1e8 * X):
        kernel = 4.0 * Gaussian([1.0, 1.0])
        model = quick_classifier(approximation=approximation, kernel=kernel, optimize_kernel=True, max_iter=3)
        model.fit(given, y)
        p = model.predict_proba(given)
        assert np.isfinite(p).all()
        np.testing.assert_allclose(p.sum(1), 1)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"approximation": "fitc"}, "approximation must be 'auto' or one of .* got 'fitc'"),
        ({"n_inducing": 0}, "n_inducing must be an integer of at least 1, got 0"),
        ({"inducing": "grid"}, "inducing must be one of .* got 'grid'"),
        ({"approximation": "sd", "optimize_inducing": True}, "optimize_inducing must be False"),
        ({"regularization": -1.0}, "regularization must be 'auto' or a positive number, got -1.0"),
        ({"time_budget": 0}, "time_budget must be None or a positive number of seconds, got 0"),
        ({"tol": 10**400}, "tol must be a number of at least 0 and below 1, got 1000"),
        ({"time_budget": 10**400}, "time_budget must be None or a positive number of seconds, got 1000"),
        ({"regularization": 10**400}, "regularization must be 'auto' or a positive number, got 1000"),
        ({"length_scale_prior": 0}, "length_scale_prior must be None or a number from 0.001 to 1000, got 0"),
    ],
)
def test_bad_parameters_are_refused_in_a_sentence(change, words):
    with pytest.raises(ValueError, match=words):
        quick().set_params(**change).fit(*wave(20))


def test_a_noise_without_end_leaves_the_mean():
    X, y = wave(40)
    for approximation in APPROXIMATIONS:
        model = quick(approximation=approximation, kernel="gaussian", regularization=1e300, max_iter=3).fit(X, y)
        np.testing.assert_allclose(model.predict(X), y.mean(), atol=1e-6)


def test_the_bound_is_refused_for_classes():
    with pytest.raises(ValueError, match="approximation must be other than 'variational' for classes"):
        quick_classifier(approximation="variational").fit(*make_ripley(20, random_state=0))


# --- which inputs matter --------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(2))
def test_noise_inputs_of_the_thesis_artificial_set_come_last(seed):
    X, y = make_redundant_gaussians(200, random_state=seed)
    model = SparseGPClassifier(10, kernel="gaussian", ard=True, random_state=seed).fit(X, y)
    assert set(np.argsort(model.relevance_)[:2].tolist()) == {4, 5}


def test_the_selector_votes_and_works_in_a_pipeline():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(150, 5))
    y = np.sin(2 * X[:, 1]) + X[:, 3] + 0.1 * rng.normal(size=150)
    models = [quick(kernel="gaussian", ard=True, approximation=a, max_iter=20) for a in ("spgp", "pp", "spgp")]
    selector = ARDSelector(models)
    pipeline = make_pipeline(selector, quick()).fit(X, y)
    assert np.flatnonzero(pipeline[0].get_support()).tolist() == [1, 3]
    assert pipeline[0].votes_.max() == 3
    assert pipeline.score(X, y) > 0.9
    assert ARDSelector(models[:1], n_features_to_select=1).fit(X, y).get_support().sum() == 1
    with pytest.raises(ValueError, match="min_votes must be at most the number of models, 3, got 4"):
        ARDSelector(models, min_votes=4).fit(X, y)


class CountedRidge(Ridge):
    """A model without `relevance_` that counts its fits."""

    fits = 0

    def fit(self, X, y):
        type(self).fits += 1
        return super().fit(X, y)


def test_the_selector_takes_one_model_and_refuses_what_is_none():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 3))
    y = np.sin(2 * X[:, 1]) + 0.1 * rng.normal(size=80)
    one = quick(kernel="gaussian", ard=True, max_iter=20)
    assert ARDSelector(one).fit(X, y).get_support().tolist() == [False, True, False]
    tensors = torch.tensor(X, requires_grad=True), torch.tensor(y, requires_grad=True)
    assert ARDSelector([one]).fit(*tensors).get_support().tolist() == [False, True, False]
    for models in (3, [], [3], "spgp"):
        with pytest.raises(ValueError, match="models must be None or an estimator or a sequence of at least one, got"):
            ARDSelector(models).fit(X, y)
    with pytest.raises(ValueError, match="min_votes must be at most the number of models, 1, got 2"):
        ARDSelector(CountedRidge(), min_votes=2).fit(X, y)
    assert CountedRidge.fits == 0  # bad parameters are seen before any work
    with pytest.raises(ValueError, match="models must be estimators that have `relevance_` after fitting, got"):
        ARDSelector(CountedRidge()).fit(X, y)


@pytest.mark.parametrize("first", [0.0, np.nan], ids=["numbers", "coded"])
def test_a_selector_sees_a_row_repeated_as_a_row_of_that_weight(first):
    """A missing value makes the selector code the columns, and its models read the table as it came."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 2))
    X[0, 0] = first
    y, times = np.sin(2 * X[:, 1]), rng.integers(1, 4, 40)
    selector = ARDSelector(SparseGPRegressor(8, kernel="gaussian", ard=True, max_iter=5, random_state=0))
    weighted = selector.fit(X, y, times.astype(float)).relevance_
    repeated = selector.fit(np.repeat(X, times, axis=0), np.repeat(y, times)).relevance_
    np.testing.assert_allclose(repeated, weighted, rtol=1e-6)


def test_classes_of_repeated_rows_are_classes_to_a_selector():
    classes = np.repeat([0, 1], 12)
    found = ARDSelector(random_state=0).fit(classes[:, None].astype(float), classes)
    assert isinstance(found.models_[0], SparseGPClassifier)


def test_rows_enough_for_them_and_not_the_few_that_were_tuned_on_give_every_input_a_length_scale():
    """Twenty rows for each input are enough; the evidence of few rows has all inputs share one here."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (200, 3))
    y = np.exp(-0.5 * (X**2).sum(1)) + 0.1 * rng.normal(size=200)
    for n, shape in ((50, ()), (200, (3,))):
        model = SparseGPRegressor(10, max_iter=2, random_state=0).fit(X[:n], y[:n])
        assert np.shape(model.kernel_.tunable()["left__kernel__length_scale"]) == shape


# Sparse, and the full model of few rows.
@pytest.mark.parametrize("n_inducing", [pytest.param(50, marks=pytest.mark.long), 100])
def test_targets_without_noise_are_met_to_the_least_noise(n_inducing):
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (400, 2))
    y = np.sin(X[:, 0]) * np.cos(X[:, 1])
    model = SparseGPRegressor(n_inducing, random_state=0).fit(X[:200], y[:200])
    assert np.std(model.predict(X[200:]) - y[200:]) < 1e-3 * np.std(y)  # noise of 1e-8 of the variance is the least


# --- few rows -------------------------------------------------------------------------------------------


def test_few_rows_have_the_full_model_unless_inducing_inputs_are_asked_for():
    X, y = wave(60)
    for n_inducing, rows in ((20, 60), (19, 19)):
        model = SparseGPRegressor(n_inducing, kernel="gaussian", max_iter=2, random_state=0).fit(X, y)
        assert len(model.basis_) == rows
    moved = SparseGPRegressor(20, kernel="gaussian", max_iter=2, optimize_inducing=True, random_state=0).fit(X, y)
    assert len(moved.basis_) == 20
    assert len(SparseGPClassifier(20, kernel="gaussian", max_iter=2, random_state=0).fit(X, y > 0).basis_) == 20


def test_few_inducing_inputs_do_not_take_a_smooth_function_for_noise():
    draws = np.random.default_rng(0)
    inputs = draws.uniform(-2, 2, (60, 3))
    target = np.sin(2 * inputs[:, 0]) + 0.5 * inputs[:, 1]
    model = SparseGPRegressor(8, kernel="gaussian", ard=True, random_state=0).fit(inputs[:40], target[:40])
    assert model.approximation_ == "variational"
    assert model.score(inputs[40:], target[40:]) > 0.99

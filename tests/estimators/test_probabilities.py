"""Probabilities: no worse than the classes' shares, fitted to rows that the model was not fitted to."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit, log_expit, log_softmax
from sklearn.metrics import log_loss

import mercer
from mercer import kernels
from mercer.base.calibration import (
    Shrunk,
    Temperature,
    class_rates,
    fit_calibration,
    fit_temperature,
    shrink_towards_rates,
)
from mercer.base.out_of_fold import calibration_folds, out_of_fold
from mercer.base.probability_calibration import LabelledProbabilities, fit_power_and_bias
from mercer.clock import Clock
from mercer.datasets import make_ripley
from mercer.preprocessing.inputs import code_targets

#: Settings that only make a fit quicker; a Gaussian process of so few rows needs no other.
FAST = {
    "KernelBoostingClassifier": {"kernel": "gaussian"},
    "GreedyKernelClassifier": {"kernel": "gaussian", "n_basis": 8},
    "SparseGPClassifier": {"kernel": "gaussian", "n_inducing": 20, "max_iter": 10},
    "ENRBFClassifier": {"n_init": 1, "n_components": 3},
    "GaussianMixtureClassifier": {"n_init": 1, "n_components": 3},
    "RPEMEKLClassifier": {"n_members": 2, "n_folds": 2, "max_iter": 30},
    "MultiKernelMHKSClassifier": {"n_folds": 2, "max_iter": 30},
}
CLASSIFIERS = [name for name in mercer.__all__ if name.endswith("Classifier")]


def drawn(n: int, seed: int, n_test: int = 2000) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Labels of probability σ(2 sin 2x₀ + x₁): the best log loss is 0.49, that of the classes' shares about 0.70."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (n + n_test, 2))
    y = (rng.random(n + n_test) < 1 / (1 + np.exp(-2 * np.sin(2 * X[:, 0]) - X[:, 1]))).astype(int)
    return X[:n], y[:n], X[n:], y[n:]


@pytest.mark.parametrize("tables", [[(60, 2)], pytest.param([(40, 0), (60, 2)], marks=pytest.mark.long)], ids=len)
@pytest.mark.parametrize("name", CLASSIFIERS)
def test_the_log_loss_of_few_rows_is_below_that_of_the_classes_shares(name, tables):
    """Tables of 40 and 60 rows. Gaps are -0.05 on average and deviate by 0.05 between tables (eight draws).

    So the mean of two is below 0.02 with two deviations to spare, and each of them below 0.05.
    """
    gaps = []
    for n, seed in tables:
        X, y, X_test, y_test = drawn(n, seed)
        model = getattr(mercer, name)(random_state=0, **FAST.get(name, {})).fit(X, y)
        share = np.full(len(y_test), y.mean())
        gaps.append(log_loss(y_test, model.predict_proba(X_test)) - log_loss(y_test, share))
    assert len(gaps) == 1 or np.mean(gaps) < 0.02
    assert max(gaps) < 0.05


@pytest.mark.parametrize("loss", ["squared", "squared-hinge", "logistic"])
def test_a_greedy_model_that_interpolates_its_rows_is_not_sure_of_new_ones(loss):
    """With next to no penalty 30 basis vectors meet 30 labels; out of fold they are hardly better than chance."""
    X, y, X_test, y_test = drawn(30, 2)
    model = mercer.GreedyKernelClassifier(kernel=kernels.Gaussian(0.3), regularization=1e-6, loss=loss, random_state=0)
    model.fit(X, y)
    assert model.score(X, y) == 1.0
    assert log_loss(y_test, model.predict_proba(X_test)) < 0.75


@pytest.mark.parametrize("name", ["GreedyKernelClassifier", "NRBFClassifier", "MHKSClassifier"])
def test_calibration_is_of_rows_as_they_are_weighted(name):
    """With classes of weights 1 and 9 the mean probability of the second is that of rows so weighted."""
    X, y, X_test, _ = drawn(200, 0)
    how = {"kernel": "gaussian", "n_basis": 20} if name == "GreedyKernelClassifier" else {}
    model = getattr(mercer, name)(class_weight={0: 1, 1: 9}, random_state=0, **how).fit(X, y)
    weighted = 9 * y.mean() / (9 * y.mean() + 1 - y.mean())
    p = model.predict_proba(np.concatenate([X_test[:500], X]))[:, 1]
    assert p.mean() > 0.5 * (weighted + y.mean())


def test_shrinking_is_never_worse_than_the_shares_where_the_decision_allows_it():
    """Rows whose decided class was raised above the shares' own are left aside: predictions have the last word."""
    rng = np.random.default_rng(0)
    for seed in range(50):
        n, n_classes = int(rng.integers(4, 60)), int(rng.integers(2, 5))
        true, weight = rng.integers(0, n_classes, n), rng.exponential(size=n)
        values = 10 ** rng.uniform(-1, 2) * rng.normal(size=(n, 1 if n_classes == 2 else n_classes))
        link = shrink_towards_rates(Temperature(), values, true, weight)
        share = weight / weight.sum()
        rates = class_rates(true, share, n_classes, float((share**2).sum()))
        p = Temperature().probabilities(values)
        p = (1 - link.share) * p + link.share * link.rates if isinstance(link, Shrunk) else p
        kept = p.argmax(1) == link.probabilities(values).argmax(1)
        np.testing.assert_allclose(link.probabilities(values)[kept], p[kept], rtol=1e-12)
        own = -weight @ np.log(p[np.arange(n), true]), -weight @ np.log(rates[true])
        assert own[0] <= own[1] * (1 + 1e-9), seed


def test_what_many_rows_say_is_believed_as_it_is():
    """2000 labels drawn by σ(2f): the temperature is ½ within 4 standard errors, and nothing is shrunk."""
    rng = np.random.default_rng(0)
    f = rng.normal(size=(2000, 1))
    y = (rng.random(2000) < 1 / (1 + np.exp(-2 * f[:, 0]))).astype(int)
    targets = code_targets(y, np.ones(2000), classes=True)
    found = fit_calibration(targets, f, targets.encode(y), np.ones(2000))
    assert isinstance(found, Temperature)
    assert found.temperature == pytest.approx(0.5, abs=0.08)  # the slope 2 has standard error 0.08, so T has 0.02


def test_few_rows_told_apart_perfectly_do_not_make_a_model_certain():
    """Platt: n rows of either class have targets (n + 1)/(n + 2), which a temperature can meet."""
    for n in (1, 5, 50):
        f = np.repeat([[-1.0], [1.0]], n, axis=0)
        p = Temperature(fit_temperature(f, f, np.ones(2 * n))).probabilities(f)[-1, 1]
        assert p == pytest.approx((n + 1) / (n + 2), abs=1e-3)


def test_every_row_is_left_out_once_and_the_only_row_of_a_class_never():
    labels = np.array([0] * 23 + [1] * 9 + [2])
    folds = calibration_folds(labels)
    assert sorted(np.concatenate(folds).tolist()) == list(range(32))
    seen = []
    rows, values = out_of_fold(labels, lambda fold: seen.append(fold) or fold[:, None] * 1.0, Clock(), 0.0)
    np.testing.assert_array_equal(values[:, 0], rows)
    assert len(seen) == 5
    assert out_of_fold(labels, lambda fold: fold[:, None], Clock(1e-9), 1.0) is None


def test_shrunk_probabilities_survive_a_file(tmp_path):
    X, y, X_test, _ = drawn(45, 3)
    model = mercer.GaussianMixtureClassifier(random_state=0).fit(X, y)
    model.calibration_ = Shrunk(Temperature(2.0), 0.3, np.array([0.4, 0.6]))
    mercer.save(model, tmp_path / "m.mercer")
    np.testing.assert_array_equal(mercer.load(tmp_path / "m.mercer").predict_proba(X_test), model.predict_proba(X_test))


def test_shrinking_keeps_the_decision():
    """Decisions just on one side of the border stay there, however much the rates say the other class."""
    decisions = np.linspace(-1, 1, 21)[:, None]
    for share in (0.1, 0.5, 0.99, 1.0):
        p = Shrunk(Temperature(), share, np.array([0.2, 0.8])).probabilities(decisions)
        np.testing.assert_array_equal(p.argmax(1), Temperature().probabilities(decisions).argmax(1))
        np.testing.assert_allclose(p.sum(1), 1.0, rtol=1e-15)


def spiked(n, seed):
    """Rows of 60 columns that are zero but for rare spikes, and three classes that do not depend on them."""
    rng = np.random.default_rng(seed)
    X = np.where(rng.random((n, 60)) < 0.03, rng.exponential(size=(n, 60)), 0.0)
    return X, rng.choice(3, n, p=[0.7, 0.2, 0.1])


@pytest.mark.parametrize("seed", range(2))
def test_a_mixture_without_information_predicts_the_frequencies_of_the_classes(seed):
    """Densities of sparse columns are extreme, and their refits must not learn of columns from held-out rows."""
    X, y = spiked(200, seed)
    X_test, y_test = spiked(2000, 100 + seed)
    model = mercer.GaussianMixtureClassifier(random_state=0).fit(X, y)
    rates = np.bincount(y) / len(y)
    assert log_loss(y_test, model.predict_proba(X_test)) <= log_loss(y_test, np.tile(rates, (2000, 1))) + 0.01


def test_a_gaussian_process_without_information_predicts_the_frequencies_of_the_classes():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(120, 4)), rng.choice(4, 120, p=[0.6, 0.2, 0.1, 0.1])
    y_test = rng.choice(4, 1000, p=[0.6, 0.2, 0.1, 0.1])
    kernel = kernels.Scaled(kernels.Gaussian(1.0), 9.0)  # sure of what it has seen
    model = mercer.SparseGPClassifier(20, kernel=kernel, optimize_inducing=False, random_state=0).fit(X, y)
    rates = np.bincount(y) / len(y)
    found = log_loss(y_test, model.predict_proba(rng.normal(size=(1000, 4))))
    assert found <= log_loss(y_test, np.tile(rates, (1000, 1))) + 0.01


def test_power_and_bias_are_never_worse_than_the_frequencies_on_held_out_rows():
    rng = np.random.default_rng(0)
    for seed in range(50):
        n, n_classes = int(rng.integers(4, 80)), int(rng.integers(2, 5))
        true, weight = rng.integers(0, n_classes, n), rng.exponential(size=n)
        log_p = log_softmax(10 ** rng.uniform(-1, 2.5) * rng.normal(size=(n, n_classes)), axis=1)
        rows = LabelledProbabilities(log_p, true, weight)
        assert weight @ rows.gain(fit_power_and_bias(rows), rows.rates) >= -1e-9, seed


def test_power_and_bias_find_the_map_that_labels_were_drawn_by():
    """Log odds are two times too large and moved by one: 4000 rows find both within four standard errors."""
    rng = np.random.default_rng(0)
    f = 3 * rng.normal(size=4000)
    true = (rng.random(4000) < expit(0.5 * f + 1)).astype(int)
    log_p = np.column_stack([log_expit(-f), log_expit(f)])
    link = fit_power_and_bias(LabelledProbabilities(log_p, true, np.ones(4000)))
    log_odds = np.log(link.probabilities(log_p))
    np.testing.assert_allclose(log_odds[:, 1] - log_odds[:, 0], 0.5 * f + 1, atol=0.8)
    middle = np.abs(f) < 1
    np.testing.assert_allclose((log_odds[:, 1] - log_odds[:, 0])[middle], (0.5 * f + 1)[middle], atol=0.25)


def test_a_class_without_density_does_not_ruin_the_other_rows():
    """One row in fifty has probability zero: a power of it alone would make all probabilities equal."""
    log_p = np.tile(np.log([0.99, 0.01]), (500, 1))
    log_p[250:] = log_p[250:, ::-1]
    true = (np.arange(500) >= 250).astype(int)
    log_p[::50] = np.where(np.eye(2, dtype=bool)[true[::50]], -700.0, 0.0)
    rows = LabelledProbabilities(log_p, true, np.ones(500))
    p = fit_power_and_bias(rows).probabilities(log_p)
    assert -np.log(p[np.arange(500), true]).mean() < 0.2


def test_the_report_of_a_classifier_ends_with_how_far_its_probabilities_are_off():
    X, y = make_ripley(300, random_state=0)
    last = mercer.KernelBoostingClassifier(kernel="gaussian", random_state=0).fit(X, y).tuning_report_[-1]
    assert last["rows"] == 300
    assert 0 <= last["calibration_error"] < 0.15
    assert last["loss"] < np.log(2)

"""Data sets: what the generators' formulas promise, and what happens when a file is not as expected."""

import json

import numpy as np
import pytest
from sklearn.utils import Bunch

from mercer import datasets
from mercer.datasets import RIPLEY, THREE_GAUSSIANS, available, load, split
from mercer.datasets.synthetic import ARM_TARGET

GENERATORS = {name: getattr(datasets, name) for name in datasets.__all__ if name.startswith("make_")}


# Generators


@pytest.mark.parametrize("make", GENERATORS.values(), ids=GENERATORS)
def test_the_same_seed_gives_the_same_rows_and_another_seed_others(make):
    X, y = make(50, random_state=3)
    X_again, y_again = make(50, random_state=3)
    np.testing.assert_array_equal(X, X_again)
    np.testing.assert_array_equal(y, y_again)
    assert len(X) == len(y) == 50
    assert y.ndim == 1
    X_other, y_other = make(50, random_state=4)
    assert not (np.array_equal(X, X_other) and np.array_equal(y, y_other))


@pytest.mark.parametrize("name", ["make_sinc", "make_random_function", "make_smooth_regression"])
def test_noise_is_the_standard_deviation_of_what_is_added(name):
    X, y = GENERATORS[name](20_000, noise=0.3, random_state=0)
    X_clean, clean = GENERATORS[name](20_000, noise=0.0, random_state=0)
    np.testing.assert_array_equal(X, X_clean)
    # The deviation of a standard deviation over n normal draws is s/sqrt(2n): five of them are 2.5 %.
    assert np.std(y - clean) == pytest.approx(0.3, rel=0.025)


@pytest.mark.parametrize("name", ["make_sinc", "make_random_function", "make_smooth_regression"])
def test_negative_noise_is_refused_in_a_sentence(name):
    with pytest.raises(ValueError, match=r"noise must be at least 0, got -1"):
        GENERATORS[name](10, noise=-1)


def test_sinc_is_sin_x_over_x():
    X, y = datasets.make_sinc(100, noise=0.0)
    np.testing.assert_allclose(y, np.sin(X[:, 0]) / X[:, 0])
    np.testing.assert_allclose(np.diff(X[:, 0]), 20 / 99)


def test_the_variance_of_sin2_is_an_eighth_and_of_its_noise_a_sixteenth():
    _, clean = datasets.make_sin2(200_000, snr=np.inf, random_state=0)
    _, noisy = datasets.make_sin2(200_000, snr=2.0, random_state=0)
    assert np.var(clean) == pytest.approx(1 / 8, rel=0.01)
    assert np.var(noisy - clean) == pytest.approx(1 / 16, rel=0.02)


@pytest.mark.parametrize("name", ["make_random_function", "make_smooth_regression"])
def test_more_rows_keep_the_function_and_the_first_rows(name):
    X, y = GENERATORS[name](40, noise=0.0, random_state=1)
    X_more, y_more = GENERATORS[name](90, noise=0.0, random_state=1)
    np.testing.assert_array_equal(X, X_more[:40])
    np.testing.assert_allclose(y, y_more[:40], rtol=1e-12)


def test_a_random_function_lies_between_zero_and_the_sum_of_its_weights():
    _, y = datasets.make_random_function(noise=0.0, weight_range=(1.0, 1.0), random_state=0)
    assert 0 < y.min() <= y.max() < 20


def test_an_infinitely_wide_random_function_is_constant():
    _, y = datasets.make_random_function(50, noise=0.0, weight_range=(0.5, 0.5), inverse_widths=(0, 0), n_terms=4)
    np.testing.assert_array_equal(y, 2.0)


def test_an_isotropic_random_function_depends_on_distance_alone():
    # With equal eigenvalues the rotation cancels: log y = −(s²/2)·‖x − μ‖² is quadratic, with that curvature.
    X, y = datasets.make_random_function(
        200, 3, n_terms=1, weight_range=(1, 1), inverse_widths=(1.5, 1.5), noise=0.0, random_state=0
    )
    features = np.column_stack([np.square(X).sum(1), X, np.ones(len(X))])
    coefficients, residual, *_ = np.linalg.lstsq(features, np.log(y), rcond=None)
    assert coefficients[0] == pytest.approx(-(1.5**2) / 2)
    assert residual[0] < 1e-20


def test_signal_to_noise_is_a_ratio_of_mean_absolute_deviations():
    friedman = {"inputs": "normal", "weight_range": (-1, 1), "mean_extra_inputs": 2.0, "random_state": 0}
    _, clean = datasets.make_random_function(20_000, noise=0.0, **friedman)
    _, noisy = datasets.make_random_function(20_000, signal_to_noise=2.0, **friedman)
    signal = np.abs(clean - np.median(clean)).mean()
    assert signal / np.abs(noisy - clean).mean() == pytest.approx(2.0, rel=0.03)


def test_a_term_of_one_input_ignores_the_others():
    X, y = datasets.make_random_function(
        300, 5, n_terms=1, mean_extra_inputs=0.0, weight_range=(1, 1), noise=0.0, random_state=2
    )
    correlations = np.abs([np.corrcoef(np.argsort(np.argsort(y)), x)[0, 1] for x in X.T])
    assert np.sum(correlations > 0.3) == 1


def test_unknown_inputs_are_refused_in_a_sentence():
    with pytest.raises(ValueError, match="inputs must be 'uniform' or 'normal', got 'sobol'"):
        datasets.make_random_function(inputs="sobol")


def test_the_arm_agrees_with_products_of_rotation_matrices():
    X, y = datasets.make_smooth_regression(20, 5, random_state=0)
    for angles, distance in zip(X, y, strict=True):
        tip, turn = np.zeros(3), np.eye(3)
        for j, angle in enumerate(angles):
            c, s = np.cos(angle), np.sin(angle)
            about_z, about_y = [[c, -s, 0], [s, c, 0], [0, 0, 1]], [[c, 0, s], [0, 1, 0], [-s, 0, c]]
            turn = turn @ np.array(about_y if j % 2 else about_z)
            tip = tip + turn @ [1 / 5, 0, 0]
        assert distance == pytest.approx(np.linalg.norm(tip - ARM_TARGET))


def test_a_straight_arm_ends_at_one():
    _, y = datasets.make_smooth_regression(3, max_angle=0.0)
    np.testing.assert_allclose(y, np.linalg.norm(np.array([1, 0, 0]) - ARM_TARGET))


def test_the_block_size_does_not_change_the_rows():
    whole = datasets.make_smooth_regression(1000, noise=0.1, random_state=0)
    blocks = datasets.make_smooth_regression(1000, noise=0.1, random_state=0, block_rows=64)
    np.testing.assert_array_equal(whole[0], blocks[0])
    np.testing.assert_allclose(whole[1], blocks[1], rtol=1e-12)


def test_single_precision_is_double_precision_rounded():
    X, y = datasets.make_smooth_regression(1000, random_state=0)
    X32, y32 = datasets.make_smooth_regression(1000, random_state=0, dtype=np.float32)
    assert X32.dtype == y32.dtype == np.float32
    np.testing.assert_array_equal(X.astype(np.float32), X32)
    np.testing.assert_allclose(y, y32, atol=1e-5)


# The mixtures: name, problem, side of a square that holds them, error of Bayes' rule


MIXTURES = {"three Gaussians": (THREE_GAUSSIANS, 7.0, 0.173), "Ripley": (RIPLEY, 2.0, 0.089)}


@pytest.mark.parametrize(("mixture", "side", "error"), MIXTURES.values(), ids=MIXTURES)
def test_the_density_integrates_to_one_and_gives_the_stated_bayes_error(mixture, side, error):
    g = np.linspace(-side, side, 401)
    grid = np.stack(np.meshgrid(g, g), -1).reshape(-1, 2)
    joint, cell = np.exp(mixture.log_joint(grid)), (g[1] - g[0]) ** 2
    positive = joint[:, np.array(mixture.labels) > 0].sum(1)
    assert joint.sum() * cell == pytest.approx(1, abs=1e-6)
    assert positive.sum() * cell == pytest.approx(0.5, abs=1e-6)
    assert np.minimum(positive, joint.sum(1) - positive).sum() * cell == pytest.approx(error, abs=5e-4)


@pytest.mark.parametrize(("mixture", "side", "error"), MIXTURES.values(), ids=MIXTURES)
def test_draws_are_balanced_and_bayes_rule_errs_on_them_as_often_as_theory_says(mixture, side, error):
    n = 50_000
    X, y = mixture.sample(n, random_state=0)
    assert abs(y.mean()) < 5 / np.sqrt(n)
    wrong = np.mean((mixture.posterior(X) > 0.5) != (y > 0))
    assert wrong == pytest.approx(error, abs=5e-4 + 5 * np.sqrt(error * (1 - error) / n))


def test_the_components_have_the_means_and_covariances_of_the_thesis():
    X, y = datasets.make_three_gaussians(200_000, random_state=0)
    first = X[y < 0]
    np.testing.assert_allclose(first.mean(0), [0, -0.1], atol=0.02)
    np.testing.assert_allclose(np.cov(first.T), [[0.625, -0.2165], [-0.2165, 0.875]], atol=0.02)
    np.testing.assert_allclose(X[y > 0].mean(0), [1, 0], atol=0.02)


def test_the_posterior_is_finite_far_away():
    assert np.isfinite(THREE_GAUSSIANS.posterior(np.array([[1e3, -1e3], [0, 1e4]]))).all()


def test_redundant_inputs_are_two_noisy_copies_and_two_of_pure_noise():
    X, y = datasets.make_redundant_gaussians(50_000, random_state=0)
    assert X.shape == (50_000, 6)
    np.testing.assert_allclose((X[:, 2:4] - X[:, :2]).std(0), 0.02, rtol=0.03)
    np.testing.assert_allclose(X[:, 4:].std(0), 1, rtol=0.03)
    assert np.abs(np.corrcoef(X[:, 4:].T, y)[-1, :2]).max() < 5 / np.sqrt(len(X))


# Loading


def test_a_set_is_the_file_of_its_name_in_the_folder(monkeypatch, tmp_path):
    X, mask = np.arange(6.0).reshape(3, 2), np.eye(3, dtype=bool)
    info = json.dumps({"features": ["a", "b"]})
    np.savez(tmp_path / "abalone.npz", X=X, y=[1, 2, 3], test_mask=mask, n_train=2, info=info)
    np.savez(tmp_path / "mine.npz", X=X, y=[1, 2, 3])
    monkeypatch.setenv("MERCER_DATA", str(tmp_path))
    bunch = load("abalone")
    np.testing.assert_array_equal(bunch.X, X)
    np.testing.assert_array_equal(bunch.test_mask, mask)
    assert bunch.info == {"features": ["a", "b"]}
    assert bunch.n_train == 2
    assert load("mine").info == {}
    assert available() == ["abalone", "mine"]


def test_pickled_objects_are_refused(monkeypatch, tmp_path):
    np.savez(tmp_path / "mine.npz", X=np.array([{}], dtype=object))
    monkeypatch.setenv("MERCER_DATA", str(tmp_path))
    with pytest.raises(ValueError, match="allow_pickle"):
        load("mine")


def test_a_series_is_a_table_to_be_made(monkeypatch, tmp_path):
    np.savez(tmp_path / "waves.npz", series=np.arange(5.0))
    monkeypatch.setenv("MERCER_DATA", str(tmp_path))
    assert load("waves").series.tolist() == [0, 1, 2, 3, 4]


def test_a_damaged_or_foreign_file_is_refused_with_its_path(monkeypatch, tmp_path):
    X, y = np.zeros((3, 2)), np.zeros(3)
    np.savez(tmp_path / "whole.npz", X=X, y=y)
    np.savez(tmp_path / "bare.npz", a=X)
    np.savez(tmp_path / "prose.npz", X=X, y=y, info="not json")
    np.savez(tmp_path / "listed.npz", X=X, y=y, info="[1]")
    np.savez(tmp_path / "numbered.npz", X=X, y=y, info=np.arange(3))
    whole = (tmp_path / "whole.npz").read_bytes()
    (tmp_path / "empty.npz").write_bytes(b"")
    (tmp_path / "broken.npz").write_bytes(b"PK\x03\x04junk")
    (tmp_path / "cut.npz").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "bent.npz").write_bytes(whole.replace(b"NUMPY", b"NIMPY"))
    monkeypatch.setenv("MERCER_DATA", str(tmp_path))
    for name in ("empty", "broken", "cut", "bent"):
        with pytest.raises(ValueError, match=rf"{name}\.npz must be an \.npz file of arrays, whole and undamaged"):
            load(name)
    with pytest.raises(ValueError, match=r"bare\.npz must hold arrays X and y, or a series, got \['a'\]"):
        load("bare")
    for name in ("prose", "listed", "numbered"):
        with pytest.raises(ValueError, match=rf"{name}\.npz: info must be a JSON object as text, got"):
            load(name)


def test_an_array_called_name_does_not_rename_the_set(monkeypatch, tmp_path):
    np.savez(tmp_path / "mine.npz", X=np.zeros((3, 2)), y=np.zeros(3), name=np.arange(2))
    monkeypatch.setenv("MERCER_DATA", str(tmp_path))
    assert load("mine").name == "mine"


@pytest.mark.parametrize("name", ["nothing", "../abalone"])
def test_an_unknown_name_lists_the_known(name, monkeypatch, tmp_path):
    np.savez(tmp_path / "abalone.npz", X=np.zeros((3, 2)), y=np.zeros(3))
    monkeypatch.setenv("MERCER_DATA", str(tmp_path))
    with pytest.raises(ValueError, match=r"name must be one of \['abalone'\], got '.*" + name):
        load(name)


def test_a_folder_that_does_not_exist_is_refused(monkeypatch, tmp_path):
    monkeypatch.setenv("MERCER_DATA", str(tmp_path / "absent"))
    with pytest.raises(NotADirectoryError, match=r"MERCER_DATA must name a folder of \.npz files, got '.*absent'"):
        load("abalone")
    monkeypatch.delenv("MERCER_DATA")
    with pytest.raises(NotADirectoryError, match="got None"):
        available()


# The 90/10 protocol


def test_a_split_pools_both_files_and_uses_every_row_once():
    rows = np.arange(40_000)
    bunch = Bunch(X=rows[:10_000, None], y=rows[:10_000], X_test=rows[10_000:, None], y_test=rows[10_000:])
    X_train, X_test, y_train, y_test = split(bunch, 0.1, seed=5)
    assert (len(X_train), len(X_test)) == (36_000, 4_000)
    np.testing.assert_array_equal(np.sort(np.concatenate([y_train, y_test])), rows)
    np.testing.assert_array_equal(X_train[:, 0], y_train)
    np.testing.assert_array_equal(split(bunch, 0.1, seed=5)[3], y_test)
    assert not np.array_equal(split(bunch, 0.1, seed=6)[3], y_test)


def test_a_tenth_of_covtype_is_the_papers_test_set():
    y = np.zeros(581_012, np.int8)
    assert len(split(Bunch(X=y[:, None], y=y))[1]) == 58_102


def test_a_stack_of_ready_made_splits_is_refused():
    with pytest.raises(ValueError, match=r"X must be a table of rows and columns .* got shape \(10, 4, 2\)"):
        split(Bunch(X=np.zeros((10, 4, 2)), y=np.zeros((10, 4))))

"""Tables and targets as people hand them over: numbers as text, masks, lazy frames, records, targets of any type."""

from __future__ import annotations

import datetime
import warnings

import numpy as np
import pandas as pd
import polars
import pyarrow
import pytest

from mercer import KernelBoostingClassifier, KernelBoostingRegressor
from mercer.kernels import Gaussian

N = 60
rng = np.random.default_rng(0)
X = rng.normal(size=(N, 2)).round(3)
Y = np.sin(2 * X[:, 0]) + X[:, 1]
FRAME = pd.DataFrame(X, columns=["a", "b"])


def regressor() -> KernelBoostingRegressor:
    return KernelBoostingRegressor(kernel=Gaussian(1.0), regularization=0.1, random_state=0)


def classifier() -> KernelBoostingClassifier:
    return KernelBoostingClassifier(kernel=Gaussian(1.0), regularization=0.1, random_state=0)


@pytest.mark.parametrize("make", [pd.DataFrame, polars.DataFrame, pyarrow.table])
def test_numbers_written_as_text_are_numbers(make):
    text = make({name: [f"{value:.3f}" for value in FRAME[name]] for name in FRAME})
    plain, told = regressor().fit(FRAME, Y), regressor().fit(text, Y)
    np.testing.assert_array_equal(told.predict(text), plain.predict(FRAME))
    np.testing.assert_array_equal(told.predict(text[:1]), plain.predict(FRAME[:1]))  # one row tells less of its type


def test_a_mark_for_nothing_among_numbers_is_a_gap():
    gone = np.arange(N) % 9 == 0
    text = FRAME.assign(b=np.where(gone, "?", FRAME["b"].astype(str)))
    model = regressor().fit(text, Y)
    np.testing.assert_array_equal(
        model.predict(text), regressor().fit(FRAME.assign(b=FRAME["b"].mask(gone)), Y).predict(text)
    )
    assert model.columns_[1]["missing"] == gone.mean()


LEVELS = {
    "whole numbers that come again": [str(i % 20) for i in range(N)],
    "codes of one length": [f"{i:05d}" for i in range(N)],
    "few versions": [f"3.{i % 9}" for i in range(N)],
    "declared": pd.Categorical([f"{i}.5" for i in range(N)]),
}


@pytest.mark.parametrize("case", LEVELS)
def test_text_that_names_things_stays_what_it_is(case):
    assert regressor().fit(FRAME.assign(c=LEVELS[case]), Y).columns_[2]["kind"] == "category"


def test_months_and_times_of_the_day_are_no_names():
    months = pd.period_range("2020-01", periods=N, freq="M")
    clock = [datetime.time(i % 24, 30) for i in range(N)]
    kinds = [one["kind"] for one in regressor().fit(FRAME.assign(month=months, clock=clock), Y).columns_]
    assert kinds == ["number", "number", "date", "number"]
    arrow = pyarrow.table({"a": FRAME["a"], "clock": pyarrow.array(clock, pyarrow.time64("us"))})
    frame = FRAME[["a"]].assign(clock=clock)
    np.testing.assert_array_equal(regressor().fit(arrow, Y).predict(frame), regressor().fit(frame, Y).predict(arrow))


def test_the_same_instants_by_another_clock_are_refused():
    at = pd.Series(pd.date_range("2020-01-01", periods=N, freq="7h", tz="Europe/Berlin"))
    model = regressor().fit(pd.DataFrame({"at": at}), Y)
    with pytest.raises(ValueError, match="of the time zone 'Europe/Berlin' as in fit, got 'UTC'"):
        model.predict(pd.DataFrame({"at": at.dt.tz_convert("UTC")}))
    local = pd.DataFrame({"at": at.dt.tz_localize(None)})  # a clock without a zone is that of fit
    np.testing.assert_array_equal(model.predict(local), model.predict(pd.DataFrame({"at": at})))


def test_what_a_mask_hides_is_missing():
    hidden = rng.random(X.shape) < 0.2
    masked, gaps = np.ma.masked_array(X, mask=hidden), np.where(hidden, np.nan, X)
    np.testing.assert_array_equal(regressor().fit(masked, Y).predict(masked), regressor().fit(gaps, Y).predict(gaps))
    with pytest.raises(ValueError, match="y contains NaN"):
        regressor().fit(X, np.ma.masked_array(Y, mask=hidden[:, 0]))


def test_a_lazy_frame_is_collected():
    frame = polars.DataFrame(X, schema=["a", "b"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        lazy = regressor().fit(frame.lazy(), Y)
    np.testing.assert_array_equal(lazy.predict(frame.lazy()), lazy.predict(frame))


RECORDS = np.array([(1.0, 2)] * N, dtype=[("a", "f8"), ("b", "i4")])
REFUSED = {
    "names that come twice": (FRAME.set_axis(["a", "a"], axis=1), Y, r"different from each other, got .*'a'"),
    "no columns": (FRAME[[]], Y, r"0 feature\(s\) \(shape=\(60, 0\)\)"),
    "a dictionary": ({"a": X[:, 0]}, Y, r"a table, such as pandas.DataFrame"),
    "dictionaries": ([{"a": 1.0}] * N, Y, r"a table, such as pandas.DataFrame"),
    "records": (RECORDS, Y, r"a table, such as pandas.DataFrame"),
    "the name of a column": (FRAME, "b", r"one target for each row, such as X\['price'\], got 'b'"),
    "text": (FRAME, np.where(Y > 0, "yes", "no"), r"real numbers \(classes are for a classifier\), got '(yes|no)'"),
    "categories": (FRAME, pd.Series(np.where(Y > 0, "yes", "no"), dtype="category"), "got '(yes|no)'"),
    "dates": (FRAME, pd.date_range("2020-01-01", periods=N), "real numbers .*, got 'dates'"),
    "durations": (FRAME, pd.to_timedelta(np.arange(N), unit="h"), "real numbers .*, got 'durations'"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_table_or_no_target_gets_a_sentence(case):
    table, y, words = REFUSED[case]
    with pytest.raises(ValueError, match=words):
        regressor().fit(table, y)


def test_words_for_weights_get_a_sentence():
    with pytest.raises(ValueError, match=r"one number for each row \(class_weight takes .*\), got 'balanced'"):
        regressor().fit(X, Y, sample_weight="balanced")


def test_a_row_without_a_class_is_named():
    labels = np.where(Y > 0, "yes", "no").astype(object)
    labels[7] = None
    with pytest.raises(ValueError, match="a class for each row, got 'NaN or None in row 7'"):
        classifier().fit(X, labels)


@pytest.mark.parametrize(("dtype", "plain"), [("Int64", np.int64), ("boolean", np.bool_), ("UInt8", np.uint8)])
def test_classes_of_nullable_types_keep_their_type(dtype, plain):
    model = classifier().fit(X, pd.Series(Y > 0).astype(dtype))
    assert (model.classes_.dtype, model.predict(X[:2]).dtype) == (plain, plain)


def test_an_index_in_another_order_is_said():
    y = pd.Series(Y)
    with pytest.warns(UserWarning, match="same index in another order"):
        regressor().fit(FRAME, y[::-1])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        regressor().fit(FRAME, y)
        regressor().fit(FRAME, y.set_axis(range(N, 2 * N)))  # names of other rows say nothing of these


def test_a_value_that_drowns_all_others_is_said():
    with pytest.warns(UserWarning, match=r"y holds 1e\+09 in row 3, which alone makes more than 99.99 %"):
        regressor().fit(X, np.where(np.arange(N) == 3, 1e9, Y))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        regressor().fit(X, np.where(np.arange(N) == 3, 50.0, Y))  # far, but the others still count
        regressor().fit(X, (np.arange(N) == 3) * 1.0)  # nothing is drowned where the others are alike


def test_gross_errors_in_y_are_said_and_do_not_move_a_model_of_the_pinball_loss():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 2))
    f = np.sin(X[:, 0]) + X[:, 1]
    y = f + 0.1 * rng.normal(size=300)
    y[[7, 70]] = [1e5, -3e5]
    boosting = KernelBoostingRegressor(3, kernel="gaussian", learner_size=30, loss="pinball", random_state=0)
    with pytest.warns(
        UserWarning, match="with 1 more of 300 rows makes more than 99.5 % .* leave the 0.67 % of rows out"
    ):
        boosting.fit(X, y)
    assert np.abs(boosting.predict(X) - f).mean() < 0.25 * f.std()  # the mean of y alone is 667 away

"""Tables and targets as people hand them over: numbers as text, masks, lazy frames, records, targets of any type."""

from __future__ import annotations

import datetime
import warnings
from inspect import signature

import numpy as np
import pandas as pd
import polars
import pyarrow
import pytest

import mercer
from mercer import KernelBoostingClassifier, KernelBoostingRegressor
from mercer.data.raw import days, text_column
from mercer.kernels import Gaussian

pytestmark = pytest.mark.usefixtures("two_folds")

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
    "integers that come again": [str(i % 20) for i in range(N)],
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


def test_times_as_text_that_say_how_far_from_utc_they_are_are_instants():
    at = pd.Series(pd.date_range("2020-06-01", periods=N, freq="7h", tz="UTC"))
    text = [one.tz_convert("Europe/Berlin" if i % 2 else "America/Lima").isoformat() for i, one in enumerate(at)]
    model = regressor().fit(pd.DataFrame({"at": text}), Y)
    written = text_column("at", np.array(text))  # as a CSV file has it
    assert (written.kind, written.zone) == ("date", "UTC")
    np.testing.assert_allclose(
        written.values, days(at.dt.tz_localize(None).to_numpy("datetime64[us]")), rtol=1e-15
    )  # two roundings
    np.testing.assert_allclose(model.predict(pd.DataFrame({"at": at})), model.predict(pd.DataFrame({"at": text})))
    with pytest.raises(ValueError, match="of the time zone 'UTC' as in fit, got 'Europe/Berlin'"):
        model.predict(pd.DataFrame({"at": at.dt.tz_convert("Europe/Berlin")}))


@pytest.mark.parametrize(
    ("fields", "kind", "values"),
    [
        (["1e3", "", "NAN", " 7 "], "number", [1000.0, np.nan, np.nan, 7.0]),
        (["?", "", "NA"], "number", [np.nan] * 3),
        (["True", "false", ""], "bool", [1.0, 0.0, np.nan]),
        (["2020-01", "", "2020-02"], "category", [0, -1, 1]),  # as text in a frame
        (["1_000", "2"], "category", [0, 1]),
    ],
)
def test_fields_of_text_files_are_numbers_booleans_or_levels(fields, kind, values):
    column = text_column("a", np.array(fields))
    assert column.kind == kind
    np.testing.assert_array_equal(column.values, values)


@pytest.mark.parametrize("make", [pd.DataFrame, polars.DataFrame, pyarrow.table])
def test_infinity_is_refused_with_its_place(make):
    """In tables of numbers and in mixed ones, in `fit` and in `predict`."""
    for more in ({}, {"c": ["p", "q", "r"] * (N // 3)}):
        good = {"a": X[:, 0], "b": X[:, 1], **more}
        bad = make({**good, "b": np.where(np.arange(N) == 7, -np.inf, X[:, 1])})
        model = regressor().fit(make(good), Y)
        for call in (lambda bad=bad: regressor().fit(bad, Y), lambda model=model, bad=bad: model.predict(bad)):
            with pytest.raises(ValueError, match="finite numbers or none, got -inf in row 7, column 'b'"):
                call()


WOOD = np.array(["ash", "fir", "oak"])[np.arange(N) % 3]
DAYS = pd.Series(pd.date_range("2020-01-01", periods=N, freq="5h"))
GONE = {
    "object": pd.Series([None] * 3, dtype=object),
    "NaN": pd.Series([np.nan] * 3),
    "Int64": pd.Series([pd.NA] * 3, dtype="Int64"),
    "string": pd.Series([pd.NA] * 3, dtype="string"),
    "category": pd.Series(pd.Categorical([None] * 3)),
    "NaT": pd.Series([pd.NaT] * 3),
}


@pytest.mark.parametrize("name", ["b", "text", "category", "ordered", "truth", "at", "span"])
def test_a_column_that_is_all_missing_in_predict_is_missing_whatever_its_type(name):
    kinds = {"category": pd.Categorical(WOOD), "ordered": pd.Categorical(WOOD, ordered=True), "truth": X[:, 0] > 0}
    frame = FRAME.assign(text=WOOD, at=DAYS, span=DAYS - DAYS[0], **kinds)[["a", name]]
    model = regressor().fit(frame, Y)
    answers = [model.predict(frame[:3].assign(**{name: gone})) for gone in GONE.values()]
    answers.append(model.predict(polars.DataFrame({"a": X[:3, 0], name: [None] * 3})))
    answers.append(model.predict(pyarrow.table({"a": X[:3, 0], name: [None] * 3})))
    assert np.isfinite(answers).all()
    assert np.ptp(answers, axis=0).max() == 0


TYPES = {
    "days and words": [datetime.date(2020, 1, 1), "soon"] * (N // 2),
    "times and numbers": [datetime.datetime(2020, 1, 1, 6), 3.5, None] * (N // 3),
    "numbers and words": [1, "1", 2.5, "x", None] * (N // 5),
}


@pytest.mark.parametrize("case", TYPES)
def test_rows_of_mixed_types_mean_the_same_one_by_one(case):
    frame = FRAME.assign(c=pd.Series(TYPES[case], dtype=object))
    model = regressor().fit(frame, Y)
    one_by_one = [model.predict(frame[i : i + 1])[0] for i in range(6)]
    np.testing.assert_allclose(one_by_one, model.predict(frame[:6]), rtol=0, atol=1e-12)  # sums of 60 terms near 1


def test_other_columns_than_in_fit_are_named():
    for frame in (FRAME, FRAME.assign(c=WOOD)):
        model = regressor().fit(frame, Y)
        with pytest.raises(ValueError, match=r"unseen at fit time: \['more'\]"):
            model.predict(frame.assign(more=1.0))
        with pytest.raises(ValueError, match=r"'a'.* twice"):
            model.predict(frame[["a", *frame.columns]])
    with pytest.raises(ValueError, match="column 'c' of X must be of levels as in fit"):  # the last one, mixed
        model.predict(frame[["b", "a", "c"]].assign(c=3.0))


def test_truth_values_with_gaps_are_truth_values_beside_numbers_too():
    frame = FRAME.assign(c=pd.array(np.where(np.arange(N) % 9 == 0, None, X[:, 0] > 0), dtype="boolean"))
    assert [one["kind"] for one in regressor().fit(frame, Y).columns_] == ["number", "number", "bool"]


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
    "lists": (FRAME.assign(c=[[1, 2]] * N), Y, "column 'c' of X must be of single values, got 'list'"),
    "complex objects": (FRAME.assign(c=pd.Series([1j] * N, dtype=object)), Y, "'c' of X must be real numbers"),
    "numbers without end": (
        FRAME.assign(c=[10**400, *range(N - 1)]),
        Y,
        "numbers up to 1.8e308, got one of 401 digits",
    ),
    "infinity as text": (FRAME.assign(c=["-inf", *map(str, X[1:, 0])]), Y, "got -inf in row 0, column 'c'"),
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


@pytest.mark.parametrize("rows", [{"a": 1.0, "b": 2.0}, [{"a": 1.0, "b": 2.0}]])
def test_rows_with_named_values_get_a_sentence_in_predict_too(rows):
    model = regressor().fit(X, Y)
    with pytest.raises(ValueError, match=r"a table, such as pandas.DataFrame"):
        model.predict(rows)


def test_durations_and_periods_among_objects_are_numbers_and_dates():
    typed = FRAME.assign(
        wait=pd.to_timedelta(np.arange(N) * 7 % 11, unit="h"), month=pd.period_range("2020-01", periods=N, freq="M")
    )
    untyped = typed.astype({"wait": object, "month": object})
    model = regressor().fit(untyped, Y)
    assert [column["kind"] for column in model.columns_] == ["number", "number", "number", "date"]
    np.testing.assert_array_equal(model.predict(typed), regressor().fit(typed, Y).predict(untyped))


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
    settings = {"kernel": "gaussian", "regularization": 0.1, "learner_size": 30, "random_state": 0}
    boosting = KernelBoostingRegressor(3, loss="pinball", **settings)
    with pytest.warns(
        UserWarning, match="with 1 more of 300 rows makes more than 99.5 % .* leave the 0.67 % of rows out"
    ):
        boosting.fit(X, y)
    assert np.abs(boosting.predict(X) - f).mean() < 0.25 * f.std()  # the mean of y alone is 667 away


@pytest.mark.parametrize(
    ("label", "words"),
    [
        ([1, 2], r"pass y.astype\(int\), got objects of type 'int'"),
        ([True, False], r"pass y.astype\(bool\), got objects of type 'bool'"),
        (list(pd.period_range("2020", periods=2, freq="M")), r"pass y.astype\(str\), got objects of type 'Period'"),
        (["a", 1], r"labels of one type \(y.astype\(str\) makes text of all\), got 'int and str'"),
    ],
)
def test_objects_that_are_no_labels_to_scikit_learn_are_named_with_a_way_out(label, words):
    with pytest.raises(ValueError, match=words):
        classifier().fit(X, np.array(label * (N // 2), dtype=object))


def test_categories_of_booleans_are_predicted_as_booleans():
    y = pd.Series(Y > 0, dtype="category")
    model = classifier().fit(X, y)
    assert model.predict(X).dtype == bool
    assert model.score(X, y) > 0.9


@pytest.mark.parametrize("fill", [0.0, np.nan])
def test_a_frame_of_sparse_columns_is_a_frame(fill):
    plain = FRAME.where(FRAME > 0, fill)
    sparse = plain.astype(pd.SparseDtype("float", fill))
    model = regressor().fit(sparse, Y)
    np.testing.assert_array_equal(model.predict(sparse), regressor().fit(plain, Y).predict(plain))
    assert model.feature_names_in_.tolist() == ["a", "b"]


WRITTEN = {
    "percent": ([f"{value:.1f}%" for value in 20 * X[:, 0]], "to_numeric"),
    "money": ([f"${value:.2f}" for value in np.abs(X[:, 0])], "to_numeric"),
    "thousands": ([f"{value:,.0f}" for value in 50_000 * X[:, 0]], "to_numeric"),
    "decimal commas": ([f"{value:.2f}".replace(".", ",") for value in X[:, 0]], "to_numeric"),
    "units": ([f"{value:.0f} kg" for value in 900 * X[:, 0]], "to_numeric"),
    "a word among numbers": (["none" if i == 7 else f"{value:.2f}" for i, value in enumerate(X[:, 0])], "to_numeric"),
    "times": ([f"{i % 24}:{i % 6}5" for i in range(N)], "to_timedelta"),
    "times of a half day": ([f"{i % 12 + 1}:{i % 6}5 pm" for i in range(N)], "to_datetime"),
    "dates": ([f"{i % 28 + 1:02d}/{i % 12 + 1:02d}/2024" for i in range(N)], "to_datetime"),
}


@pytest.mark.parametrize("case", WRITTEN)
def test_amounts_dates_and_times_for_people_are_said_to_be_levels(case):
    values, function = WRITTEN[case]
    frame = FRAME.assign(c=values)
    with pytest.warns(
        UserWarning, match=rf"column 'c' of X holds text such as .* read as levels .* pandas\.{function}"
    ):
        regressor().fit(frame, Y)
    regressor().set_params(categorical_features=["c"]).fit(frame, Y)  # warnings are errors


@pytest.mark.parametrize(
    "values", [[f"A{i % 40}" for i in range(N)], [f"{i % 40}B" for i in range(N)], [str(i % 40) for i in range(N)]]
)
def test_codes_are_levels_without_a_warning(values):
    assert regressor().fit(FRAME.assign(c=values), Y).columns_[2]["kind"] == "category"


@pytest.mark.parametrize("make", [pd.DataFrame, polars.DataFrame, pyarrow.table])
def test_integers_that_float64_rounds_to_one_number_are_told_apart(make):
    shop = 10**18 + np.arange(N) % 5
    y = Y + 3.0 * (shop % 5)
    table, plain = (make({"a": X[:, 0], "b": X[:, 1], "shop": codes}) for codes in (shop, shop - 10**18))
    exact = regressor().set_params(categorical_features=["shop"]).fit(table, y)
    small = regressor().set_params(categorical_features=["shop"]).fit(plain, y)
    np.testing.assert_allclose(exact.predict(table), small.predict(plain))
    np.testing.assert_allclose(exact.predict(table[:1]), small.predict(plain[:1]))


def test_large_integers_are_numbers_unless_float64_merges_them():
    def described(column):
        table = np.column_stack([column, np.arange(N) % 7])
        return regressor().fit(table, Y).columns_[0]["map"]

    assert described(10**18 + np.arange(N)) == "left out: an identifier: every row has its own value"
    assert described(10**18 + 10**12 * np.arange(N)) == "number"


@pytest.mark.parametrize("names", [[None, np.nan], [0, 0]])
def test_names_that_are_no_text_must_differ_too(names):
    twice = FRAME.set_axis(names, axis=1)
    for use in (lambda: regressor().fit(twice, Y), lambda: regressor().fit(X, Y).predict(twice)):
        with pytest.raises(ValueError, match="the names of the columns of X must be different"):
            use()


@pytest.mark.parametrize("name", ["GreedyKernelRegressor", "SparseGPRegressor", "NRBFRegressor", "MHKSClassifier"])
def test_memory_maps_that_cannot_be_written_are_read_in_silence(name, tmp_path):
    """As joblib passes large arrays to its workers; warnings are errors."""
    cls = getattr(mercer, name)
    arrays = {"X": X, "y": np.where(Y > 0, 1, 0) if name.endswith("Classifier") else Y, "sample_weight": np.ones(N)}
    for key, values in arrays.items():
        np.save(tmp_path / f"{key}.npy", values)
    mapped = {key: np.load(tmp_path / f"{key}.npy", mmap_mode="r") for key in arrays}
    few = {"max_iter": 3} if "max_iter" in signature(cls).parameters else {}
    model = cls(random_state=0, **few).fit(**mapped)
    np.testing.assert_array_equal(model.predict(mapped["X"]), cls(random_state=0, **few).fit(**arrays).predict(X))

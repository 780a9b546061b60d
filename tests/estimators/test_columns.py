"""Tables as people have them: what each kind of column means, for every estimator that takes a table."""

import datetime
import io
from dataclasses import replace
from functools import partial

import joblib
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch
from sklearn.base import clone, is_classifier
from sklearn.inspection import PartialDependenceDisplay, permutation_importance
from sklearn.model_selection import GridSearchCV, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

import mercer
from mercer.data import CsvRows, ParquetRows
from mercer.kernels import Gaussian, Linear
from mercer.selection.settings import DEFAULT_SETTINGS

pytestmark = pytest.mark.usefixtures("two_folds")

N = 120


def mixed_frame(n: int = N, seed: int = 0) -> tuple[pd.DataFrame, np.ndarray]:
    """Numbers, booleans, text, categories, dates, gaps; the target depends on size, wood, grade and day of week."""
    rng = np.random.default_rng(seed)
    size, wood = rng.normal(size=n), rng.choice(["ash", "fir", "oak"], n)
    grade = rng.choice(["low", "mid", "high"], n)
    day = rng.integers(0, 400, n)
    effect = pd.Series(wood).map({"ash": 0.0, "fir": 1.0, "oak": -1.0}).to_numpy()
    y = (
        np.sin(size)
        + effect * (1 + 0.3 * size)
        + 0.5 * pd.Series(grade).map({"low": 0, "mid": 1, "high": 2}).to_numpy()
    )
    y = y + 0.4 * np.sin(2 * np.pi * day / 7)
    frame = pd.DataFrame(
        {
            "size": np.where(rng.random(n) < 0.1, np.nan, size),
            "wood": wood,
            "grade": pd.Categorical(grade, ["low", "mid", "high"], ordered=True),
            "whole": pd.array(np.where(rng.random(n) < 0.1, None, rng.integers(0, 5, n)), dtype="Int64"),
            "sound": rng.random(n) < 0.5,
            "cut": pd.Timestamp("2020-01-01") + pd.to_timedelta(day, unit="D"),
            "maybe": np.where(rng.random(n) < 0.2, None, rng.choice(["yes", "no"], n)),
        }
    )
    return frame, y + 0.05 * rng.normal(size=n)


FRAME, Y = mixed_frame()
LABELS = np.where(np.median(Y) < Y, "dear", "cheap")
#: Every public estimator that takes a table, with searches cut short.
QUICK = {
    "n_learners": 2,
    "n_basis": 20,
    "n_inducing": 10,
    "max_iter": 3,
    "tuning_rows": 60,
    "n_components": 2,
    "n_init": 1,
}
QUICK |= {"models": [mercer.SparseGPRegressor(5, kernel="gaussian", ard=True, tuning_rows=40, max_iter=2)]}
QUICK |= {"n_members": 1, "kernel": Gaussian(2.0), "random_state": 0, "subset_size": 50}


def quick(name: str) -> object:
    kind = getattr(mercer, name)
    known = kind().get_params()
    return kind(**{key: value for key, value in QUICK.items() if key in known and key != "kernels"})


FACES = [name for name in mercer.__all__ if hasattr(getattr(mercer, name), "fit")]


def boosted(**options: object) -> mercer.KernelBoostingRegressor:
    return mercer.KernelBoostingRegressor(kernel=Gaussian(2.0), regularization=1e-2, random_state=0, **options)


@pytest.mark.parametrize("name", FACES)
def test_a_mixed_frame_goes_into_every_estimator(name, short_selections):
    model = quick(name)
    model.fit(FRAME, LABELS if is_classifier(model) else Y)
    assert model.n_features_in_ == FRAME.shape[1]
    assert list(model.feature_names_in_) == list(FRAME.columns)
    turned = FRAME[FRAME.columns[::-1]]
    for method in ("predict", "transform", "predict_proba"):
        if hasattr(model, method) and name != "ARDSelector":  # what it gives back are the columns themselves
            answers = getattr(model, method)
            np.testing.assert_array_equal(answers(FRAME[:20]), answers(turned[:20]))
    if hasattr(model, "columns_"):
        assert [one["name"] for one in model.columns_] == list(FRAME.columns)
    if hasattr(model, "relevance_"):
        assert np.shape(model.relevance_)[-1] == FRAME.shape[1]


def test_pandas_polars_and_arrow_hold_the_same_table():
    frame = FRAME.astype({"grade": str})  # polars knows no order of categories
    expected = boosted().fit(frame, Y).predict(frame)
    for other in (pl.from_pandas(frame), pa.Table.from_pandas(frame, preserve_index=False)):
        np.testing.assert_array_equal(boosted().fit(other, Y).predict(other), expected)
        np.testing.assert_array_equal(boosted().fit(frame, Y).predict(other), expected)


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_a_file_holds_the_same_table(kind, tmp_path):
    frame = FRAME.astype({"grade": str, "sound": float})  # text files know neither order nor truth
    path = tmp_path / f"table.{kind}"
    write = frame.assign(y=Y)
    write.to_parquet(path, row_group_size=50) if kind == "parquet" else write.to_csv(path, index=False)
    expected = boosted().fit(frame, Y)
    rows = ParquetRows(path, target="y") if kind == "parquet" else CsvRows(path, target="y")
    fitted = boosted().fit(rows)
    assert [one["kind"] for one in fitted.columns_] == [one["kind"] for one in expected.columns_]
    np.testing.assert_allclose(fitted.predict(path), expected.predict(frame), rtol=1e-9)


def test_complete_numbers_pass_as_they_are():
    X = np.random.default_rng(0).normal(size=(60, 3))
    plain = boosted().fit(X, X[:, 0])
    assert not hasattr(plain, "table_")
    for table in (pd.DataFrame(X, columns=list("abc")), pa.table(dict(zip("abc", X.T, strict=True)))):
        model = boosted().fit(table, X[:, 0])
        assert not hasattr(model, "table_")
        np.testing.assert_array_equal(model.predict(table), plain.predict(X))


def test_two_different_levels_are_at_distance_one_and_share_a_length_scale():
    table = boosted().fit(FRAME, Y).table_
    columns = [code.column for code in table.codes]
    wood = table.codes[columns.index(1)].encode(_column("wood", ["ash", "oak", "elm"]))
    assert np.linalg.norm(wood[0] - wood[1]) == pytest.approx(1.0)
    assert not wood[2].any()  # never seen
    groups = table.layout.group[table.layout.column == 1]
    assert len(groups) == 3
    assert len(set(groups)) == 1


def _column(name, values):
    from mercer.data.frames import raw_columns

    return raw_columns(pd.DataFrame({name: values}))[0]


def test_a_gap_is_the_median_and_an_indicator():
    X = pd.DataFrame({"a": [1.0, 2.0, np.nan, 9.0, 2.5], "b": [0.0, 1.0, 2.0, 3.0, 4.0]})
    table = boosted().fit(X, np.arange(5.0)).table_
    coded = table.encode([_column("a", [np.nan, 3.0]), _column("b", [np.nan, 1.0])])
    np.testing.assert_array_equal(coded, [[2.0, 1.0, 2.0], [3.0, 0.0, 1.0]])  # of even numbers, the lower middle one


def test_a_gap_that_only_predict_has_is_the_median():
    X = np.random.default_rng(0).normal(size=(101, 2))
    model = boosted().fit(X, X[:, 0] ** 2)
    gaps, filled = X[:3].copy(), X[:3].copy()
    gaps[:, 0], filled[:, 0] = np.nan, np.median(X[:, 0])
    np.testing.assert_allclose(model.predict(gaps), model.predict(filled), rtol=1e-12)


def test_durations_among_numbers_are_days_in_fit_and_in_predict():
    x = np.random.default_rng(0).uniform(0, 3, 60)
    frame = pd.DataFrame({"lasted": pd.to_timedelta(x, unit="D"), "x": x[::-1]})
    numbers = pd.DataFrame({"lasted": x, "x": x[::-1]})
    found, wanted = (boosted().fit(table, np.sin(x)).predict(table) for table in (frame, numbers))
    np.testing.assert_allclose(found, wanted, atol=1e-6)  # durations of pandas are whole nanoseconds, ours microseconds
    with pytest.raises(ValueError, match="feature names should match"):
        boosted().fit(frame, np.sin(x)).predict(frame.rename(columns={"x": "z"}))


def test_categorical_features_by_name_number_or_mask_are_the_same():
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"zone": rng.integers(0, 4, 80), "x": rng.normal(size=80)})
    y = np.array([3.0, -1.0, 2.0, 0.0])[X["zone"]] + X["x"]
    answers = [boosted(categorical_features=c).fit(X, y).predict(X) for c in (["zone"], [0], [True, False], [-2])]
    for other in answers[1:]:
        np.testing.assert_array_equal(answers[0], other)
    as_type = boosted().fit(X.astype({"zone": "category"}), y)
    np.testing.assert_array_equal(as_type.predict(X.astype({"zone": "category"})), answers[0])
    with pytest.raises(ValueError, match="categorical_features"):
        boosted(categorical_features=["street"]).fit(X, y)
    with pytest.raises(ValueError, match="categorical_features=None"):
        boosted(categorical_features=None).fit(FRAME, Y)


def test_a_date_is_a_trend_and_the_cycles_it_covers():
    at = pd.date_range("2020-01-01", periods=60, freq="7h")
    table = boosted().fit(pd.DataFrame({"at": at}), np.arange(60.0)).table_
    assert [code.description for code in table.codes] == ["days", "cycle of 1 days", "cycle of 7 days"]
    coded = table.encode([_column("at", pd.to_datetime(["2021-05-03 06:00", "2021-05-04 06:00"]))])
    np.testing.assert_allclose(coded[0, 1:3], coded[1, 1:3], atol=1e-9)
    assert coded[1, 0] - coded[0, 0] == 1.0


def test_dates_written_as_text_are_dates_unless_named_as_categories():
    at = pd.Series(pd.date_range("2020-01-01", periods=60, freq="7h"))
    dates, text = (pd.DataFrame({"at": one}) for one in (at, at.dt.strftime("%Y-%m-%dT%H:%M:%SZ")))
    model = boosted().fit(text, np.arange(60.0))
    np.testing.assert_array_equal(model.predict(text[3:4]), boosted().fit(dates, np.arange(60.0)).predict(dates[3:4]))
    with pytest.raises(ValueError, match="dates as in fit"):
        model.predict(pd.DataFrame({"at": ["soon"]}))
    days = pd.DataFrame({"at": at.dt.strftime("%Y-%m-%d")})
    assert boosted(categorical_features=["at"]).fit(days, np.arange(60.0)).columns_[0]["kind"] == "category"
    words = days.assign(at=days["at"].where(days["at"] != "2020-01-02", "2020-13-02"))  # one is no date: all are levels
    named = boosted().fit(words, np.arange(60.0))
    np.testing.assert_array_equal(named.predict(words)[:3], named.predict(words[:3]))


def test_the_clock_of_a_time_zone_counts():
    at = pd.date_range("2020-06-01", periods=60, freq="7h", tz="Asia/Tokyo")
    with_zone, local = pd.DataFrame({"at": at}), pd.DataFrame({"at": at.tz_localize(None)})
    np.testing.assert_array_equal(
        boosted().fit(with_zone, np.arange(60.0)).predict(with_zone),
        boosted().fit(local, np.arange(60.0)).predict(local),
    )


def test_what_says_nothing_is_left_out_by_name():
    frame = FRAME.assign(
        void=np.nan, one="x", again=FRAME["wood"].str.upper(), row=[f"id{i}" for i in range(N)], count=np.arange(N)
    )
    told = {one["name"]: one["map"] for one in boosted().fit(frame, Y).columns_}
    assert told["void"] == "left out: all values are missing"
    assert told["one"] == "left out: constant"
    assert told["again"] == "left out: the same as 'wood'"
    assert told["row"] == "left out: an identifier: every row has its own value"
    assert told["count"] == "left out: an identifier: every row has its own value"
    ordered = frame.assign(count=np.argsort(np.argsort(Y)))  # a count that says something stays
    assert "left out" not in boosted().fit(ordered, Y).columns_[-1]["map"]


@pytest.fixture(scope="module")
def numbers_and_constants():
    """Rows of two columns that matter, and of a year and a boolean that never change."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (120, 2))
    frame = pd.DataFrame({"a": X[:, 0], "year": 2024.0, "b": X[:, 1], "open": True})
    return frame, np.sin(1.5 * X[:, 0]) + 0.5 * X[:, 1] + 0.1 * rng.normal(size=120)


def test_the_default_model_of_numbers_leaves_constant_columns_out(numbers_and_constants, short_selections):
    frame, y = numbers_and_constants
    model = mercer.KernelBoostingRegressor(random_state=0).fit(frame, y)
    new = frame.assign(year=2030.0, open=False)
    np.testing.assert_array_equal(model.predict(new), model.predict(frame))
    np.testing.assert_array_equal(model.predict_interval(new), model.predict_interval(frame))
    told = {one["name"]: one for one in model.columns_}
    assert told["year"]["map"] == told["open"]["map"] == "left out: constant"
    assert told["year"]["length_scale"] == np.inf
    assert told["year"]["relevance"] == told["open"]["relevance"] == 0.0
    np.testing.assert_array_equal(  # a gap there is no gap
        model.predict(frame.assign(year=np.nan)), model.predict(frame)
    )
    held = mercer.KernelBoostingRegressor(3, learner_size=20, kernel="gaussian", random_state=0)
    held.fit(frame, y, X_val=new, y_val=y)  # rows to watch are read as rows to predict are
    assert held.history_["validation"][-1] < 0.1 * np.var(y)


def test_a_column_is_constant_only_if_all_rows_of_positive_weight_say_so(numbers_and_constants):
    frame, y = numbers_and_constants
    rows, weight = frame.copy(), np.ones(len(frame))
    rows.loc[7, "year"] = 2025.0
    weight[7] = 0.0
    without, among = (boosted().fit(rows, y, sample_weight=w) for w in (weight, None))
    assert without.columns_[1]["map"] == "left out: constant"
    assert among.columns_[1]["map"] == "number"
    assert np.ptp(among.predict(pd.concat([frame[:1], frame[:1].assign(year=2026.0)]))) > 0


def test_constant_columns_of_a_file_are_found_among_all_its_rows(numbers_and_constants, tmp_path):
    frame, y = numbers_and_constants
    table = np.column_stack([frame.to_numpy(dtype=float), np.zeros(len(frame))])
    table[3, 4] = 1.0  # a single row, which the first few may not hold
    long = np.tile(table, (30, 1))
    long[len(table) :, 4] = 0.0
    np.save(tmp_path / "rows.npy", long)
    path, targets = str(tmp_path / "rows.npy"), np.tile(y, 30)
    model = mercer.GreedyKernelRegressor(10, kernel=Gaussian(2.0), regularization=1e-2, random_state=0)
    model.fit(path, targets)
    assert [one["map"] for one in model.columns_] == [
        "number", "left out: constant", "number", "left out: constant", "number",
    ]  # fmt: skip
    known = model.predict(path)
    long[:, [1, 3]] = 7.0
    np.save(tmp_path / "later.npy", long)
    np.testing.assert_array_equal(model.predict(str(tmp_path / "later.npy")), known)


def test_a_kernel_that_is_a_function_sees_every_column_as_it_is(numbers_and_constants):
    frame, y = numbers_and_constants
    seen = []

    def of_tasks(A, B):
        seen.append(float(A[:, 1].max()))
        return torch.exp(-0.5 * torch.cdist(A, B).square())

    model = mercer.KernelBoostingRegressor(kernel=of_tasks, regularization=0.1, scale_inputs=False, random_state=0)
    model.fit(frame, y).predict(frame.assign(year=2030.0))
    assert seen[-1] == 2030.0


def test_explanations_give_constant_columns_nothing(numbers_and_constants):
    frame, y = numbers_and_constants
    frame = frame.assign(year=3.0)  # products of rows with a large number would round it off
    new = frame.assign(year=9.0, open=False)[:5]
    for kernel in (Gaussian(2.0), Gaussian(2.0) + Linear()):
        model = mercer.KernelBoostingRegressor(
            kernel=kernel, regularization=0.1, scale_inputs=False, random_state=0
        ).fit(frame, y)
        found = mercer.shapley_values(model, new)
        assert not found.values[:, [1, 3]].any()
        np.testing.assert_allclose(found.predictions(), model.predict(new), rtol=1e-9, atol=1e-9)
        assert found.data[0, 1] == 9.0  # the row as it was given
        effect = mercer.partial_effects(model, pd.concat([frame, new]), "year")
        assert effect.grid[0].tolist() == [3.0, 9.0]
        np.testing.assert_allclose(effect.values[0], effect.values[1], rtol=1e-12)


BAD = {
    "infinite": ({"x": [1.0, np.inf, None], "c": ["a", "b", "a"]}, "infinity"),
    "nothing but gaps": ({"x": [None, None, None]}, "at least one column to learn from"),
    "one level": ({"x": ["a", "a", "a"]}, "at least one column to learn from"),
    "complex": ({"x": [1j, 2j, 3j]}, "real numbers"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_column_gets_a_sentence(case):
    table, words = BAD[case]
    with pytest.raises(ValueError, match=words):
        boosted().fit(pd.DataFrame(table), [1.0, 2.0, 3.0])


@pytest.mark.parametrize("name", FACES)
@pytest.mark.parametrize("n", [N - 1, N + 1])
def test_targets_of_another_length_are_refused_whatever_the_table_holds(name, n):
    model = quick(name)
    gaps = FRAME.select_dtypes("number").to_numpy(np.float64, na_value=np.nan, copy=True)
    gaps[0, 0] = np.nan
    y = np.resize(LABELS, n) if is_classifier(model) else np.resize(Y, n)
    for X in (FRAME, gaps) if not model.__sklearn_tags__().transformer_tags else ():
        with pytest.raises(ValueError, match=f"inconsistent numbers of samples: {N} rows, {n} targets"):
            model.fit(X, y)


@pytest.mark.parametrize(
    ("name", "share"), [*((name, 1 / N) for name in FACES), ("NRBFRegressor", 0.5), ("SparseGPRegressor", 0.5)]
)
def test_the_largest_floats_as_no_data_leave_a_model_that_answers_and_is_saved(name, share, tmp_path, short_selections):
    model, rng = quick(name), np.random.default_rng(0)
    X = rng.normal(size=(N, 3))
    X[: round(share * N), 1] = -np.finfo(np.float64).max
    X[-1, 1] = np.finfo(np.float64).max
    y = X[:, 0] + rng.normal(size=N) / 10
    model.fit(X, y > 0 if is_classifier(model) else y)
    model.save(tmp_path / "m.mercer")
    again = mercer.load(tmp_path / "m.mercer")
    for method in ("predict_proba", "predict", "transform"):
        if hasattr(model, method):
            answers = getattr(model, method)(X)
            assert np.isfinite(answers).all()
            np.testing.assert_array_equal(getattr(again, method)(X), answers)


def test_the_largest_float_in_a_file_is_read_as_in_an_array(tmp_path):
    X = np.random.default_rng(0).normal(size=(60, 3))
    X[3, 1] = -np.finfo(np.float64).max
    np.save(tmp_path / "x.npy", X)
    model = quick("NRBFRegressor").fit(X, X[:, 0])
    np.testing.assert_allclose(model.predict(str(tmp_path / "x.npy")), model.predict(X), rtol=1e-12)
    again = quick("NRBFRegressor").fit(str(tmp_path / "x.npy"), X[:, 0])
    assert np.isfinite(again.predict(X)).all()


def test_text_in_a_column_of_numbers_gets_a_sentence_in_predict():
    model = boosted().fit(FRAME, Y)
    with pytest.raises(ValueError, match=r"column 'size' of X must be numbers as in fit, got .levels such as 'big'"):
        model.predict(FRAME[:2].assign(size=["big", "small"]))
    with pytest.raises(ValueError, match="yet now missing"):
        model.predict(FRAME[:2].drop(columns="wood"))


def test_numbers_in_a_column_of_levels_get_a_sentence_in_predict_unless_levels_are_numbers():
    model = boosted().fit(FRAME, Y)
    for given, words in (([3.0, 4.0], "numbers such as 3"), ([True, False], "booleans such as 1")):
        for name, level in (("wood", "ash"), ("grade", "low")):
            with pytest.raises(
                ValueError, match=f"'{name}' of X must be of levels as in fit, such as '{level}', got '{words}"
            ):
                model.predict(FRAME[:2].assign(**{name: given}))
    for wood in (["elm", "yew"], [np.nan, np.nan]):  # levels that only predict has, and none
        assert np.isfinite(model.predict(FRAME[:2].assign(wood=wood))).all()
    shop = np.tile(["1", "2", "3"], 40)
    coded = boosted().fit(FRAME.assign(shop=shop), Y)
    as_text, as_numbers = (coded.predict(FRAME[:3].assign(shop=shops)) for shops in (["1", "2", "9"], [1, 2.0, 9]))
    assert np.array_equal(as_text, as_numbers)
    named = boosted(categorical_features=["wood"]).fit(FRAME, Y)
    with pytest.raises(ValueError, match="got 'numbers such as 7'"):
        named.predict(FRAME[:2].assign(wood=[7, 8]))


def test_mixed_types_are_levels_by_their_text():
    frame = pd.DataFrame({"x": np.array([1, "1", 2.5, None, datetime.date(2020, 1, 1)] * 8, dtype=object)})
    assert boosted().fit(frame, np.arange(40.0)).columns_[0]["levels"] == 3


def test_fifty_thousand_levels_are_means_of_targets():
    rng = np.random.default_rng(0)
    n = 120_000
    level = rng.integers(0, 50_000, n)
    effect = rng.normal(size=50_000)
    from mercer.data.raw import RawColumn
    from mercer.preprocessing.columns_fit import encode_table

    column = RawColumn("who", "category", level, tuple(f"p{k:05d}" for k in range(50_000)))
    y = effect[level] + 0.1 * rng.normal(size=n)
    coded = encode_table([column], y[:, None], np.ones(n))
    assert coded.X.shape == (n, 2)
    # about 1.4 other rows of the same level in other folds, where there is any: means are good but not perfect
    assert 0.6 < np.corrcoef(coded.X[:, 0], y)[0, 1] < 0.95


def test_means_of_targets_know_nothing_of_a_rows_own_target():
    """Of pure noise with a few rows a level, the coordinate of a row is not correlated with its own target; the mean
    over all rows of the level, the row among them, would be (about 0.5 for four rows)."""
    from mercer.data.raw import RawColumn
    from mercer.preprocessing.columns_fit import encode_table

    rng = np.random.default_rng(1)
    n, k = 8000, 2000
    who = RawColumn("who", "category", rng.integers(0, k, n), tuple(f"p{j:04d}" for j in range(k)))
    other = RawColumn("x", "number", rng.normal(size=n))
    y = rng.normal(size=(n, 1))
    coded = encode_table([who, other], y, np.ones(n))
    assert abs(np.corrcoef(coded.X[:, 0], y[:, 0])[0, 1]) < 4 / np.sqrt(n)
    strong = rng.normal(size=k)[who.values][:, None] + 0.3 * y
    moved = np.where(np.arange(n)[:, None] == 5, strong + 1, strong)
    coded, again = (encode_table([who, other], t, np.ones(n)).X[:, 0] for t in (strong, moved))
    assert abs(again[5] - coded[5]) < 0.005  # only by how far means are drawn; its share of a mean would be a fifth


def test_held_out_rows_have_no_say_in_means_of_targets():
    from mercer.preprocessing.read import read

    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"who": rng.integers(0, 90, 300).astype(str), "x": rng.normal(size=300)})
    y = rng.normal(size=300)
    weight = np.ones(300)
    weight[:100] = 0
    model = boosted()
    held = read(model, frame, y, classes=False).with_weights(weight)
    other = read(model, frame, np.where(weight == 0, 1e3, y), classes=False).with_weights(weight)
    np.testing.assert_allclose(held.rows.X[:, 0] * np.abs(y).max(), other.rows.X[:, 0] * 1e3, rtol=1e-9)


BY_CHANCE = {
    "rows held out": {"validation_fraction": 0.2},
    "rows of learners": {"subset_size": 40, "learner_size": 5, "n_learners": 6, "absorption": "blocks"},
}


@pytest.mark.parametrize("options", BY_CHANCE.values(), ids=BY_CHANCE)
def test_the_order_of_columns_decides_nothing_that_is_left_to_chance(options):
    X = np.random.default_rng(0).normal(size=(120, 3))
    y, order = np.sin(X[:, 0]) + X[:, 1], [2, 0, 1]
    one, other = boosted(**options).fit(X, y), boosted(**options).fit(X[:, order], y)
    # Sums over columns in another order differ by rounding, 1e-16, times the condition number n / penalty = 1e4.
    np.testing.assert_allclose(other.predict(X[:, order]), one.predict(X), rtol=0, atol=1e-10)


def test_neither_order_nor_names_of_rows_matter():
    order = np.random.default_rng(3).permutation(N)
    frame = FRAME.assign(who=(np.arange(N) // 3).astype(str))
    a = boosted().fit(frame, Y).predict(frame)
    b = boosted().fit(frame.iloc[order], Y[order]).predict(frame)
    np.testing.assert_allclose(a, b, atol=1e-6)


def test_categories_are_worth_more_than_their_absence():
    frame, y = mixed_frame(400, 1)
    model = mercer.KernelBoostingRegressor(random_state=0).fit(frame[:300], y[:300])
    assert model.score(frame[300:], y[300:]) > 0.9
    relevance = dict(zip(frame.columns, model.relevance_, strict=True))
    assert relevance["wood"] > 5 * relevance["maybe"]
    assert model.relevance_.sum() == pytest.approx(1.0)


def test_levels_of_one_column_share_the_factor_of_a_diagonal_metric():
    frame, y = mixed_frame(150, 2)
    model = mercer.KernelBoostingRegressor(metric="diagonal", random_state=0).fit(frame, y)
    groups = model.table_.layout.group
    factors = [one.inputs.transform for one in model.expansions_]
    assert any(len(np.unique(factor)) > 1 for factor in factors)
    for factor in factors:
        for group in np.unique(groups):
            np.testing.assert_allclose(factor[groups == group], factor[groups == group][0], rtol=1e-12)


def test_scikit_learns_tools_take_mixed_frames():
    model = make_pipeline(FunctionTransformer(), boosted())
    assert cross_val_predict(model, FRAME, Y, cv=3).shape == (N,)
    grid = GridSearchCV(boosted(), {"regularization": [1e-2, 1.0]}, cv=2).fit(FRAME, Y)
    assert grid.predict(FRAME[:3]).shape == (3,)
    fitted = clone(boosted()).fit(FRAME, Y)
    importance = permutation_importance(fitted, FRAME, Y, n_repeats=2, random_state=0).importances_mean
    assert importance.shape == (FRAME.shape[1],)
    assert importance[1] > importance[6]
    shown = PartialDependenceDisplay.from_estimator(
        fitted, FRAME, ["wood", "grade"], categorical_features=["wood", "grade"]
    )
    (ash, fir, oak), (high, low, mid) = (one["average"][0] for one in shown.pd_results)
    assert oak < ash < fir
    assert low < mid < high
    stored = io.BytesIO()
    joblib.dump(fitted, stored)
    stored.seek(0)
    np.testing.assert_array_equal(joblib.load(stored).predict(FRAME), fitted.predict(FRAME))
    mapped = (
        mercer.EmpiricalKernelMap(subset_size=20, random_state=0).set_output(transform="pandas").fit_transform(FRAME)
    )
    assert isinstance(mapped, pd.DataFrame)
    assert mapped.index.equals(FRAME.index)


def test_a_selector_gives_back_columns_as_they_came():
    selector = mercer.ARDSelector(quick("SparseGPRegressor").set_params(ard=True), n_features_to_select=2)
    kept = selector.set_output(transform="pandas").fit(FRAME, Y).transform(FRAME[:4])
    assert kept.shape == (4, 2)
    assert set(kept.columns) <= set(FRAME.columns)
    x = np.random.default_rng(0).uniform(0, 3, 60)
    frame = pd.DataFrame({"lasted": pd.to_timedelta(x, unit="D"), "x": np.arange(60.0)})
    fitted = selector.set_params(n_features_to_select=1).set_output(transform="default").fit(frame, np.sin(x))
    assert fitted.transform(frame).tolist() == frame[["lasted"]].astype(object).to_numpy().tolist()


def test_tags_say_what_tables_may_hold():
    from sklearn.utils import get_tags

    tags = get_tags(boosted()).input_tags
    assert tags.allow_nan
    assert tags.string
    assert tags.categorical
    assert not get_tags(mercer.KernelBoostingRegressor(kernel="precomputed")).input_tags.allow_nan


@pytest.mark.parametrize(
    "model",
    [
        mercer.SparseGPRegressor(n_inducing=8, kernel="gaussian", ard=True, max_iter=10, random_state=0),
        mercer.SparseGPRegressor(approximation="full", kernel="gaussian", ard=True, max_iter=5, random_state=0),
        mercer.SparseGPClassifier(n_inducing=8, kernel="gaussian", ard=True, max_iter=10, random_state=0),
        mercer.GreedyKernelRegressor(n_basis=5, kernel="gaussian", random_state=0),
    ],
    ids=repr,
)
def test_levels_of_a_category_share_one_length_scale(model):
    rng = np.random.default_rng(0)
    town, area = rng.integers(0, 3, 60), rng.normal(size=60)
    frame = pd.DataFrame({"town": np.array(["a", "b", "c"])[town], "area": area})
    y = town + np.sin(3 * area)
    kernel = model.fit(frame, y > 1 if isinstance(model, mercer.SparseGPClassifier) else y).kernel_
    (lengths,) = [v for name, v in kernel.tunable().items() if name.endswith("length_scale")]
    assert np.ndim(lengths) == 0 or len(set(np.round(lengths[:3], 9))) == 1


def test_days_that_matter_one_by_one_have_means_of_their_own():
    rng = np.random.default_rng(0)
    day, hour = rng.integers(0, 30, 600), rng.integers(0, 24, 600)
    weather = rng.normal(size=30)[day]
    frame = pd.DataFrame({"at": pd.Timestamp("2024-01-01") + pd.to_timedelta(24 * day + hour, unit="h")})
    model = mercer.GreedyKernelRegressor(n_basis=5, kernel=Gaussian(1.0), regularization=0.1, random_state=0)
    model.fit(frame, weather + 0.1 * rng.normal(size=600))
    assert "mean target of each of 30 days" in model.columns_[0]["map"]
    hours = pd.DataFrame({"at": pd.to_datetime(["2024-01-05 01:00", "2024-01-05 23:00", "2025-01-05 01:00"])})
    early, late, another_year = mercer.preprocessing.read.read_new(model, hours).take([0, 1, 2]).numpy()[:, -1]
    assert early == late
    assert another_year == pytest.approx(model.table_.codes[-1].prior.item())


@pytest.mark.long
def test_a_mixed_table_of_classes_averages_two_selections(monkeypatch):
    from mercer.forward.boosting import Boosting

    assert DEFAULT_SETTINGS.n_selections(400) == 2
    rng = np.random.default_rng(0)
    town, area = rng.integers(0, 3, 80), rng.normal(size=80)
    frame = pd.DataFrame({"town": np.array(["a", "b", "c"])[town], "area": area})
    y = town + np.sin(3 * area) + 0.3 * rng.normal(size=80) > 1
    Classifier = partial(mercer.KernelBoostingClassifier, loss="squared", n_basis=None, random_state=0)
    once = Classifier().fit(frame, y)
    settings = replace(DEFAULT_SETTINGS, repeated_rows=(50, 100))
    monkeypatch.setattr(Boosting, "_selection_settings", settings)
    twice = Classifier().fit(frame, y)
    # the model of the only selection is one of those of two, at half of its weights; members come by their shares
    first = once.expansions_[0].weights
    assert any(np.allclose(2 * one.weights, first, rtol=1e-9) for one in twice.expansions_)
    numbers = mercer.KernelBoostingRegressor(random_state=0).fit(frame, town + np.sin(3 * area))
    assert [sum(line.get("stage") == "grid" for line in m.tuning_report_) for m in (once, twice, numbers)] == [5, 10, 5]
    assert len(Classifier(n_kernels=1).fit(frame, y).expansions_) == 1
    asked = Classifier(n_selections=1).fit(frame, y)
    np.testing.assert_array_equal(asked.predict_proba(frame), once.predict_proba(frame))


def test_levels_of_many_rows_are_seen_by_one_selection_and_their_means_by_another(monkeypatch):
    """Every coordinate but those of a column coded twice is seen by all; answers to every question still come.

    A coding whose loss is too many times the other's has no say: with a factor of one the better one is alone.
    """
    from mercer.forward.boosting import Boosting

    def far(factor: float) -> None:
        settings = replace(DEFAULT_SETTINGS, repeated_rows=(1, 0), near_ratio=factor)
        monkeypatch.setattr(Boosting, "_selection_settings", settings)

    rng = np.random.default_rng(0)
    town, area = rng.integers(0, 4, 120), rng.normal(size=120)
    frame = pd.DataFrame({"town": np.array(list("abcd"))[town], "area": area})
    y = town + np.sin(3 * area) + 0.5 * rng.normal(size=120)
    far(1.0)
    alone = mercer.KernelBoostingRegressor(random_state=0).fit(frame, y)
    far(np.inf)
    model = mercer.KernelBoostingRegressor(random_state=0).fit(frame, y)
    seen = {tuple(t.any(0) if t.ndim == 2 else t != 0) for t in (one.inputs.transform for one in alone.expansions_)}
    levels, means = model.table_.layout.views
    assert seen in ({tuple(levels)}, {tuple(means)})
    assert [levels.tolist(), means.tolist()] == [[True] * 4 + [False] * 2 + [True], [False] * 4 + [True] * 3]
    factors = [one.inputs.transform for one in model.expansions_]
    used = {tuple(f.any(0) if f.ndim == 2 else f != 0) for f in factors}
    assert used == {tuple(levels), tuple(means)}
    assert np.isfinite(model.basis_).all()
    assert model.relevance_.sum() == pytest.approx(1.0)
    found = mercer.shapley_values(model, frame[:2])
    np.testing.assert_allclose(found.predictions(), model.predict(frame[:2]), rtol=0, atol=1e-8 * np.abs(y).max())


@pytest.mark.parametrize("kind", ["standard", "bend", "clip", "scores"])
@pytest.mark.parametrize("full", [False, True])
def test_a_member_that_saw_some_columns_says_the_same_of_all(kind, full):
    from mercer.data.column_maps import fit_column_map
    from mercer.forward.model_selection import in_all_columns
    from mercer.selection.view import SelectedKernel

    X = torch.as_tensor(np.random.default_rng(0).normal(size=(30, 4)))
    view = torch.tensor([True, False, True, True])
    turn = torch.arange(1.0, 10.0, dtype=torch.float64).view(3, 3) if full else torch.tensor([1.0, 2.0, 3.0]).double()
    some = SelectedKernel(fit_column_map(kind, X[:, view], torch.ones(30)), turn, Gaussian(), 1.0, 1.0, 0.0, "")
    whole = in_all_columns(some, view)

    def encoded(one, X):
        return one.columns(X) @ one.transform.T if full else one.columns(X) * one.transform

    np.testing.assert_allclose(encoded(whole, X)[:, view], encoded(some, X[:, view]), rtol=1e-7, atol=1e-7)
    assert not encoded(whole, X)[:, ~view].any()

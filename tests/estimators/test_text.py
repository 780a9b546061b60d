"""Free text: found, encoded by its words, cross-fitted, kept in files, explained and reported."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

import mercer
from mercer import GreedyKernelRegressor, KernelBoostingClassifier, KernelBoostingRegressor, SparseGPRegressor, load
from mercer.data.raw import RawColumn
from mercer.preprocessing.columns_targets import CrossFit
from mercer.preprocessing.text import Text, TextRegression, is_free_text

pytestmark = pytest.mark.usefixtures("two_folds")

GOOD, BAD = ("lovely", "fresh", "tasty"), ("stale", "bitter", "dry")
FILLERS = ("tea", "bread", "from", "the", "shop", "again", "box", "we", "had", "this", "morning", "and")


def reviews(n: int, seed: int) -> tuple[pd.DataFrame, np.ndarray]:
    """Sentences of fillers and words of praise or blame, which count for and against a score."""
    rng = np.random.default_rng(seed)
    score, texts = rng.normal(size=n), []
    for row in range(n):
        found = rng.choice(GOOD + BAD, rng.integers(1, 4))
        score[row] = 0.1 * score[row] + np.isin(found, GOOD).sum() - np.isin(found, BAD).sum()
        texts.append(" ".join(rng.permutation([*found, *rng.choice(FILLERS, 5)])))
    return pd.DataFrame({"price": rng.normal(size=n), "review": texts}), score


FRAME, SCORE = reviews(300, 0)
QUICK = {"kernel": mercer.kernels.Gaussian(3.0), "regularization": 0.1, "random_state": 0}


def column(texts: list[str | None]) -> RawColumn:
    known = sorted({text for text in texts if text is not None})
    return RawColumn("t", "category", np.array([-1 if t is None else known.index(t) for t in texts]), tuple(known))


@pytest.fixture(scope="module")
def model() -> KernelBoostingRegressor:
    return KernelBoostingRegressor(random_state=0).fit(FRAME, SCORE)


def test_text_is_found_and_predicts(model) -> None:
    new, truth = reviews(200, 1)
    assert [found["kind"] for found in model.columns_] == ["number", "text"]
    assert model.columns_[1]["map"].startswith("text: 30 directions and a linear trend of ")
    assert model.relevance_[1] > 0.9
    error, constant = np.mean((model.predict(new) - truth) ** 2), np.var(truth)
    assert error < 0.15 * constant


@pytest.mark.parametrize(
    ("texts", "found"),
    [
        ([f"order {k} of tea and bread" for k in range(100)], True),
        ([f"order {k % 41} of tea and bread" for k in range(200)], True),
        ([f"order {k % 40} of tea and bread" for k in range(200)], False),  # five rows for each value: categories
        ([f"order {k} of tea" for k in range(30)], False),  # few
        ([f"order {k}" for k in range(100)], False),  # identifiers
        ([None if k % 2 else f"order {k} of tea and bread" for k in range(100)], True),
    ],
)
def test_the_rule_counts_distinct_values_and_words(texts: list, found: bool) -> None:
    assert is_free_text(column(texts)) is found


def test_none_leaves_text_out_and_names_add_to_what_is_found() -> None:
    frame, score = FRAME[:120].assign(name=[f"N{k}" for k in range(120)]), SCORE[:120]
    without = KernelBoostingRegressor(text_features=None, **QUICK).fit(frame, score)
    assert [found["map"][:24] for found in without.columns_[1:]] == ["left out: an identifier:"] * 2
    for names in (["name"], [2], [False, False, True]):
        named = KernelBoostingRegressor(text_features=names, **QUICK).fit(frame, score)
        assert [found["kind"] for found in named.columns_] == ["number", "text", "text"]
    declared = KernelBoostingRegressor(categorical_features=["review"], **QUICK)
    assert declared.fit(frame, score).columns_[1]["kind"] == "category"
    numbers = KernelBoostingRegressor(categorical_features=None, text_features=["review"], **QUICK)
    assert np.isfinite(numbers.fit(FRAME[:120], score).predict(FRAME)).all()


def test_missing_text_is_empty_text_and_unseen_words_count_for_nothing(model) -> None:
    nothing = column([None, "", "   ", "zzz qqq"])
    coordinates = model.table_.encode([RawColumn("price", "number", np.zeros(4)), nothing])
    assert not np.ptp(coordinates, axis=0).any()
    known, unknown = (model.predict(FRAME[:1].assign(review=text))[0] for text in ("fresh tea", "fresh tea zzz"))
    assert known == pytest.approx(unknown)
    assert np.isfinite(model.predict(FRAME.assign(review=np.nan))).all()
    assert np.isfinite(model.predict(FRAME.assign(review=3.5))).all()
    gaps = FRAME.assign(review=FRAME["review"].where(FRAME.index % 3 > 0))
    fitted = KernelBoostingRegressor(**QUICK).fit(gaps, SCORE)
    assert fitted.columns_[1]["missing"] == pytest.approx(1 / 3)


def test_texts_that_repeat_are_levels_too() -> None:
    """Half of the rows have one text, which means the opposite of its words."""
    frame = FRAME.assign(review=FRAME["review"].where(FRAME.index % 2 > 0, "lovely fresh tasty tea"))
    fitted = KernelBoostingRegressor(**QUICK).fit(frame, np.where(FRAME.index % 2 > 0, SCORE, -3.0))
    assert fitted.columns_[1]["map"].endswith(" + mean target of each of 151 + frequency")
    assert fitted.predict(frame[:1])[0] == pytest.approx(-3.0, abs=0.2)


def test_the_directions_have_a_mean_squared_distance_of_one() -> None:
    code = Text.of(0, column([*FRAME["review"]]), np.ones(300), n_outputs=0)
    Z = code.encode(column([*FRAME["review"]]))
    assert ((Z[:, None] - Z) ** 2).sum(2).mean() == pytest.approx(1.0)


def test_a_weight_of_two_is_the_text_twice() -> None:
    texts = [*FRAME["review"][:60]]
    weight = np.where(np.arange(60) < 20, 2.0, 1.0)
    twice = texts + texts[:20]
    first = Text.of(0, column(texts), weight, 1)
    second = Text.of(0, column(twice), np.ones(80), 1)
    np.testing.assert_allclose(first.rarity, second.rarity)
    np.testing.assert_allclose(first.encode(column(texts)), second.encode(column(texts)), atol=1e-9)


def test_no_row_sees_its_own_target() -> None:
    """Targets without relation to texts are predicted out of fold no better than by their mean."""
    rng = np.random.default_rng(0)
    raw = column([*FRAME["review"]])
    code = Text.of(0, raw, np.ones(300), 1)
    noise, folds = rng.normal(size=(300, 1)), np.arange(300) % 5
    regression = TextRegression(code.rows(raw), noise, folds)
    for penalty in (0.1, 10.0):
        slopes, intercept = regression.fit(np.ones(300), penalty)
        seen = ((regression.rows @ slopes + intercept - noise) ** 2).mean()
        unseen = ((regression.out_of_fold(np.ones(300), penalty) - noise) ** 2).mean()
        assert seen < noise.var() < unseen
    assert regression.best_penalty(np.ones(300)) == 10.0
    changed = noise.copy()
    changed[7] += 100.0
    pair = (TextRegression(regression.rows, y, folds).out_of_fold(np.ones(300), 1.0) for y in (noise, changed))
    same = np.isclose(*pair).ravel()
    assert same[folds == folds[7]].all()
    assert not same[folds != folds[7]].all()


def test_held_out_rows_have_no_part_in_the_regression() -> None:
    raw = [column([*FRAME["review"]])]
    weight = np.where(np.arange(300) < 200, 1.0, 0.0)
    table = mercer.preprocessing.columns.TableMap((Text.of(0, raw[0], np.ones(300), 1),), ())
    tables = []
    for held_out in (0.0, 50.0):
        targets = np.where(weight > 0, SCORE, held_out)[:, None]
        tables.append(CrossFit(CrossFit.of(table, raw, targets).at, np.empty((300, 0), int), targets,
                               np.arange(300) % 5, {0: table.codes[0].rows(raw[0])}).fitted(table, weight))  # fmt: skip
    np.testing.assert_allclose(tables[0].codes[0].slopes, tables[1].codes[0].slopes)


@pytest.mark.parametrize(
    "estimator",
    [
        KernelBoostingRegressor(**QUICK),
        GreedyKernelRegressor(10, **QUICK),
        SparseGPRegressor(5, kernel="gaussian", max_iter=1, random_state=0),
        KernelBoostingClassifier(**QUICK),
        mercer.NRBFRegressor(2, random_state=0),
    ],
)
def test_every_family_takes_text_from_any_frame_and_keeps_it_in_files(estimator, tmp_path) -> None:
    frame = FRAME[:60]
    y = SCORE[:60] > 0 if isinstance(estimator, KernelBoostingClassifier) else SCORE[:60]
    weight = np.linspace(0.5, 2.0, 60)
    fitted = clone(estimator).fit(frame, y, sample_weight=weight)
    fitted.save(tmp_path / "model.mercer")
    np.testing.assert_array_equal(load(tmp_path / "model.mercer").predict(FRAME), fitted.predict(FRAME))
    assert load(tmp_path / "model.mercer").get_params()["text_features"] == "from_values"
    other = frame.assign(review=frame["review"].astype("string")).to_numpy(dtype=object)
    again = clone(estimator).fit(other, y, sample_weight=weight)
    np.testing.assert_allclose(again.predict(other), fitted.predict(frame), rtol=1e-6)


@pytest.mark.parametrize("transformer", [mercer.GreedyNystroem(5, random_state=0), mercer.EmpiricalKernelMap()])
def test_models_without_targets_see_the_directions(transformer) -> None:
    assert np.isfinite(clone(transformer).fit_transform(FRAME[:60])).all()
    fitted = clone(transformer).fit(FRAME[:60])
    assert fitted.columns_[1]["map"].startswith("text: 30 directions of ")


def test_polars_and_csv_files_hold_text(tmp_path) -> None:
    polars = pytest.importorskip("polars")
    FRAME.assign(score=SCORE).to_csv(tmp_path / "train.csv", index=False)
    file = mercer.data.CsvRows(tmp_path / "train.csv", target="score")
    tables = ((FRAME, SCORE), (polars.from_pandas(FRAME), SCORE), (file, None))
    first, second, third = (KernelBoostingRegressor(**QUICK).fit(X, y).predict(X) for X, y in tables)
    np.testing.assert_allclose(second, first)
    np.testing.assert_allclose(third, first, rtol=1e-6)


def test_a_text_is_one_input_of_explanations(model) -> None:
    gaussian = KernelBoostingRegressor(**QUICK).fit(FRAME, SCORE)
    found = mercer.shapley_values(gaussian, FRAME[:5])
    assert found.values.shape[:2] == (5, 2)
    np.testing.assert_allclose(found.predictions().ravel(), gaussian.predict(FRAME[:5]), rtol=1e-6)
    assert found.data[0, 1] == FRAME["review"][0]


def test_the_report_shows_the_words_that_matter(model) -> None:
    new, truth = reviews(100, 2)
    page = mercer.report(model, new.astype({"review": "string"}), truth, path=None, X_train=FRAME, y_train=SCORE)
    found = page.to_dict()["effects"]["inputs"]["review"]
    change = dict(zip(found["at"], found["change"], strict=True))
    assert set(GOOD + BAD) <= set(change)
    assert all(change[word] > 0.3 for word in GOOD)
    assert all(change[word] < -0.3 for word in BAD)
    assert all(word in page.to_html() for word in GOOD)


def test_a_term_is_struck_out_where_it_is_a_word() -> None:
    raw = column(["Not good! goodness", "so good", "very dry indeed"])
    code = Text.of(0, raw, np.ones(3), 0)
    assert code.without(code.terms.index("good"), "Not good! goodness").split() == ["Not", "!", "goodness"]
    assert code.without(code.terms.index("good !"), "Not GOOD ! goodness").split() == ["Not", "goodness"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"text_features": "review"}, "text_features must be 'from_values' or None or several names"),
        ({"text_features": ["title"]}, "text_features must be of the columns"),
        ({"text_features": [7]}, "text_features must be names or numbers of 2 columns, got 7"),
        ({"text_features": [True]}, "text_features must be a mask of 2 columns"),
        ({"text_features": ["price"]}, "column 'price' of X must be of text, and no category"),
        ({"text_features": [1], "categorical_features": [1]}, "column 'review' of X must be of text, and no category"),
    ],
)
def test_bad_names_get_a_sentence(options: dict, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        KernelBoostingRegressor(**options).fit(FRAME[:60], SCORE[:60])


def test_columns_without_words_are_left_out() -> None:
    frame = FRAME[:60].assign(review=[" " * (k % 40) for k in range(60)])
    fitted = KernelBoostingRegressor(text_features=["review"], **QUICK).fit(frame, SCORE[:60])
    assert fitted.columns_[1]["map"] == "left out: no words"
    same = column(["Fresh tea", "fresh TEA", "fresh tea"])
    assert np.ptp(Text.of(0, same, np.ones(3), 0).encode(same), axis=0).max() < 1e-6


def test_a_numeric_file_has_no_text(tmp_path) -> None:
    np.save(tmp_path / "X.npy", np.random.default_rng(0).normal(size=(60, 2)))
    with pytest.raises(ValueError, match="text_features must be None where X is sparse, or a file"):
        KernelBoostingRegressor(text_features=[0]).fit(str(tmp_path / "X.npy"), SCORE[:60])


def test_an_onnx_graph_refuses_text(model) -> None:
    pytest.importorskip("onnx")
    with pytest.raises(ValueError, match=r"column 'review' must be of numbers, dates or levels .* got 'free text'"):
        mercer.to_onnx(model)

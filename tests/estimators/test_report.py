"""The report page: complete in itself, true to the model, and there for every family."""

from __future__ import annotations

import json
import re
from functools import cache, partial
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.datasets import load_iris, make_friedman1
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import (
    average_precision_score,
    f1_score,
    precision_score,
    recall_score,
    roc_auc_score,
    root_mean_squared_error,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import mercer
from mercer.kernels import Bias, Gaussian
from mercer.reporting import baselines, svg
from mercer.reporting.distance import distances
from mercer.reporting.effects import sampled_shapley
from mercer.reporting.ranking import auc_and_error
from mercer.reporting.subject import Subject
from mercer.reporting.svg import Line, Points, bars, chart, round_values, short
from mercer.reporting.table import Table

pytestmark = pytest.mark.usefixtures("two_folds", "few_trees")

X, Y = make_friedman1(220, 5, noise=0.3, random_state=0)
CLASSES = np.digitize(Y, [12.0, 16.0])
LEARN, JUDGE = slice(0, 140), slice(140, None)

MODELS = [
    mercer.KernelBoostingRegressor(kernel=Gaussian(2.0), n_learners=3, learner_size=20, random_state=0),
    mercer.GreedyKernelRegressor(20, kernel=Gaussian(2.0), regularization=0.01, random_state=0),
    mercer.SparseGPRegressor(15, kernel="gaussian", tuning_rows=60, max_iter=5, random_state=0),
    mercer.ENRBFRegressor(3, n_init=1, random_state=0),
    mercer.RPEMEKLRegressor(Gaussian(2.0), regularization=0.1, n_members=2, random_state=0),
    mercer.KernelBoostingClassifier(kernel=Gaussian(2.0), regularization=0.1, random_state=0),
    mercer.SparseGPClassifier(8, kernel=Gaussian(2.0), max_iter=3, random_state=0),
    mercer.ENRBFClassifier(3, n_init=1, random_state=0),
    mercer.MHKSClassifier(Gaussian(2.0), regularization=0.1, max_iter=20, random_state=0),
]
over_models = pytest.mark.parametrize("at", range(len(MODELS)), ids=[type(model).__name__ for model in MODELS])


def targets(model):
    return CLASSES if "Classifier" in type(model).__name__ else Y


def made(model, **how):
    y = targets(model)
    return mercer.report(model.fit(X[LEARN], y[LEARN]), X[JUDGE], y[JUDGE], None, **how)


@pytest.fixture
def few_trees(monkeypatch):
    """Pages compare a model with trees in one line; how good those are is not what is tested here."""
    for name in ("HistGradientBoostingClassifier", "HistGradientBoostingRegressor"):
        monkeypatch.setattr(baselines, name, partial(getattr(baselines, name), max_iter=10))


@cache
def fitted(at: int):
    """A model that no test changes, fitted once for all of them."""
    return clone(MODELS[at]).fit(X[LEARN], targets(MODELS[at])[LEARN])


PREDICTED: dict[tuple[bool, str], Any] = {}


def predicted_once(subject, make, *others, predictions=baselines._predictions):
    """Baselines see the table alone, and all models have one of two."""
    key = subject.classes is None, str(make())
    if key not in PREDICTED:
        PREDICTED[key] = predictions(subject, make, *others)
    return PREDICTED[key]


@cache
def page_of(at: int):
    """The report of a model, made once for all that is asked of it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(baselines, "_predictions", predicted_once)
        return mercer.report(fitted(at), X[JUDGE], targets(MODELS[at])[JUDGE], None)


class Page(HTMLParser):
    """What a browser would ask a network for, anchors, and pictures without a text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.asked, self.ids, self.links, self.pictures, self.open = [], set(), [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.asked += [given[key] for key in ("src", "srcset", "data") if key in given]
        if tag == "link":
            self.asked += [given["href"]] if not given["href"].startswith("data:") else []
        self.ids |= {given["id"]} if "id" in given else set()
        self.links += [given["href"]] if tag == "a" else []
        self.pictures += [given.get("aria-label", "")] if tag == "svg" else []
        if tag not in ("meta", "link"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, f"<{tag}> is closed out of order"


@over_models
def test_a_page_is_one_small_file_that_asks_nothing_of_a_network(at):
    text = page_of(at).to_html()
    page = Page(text)
    assert len(text.encode()) < 2_000_000
    assert page.asked == []
    assert "http" not in re.sub(r"http://www.w3.org/\S+", "", text)
    assert "@import" not in text
    assert "url(" not in text
    assert page.open == []


@over_models
def test_every_picture_has_a_text_and_every_link_leads_somewhere(at):
    page = Page(page_of(at).to_html())
    assert page.pictures
    assert all(len(says) > 20 for says in page.pictures)
    assert all(link.startswith("#") and link[1:] in page.ids for link in page.links)


@over_models
def test_numbers_behind_the_page_are_json(at):
    found = page_of(at).to_dict()
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert {"verdict", "fit", "columns", "cost", "repeat"} <= set(found)


def test_errors_are_those_of_scikit_learn():
    """RMSE of our model, and of the linear model on standardised columns with next to no penalty."""
    model = fitted(1)
    found = mercer.report(model, X[JUDGE], Y[JUDGE], None, X_train=X[LEARN], y_train=Y[LEARN])
    found = found.to_dict()["verdict"]["errors"]
    assert found["GreedyKernelRegressor"]["error"] == pytest.approx(
        root_mean_squared_error(Y[JUDGE], model.predict(X[JUDGE])), rel=1e-12
    )
    plain = LinearRegression().fit(X[LEARN], Y[LEARN])
    expected = root_mean_squared_error(Y[JUDGE], plain.predict(X[JUDGE]))
    assert found["linear model"]["error"] == pytest.approx(expected, rel=0.02)  # RidgeCV's least penalty is 1e-3 of 140
    assert found["mean"]["error"] == pytest.approx(
        root_mean_squared_error(Y[JUDGE], np.full(80, Y[LEARN].mean())), rel=1e-12
    )


def test_rows_far_away_are_called_outside_and_basis_vectors_are_not():
    model = fitted(1)
    assert distances(Subject.of(model, model.basis_, np.zeros(len(model.basis_)), None)).max() < 1e-6
    assert (distances(Subject.of(model, X[JUDGE] + 10.0, Y[JUDGE], None)) > 1).all()


def test_rows_that_the_model_has_learned_from_are_no_test_rows():
    rng = np.random.default_rng(0)
    X, new = rng.normal(size=(60, 2)), rng.normal(size=(60, 2))
    model = mercer.KernelBoostingRegressor(kernel=Gaussian(1.0), regularization=0.1).fit(X, X[:, 0])
    told = [mercer.report(model, rows, rows[:, 0], None).sections[0] for rows in (X, new)]
    assert told[0].words[1].startswith("100% of these rows are rows that the model has learned from")
    assert [one.numbers["learned_share"] for one in told] == [1.0, 0.0]


def test_estimated_shapley_values_are_exact_where_columns_do_not_interact():
    model = LinearRegression().fit(X[LEARN], Y[LEARN])
    subject = Subject.of(model, X[JUDGE], Y[JUDGE], None)
    owed = sampled_shapley(subject, [3, 7]).values
    beside = X[JUDGE][np.linspace(0, 79, 60).astype(int)].mean(0)
    np.testing.assert_allclose(owed, model.coef_ * (X[JUDGE][[3, 7]] - beside), rtol=0, atol=1e-10)


def test_what_chance_may_make_is_not_called_a_fault(monkeypatch):
    """Classes by lot: no model is better than another, no part of any column is worse, and nobody knows which."""
    monkeypatch.undo()  # as many trees as a page has
    rng = np.random.default_rng(0)
    rows, lot = rng.normal(size=(400, 4)), rng.integers(2, size=400)
    model = mercer.KernelBoostingClassifier(kernel=Gaussian(3.0), regularization=100.0, random_state=0)
    page = mercer.report(model.fit(rows[:200], lot[:200]), rows[200:], lot[200:], None)
    found = page.to_dict()
    assert sum("chance" in one or "the same" in one for one in found["verdict"]["words"]) == 3
    assert "Along none of these inputs" in found["residuals"]["words"][0]
    assert len(page.advice) == 1
    assert "A linear model" in page.advice[0]
    assert "as good" in page.advice[0]


def test_a_search_that_ran_out_of_iterations_or_time_is_told_so():
    """The advice comes from the kind of the stop reason, not from its words."""
    hurried = mercer.NRBFRegressor(2, training="em", n_init=1, max_iter=1, random_state=0)
    assert any("raise max_iter" in advice for advice in made(hurried).advice)
    late = mercer.NRBFRegressor(2, training="em", n_init=1, time_budget=1e-9, random_state=0)
    assert any("time budget ended the fit" in advice for advice in made(late).advice)


@pytest.mark.parametrize("named", [False, True])
def test_each_column_of_the_table_has_its_own_relevance(named):
    """By place, also where the columns of a frame come in another order than in `fit`."""
    rows = pd.DataFrame(X, columns=[f"x{(j + 1) % 5}" for j in range(5)]) if named else X
    model = MODELS[1].fit(rows[LEARN], Y[LEARN])
    judge = rows[JUDGE][rows.columns[::-1]] if named else rows[JUDGE]
    found = mercer.report(model, judge, Y[JUDGE], None).to_dict()
    own = {one["name"]: one["relevance"] for one in model.columns_}
    assert list(own) == ["x1", "x2", "x3", "x4", "x0"] if named else ["x0", "x1", "x2", "x3", "x4"]
    assert {one["name"]: one["relevance"] for one in found["columns"]["columns"]} == own
    assert found["kernel"]["relevance"] == pytest.approx(own)
    assert found["kernel"]["words"][0].startswith(max(own, key=own.get))


def test_a_model_that_says_the_same_of_all_rows_depends_on_no_column():
    model = mercer.GreedyKernelRegressor(5, kernel=Bias(), regularization=1.0, random_state=0).fit(X[LEARN], Y[LEARN])
    found = mercer.report(model, X[JUDGE], Y[JUDGE], None).to_dict()
    assert found["kernel"]["words"] == ["Predictions do not depend on any column."]


def test_a_file_with_further_columns_and_levels_is_reported_as_a_frame_is(tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"size": rng.normal(size=120).round(3), "tree": rng.choice(["oak", "elm"], 120)})
    frame["sold"] = pd.Timestamp("2021-03-01") + pd.to_timedelta(rng.integers(0, 400, 120), unit="D")
    y = frame["size"] + (frame["tree"] == "oak")
    model = mercer.ENRBFRegressor(2, n_init=1, regularization=0.01, random_state=0).fit(frame[:80], y[:80])
    frame.assign(price=y, remark="none").to_csv(tmp_path / "t.csv", index=False)
    page = mercer.report(model, tmp_path / "t.csv", y, None).to_dict()
    plain = mercer.report(model, frame, y, None).to_dict()
    assert page["verdict"]["errors"] == plain["verdict"]["errors"]
    assert page["effects"] == plain["effects"]
    assert page["shapley"] == plain["shapley"]


def test_a_mixture_shows_its_local_models():
    found = page_of(3).to_dict()["local"]
    np.testing.assert_allclose(found["slopes"], fitted(3).coef_)
    assert sum(found["shares"]) == pytest.approx(1.0)


def test_intervals_of_a_gaussian_process_are_those_of_the_normal_distribution():
    held, model = page_of(2).to_dict()["trust"], fitted(2)
    if hasattr(model, "predict_interval"):
        low, high = np.moveaxis(np.asarray(model.predict_interval(X[JUDGE], coverage=0.95)), -1, 0)[[0, -1]]
    else:
        mean, std = model.predict(X[JUDGE], return_std=True)
        low, high = mean - 1.959964 * std, mean + 1.959964 * std
    inside = np.mean((Y[JUDGE] >= low) & (Y[JUDGE] <= high))
    assert held["held"][held["promised"].index(0.95)] == pytest.approx(inside, abs=1.5 / 80)  # one row at the edge


@pytest.mark.long
def test_frames_pipelines_several_outputs_and_models_of_others_have_a_page(tmp_path):
    frame = pd.DataFrame(X, columns=list("abcde"))
    both = pd.DataFrame({"first": Y, "second": X[:, 0]})
    model = mercer.GreedyKernelRegressor(15, kernel=Gaussian(2.0), regularization=0.1).fit(frame[:140], both[:140])
    found = mercer.report(model, frame[140:], both[140:], tmp_path / "page.html")
    assert found.path is not None
    assert found.path.read_text(encoding="utf-8") == found.to_html()
    assert str(found.path) in found._repr_html_()
    assert list(found.to_dict()["fit"]["outputs"]) == ["first", "second"]
    assert found.to_dict()["columns"]["columns"][0]["name"] == "a"
    fixed = mercer.GreedyKernelRegressor(15, kernel=Gaussian(2.0), regularization=0.1)
    chain = make_pipeline(StandardScaler(), fixed)
    assert mercer.report(chain.fit(X[LEARN], Y[LEARN]), X[JUDGE], Y[JUDGE], None).to_dict()["distance"]
    other = LinearRegression().fit(frame[:140], Y[:140])
    assert mercer.report(other, frame[140:], Y[140:], None).to_dict()["verdict"]


def test_columns_of_text_missing_numbers_and_dates_are_read():
    frame = pd.DataFrame(
        {
            "n": [1.0, np.nan, 3.0],
            "c": pd.Categorical(["u", None, "v"]),
            "d": pd.to_datetime(["2020-01-01", "2020-01-02", None]),
        }
    )
    table = Table.of(frame)
    assert [table.is_numeric(j) for j in range(3)] == [True, False, True]
    assert table.columns[1].tolist() == ["u", "missing", "v"]
    assert table.columns[2][1] - table.columns[2][0] == 1.0
    assert table.with_value(1, "u")["c"].tolist() == ["u", "u", "u"]
    assert table.with_value(1, "u")["c"].dtype == frame["c"].dtype


def test_many_rows_are_thinned_and_the_page_says_so():
    rng = np.random.default_rng(0)
    rows = rng.uniform(size=(25_000, 2))
    model = mercer.GreedyKernelRegressor(5, kernel=Gaussian(1.0)).fit(rows[:200], rows[:200, 0])
    subject = Subject.of(model, rows, rows[:, 0], None)
    assert subject.table.n_rows == 20_000
    assert subject.given_rows == 25_000


@pytest.mark.parametrize("unknown", [np.nan, np.inf, None])
def test_targets_that_are_missing_or_infinite_are_refused(unknown):
    model, y = fitted(1), Y[JUDGE].astype(object)
    y[3] = unknown
    y = y if unknown is None else y.astype(float)
    with pytest.raises(ValueError, match="y_test must be finite numbers, got '1 missing or infinite of 80'"):
        mercer.report(model, X[JUDGE], y, None)
    with pytest.raises(ValueError, match="y_train must be finite numbers, got '1 missing or infinite of 80'"):
        mercer.report(model, X[JUDGE], Y[JUDGE], None, X_train=X[JUDGE], y_train=y)
    classes = CLASSES.astype(object)
    classes[200] = unknown
    if unknown is not np.inf:
        with pytest.raises(ValueError, match="y_test must be a class for every row, got '1 missing"):
            mercer.report(fitted(8), X[JUDGE], classes[JUDGE], None)


def test_what_does_not_fit_together_gets_a_sentence():
    model = fitted(1)
    with pytest.raises(ValueError, match="y_test must be as long as X_test"):
        mercer.report(model, X[JUDGE], Y[:3], None)
    with pytest.raises(ValueError, match="given together"):
        mercer.report(model, X[JUDGE], Y[JUDGE], None, X_train=X)


def test_classes_of_any_kind_are_named():
    rows, kind = load_iris(return_X_y=True)
    names = np.array(["setosa", "versi<color>", "virginica"])[kind]
    how = {"kernel": Gaussian(2.0), "regularization": 0.1, "random_state": 0}
    model = mercer.KernelBoostingClassifier(**how).fit(rows[::2], names[::2])
    page = mercer.report(model, rows[1::2], names[1::2], None)
    assert "versi&lt;color&gt;" in page.to_html()
    assert "versi<color>" not in page.to_html()


def test_a_chart_keeps_every_point_inside_its_frame_and_ticks_are_round():
    drawn = chart(
        [Points(np.array([0.0, np.nan, 1e6]), np.array([1.0, 2.0, -5.0])), Line([1, 2], [3, 4])], "x", "y", "s"
    ).svg
    dots = re.search(r'd="((?:M[\d.]+ [\d.]+h0)+)"', drawn).group(1)
    assert len(re.findall("h0", dots)) == 2
    for x, y in re.findall(r"M([\d.]+) ([\d.]+)h0", dots):
        assert svg.LEFT <= float(x) <= svg.WIDTH - svg.RIGHT
        assert svg.TOP <= float(y) <= svg.HEIGHT - svg.BOTTOM
    assert round_values(-0.3, 0.9) == [-0.2, 0.0, 0.2, 0.4, 0.6, 0.8]
    assert short(-1234.4) == "−1234"


NUMBERS = [-1.86e-17, -1.2345e-100, 123456.7, -999_999.4, -999_999.6, 50_000.0, 0.00012345, -9999.6, 999.6]


def test_numbers_of_bars_are_whole_and_rounding_is_zero():
    """Ten letters of 12 pixels take 8 pixels each at most: they fit into the room for numbers."""
    shown = [short(value) for value in NUMBERS]
    assert [one.replace("\u202f", "") for one in shown] == (
        ["−1.86e-17", "−1.23e-100", "123457", "−999999", "−1e6", "50000", "1.23e-4", "−10000", "1000"]
    )
    assert max(map(len, shown)) * 8 <= svg.NUMBER
    drawn = bars(["a", "b"], [2.0, -1.86e-17], "x", "says", signed=True).svg
    assert re.findall(r'class="end">([^<]*)</text>', drawn) == ["a", "2", "b", "0"]


def test_bars_whose_names_would_be_cut_to_the_same_text_have_them_above():
    names = ["standard, evidence + diagonal, gaussian", "standard, evidence + diagonal, matern32"]
    drawn = bars(names, [1.0, 2.0], "x", "says", highlight=1).svg
    assert all(f">{name}</text>" in drawn for name in names)
    assert re.findall(r'class="f(\d)"', drawn) == ["2", "0"]  # its own colour


def test_dates_are_dates_truth_values_have_two_parts_and_columns_left_out_add_nothing():
    rng = np.random.default_rng(0)
    sold = pd.Timestamp("2021-01-01") + pd.to_timedelta(np.arange(160) % 97, unit="D")
    frame = pd.DataFrame({"income": rng.uniform(1e4, 9e4, 160), "sold": sold, "lift": np.arange(160) % 2 == 0})
    frame["country"] = "NO"
    y = frame["income"] / 1e4 + frame["lift"] + (sold - sold[0]).days / 30
    model = mercer.GreedyKernelRegressor(25, kernel=Gaussian(3.0), random_state=0).fit(frame[:100], y[:100])
    page = mercer.report(model, frame[100:], y[100:], None)
    text, found = page.to_html(), page.to_dict()
    assert len(found["residuals"]["inputs"]["lift"]["mean"]) == 2
    assert "2021-01-" in next(one.tables[0].rows[1][2] for one in page.sections if one.key == "columns")
    assert re.search(r'class="mid">2021-0\d-\d\d</text>', text)
    assert re.search(r'class="mid">40\u202f000</text>', text)
    assert "sold = 2021-0" in text
    for row in found["shapley"]["rows"].values():
        assert row["values"]["country"] == 0
    assert "country = NO" in text


def test_scikit_learns_page_of_an_estimator_links_to_a_site_that_is_named(monkeypatch):
    model = mercer.KernelBoostingRegressor()
    monkeypatch.delenv("MERCER_DOCS", raising=False)
    assert model._get_doc_link() == ""
    monkeypatch.setenv("MERCER_DOCS", "https://docs.example/mercer/")
    assert model._get_doc_link() == "https://docs.example/mercer/api/mercer.KernelBoostingRegressor.html"


def test_curves_and_thresholds_of_two_classes_are_those_of_scikit_learn():
    """The standard error beside the deviation of the AUC over drawn tables: 300 of them know it to 4 %."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(400, 2)), rng.random(400)
    labels = np.where(y < 1 / (1 + np.exp(-2 * X[:, 0])), "yes", "no")
    model = LogisticRegression().fit(X[:200], labels[:200])
    told = mercer.report(model, X[200:], labels[200:], path=None).to_dict()["ranking"]
    p, positive = model.predict_proba(X[200:])[:, 1], labels[200:] == "yes"
    assert told["positive"] == "yes"
    assert told["auc"] == pytest.approx(roc_auc_score(positive, p))
    assert told["average_precision"] == pytest.approx(average_precision_score(positive, p))
    for row in told["thresholds"]:
        named = p >= row["threshold"]
        assert row["precision"] == pytest.approx(precision_score(positive, named, zero_division=1.0))
        assert row["recall"] == pytest.approx(recall_score(positive, named))
        assert row["f1"] == pytest.approx(f1_score(positive, named))
    every = [f1_score(positive, p >= threshold) for threshold in p]
    assert told["best_f1"]["f1"] == pytest.approx(max(every))
    drawn = [(rng.normal(size=80) + np.arange(80) % 2, np.arange(80) % 2 == 1) for _ in range(300)]
    areas, errors = np.transpose([auc_and_error(*table) for table in drawn])
    assert np.mean(errors) == pytest.approx(np.std(areas), rel=4 * 0.04 + 0.05)
    assert "ranking" not in page_of(6).to_dict()  # of three classes

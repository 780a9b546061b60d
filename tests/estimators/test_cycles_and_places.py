"""Cycles and places: numbers on a circle, and latitudes and longitudes on a sphere."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

import mercer
from mercer import GreedyKernelRegressor, KernelBoostingClassifier, KernelBoostingRegressor, SparseGPRegressor, load

pytestmark = pytest.mark.usefixtures("two_folds", "short_selections")


def hours(n: int, seed: int) -> tuple[pd.DataFrame, np.ndarray]:
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({"hour": rng.uniform(0, 24, n), "other": rng.normal(size=n)})
    return frame, np.cos(2 * np.pi * frame["hour"] / 24).to_numpy() + 0.3 * frame["other"].to_numpy()


def places(n: int, seed: int) -> tuple[pd.DataFrame, np.ndarray]:
    """Places all over the sphere, and a function of the place that is smooth across the date line and the poles."""
    rng = np.random.default_rng(seed)
    vector = rng.normal(size=(n, 3))
    vector /= np.linalg.norm(vector, axis=1, keepdims=True)
    frame = pd.DataFrame(
        {
            "lat": np.rad2deg(np.arcsin(vector[:, 2])),
            "size": rng.normal(size=n),
            "lon": np.rad2deg(np.arctan2(vector[:, 1], vector[:, 0])),
        }
    )
    return frame, np.sin(3 * vector[:, 0]) + vector[:, 1] * vector[:, 2] + 0.1 * frame["size"].to_numpy()


def test_predictions_are_periodic() -> None:
    frame, y = hours(150, 0)
    model = KernelBoostingRegressor(cyclic_features={"hour": 24}, random_state=0).fit(frame, y)
    moved = frame.assign(hour=frame["hour"] + 48)
    np.testing.assert_allclose(model.predict(moved), model.predict(frame), rtol=1e-9, atol=1e-9)
    assert model.columns_[0]["map"] == "cycle of 24"


def test_a_cycle_is_learned_across_its_end() -> None:
    """Rows of the evening and of the morning tell what midnight is; numbers alone end at both sides."""
    frame, y = hours(400, 1)
    seen = (frame["hour"] > 3) & (frame["hour"] < 23)
    cyclic = KernelBoostingRegressor(cyclic_features={0: 24}, random_state=0).fit(frame[seen], y[seen])
    plain = KernelBoostingRegressor(random_state=0).fit(frame[seen], y[seen])
    error, plain_error = (np.abs(m.predict(frame[~seen]) - y[~seen]).mean() for m in (cyclic, plain))
    assert error < 0.1 * plain_error


def test_places_are_the_same_on_both_sides_of_the_date_line_and_at_a_pole() -> None:
    frame, y = places(200, 0)
    model = KernelBoostingRegressor(spherical_features=[("lat", "lon")], random_state=0).fit(frame, y)
    around = frame.assign(lon=np.where(frame["lon"] < 0, frame["lon"] + 360, frame["lon"]))
    np.testing.assert_allclose(model.predict(around), model.predict(frame), atol=1e-7)  # roots of rounding
    pole = frame.assign(lat=90.0, size=0.0)
    assert np.ptp(model.predict(pole)) < 1e-7


def test_rotating_the_sphere_about_its_axis_changes_nothing() -> None:
    frame, y = places(150, 2)
    turned = frame.assign(lon=(frame["lon"] + 70 + 180) % 360 - 180)
    kernel = {"kernel": mercer.kernels.Gaussian(0.7), "regularization": 0.1}
    options = {"spherical_features": "from_names", "random_state": 0, **kernel}
    first, second = (KernelBoostingRegressor(**options).fit(table, y).predict(table) for table in (frame, turned))
    np.testing.assert_allclose(first, second, rtol=1e-8, atol=1e-8)


def test_places_share_one_length_scale_and_are_learned_better() -> None:
    frame, y = places(500, 1)
    train = np.arange(500) < 200
    names = {"spherical_features": [("lat", "lon")]}
    models = [KernelBoostingRegressor(random_state=0, **o).fit(frame[train], y[train]) for o in (names, {})]
    errors = [np.sqrt(np.mean((model.predict(frame[~train]) - y[~train]) ** 2)) for model in models]
    assert errors[0] < 0.7 * errors[1]
    layout = models[0].table_.layout
    assert layout.column.tolist() == [0, 0, 0, 1]
    assert len(set(layout.group[:3])) == 1
    assert models[0].relevance_[2] == 0.0
    maps = [column["map"] for column in models[0].columns_]
    assert maps[0] == "latitude of a place on the sphere"
    assert maps[2] == "longitude of a place on the sphere"


def test_missing_angles_have_an_indicator() -> None:
    frame, y = places(200, 3)
    frame.loc[::5, "lon"] = np.nan
    frame.loc[1::9, "size"] = np.nan
    model = KernelBoostingRegressor(
        spherical_features=[["lat", "lon"]], cyclic_features={"size": 2.5}, random_state=0
    ).fit(frame, y)
    maps = [column["map"] for column in model.columns_]
    assert maps[2] == "longitude of a place on the sphere + missing or not"
    assert maps[1] == "cycle of 2.5 + missing or not"
    assert np.isfinite(model.predict(frame)).all()
    assert np.isfinite(model.predict(frame.assign(lat=np.nan))).all()


@pytest.mark.parametrize(
    "estimator",
    [
        KernelBoostingRegressor(kernel="gaussian", random_state=0),
        GreedyKernelRegressor(8, kernel="gaussian", random_state=0),
        SparseGPRegressor(20, kernel="gaussian", max_iter=5, random_state=0),
        KernelBoostingClassifier(random_state=0),
    ],
)
def test_every_family_takes_them_as_arrays_and_keeps_them_in_files(estimator, tmp_path, short_selections) -> None:
    frame, y = places(120, 4)
    frame["hour"] = np.arange(120) % 24
    y = y > 0 if isinstance(estimator, KernelBoostingClassifier) else y
    options = {"spherical_features": [(0, 2)], "cyclic_features": {3: 24}}
    model = clone(estimator).set_params(**options).fit(frame.to_numpy(), y)
    named = clone(estimator).set_params(spherical_features=[("lat", "lon")], cyclic_features={"hour": 24})
    np.testing.assert_allclose(model.predict(frame.to_numpy()), named.fit(frame, y).predict(frame))
    named.save(tmp_path / "model.mercer")
    again = load(tmp_path / "model.mercer")
    np.testing.assert_array_equal(again.predict(frame), named.predict(frame))
    assert again.get_params()["cyclic_features"] == {"hour": 24}


def test_effects_of_a_latitude_are_mean_predictions() -> None:
    frame, y = places(120, 5)
    model = KernelBoostingRegressor(kernel="gaussian", spherical_features="from_names", random_state=0).fit(frame, y)
    found = mercer.partial_effects(model, frame, "lat", grid_size=4)
    means = [model.predict(frame.assign(lat=value)).mean() for value in found.grid[0]]
    np.testing.assert_allclose(found.values.ravel(), means, rtol=0.02, atol=0.02)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"cyclic_features": {"hour": 0}}, "cyclic_features must be None or a dictionary of positive periods"),
        ({"cyclic_features": ["hour"]}, "cyclic_features must be None or a dictionary of positive periods"),
        ({"cyclic_features": {"minute": 60}}, "cyclic_features must be of the columns"),
        ({"cyclic_features": {7: 60}}, "cyclic_features must be names or numbers of 4 columns, got 7"),
        ({"cyclic_features": {True: 60}}, "cyclic_features must be names or numbers of 4 columns, got True"),
        ({"cyclic_features": {"town": 3}}, "column 'town' of X must be of numbers where it is a cycle or a place"),
        ({"spherical_features": ["lat", "lon"]}, "spherical_features must be None or 'from_names' or pairs"),
        ({"spherical_features": [("lat", "lng")]}, "spherical_features must be of the columns"),
        ({"spherical_features": [("lon", "lat")]}, "column 'lon' of X must be of degrees between -90 and 90"),
        ({"spherical_features": [("lat", "lat")]}, "column 'lat' of X must be named once"),
        ({"spherical_features": [("lat", "lon")], "cyclic_features": {"lon": 360}}, "must be named once"),
    ],
)
def test_bad_names_and_angles_get_a_sentence(options: dict, words: str) -> None:
    frame, y = places(60, 6)
    frame = frame.assign(lon=frame["lon"].where(frame.index > 0, 179.0), town=np.array(["a", "b"])[np.arange(60) % 2])
    with pytest.raises(ValueError, match=words):
        KernelBoostingRegressor(**options).fit(frame, y)


def test_angles_are_checked_in_predict() -> None:
    frame, y = places(60, 7)
    model = KernelBoostingRegressor(spherical_features=[("lat", "lon")], random_state=0).fit(frame, y)
    with pytest.raises(ValueError, match="column 'lat' of X must be of degrees between -90 and 90, got 91"):
        model.predict(frame.assign(lat=91.0))


def test_an_onnx_graph_says_the_same() -> None:
    pytest.importorskip("onnx")
    onnxruntime = pytest.importorskip("onnxruntime")
    frame, y = places(100, 8)
    frame.loc[::6, "lon"] = np.nan
    options = {"spherical_features": [("lat", "lon")], "cyclic_features": {"size": 2.0}}
    model = KernelBoostingRegressor(kernel="gaussian", random_state=0, **options).fit(frame, y)
    graph = mercer.to_onnx(model, dtype="float64").SerializeToString()
    session = onnxruntime.InferenceSession(graph, providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {name: frame[[name]].to_numpy() for name in frame})
    np.testing.assert_allclose(found.ravel(), model.predict(frame), atol=1e-9)

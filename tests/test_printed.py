"""Loaders of public tables that cannot be fetched here, on small files of the same layout."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks/peers"))
try:
    import printed
finally:
    del sys.path[0]

rng = np.random.default_rng(0)


@pytest.mark.parametrize(("name", "columns"), [("higgs", 28), ("susy", 18), ("year", 90)])
def test_files_with_the_target_first_hold_out_their_last_rows(name, columns, tmp_path):
    table = rng.normal(size=(30, columns + 1)).astype(np.float32)
    table[:, 0] = rng.integers(0, 2, 30)
    path = tmp_path / "table.csv.gz"
    pd.DataFrame(table).to_csv(path, header=False, index=False)
    found = printed.read(name, path, last=7)
    np.testing.assert_allclose(found.X, table[:23, 1:], rtol=1e-6)
    np.testing.assert_array_equal(found.y_test, table[23:, 0])


@pytest.mark.parametrize("name", ["song", "3droad", "houseelectric"])
def test_folders_with_masks_hold_out_the_rows_of_a_fold(name, tmp_path):
    table = rng.normal(size=(20, 4))
    masks = np.arange(20)[:, None] % 10 == np.arange(10)
    pd.DataFrame(table).to_csv(tmp_path / "data.csv.gz", header=False, index=False)
    pd.DataFrame(masks.astype(int)).to_csv(tmp_path / "test_mask.csv.gz", header=False, index=False)
    found = printed.read(name, tmp_path, fold=3)
    np.testing.assert_allclose(found.X_test, table[[3, 13], :3])
    np.testing.assert_allclose(found.y_test, table[[3, 13], 3])
    assert len(found.y) == 18


def test_trips_that_cannot_be_are_left_out_and_seconds_are_the_target(tmp_path):
    began = pd.Timestamp("2015-03-04 10:30:00")
    n = 40
    length = np.arange(n) * 60.0
    table = pd.DataFrame({
        "tpep_pickup_datetime": [began] * n,
        "tpep_dropoff_datetime": began + pd.to_timedelta(length, unit="s"),
        "pickup_longitude": -73.9, "pickup_latitude": 40.7, "dropoff_longitude": -73.8, "dropoff_latitude": 40.8,
        "trip_distance": 2.0,
    })  # fmt: skip
    table.loc[5, "pickup_longitude"] = 0.0
    path = tmp_path / "trips.csv"
    table.to_csv(path, index=False)
    X, y = printed.trips(path, None)
    np.testing.assert_array_equal(y, np.delete(length, [0, 5]))  # no seconds, no place
    np.testing.assert_allclose(X[0], [-73.9, 40.7, -73.8, 40.8, 2.0, 3, 4, 2, 630], rtol=1e-6)


def test_a_random_split_holds_out_a_fifth_and_is_the_same_again():
    held = printed.at_random(10_000)
    assert 0.18 < held.mean() < 0.22
    np.testing.assert_array_equal(held, printed.at_random(10_000))

"""Tables on which others have printed kernel models: HIGGS, SUSY, year, song, 3droad, houseelectric, TAXI.

    python benchmarks/peers/printed.py higgs --file HIGGS.csv.gz [--budget 600] [--limit 1000000] [--split random]
    python benchmarks/peers/printed.py song --file uci_datasets/song [--fold 0]

The files are those of their publishers; nothing is downloaded. `--split printed` holds out the rows that the publisher
or the paper names, `random` a fifth of the rows (Falkon's protocol). Targets of regressions are standardised by the
training rows, except seconds of trips and years. Printed figures have protocols of their own, which `PRINTED` names.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from tables_data import Table

#: Rows at the end of a file that its publisher holds out.
LAST = {"higgs": 500_000, "susy": 500_000, "year": 51_630}
CLASSES = ("higgs", "susy")
PRINTED = {
    "higgs": "AUC 0.8196 (Falkon, random fifth), 0.8457 (LightGBM)",
    "susy": "not recorded here",
    "year": "not recorded here",
    "song": "0.752 of a standard deviation (ADASAP, nine tenths)",
    "3droad": "0.0702 of a standard deviation (exact Gaussian process)",
    "houseelectric": "0.027 of a standard deviation (ADASAP)",
    "taxi": "311.7 s (Falkon, 10⁹ trips of 2009 to 2015)",
}
#: Columns of the trip records of 2009 to 2015, in the order of the inputs.
PLACES = ("pickup_longitude", "pickup_latitude", "dropoff_longitude", "dropoff_latitude", "trip_distance")


def read(
    name: str, path: Path, *, fold: int = 0, split: str = "printed", limit: int | None = None, last: int | None = None
) -> Table:
    """A table from its publisher's file or folder, split as printed or at random; `last` rows instead of `LAST`."""
    if name in LAST:  # target first, no head
        table = pd.read_csv(path, header=None, dtype=np.float32, nrows=limit).to_numpy()
        X, y = table[:, 1:], table[:, 0]
        held = np.arange(len(y)) >= len(y) - (last or LAST[name])
    elif name == "taxi":
        X, y = trips(path, limit)
        held = at_random(len(y))
    else:  # inputs, then the target; a mask for each of ten folds in a file beside it
        table = pd.read_csv(path / "data.csv.gz", header=None, nrows=limit).to_numpy()
        X, y = table[:, :-1], table[:, -1]
        mask = pd.read_csv(path / "test_mask.csv.gz", header=None, nrows=limit).to_numpy()
        held = mask[:, fold].astype(bool)
    if split == "random":
        held = at_random(len(y))
    task = "classification" if name in CLASSES else "regression"
    return Table(task, X[~held], y[~held], X[held], y[held])


def at_random(n: int) -> np.ndarray:
    """A fifth of the rows."""
    return np.random.default_rng(0).random(n) < 0.2


def trips(path: Path, limit: int | None) -> tuple[np.ndarray, np.ndarray]:
    """Places, distance, month, day, weekday and minute of trips, and their seconds, without impossible records.

    Falkon prints neither its nine columns nor its filter. Here trips take 10 s to 5 h, between places of the city.
    """
    table = pd.read_parquet(path) if path.suffix == ".parquet" else pd.read_csv(path, nrows=limit)
    table = table.rename(columns=str.strip)
    began, ended = (pd.to_datetime(table[f"tpep_{end}_datetime"]) for end in ("pickup", "dropoff"))
    seconds = (ended - began).dt.total_seconds().to_numpy()
    when = began.dt
    parts = [when.month, when.day, when.day_of_week, 60 * when.hour + when.minute]
    X = np.column_stack([table[list(PLACES)].to_numpy(np.float32), *(part.to_numpy(np.float32) for part in parts)])
    places = X[:, :4]
    inside = ((places > [-75, 40, -75, 40]) & (places < [-73, 42, -73, 42])).all(axis=1)
    keep = inside & (seconds >= 10) & (seconds <= 18_000)
    return X[keep][:limit], seconds[keep][:limit]


def judge(name: str, table: Table, budget: float | None) -> dict[str, Any]:
    """Our error, in the unit that is printed, and seconds."""
    from sklearn.metrics import roc_auc_score

    from mercer import KernelBoostingClassifier, KernelBoostingRegressor

    kind = KernelBoostingClassifier if table.task == "classification" else KernelBoostingRegressor
    model = kind(time_budget=budget, random_state=0)
    began = time.perf_counter()
    model.fit(table.X, table.y)
    seconds = time.perf_counter() - began
    if table.task == "classification":
        p = model.predict_proba(table.X_test)[:, 1]
        error = {"auc": float(roc_auc_score(table.y_test, p)), "wrong": float(np.mean((p > 0.5) != table.y_test))}
    else:
        unit = 1.0 if name in ("taxi", "year") else float(table.y.std())
        error = {"rmse": float(np.sqrt(np.mean((model.predict(table.X_test) - table.y_test) ** 2)) / unit)}
    return {"rows": len(table.y), "seconds": seconds, **error}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("name", choices=sorted(PRINTED))
    options.add_argument("--file", type=Path, required=True)
    options.add_argument("--fold", type=int, default=0)
    options.add_argument("--split", choices=["printed", "random"], default="printed")
    options.add_argument("--limit", type=int, default=None, help="read so many rows")
    options.add_argument("--last", type=int, default=None, help="hold out so many rows at the end of what is read")
    options.add_argument("--budget", type=float, default=None, help="seconds of a fit")
    given = options.parse_args()
    table = read(given.name, given.file, fold=given.fold, split=given.split, limit=given.limit, last=given.last)
    print(given.name, judge(given.name, table, given.budget), "printed:", PRINTED[given.name])


if __name__ == "__main__":
    main()

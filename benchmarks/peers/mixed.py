"""Tables as people have them: raw frames with categories, gaps and dates straight into `fit`, beside known figures.

    MERCER_DATA=… python benchmarks/peers/mixed.py [--tables ames] [--rows 8000] [--split 1] [--out m.json]

Every table lies in $MERCER_DATA/mixed as a Parquet file whose column `target` is the answer; `anchors.json` beside
them has the figures of CatBoost, LightGBM and HistGradientBoosting with their native categories, on the same split:
two thirds to train, or 40 000 rows of larger tables. Ours is the estimator as it comes, with a seed. The error is the
root mean squared error, 1 − AUC (two classes) or the log loss (more). `--rows` trains on fewer rows, for a quick look.
On another `--split` the rivals run too (`mixed_rivals.py`). What the encoding was chosen by are the tables of the part
`choose`; the others are of the development part.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from mixed_rivals import fitted
from scipy.stats import rankdata
from sklearn.metrics import log_loss, roc_auc_score

from mercer import KernelBoostingClassifier, KernelBoostingRegressor

PARTS = {
    "choose": ("healthcare_insurance", "ames", "churn", "titanic", "hotel_rates", "adult"),
    "development": ("credit-g", "diamonds", "loans", "penguins", "nycflights13", "concrete"),
}
RIVALS = ("catboost", "lightgbm", "sklearn_hgb")
#: Tables of more rows than this are cut to a part for training and one for testing.
LARGEST, TRAIN, TEST = 60_000, 40_000, 20_000


def split(n: int, most: int | None, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Training rows, at most so many, and test rows of n; seed 0 is the anchors'."""
    order = np.random.default_rng(seed).permutation(n)
    train, test = (order[: 2 * n // 3], order[2 * n // 3 :]) if n <= LARGEST else (order[:TRAIN], order[TRAIN:][:TEST])
    return train[:most], test


def judge(
    frame: pd.DataFrame, rows: tuple[np.ndarray, np.ndarray], rival: str = "ours", seed: int = 0, **options: Any
) -> dict[str, Any]:
    """Error and seconds of our default, with further `options` of ours, or of a rival, on one table."""
    X, y = frame.drop(columns="target"), frame["target"]
    train, test = rows
    classes = isinstance(y.dtype, pd.CategoricalDtype)
    answer = y.astype(str).to_numpy() if classes else y.to_numpy()
    test = test[np.isin(answer[test], answer[train])] if classes else test
    began = time.perf_counter()
    if rival == "ours":
        model: Any = (KernelBoostingClassifier if classes else KernelBoostingRegressor)(random_state=seed, **options)
        model, X_test = model.fit(X.iloc[train], answer[train]), X.iloc[test]
    else:
        model, X_test = fitted(rival, X.iloc[train], answer[train], X.iloc[test], classes=classes)
    result: dict[str, Any] = {"train": len(train), "seconds": time.perf_counter() - began}
    if not classes:
        result["rmse"] = float(np.sqrt(np.mean((model.predict(X_test) - answer[test]) ** 2)))
        return result
    P = model.predict_proba(X_test)
    result["error"] = 100 * float(np.mean(model.classes_[P.argmax(1)] != answer[test]))
    result["logloss"] = float(log_loss(answer[test], P, labels=model.classes_))
    if len(model.classes_) == 2:
        result["1-auc"] = float(1 - roc_auc_score(answer[test] == model.classes_[1], P[:, 1]))
    return result


def measure_of(anchor: dict[str, Any]) -> str:
    """By what a table is compared."""
    return next(name for name in ("rmse", "1-auc", "logloss", "error") if name in anchor["lightgbm"])


def figures_of(ours: dict[str, Any], anchor: dict[str, Any]) -> list[float]:
    """Our error and the rivals'."""
    by = measure_of(anchor)
    return [ours[by], *(anchor[rival][by] for rival in RIVALS)]


def shown(name: str, ours: dict[str, Any], anchor: dict[str, Any]) -> str:
    by, figures = measure_of(anchor), figures_of(ours, anchor)
    rank = 1 + sum(other < figures[0] for other in figures[1:])
    words = "".join(f"{figure:12.5g}" for figure in figures)
    return f"{name:22s}{by:>9s}{words}{rank:5d}{ours['seconds']:9.1f}{ours['train']:8d}"


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--part", choices=[*PARTS, "all"], default="all")
    options.add_argument("--tables", nargs="+", default=None)
    options.add_argument("--rows", type=int, default=None, help="train on at most so many rows")
    options.add_argument("--seed", type=int, default=0)
    options.add_argument(
        "--split", type=int, default=0, help="another split than the anchors', on which rivals run too"
    )
    options.add_argument("--threads", type=int, default=None)
    options.add_argument("--out", type=Path, default=None)
    given = options.parse_args()
    if given.threads is not None:
        torch.set_num_threads(given.threads)
    folder = Path(os.environ["MERCER_DATA"]) / "mixed"
    anchors = json.loads((folder / "anchors.json").read_text())
    wanted = given.tables or [name for part, names in PARTS.items() if given.part in (part, "all") for name in names]
    print(
        f"{'table':22s}{'by':>9s}{'ours':>12s}"
        + "".join(f"{rival:>12s}" for rival in RIVALS)
        + " rank  seconds    rows"
    )
    results: dict[str, Any] = {}
    ranks: list[list[float]] = []
    for name in wanted:
        frame = pd.read_parquet(folder / f"{name}.parquet")
        rows = split(len(frame), given.rows, given.split)
        results[name] = judge(frame, rows, seed=given.seed)
        if given.split != 0:
            anchors[name] = {rival: judge(frame, rows, rival) for rival in RIVALS}
        ranks.append(list(rankdata(figures_of(results[name], anchors[name]))))
        print(shown(name, results[name], anchors[name]), flush=True)
        if given.out is not None:
            given.out.write_text(json.dumps(results, indent=1) + "\n")
    mean = np.mean(ranks, axis=0)
    print("mean ranks: " + ", ".join(f"{who} {rank:.2f}" for who, rank in zip(("ours", *RIVALS), mean, strict=True)))


if __name__ == "__main__":
    main()

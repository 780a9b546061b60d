"""Test error against `time_budget`: more time must never give a worse model, nor more than the default's a worse one.

    MERCER_DATA=… python benchmarks/peers/budgets.py [--tables pol letter] [--budgets 2 5 15 40 120] [--rows 60000]
        [--threads 2] [--out budgets.json]
    python benchmarks/peers/budgets.py --report budgets.json …

Ten tables of 5000 to 60 000 rows, one 90/10 split each, and the zero-argument estimators with a seed. Errors are the
normalised mean squared error in percent, or the log loss of classes. `rise` is the largest relative rise of the error
from one budget to the next, `beside` the largest error beside the default's among budgets of at least its seconds.
"""

from __future__ import annotations

import argparse
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tables import judge
from tables_data import place, table

from mercer import KernelBoostingClassifier, KernelBoostingRegressor

TABLES = (
    "cal_housing", "elevators", "pol", "house_16H", "kin40k", "gal_protein", "letter", "ijcnn1", "page_blocks", "adult",
)  # fmt: skip
ROWS = 60_000


def measure(name: str, budgets: list[float], rows: int, device: str) -> dict[str, Any]:
    """Error and seconds without a budget and with each of them."""
    given = table(name, 0, rows)
    estimator = KernelBoostingClassifier if given.task == "classification" else KernelBoostingRegressor
    found: dict[str, Any] = {"rows": len(given.X), "columns": given.X.shape[1], "task": given.task}
    estimator(time_budget=1.0, device=device).fit(given.X[:500], given.y[:500])  # compile and load everything
    for budget in [None, *budgets]:
        score = judge(estimator(random_state=0, time_budget=budget, device=device), given)
        found[str(budget)] = {"seconds": score["seconds"], "error": score.get("log_loss", score["error"])}
        print(name, budget, found[str(budget)], flush=True)
    return found


def summary(found: dict[str, Any], budgets: list[float]) -> tuple[float, float]:
    """The largest rise from budget to budget, and the largest error beside the default's."""
    errors = [found[str(budget)]["error"] for budget in budgets]
    rises = [after / before - 1 for before, after in pairwise(errors)]
    default = found["None"]
    enough = [found[str(b)]["error"] / default["error"] for b in budgets if b >= default["seconds"]]
    return max(rises, default=0.0), max(enough, default=np.nan)


def report(results: dict[str, Any]) -> None:
    budgets = sorted({float(key) for found in results.values() for key in found if key.replace(".", "", 1).isdigit()})
    head = " ".join(f"{budget:>8g} s" for budget in budgets)
    print(f"{'table':14} {'rows':>6} {head} {'default':>9} {'seconds':>8} {'rise':>7} {'beside':>7} {'most':>5}")
    for name, found in results.items():
        errors = " ".join(f"{found[str(b)]['error']:10.4g}" for b in budgets)
        rise, beside = summary(found, budgets)
        most = max(found[str(b)]["seconds"] / b for b in budgets)
        default = found["None"]
        print(
            f"{name:14} {found['rows']:6} {errors} {default['error']:9.4g} {default['seconds']:8.1f} "
            f"{100 * rise:6.1f}% {beside:7.3f} {most:5.2f}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", nargs="+", default=TABLES)
    parser.add_argument("--budgets", nargs="+", type=float, default=[2.0, 5.0, 15.0, 40.0, 120.0])
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--report", nargs="+", type=Path)
    asked = parser.parse_args()
    if asked.report:
        report({name: found for path in asked.report for name, found in json.loads(path.read_text()).items()})
        return
    if asked.threads:
        torch.set_num_threads(asked.threads)
    results = {}
    for name in asked.tables:
        place(name)
        results[name] = measure(name, asked.budgets, asked.rows, asked.device)
        if asked.out:
            asked.out.write_text(json.dumps(results, indent=1))
    report(results)


if __name__ == "__main__":
    main()

"""Our default on official TabArena splits, beside the published error of every split.

    MERCER_DATA=… python benchmarks/peers/arena.py --published published.parquet [--tables churn] [--splits 9]
        [--threads 2] [--selections 4] [--out arena.json]
    python benchmarks/peers/arena.py --published published.parquet --report arena.json

Seven tables of TabArena v0.1, one zero-argument model a split (`--selections` sets `n_selections` alone). The
published models (columns `dataset`, `fold`, `method`, `metric_error` of the Parquet file, from the study's public
results) are bagged eightfold and have engineered features. The error is the root mean squared error, or 1 − AUC of
two classes. `ratio` is the geometric mean of our error over the published one, split by split. This is a judged part:
it is run before and after a change of the defaults, and nothing is chosen by it. A run that is called again with the
same `--out` goes on from there.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from mixed import judge
from openml_splits import openml_splits, shuffled

from mercer.datasets import load


class Source(NamedTuple):
    """The name of a table here, how often its rows were shuffled, and repeats of three folds."""

    name: str
    shuffles: int
    repeats: int


TABLES = {
    "concrete_compressive_strength": Source("concrete", 2, 10),
    "healthcare_insurance_expenses": Source("healthcare_insurance", 1, 10),
    "credit-g": Source("credit-g", 1, 10),
    "diabetes": Source("pima", 1, 10),
    "churn": Source("churn", 1, 3),
    "diamonds": Source("diamonds", 1, 3),
    "physiochemical_protein": Source("gal_protein", 1, 3),
}
RIVALS = ("LightGBM (default)", "LightGBM (tuned + ensemble)", "RealTabPFN-2.5 (default)", "TabM (tuned + ensemble)")


def frame(source: Source) -> pd.DataFrame:
    path = Path(os.environ["MERCER_DATA"]) / "mixed" / f"{source.name}.parquet"
    if path.exists():
        return shuffled(pd.read_parquet(path), source.shuffles)
    found = load(source.name)
    y = np.asarray(found.y)
    table = pd.DataFrame(np.asarray(found.X, dtype=float)).rename(columns=str)
    return shuffled(table.assign(target=pd.Categorical(y) if y.dtype.kind in "iu" else y), source.shuffles)


def measure(name: str, most: int, selections: int | str, known: dict[str, Any]) -> dict[str, Any]:
    """Error and seconds of every split that is not known yet."""
    source = TABLES[name]
    table = frame(source)
    classes = isinstance(table["target"].dtype, pd.CategoricalDtype)
    codes = table["target"].cat.codes.to_numpy() if classes else None
    for number, rows in enumerate(openml_splits(len(table), codes, source.repeats)):
        if number >= most or str(number) in known:
            continue
        score = judge(table, rows, n_selections=selections)
        error = score["rmse"] if "rmse" in score else score["1-auc"]
        known[str(number)] = {"error": error, "seconds": score["seconds"]}
        print(f"{name} split {number}: {error:.5g} in {score['seconds']:.1f} s", flush=True)
    return known


def report(results: dict[str, Any], published: pd.DataFrame) -> None:
    """A line for each table, and the geometric mean of the ratios of all tables."""
    print(f"{'table':30} {'splits':>6} {'ours':>9} {'seconds':>8}  " + "  ".join(f"{rival:>28}" for rival in RIVALS))
    means: dict[str, list[float]] = {rival: [] for rival in RIVALS}
    for name, found in results.items():
        cells = []
        for rival in RIVALS:
            chosen = published[(published.dataset == name) & published.method.str.endswith(rival)]
            errors = dict(zip(chosen.fold.astype(str), chosen.metric_error, strict=True))
            shared = [split for split in found if split in errors]
            ratio = np.exp(np.mean([np.log(found[split]["error"] / errors[split]) for split in shared]))
            means[rival].append(float(ratio))
            cells.append(f"{np.mean([errors[split] for split in shared]):.4g} (ratio {ratio:.3f})")
        ours, seconds = (np.mean([split[key] for split in found.values()]) for key in ("error", "seconds"))
        print(f"{name:30} {len(found):6} {ours:9.4g} {seconds:8.1f}  " + "  ".join(f"{cell:>28}" for cell in cells))
    overall = "  ".join(f"{np.exp(np.mean(np.log(ratios))):28.3f}" for ratios in means.values())
    print(f"{'geometric mean of the ratios':55}  {overall}")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--published", type=Path, required=True)
    options.add_argument("--tables", nargs="+", choices=[*TABLES], default=[*TABLES])
    options.add_argument("--splits", type=int, default=30)
    options.add_argument("--threads", type=int)
    options.add_argument("--selections", type=int)
    options.add_argument("--out", type=Path)
    options.add_argument("--report", type=Path)
    given = options.parse_args()
    published = pd.read_parquet(given.published)
    if given.report:
        report(json.loads(given.report.read_text()), published)
        return
    if given.threads is not None:
        torch.set_num_threads(given.threads)
    results = json.loads(given.out.read_text()) if given.out and given.out.exists() else {}
    for name in given.tables:
        results[name] = measure(name, given.splits, given.selections or "auto", results.get(name, {}))
        if given.out:
            given.out.write_text(json.dumps(results, indent=1))
    report(results, published)


if __name__ == "__main__":
    main()

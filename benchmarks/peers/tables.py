"""Defaults against defaults: every estimator as it comes, by its public call, on the tables of both parts.

    MERCER_DATA=… python benchmarks/peers/tables.py [--part development] [--tables abalone wine]
        [--methods ours catboost] [--splits 3] [--rows 12000] [--threads 2] [--device cpu] [--out tables.json]
    python benchmarks/peers/tables.py --report tables.json …

90/10, three splits, at most 12 000 training rows for everybody unless `--rows` says otherwise. Errors are normalised
mean squared error (regression) or the share of wrong classes, both in percent, and the log loss of the probabilities
(classes); seconds are those of `fit`. Nothing is tuned by hand: no argument but a seed (and where asked threads and
device). A method whose package is missing is left out. With `--out` every split is kept as it ends, and a run that is
called again goes on from there: take a new file for new code.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rivals import rival
from tables_data import LARGEST, PARTS, TASKS, Table, names, place, table
from tables_report import Results, merged, report
from threadpoolctl import threadpool_limits

METHODS = ("ours", "catboost", "lightgbm", "histgb", "svm", "xrfm", "chimeraboost", "ebm", "realmlp", "tabm")
LEAST = 1e-9  # a probability below it counts as this much


def judge(model: Any, given: Table) -> dict[str, float]:
    """Test errors and seconds of fit of one model on one split."""
    began = time.perf_counter()
    model.fit(given.X, given.y)
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    score = {"seconds": time.perf_counter() - began, "test_rows": len(given.y_test)}
    prediction = np.asarray(model.predict(given.X_test)).reshape(-1)
    if given.task == "regression":
        return score | {"error": 100 * float(np.mean((prediction - given.y_test) ** 2) / np.var(given.y))}
    score["error"] = 100 * float(np.mean(prediction != given.y_test))
    if hasattr(model, "predict_proba"):
        score["log_loss"] = log_loss(np.asarray(model.predict_proba(given.X_test), dtype=float), given.y_test)
    return score


def log_loss(p: np.ndarray, y: np.ndarray) -> float:
    """Mean of −log p of the true class, which is none of the columns where it is negative."""
    own = np.where(y >= 0, p[np.arange(len(y)), y.clip(0)], 0.0)
    return float(-np.log(own.clip(LEAST)).mean())


def installed(methods: list[str], **machine: Any) -> list[str]:
    found = []
    for method in methods:
        try:
            rival(method).default("regression", 0, **machine)
            found.append(method)
        except ImportError:
            print(f"{method} is not installed and left out", flush=True)
    return found


def run(
    tables: list[str], methods: list[str], splits: int, rows: int, results: Results, keep: Any, **machine: Any
) -> None:
    """Fill `results` with what it lacks; a method that breaks is reported, not hidden, and tried again next time."""
    for name in tables:
        for seed in range(splits):
            kept = results.setdefault(name, {})
            wanted = [m for m in methods if "error" not in kept.get(m, {}).get(str(seed), {})]
            if not wanted:
                continue
            try:
                given = table(name, seed, rows)
            except (ImportError, OSError, ValueError) as missing:
                print(f"{name} cannot be read and is left out: {missing!r}"[:200], flush=True)
                break
            for method in wanted:
                score = attempt(method, given, seed, **machine)
                kept.setdefault(method, {})[str(seed)] = score
                words = "  ".join(f"{key} {value:.4g}" if key != "failed" else value for key, value in score.items())
                print(f"{name:22s} {seed} {method:12s} {words}", flush=True)
                keep()


def attempt(method: str, given: Table, seed: int, **machine: Any) -> dict[str, Any]:
    def model() -> Any:
        return rival(method).default(given.task, seed, **machine)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if torch.cuda.is_available() and seed == 0:  # libraries and compiled kernels load on first use
            with contextlib.suppress(Exception):
                model().fit(given.X[:1000], given.y[:1000])
        try:
            return judge(model(), given)
        except Exception as failure:
            return {"failed": repr(failure)[:200]}


def opened(path: Path | None, setting: dict[str, Any]) -> dict[str, Any]:
    """What a file of `--out` holds already; numbers of different settings are not put together."""
    if path is None or not path.exists():
        return {"setting": setting, "tables": {}}
    kept = json.loads(path.read_text())
    if kept["setting"] != setting:
        raise SystemExit(f"{path} was measured with {kept['setting']}, not with {setting}: take another file")
    return kept


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--part", choices=[*PARTS, "all"], default="all")
    options.add_argument("--tables", nargs="+", default=None, help="some tables only")
    options.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    options.add_argument("--splits", type=int, default=3)
    options.add_argument("--rows", type=int, default=LARGEST, help="training rows at most")
    options.add_argument("--threads", type=int, default=None)
    options.add_argument("--device", default="auto", help="of those that have a choice: auto, cpu or cuda")
    options.add_argument("--out", type=Path, default=None, help="JSON to go on from and to write to")
    options.add_argument("--report", type=Path, nargs="+", default=None, help="files of --out, instead of a run")
    given = options.parse_args()
    parts = list(PARTS) if given.part == "all" else [given.part]
    tables = given.tables or [name for part in parts for task in TASKS for name in names(part, task)]
    tables = [name for name in tables if place(name)[0] in parts]
    if given.report:
        results = merged([json.loads(path.read_text())["tables"] for path in given.report])
        print(report(results, tables, given.methods, given.splits))
        return
    if given.threads:
        torch.set_num_threads(given.threads)
        threadpool_limits(given.threads)
    setting = {"device": given.device, "cuda": torch.cuda.is_available(), "threads": torch.get_num_threads()}
    found = opened(given.out, setting | {"rows": given.rows})

    def keep() -> None:
        if given.out:
            whole = given.out.with_suffix(".part")
            whole.write_text(json.dumps(found, indent=1))
            whole.replace(given.out)

    machine = {"threads": given.threads, "device": given.device}
    run(tables, installed(given.methods, **machine), given.splits, given.rows, found["tables"], keep, **machine)
    print("\n" + report(found["tables"], tables, given.methods, given.splits))


if __name__ == "__main__":
    main()

"""All speeds on a CPU as one table, beside boosted trees, and a record that is not overwritten by worse numbers.

    pip install catboost lightgbm
    MERCER_DATA=… python benchmarks/speed/record.py [--only fit predict import classes] [--rows 12000] [--overwrite]

- `fit`: default fits of the tables of `peers/tables_data.py`, beside CatBoost and LightGBM as they come. The values are
  ratios of seconds in one run, the mean over tables being geometric, and the same for errors on held-out rows.
- `predict`: microseconds per row for 1, 1000 and 100 000 rows, and bytes of the model files.
- `import`: seconds of `import mercer` with an estimator beyond torch and scikit-learn; the first fit less the second.
- `classes`: seconds for the letters (26 classes) and for 40 000 rows of 4 columns with 22 classes.

A line whose value is more than `--tolerance` above the recorded one is printed with a mark, the record keeps the old
value unless `--overwrite` is given, and the exit status is 1. Use a quiet machine: the load is printed first.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
RECORD = HERE / "record.json"
sys.path.append(str(HERE.parent / "peers"))
#: Tables of `fit`: numbers and classes, few rows and many, few columns and many.
TABLES = (
    "boston", "abalone", "elevators", "cal_housing", "pol", "kin8nm", "house_16H", "ames", "diamonds",
    "wine", "pima", "segment", "spambase", "page_blocks", "ijcnn1", "churn", "credit-g", "adult",
)  # fmt: skip
RIVALS = ("catboost", "lightgbm")
#: A line: what was measured, in which unit; smaller is better.
Lines = Iterator[tuple[str, str, float]]


def seconds(run: Callable[[], Any], times: int = 1) -> float:
    """The least wall time of several runs."""
    found = []
    for _ in range(times):
        began = time.perf_counter()
        run()
        found.append(time.perf_counter() - began)
    return min(found)


def fresh(name: str, task: str, threads: int) -> Any:
    """A model as it comes."""
    from rivals import rival

    return rival(name).default(task, 0, threads=threads, device="cpu")


def error(model: Any, given: Any) -> float:
    """Normalised squared error, or log loss."""
    from tables import log_loss

    if given.task == "regression":
        return float(np.mean((model.predict(given.X_test) - given.y_test) ** 2) / np.var(given.y))
    return log_loss(model.predict_proba(given.X_test), given.y_test)


def fits(asked: argparse.Namespace) -> Lines:
    """Ratios of seconds and errors to those of boosted trees."""
    from tables_data import table

    ratios: dict[tuple[str, str], list[float]] = {}
    for name in TABLES:
        given = table(name, 0, asked.rows)
        taken, errors = {}, {}
        for method in ("ours", *RIVALS):
            model = fresh(method, given.task, asked.threads)
            taken[method] = seconds(lambda model=model, given=given: model.fit(given.X, given.y))
            errors[method] = error(model, given)
        for rival in RIVALS:
            ratio = taken["ours"] / taken[rival]
            ratios.setdefault((rival, "seconds"), []).append(ratio)
            ratios.setdefault((rival, "error"), []).append((errors["ours"] + 1e-4) / (errors[rival] + 1e-4))
            yield f"fit {name} ({len(given.y)} rows): seconds over {rival}'s", "ratio", ratio
    for (rival, what), values in ratios.items():
        name = f"fit, at most {asked.rows} rows: {what} over {rival}'s"
        yield f"{name}, geometric mean", "ratio", float(np.exp(np.mean(np.log(values))))
        if what == "seconds":
            yield f"{name}, median", "ratio", float(np.median(values))
            yield f"{name}, largest", "ratio", max(values)


def predictions(asked: argparse.Namespace) -> Lines:
    """Microseconds per row, and bytes of files, of models of cal_housing."""
    from tables_data import table

    given = table("cal_housing", 0, 5000)
    rng = np.random.default_rng(0)
    many = given.X[rng.integers(0, len(given.X), 100_000)]
    for method in ("ours", *RIVALS):
        model = fresh(method, given.task, asked.threads).fit(given.X, given.y)
        inner = getattr(model, "model", model)
        for n, times in ((1, 300), (1000, 30), (100_000, 3)):
            part = many[:n]
            model.predict(part)
            taken = seconds(lambda model=model, part=part: model.predict(part), times)
            yield f"predict {n} rows: {method}", "µs per row", 1e6 * taken / n
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model"
            if method == "lightgbm":
                inner.booster_.save_model(path)
            elif method == "catboost":
                inner.save_model(str(path))
            else:
                inner.save(path)
            yield f"file: {method}", "bytes", float(path.stat().st_size)


IMPORT = """
import time
import torch, sklearn, sklearn.base, sklearn.utils.validation
began = time.perf_counter()
from mercer import KernelBoostingRegressor
imported = time.perf_counter() - began
import numpy as np
X = np.random.default_rng(0).normal(size=(300, 5))
y = np.sin(X[:, 0]) + 0.3 * np.random.default_rng(1).normal(size=300)
taken = []
for _ in range(3):
    began = time.perf_counter()
    KernelBoostingRegressor(random_state=0).fit(X, y)
    taken.append(time.perf_counter() - began)
print(imported, taken[0] - min(taken[1:]))
"""


def imports(asked: argparse.Namespace) -> Lines:
    """Seconds until an estimator is imported, and what the first fit takes longer; the best of three processes."""
    found = []
    for _ in range(3):
        run = subprocess.run([sys.executable, "-c", IMPORT], capture_output=True, text=True, check=True)
        found.append([float(part) for part in run.stdout.split()])
    imported, first = np.min(found, axis=0)
    yield "import of an estimator, beyond torch and scikit-learn", "s", float(imported)
    yield "first fit less the second", "s", float(first)


def classes(asked: argparse.Namespace) -> Lines:
    """Seconds of fits with many classes."""
    from tables_data import table

    rng = np.random.default_rng(0)
    X = rng.normal(size=(40_000, 4))
    f = np.sin(2 * X[:, 0]) * X[:, 1] + X[:, 2] + 0.1 * rng.normal(size=len(X))
    y = np.searchsorted(np.quantile(f, np.arange(1, 22) / 22), f)
    given = table("letter", 0, 20_000)
    for name, rows, targets in (("letter, 26 classes", given.X, given.y), ("40 000 × 4, 22 classes", X, y)):
        for method in ("ours", "catboost"):
            model = fresh(method, "classification", asked.threads)
            taken = seconds(lambda model=model, rows=rows, targets=targets: model.fit(rows, targets))
            yield f"classes: {name}: {method}", "s", taken
            if name.startswith("letter"):
                yield f"classes: {name}: {method}, log loss", "nats", error(model, given)


PARTS = {"fit": fits, "predict": predictions, "import": imports, "classes": classes}


def kept(lines: Lines, record: dict[str, Any], asked: argparse.Namespace) -> int:
    """Print lines and write them to the record; the number of lines that are worse than the recorded ones."""
    n_worse, machine = 0, f"{platform.machine()}, {os.cpu_count()} cores"
    for name, unit, value in lines:
        key = f"{machine}: {name}"
        before = record.get(key)
        worse = before is not None and value > (1 + asked.tolerance) * before["value"]
        n_worse += worse
        mark = f"  worse than {before['value']:.4g}" if worse and before is not None else ""
        print(f"| {name} | {value:.4g} {unit}{mark} |", flush=True)
        if not worse or asked.overwrite:
            record[key] = {"value": value, "unit": unit}
            RECORD.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n")
    return n_worse


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--rows", type=int, default=12_000, help="training rows at most")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--tolerance", type=float, default=0.05)
    parser.add_argument("--overwrite", action="store_true", help="also record numbers that are worse than before")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    record = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    load = f", load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    print(f"{platform.machine()}, {os.cpu_count()} cores{load}\n\n| what | value |\n|---|---|")
    n_worse = sum(kept(PARTS[part](asked), record, asked) for part in asked.only)
    if n_worse and not asked.overwrite:
        raise SystemExit(f"{n_worse} values are worse than those in {RECORD.name}, which keeps them; see --overwrite")


if __name__ == "__main__":
    main()

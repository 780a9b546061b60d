"""Random tables, targets and weights: sane ones, odd ones, and ones with a fault."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

#: What may be wrong with a problem; each is to be refused in a sentence, or to have a meaning.
FAULTS = (
    "nan in X", "inf in X", "nan in y", "inf in y", "negative weight", "infinite weight", "nan weight", "no weight",
    "weights too short", "targets too short", "three targets a row", "no rows", "no columns", "one dimension",
    "three dimensions", "no targets", "text targets", "complex targets", "object targets", "scalar targets",
)  # fmt: skip


@dataclass(frozen=True)
class Problem:
    """A table with targets and perhaps weights; `story` says what was drawn."""

    X: Any
    y: Any
    weight: Any
    story: tuple[str, ...]


def plain_problem(rng: np.random.Generator, classes: bool) -> Problem:
    """A table that every estimator has to fit: 20 to 200 rows (of forty, one has 1000), 1 to 8 columns, a signal."""
    n, d = int(rng.integers(20, 201)), int(rng.integers(1, 9))
    n = n if rng.random() < 0.975 else 1000
    X = rng.normal(size=(n, d)) if rng.random() < 0.5 else rng.uniform(-2, 2, (n, d))
    signal = np.sin(1.5 * X[:, 0]) + 0.3 * X[:, -1] + 0.1 * rng.normal(size=n)
    if not classes:
        return Problem(X, signal, None, (f"{n} x {d}", "smooth"))
    k = int(rng.integers(2, 5))
    return Problem(X, _binned(signal, k), None, (f"{n} x {d}", f"{k} classes"))


def odd_problem(rng: np.random.Generator, classes: bool) -> Problem:
    """A finite table of any shape and kind: few rows, constant, repeated, huge, tiny or heavy-tailed columns."""
    n = int(rng.choice([1, 2, 3, 4, 5, 8, 12, 20, 30, 60, 100, 200]))
    d = int(rng.choice([1, 1, 2, 3, 5, 10, 40]))
    kind, X = _inputs(rng, n, d)
    signal = _signal(X)
    told, y = _classes(rng, signal) if classes else _numbers(rng, signal)
    heavy, weight = _weights(rng, n)
    return Problem(X, y, weight, (f"{n} x {d}", f"X {kind}", f"y {told}", f"weights {heavy}"))


def spoiled(problem: Problem, rng: np.random.Generator) -> Problem:
    """The problem with one thing wrong."""
    fault = str(rng.choice(FAULTS))
    X, y, weight = problem.X.copy(), problem.y.copy(), np.ones(len(problem.X))
    row, column = int(rng.integers(X.shape[0])), int(rng.integers(X.shape[1]))
    gone = np.nan if "nan" in fault else np.inf
    if fault.endswith("in X"):
        X[row, column] = gone
    elif fault.endswith("in y") and y.dtype.kind == "f":
        y[row] = gone
    elif fault.endswith("weight"):
        weight[row] = {"negative weight": -1.0, "infinite weight": np.inf, "nan weight": np.nan, "no weight": 0.0}[
            fault
        ]
        weight = weight * 0 if fault == "no weight" else weight
    y = {
        "targets too short": y[:-1],
        "three targets a row": np.column_stack([y.reshape(len(y), -1)] * 3),
        "no rows": y[:0],
        "no targets": None,
        "text targets": np.array(["oak"] * len(y)),
        "complex targets": np.ones(len(y)) * 1j,
        "object targets": np.array([None] + [1.0] * (len(y) - 1), dtype=object),
        "scalar targets": 3.0,
    }.get(fault, y)
    X = {
        "no rows": X[:0],
        "no columns": X[:, :0],
        "one dimension": X[:, 0],
        "three dimensions": X[:, :, None],
    }.get(fault, X)
    kept = None if "weight" not in fault else weight[:-1] if fault == "weights too short" else weight
    return replace(problem, X=X, y=y, weight=kept, story=(*problem.story, fault))


def _inputs(rng: np.random.Generator, n: int, d: int) -> tuple[str, np.ndarray]:
    X = rng.normal(size=(n, d))
    made = {
        "normal": lambda: X,
        "uniform": lambda: rng.uniform(-2, 2, (n, d)),
        "constant column": lambda: np.where(np.arange(d) == d // 2, rng.choice([0.0, 1.0, 1e8, 1e300]), X),
        "all the same": lambda: np.full((n, d), float(rng.choice([0.0, 3.0, 1e8]))),
        "repeated rows": lambda: X[rng.integers(max(n // 3, 1), size=n)],
        "repeated columns": lambda: np.column_stack([X[:, :1]] * d) + 1e-13 * X,
        "tiny": lambda: X * 1e-12,
        "huge": lambda: X * 1e12,
        "offset": lambda: X + 1e8,
        "units apart": lambda: X * 10.0 ** rng.uniform(-12, 12, d),
        "Cauchy": lambda: rng.standard_cauchy(size=(n, d)),
        "log-normal": lambda: np.exp(5 * X),
        "mostly zero": lambda: X * (rng.random((n, d)) < 0.05),
        "two values": lambda: (X > 0) * 1.0,
        "ends of float64": lambda: X * float(rng.choice([1e-310, 1e-160, 1e154, 1e200])),
    }
    kind = str(rng.choice(list(made)))
    return kind, np.array(made[kind](), dtype=np.float64)


def _signal(X: np.ndarray) -> np.ndarray:
    """A function of the first and last column in their own units, whatever those are."""
    parts = X / np.maximum(np.abs(X).max(0), np.finfo(float).tiny)
    spread = parts.std(0)
    unit = (parts - parts.mean(0)) / np.where(spread > 0, spread, 1.0)
    return np.sin(2 * unit[:, 0]) + 0.5 * unit[:, -1]


def _binned(signal: np.ndarray, k: int) -> np.ndarray:
    return np.digitize(signal, np.quantile(signal, np.arange(1, k) / k))


def _classes(rng: np.random.Generator, signal: np.ndarray) -> tuple[str, np.ndarray]:
    n = len(signal)
    made = {
        "two classes": lambda: (signal > np.median(signal)).astype(int),
        "three classes": lambda: _binned(signal, 3),
        "eight classes by chance": lambda: rng.integers(0, 8, n),
        "two classes by chance": lambda: rng.integers(0, 2, n),
        "one against all": lambda: (np.arange(n) == n - 1).astype(int),
        "one class": lambda: np.zeros(n, int),
        "a class a row": lambda: np.arange(n) if n <= 30 else _binned(signal, 10),
    }
    kind = str(rng.choice(list(made), p=[0.3, 0.2, 0.1, 0.15, 0.1, 0.05, 0.1]))
    y = made[kind]()
    as_label = {
        "int": lambda: y,
        "text": lambda: np.array([f"class {value}" for value in y]),
        "object": lambda: np.array([f"class {value}" for value in y], dtype=object),
        "bool": lambda: y.astype(bool) if y.max(initial=0) <= 1 else y,
        "float": lambda: y.astype(float),
        "signs": lambda: 2 * y - 1,
    }
    label = str(rng.choice(list(as_label)))
    return f"{kind}, {label}", as_label[label]()


def _numbers(rng: np.random.Generator, signal: np.ndarray) -> tuple[str, np.ndarray]:
    n = len(signal)
    made = {
        "smooth": lambda: signal,
        "noisy": lambda: signal + rng.normal(size=n),
        "noise": lambda: rng.normal(size=n),
        "constant": lambda: np.full(n, float(rng.choice([0.0, 3.7, 1e10]))),
        "huge": lambda: signal * 1e150,
        "tiny": lambda: signal * 1e-150,
        "offset": lambda: signal + 1e10,
        "Cauchy": lambda: rng.standard_cauchy(n),
        "whole": lambda: np.round(10 * signal).astype(int),
        "bool": lambda: signal > 0,
        "two outputs": lambda: np.column_stack([signal, -(signal**2)]),
        "an output constant": lambda: np.column_stack([1e6 * signal, np.ones(n)]),
        "a spike": lambda: np.where(np.arange(n) == n - 1, 1e6, 0.0),
    }
    kind = str(rng.choice(list(made)))
    return kind, made[kind]()


def _weights(rng: np.random.Generator, n: int) -> tuple[str, np.ndarray | None]:
    made = {
        "none": lambda: None,
        "ones": lambda: np.ones(n),
        "random": lambda: rng.random(n) + 1e-3,
        "sum to one": lambda: np.full(n, 1 / n),
        "half of them zero": lambda: np.where(np.arange(n) % 2 == 0, 1.0, 0.0),
        "tiny": lambda: np.full(n, 1e-30),
        "huge": lambda: np.full(n, 1e30),
        "whole": lambda: rng.integers(1, 4, n),
        "of all sizes": lambda: 10.0 ** rng.uniform(-10, 10, n),
    }
    kind = str(rng.choice(list(made), p=[0.5, *[0.0625] * 8]))
    return kind, made[kind]()

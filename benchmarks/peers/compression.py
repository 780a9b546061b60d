"""Few basis vectors at the accuracy of all rows: held-out errors, sizes and times before and after compression.

    MERCER_DATA=… python benchmarks/peers/compression.py [--tables elevators pol] [--rows 3000] [--out c.json]
    MERCER_DATA=… python benchmarks/peers/compression.py --curve [--tables kin40k] [--rows 3000]

The first form fits the default twice, with all rows and with `n_basis="auto"`, and prints the test error of the second
over that of the first (root mean squared error, or log loss), basis vectors, processor seconds of the fit and of its
compression, and processor microseconds of predictions for one row and per row of 1000; beside CatBoost and LightGBM
where they are installed. The second form prints the error of subsets of growing size over that of the exact solution:
rows chosen by the compression, and random rows, both with weights refitted to the targets.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.metrics import log_loss
from tables_data import Table, table

import mercer.forward.compress_members as members
from mercer import KernelBoostingClassifier, KernelBoostingRegressor
from mercer.data import ArrayRows, TensorRows
from mercer.engine import Sample, make_plan
from mercer.forward.compress import Judges, compression_path
from mercer.forward.problem import Problem
from mercer.forward.solve.exact import exact_ridge
from mercer.forward.solve.polish import whitened_ridge

TABLES = (
    "elevators", "cal_housing", "abalone", "pol", "kin40k", "kin8nm", "pumadyn32nm", "gal_protein", "house_16H",
    "sarcos_test_only", "concrete", "diamonds", "ames", "healthcare_insurance", "hotel_rates",
    "adult", "churn", "spambase", "waveform21", "segment", "letter", "page_blocks", "loans", "nycflights13",
)  # fmt: skip
CURVES = ("kin40k", "pol", "elevators", "sarcos_test_only", "cal_housing")
#: Sizes of a curve as shares of the rows.
SHARES = (1 / 40, 1 / 20, 1 / 10, 1 / 5, 1 / 3, 1 / 2)
JUDGES, BLOCK, REPETITIONS = 500, 1000, 20


def error(data: Table, model: Any) -> float:
    """The root mean squared error on test rows, or the log loss."""
    if data.task == "regression":
        return float(np.sqrt(np.mean((model.predict(data.X_test) - data.y_test) ** 2)))
    known = data.y_test >= 0
    return float(log_loss(data.y_test[known], model.predict_proba(data.X_test[known]), labels=model.classes_))


def microseconds(predict: Callable[[np.ndarray], Any], rows: np.ndarray) -> list[float]:
    """Processor microseconds of a prediction for one row, and per row of a block, after one prediction before."""
    found = []
    for block in (rows[:1], np.resize(rows, (BLOCK, rows.shape[1]))):
        predict(block)
        began = time.process_time()
        for _ in range(REPETITIONS):
            predict(block)
        found.append(1e6 * (time.process_time() - began) / (REPETITIONS * len(block)))
    return found


class Stopwatch:
    """Calls a function and adds its processor time."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function, self.seconds = function, 0.0

    def __call__(self, *args: Any) -> Any:
        began = time.process_time()
        try:
            return self.function(*args)
        finally:
            self.seconds += time.process_time() - began


def before_and_after(name: str, rows: int) -> dict[str, Any]:
    """One line of the table: the default with all rows, and compressed."""
    data = table(name, 0, rows)
    kind = KernelBoostingRegressor if data.task == "regression" else KernelBoostingClassifier
    full = kind(random_state=0, n_basis=None).fit(data.X, data.y)
    watch = Stopwatch(members.compress_members)
    members.compress_members = watch  # type: ignore[assignment]
    began = time.process_time()
    few = kind(random_state=0).fit(data.X, data.y)
    seconds = time.process_time() - began
    members.compress_members = watch.function  # type: ignore[assignment]
    sizes = [sum(len(part.basis) for part in model.expansions_) for model in (full, few)]
    return {
        "table": name,
        "rows": len(data.y),
        "error": error(data, full),
        "ratio": error(data, few) / error(data, full),
        "vectors": sizes,
        "kernels": len(few.expansions_),
        "fit_seconds": seconds,
        "compression_seconds": watch.seconds,
        "microseconds_full": microseconds(full.predict, data.X_test),
        "microseconds": microseconds(few.predict, data.X_test),
        "reason": few.compression_reason_,
        **rivals(data),
    }


def rivals(data: Table) -> dict[str, Any]:
    """Microseconds of other libraries' predictions, where they are installed."""
    found = {}
    regression = data.task == "regression"
    for module, names, options in (
        ("catboost", ("CatBoostRegressor", "CatBoostClassifier"), {"verbose": False}),
        ("lightgbm", ("LGBMRegressor", "LGBMClassifier"), {"verbose": -1}),
    ):
        try:
            library = __import__(module)
        except ImportError:
            continue
        model = getattr(library, names[not regression])(**options).fit(data.X, data.y)
        found[f"microseconds_{module}"] = microseconds(model.predict, data.X_test)
    return found


def curve(name: str, rows: int) -> dict[str, Any]:
    """Errors of subsets over the error of the exact solution, for the first kernel of the default."""
    data = table(name, 0, rows)
    model = KernelBoostingRegressor(random_state=0, n_kernels=1, n_basis=None).fit(data.X, data.y)
    (expansion,) = model.expansions_
    plan = make_plan(len(data.y), "cpu", "float64")
    X, X_test = (
        expansion.inputs.rows(ArrayRows(block), plan).take(np.arange(len(block))) for block in (data.X, data.X_test)
    )
    Y = torch.as_tensor(model.targets_.encode(data.y))
    answers = torch.as_tensor(model.targets_.encode(data.y_test))
    problem = Problem(
        Sample(TensorRows(X), Y, torch.ones(len(Y)).double(), plan), expansion.kernel, model.regularization_
    )
    n, everything = len(Y), torch.arange(len(Y))
    A, left_out, _ = exact_ridge(problem, everything, leaves_out=True)
    assert left_out is not None
    places = left_out.isfinite().all(1).nonzero()[:, 0]
    places = places[torch.linspace(0, len(places) - 1, min(JUDGES, n // 5)).long()]
    judges = Judges(places, left_out[places], left_out[places], Y[places], torch.ones(len(places)).double())
    sizes = [int(share * n) for share in SHARES]
    path = compression_path(problem, everything, problem.matrix(X).product(A), judges, sizes[-1])

    def test_error(basis: torch.Tensor, weights: torch.Tensor) -> float:
        values = problem.kernel(X_test, X[basis]) @ weights
        return float((answers - values).square().mean().sqrt())

    exact = test_error(everything, A)
    drawn = torch.as_tensor(np.random.default_rng(0).permutation(n))
    chosen = [test_error(path.rows[:m], path.weights(m)) / exact for m in sizes]
    random = [test_error(drawn[:m], whitened_ridge(problem, X[drawn[:m]])) / exact for m in sizes]
    kernel = type(expansion.kernel).__name__
    return {"table": name, "rows": n, "kernel": kernel, "sizes": sizes, "chosen": chosen, "random": random}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", nargs="+")
    parser.add_argument("--rows", type=int, default=3000)
    parser.add_argument("--curve", action="store_true")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    lines = []
    for name in args.tables or (CURVES if args.curve else TABLES):
        lines.append(curve(name, args.rows) if args.curve else before_and_after(name, args.rows))
        print(json.dumps(lines[-1]), flush=True)
    if not args.curve:
        ratios = np.array([line["ratio"] for line in lines])
        factors = np.array([line["vectors"][0] / line["vectors"][1] for line in lines])
        print(f"error over all rows: mean {ratios.mean():.4f}, largest {ratios.max():.4f}")
        print(f"compression: median {np.median(factors):.1f}, at least ten on {(factors >= 10).sum()} of {len(lines)}")
    if args.out:
        args.out.write_text(json.dumps(lines, indent=1))


if __name__ == "__main__":
    main()

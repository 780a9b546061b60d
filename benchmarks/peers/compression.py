"""Few basis vectors at the accuracy of all rows: held-out errors, sizes and times before and after compression.

    MERCER_DATA=… python benchmarks/peers/compression.py [--tables elevators pol] [--rows 3000] [--splits 4] [--rivals]
    MERCER_DATA=… python benchmarks/peers/compression.py --curve [--tables kin40k] [--rows 3000] [--sizes 512 1024]

The first form fits the default and prints the test error of the compressed model over that of the same model before its
compression (root mean squared error, or log loss), basis vectors of all kernels, bytes of the files, processor seconds
of the fit and of its compression, and processor microseconds per row of predictions for 1, 1000 and 100 000 rows.
`--rivals` adds those of CatBoost and LightGBM. All libraries predict on one thread. The second form prints the error of
subsets of growing size over that of the exact solution: rows chosen by the compression, random rows (the centres of
Falkon and of Nyström's method), and centres of k-means, all with weights refitted to the targets. `--out` keeps lines.
"""

from __future__ import annotations

import argparse
import copy
import json
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.cluster import KMeans
from sklearn.metrics import log_loss
from tables_data import Table, table

import mercer.forward.compress_members as members
from mercer import KernelBoostingClassifier, KernelBoostingRegressor
from mercer.base.estimator import keep
from mercer.data import ArrayRows, TensorRows
from mercer.engine import Sample, make_plan
from mercer.forward.compress import Judges, compression_path
from mercer.forward.fitted_attributes import fitted_attributes
from mercer.forward.problem import Problem
from mercer.forward.solve.exact import exact_ridge
from mercer.forward.solve.polish import whitened_ridge

TABLES = (
    "elevators", "cal_housing", "abalone", "pol", "kin40k", "kin8nm", "pumadyn32nm", "gal_protein", "house_16H",
    "sarcos_test_only", "concrete", "diamonds", "ames", "healthcare_insurance", "hotel_rates",
    "adult", "churn", "spambase", "waveform21", "segment", "letter", "page_blocks", "loans", "nycflights13", "ijcnn1",
    "covtype", "cmc",
)  # fmt: skip
CURVES = ("kin40k", "pol", "elevators", "sarcos_test_only", "cal_housing")
#: Sizes of a curve as shares of the rows.
SHARES = (1 / 40, 1 / 20, 1 / 10, 1 / 5, 1 / 3, 1 / 2)
JUDGES = 500
#: Rows of a prediction that is timed, and how many such predictions.
BLOCKS = {1: 200, 1000: 20, 100_000: 1}


def error(data: Table, model: Any) -> float:
    """The root mean squared error on test rows, or the log loss."""
    if data.task == "regression":
        return float(np.sqrt(np.mean((model.predict(data.X_test) - data.y_test) ** 2)))
    known = data.y_test >= 0
    return float(log_loss(data.y_test[known], model.predict_proba(data.X_test[known]), labels=model.classes_))


def microseconds(predict: Callable[[np.ndarray], Any], rows: np.ndarray, most: int = 100_000) -> list[float]:
    """Processor microseconds per row of predictions for 1, 1000 and 100 000 rows, after two predictions before."""
    found = []
    for n, repetitions in BLOCKS.items():
        if n > most:
            break
        block = np.resize(rows, (n, rows.shape[1]))
        for _ in range(2):
            predict(block[:1000])
        began = time.process_time()
        for _ in range(repetitions):
            predict(block)
        found.append(1e6 * (time.process_time() - began) / (repetitions * n))
    return found


def file_size(save: Callable[[str], Any]) -> int:
    """Bytes of the file that `save` writes."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model"
        save(str(path))
        return path.stat().st_size


class Stopwatch:
    """Calls a function, keeps its first arguments and its processor time."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function, self.seconds = function, 0.0
        self.args: tuple[Any, ...] = ()

    def __call__(self, *args: Any) -> Any:
        self.args, began = args, time.process_time()
        try:
            return self.function(*args)
        finally:
            self.seconds += time.process_time() - began


def before_and_after(name: str, split: int, rows: int, with_rivals: bool) -> dict[str, Any]:
    """One line of the table: the default before and after its compression."""
    data = table(name, split, rows)
    kind = KernelBoostingRegressor if data.task == "regression" else KernelBoostingClassifier
    watch = Stopwatch(members.compress_members)
    members.compress_members = watch  # type: ignore[assignment]
    began = time.process_time()
    few = kind(random_state=0).fit(data.X, data.y)
    seconds = time.process_time() - began
    members.compress_members = watch.function  # type: ignore[assignment]
    parts, task = watch.args[0], watch.args[3]
    full = keep(copy.copy(few), **fitted_attributes(task, parts))
    both = (full, few)
    return {
        "table": name,
        "split": split,
        "rows": len(data.y),
        "error": error(data, full),
        "ratio": error(data, few) / error(data, full),
        "vectors": [sum(len(part.basis) for part in model.expansions_) for model in both],
        "kernels": [type(part.kernel).__name__ for part in few.expansions_],
        "fit_seconds": seconds,
        "compression_seconds": watch.seconds,
        "microseconds": [microseconds(full.predict, data.X_test, 1000), microseconds(few.predict, data.X_test)],
        "bytes": [file_size(lambda path, model=model: model.save(path, small=True)) for model in both],
        "reason": few.compression_reason_,
        **(rivals(data) if with_rivals else {}),
    }


def rivals(data: Table) -> dict[str, Any]:
    """Errors of other libraries, microseconds of their predictions on one thread, and bytes of their files."""
    found: dict[str, Any] = {}
    regression = data.task == "regression"
    quiet = {"catboost": {"verbose": False, "allow_writing_files": False}, "lightgbm": {"verbose": -1}}
    one_thread = {"catboost": {"thread_count": 1}, "lightgbm": {"num_threads": 1}}
    for module, prefix in (("catboost", "CatBoost"), ("lightgbm", "LGBM")):
        kind = getattr(__import__(module), prefix + ("Regressor" if regression else "Classifier"))
        model = kind(**quiet[module]).fit(data.X, data.y)
        save = model.save_model if module == "catboost" else model.booster_.save_model
        found[module] = {
            "error": error(data, model),
            "microseconds": microseconds(partial(model.predict, **one_thread[module]), data.X_test),
            "bytes": file_size(save),
        }
    return found


def curve(name: str, rows: int, sizes: list[int] | None) -> dict[str, Any]:
    """Errors of subsets over the error of the exact solution, for one kernel chosen by the default."""
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
    A, left_out, _ = exact_ridge(problem, everything)
    assert left_out is not None
    places = left_out.isfinite().all(1).nonzero()[:, 0]
    places = places[torch.linspace(0, len(places) - 1, min(JUDGES, n // 5)).long()]
    judges = Judges(places, left_out[places], left_out[places], Y[places], torch.ones(len(places)).double())
    sizes = sizes or [int(share * n) for share in SHARES]
    path = compression_path(problem, everything, problem.matrix(X).product(A), judges, sizes[-1])

    def test_error(basis: torch.Tensor, weights: torch.Tensor | None = None) -> float:
        weights = whitened_ridge(problem, basis) if weights is None else weights
        values = problem.kernel(X_test, basis) @ weights
        return float((answers - values).square().mean().sqrt())

    def centres(m: int) -> torch.Tensor:
        found = KMeans(m, n_init=1, max_iter=20, random_state=0).fit((X / scales).numpy()).cluster_centers_
        return torch.as_tensor(found) * scales

    exact = test_error(X, A)
    drawn = torch.as_tensor(np.random.default_rng(0).permutation(n))
    scales = torch.as_tensor(getattr(expansion.kernel, "length_scale", 1.0)).double()
    lines = {
        "selected": [test_error(X[path.rows[:m]], path.weights(m)) / exact for m in sizes],
        "random": [test_error(X[drawn[:m]]) / exact for m in sizes],
        "k-means": [test_error(centres(m)) / exact for m in sizes],
    }
    return {"table": name, "rows": n, "kernel": type(expansion.kernel).__name__, "sizes": sizes, **lines}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", nargs="+")
    parser.add_argument("--rows", type=int, default=3000)
    parser.add_argument("--splits", type=int, default=1)
    parser.add_argument("--rivals", action="store_true")
    parser.add_argument("--curve", action="store_true")
    parser.add_argument("--sizes", nargs="+", type=int, help="basis vectors of a curve")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    lines = []
    for name in args.tables or (CURVES if args.curve else TABLES):
        if args.curve:
            lines.append(curve(name, args.rows, args.sizes))
        else:
            lines += [before_and_after(name, split, args.rows, args.rivals) for split in range(args.splits)]
        print(*map(json.dumps, lines[-args.splits :]), sep="\n", flush=True)
    if not args.curve:
        ratios = np.array([line["ratio"] for line in lines])
        factors = np.array([line["vectors"][0] / line["vectors"][1] for line in lines])
        shares = np.array([line["compression_seconds"] / line["fit_seconds"] for line in lines])
        print(f"error over all rows: mean {ratios.mean():.4f}, largest {ratios.max():.4f}")
        print(f"share of the fit: mean {shares.mean():.3f}, largest {shares.max():.2f}")
        print(f"more than a quarter of the fit in {(shares > 0.25).sum()} of {len(lines)}")
        print(f"compression: median {np.median(factors):.1f}, at least ten on {(factors >= 10).sum()} of {len(lines)}")
    if args.out:
        args.out.write_text(json.dumps(lines, indent=1))


if __name__ == "__main__":
    main()

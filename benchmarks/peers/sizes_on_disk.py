"""Bytes of a model of KIN40K that leaves 1 % of the variance unexplained: ours, Falkon's and LightGBM's.

    MERCER_DATA=… python benchmarks/peers/sizes_on_disk.py [--part ours] [--part falkon] [--device cuda]

36 000 rows are given, of which every tenth judges: of each kind of model the smallest one counts that is within the
limit there (the best one where none is), and it alone is measured on the 4000 test rows. `--part falkon` solves the
problem that Falkon solves, ridge regression on random rows as centres, by Cholesky factors in float64, and counts the
centres and weights in float32 that Falkon would keep; `--part package` is Falkon itself, where it is installed.
"""

from __future__ import annotations

import argparse
import pickle
import tempfile
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from mercer import GreedyKernelRegressor, KernelBoostingRegressor, to_onnx, tune_kernel
from mercer.datasets import load, split
from mercer.kernels import Gaussian, Kernel, Matern32, Matern52

KERNELS = {"gaussian": Gaussian, "matern52": Matern52, "matern32": Matern32}
#: Rows that choose kernels, here and for Falkon.
TUNING_ROWS = 4000


@dataclass
class Model:
    """What was fitted, the bytes of its forms (the first of them counts), and how it predicts."""

    name: str
    bytes: dict[str, int]
    predict: Any

    def size(self) -> int:
        return next(iter(self.bytes.values()))


@dataclass
class Table:
    """Rows to fit, rows that judge, and rows that are looked at once."""

    X: np.ndarray
    y: np.ndarray
    judging: tuple[np.ndarray, np.ndarray]
    test: tuple[np.ndarray, np.ndarray]
    device: str

    def error(self, model: Model, *, test: bool = False) -> float:
        """Percent of the targets' variance that is left."""
        X, y = self.test if test else self.judging
        return 100 * float(np.mean((model.predict(X) - y) ** 2) / y.var())


def ours(table: Table) -> Iterator[Model]:
    shared: dict[str, Any] = {"tuning_rows": TUNING_ROWS, "random_state": 0, "device": table.device}
    for kernel in KERNELS:
        for n in (1000, 1400, 2000):
            greedy = GreedyKernelRegressor(n, kernel=kernel, refine=True, **shared)
            yield _ours(f"greedy, {kernel}, {n} vectors moved", greedy, table)
        for n in (4, 6, 8, 10, 12, 14, 16):
            boosted = KernelBoostingRegressor(n, kernel=kernel, learner_size=500, polish=True, **shared)
            yield _ours(f"boosting, {kernel}, {n} × 500", boosted, table)


def _ours(name: str, model: Any, table: Table) -> Model:
    model.fit(table.X, table.y)
    with tempfile.TemporaryDirectory() as folder:
        small, whole = Path(folder, "small.mercer"), Path(folder, "whole.mercer")
        model.save(small, small=True)
        model.save(whole)
        sizes = {"small file": small.stat().st_size, "file": whole.stat().st_size, "pickle": len(pickle.dumps(model))}
    sizes["ONNX"] = len(to_onnx(model).SerializeToString())
    return Model(f"{name}: {len(model.basis_)} vectors, {model.dtype_}", sizes, model.predict)


def falkon(table: Table) -> Iterator[Model]:
    """Every kernel with the length-scales of the evidence and some longer and shorter, several penalties and sizes."""
    y, device = table.y, table.device
    X, scaled = _standard(table.X)
    mean = y.mean()
    for kind in KERNELS:
        lengths, noise = _evidence(X, y, kind, device)
        for m in (2000, 3000, 4000, 5000, 6000, 8000, 10_000, 14_000, 20_000):
            centres = X[np.random.default_rng(0).permutation(len(X))[:m]]
            found = []
            for factor in (1.0, 1.4):
                kernel = KERNELS[kind]((factor * lengths).tolist())
                for penalty in (noise, 0.1 * noise):
                    f = _on_centres(kernel, X, y - mean, centres, penalty, device)
                    name = f"{kind}, {m} centres, length-scales × {factor}, penalty {penalty:.1g}"
                    numbers = {"numbers": 4 * (centres.size + m)}
                    found.append(Model(name, numbers, lambda R, f=f: f(scaled(R)) + mean))
            yield min(found, key=table.error)


def _evidence(X: np.ndarray, y: np.ndarray, kind: str, device: str) -> tuple[np.ndarray, float]:
    tuned = tune_kernel(X, y - y.mean(), kind, ard=True, n_rows=TUNING_ROWS, random_state=0, device=device)
    found = tuned.kernel.tunable()
    variance = found["left__variance"]
    return np.minimum(np.asarray(found["left__kernel__length_scale"]), 100.0), max(tuned.noise, 1e-6) / variance


def _on_centres(kernel: Kernel, X: Any, y: Any, centres: Any, penalty: float, device: str) -> Any:
    """min ‖K_nm a − y‖² + penalty aᵀ K_mm a, by the normal equations in coordinates where K_mm is the identity."""
    as_double: dict[str, Any] = {"dtype": torch.float64, "device": device}
    Z, rows, targets = (torch.as_tensor(part, **as_double) for part in (centres, X, y))
    m = len(Z)
    L = torch.linalg.cholesky(kernel(Z, Z) + 1e-10 * torch.eye(m, **as_double))
    A, b = penalty * torch.eye(m, **as_double), torch.zeros(m, **as_double)
    for block, part in zip(rows.split(4000), targets.split(4000), strict=True):
        V = torch.linalg.solve_triangular(L, kernel(Z, block), upper=False)
        A += V @ V.T
        b += V @ part
    a = torch.cholesky_solve(b[:, None], torch.linalg.cholesky(A))
    alpha = torch.linalg.solve_triangular(L.T, a, upper=True)
    kept, weights = Z.float(), alpha.float()  # what a file would hold
    return lambda R: (kernel(torch.as_tensor(R, **as_double), kept.double()) @ weights.double())[:, 0].cpu().numpy()


def package(table: Table) -> Iterator[Model]:
    """Falkon itself at the settings that `--part falkon` found best."""
    from falkon import Falkon, FalkonOptions
    from falkon.kernels import MaternKernel

    y, device = table.y, table.device
    X, scaled = _standard(table.X)
    lengths, noise = _evidence(X, y, PACKAGE["kernel"], device)
    options = FalkonOptions(keops_active="no", use_cpu=device == "cpu", max_cpu_mem=8e9)
    kernel = MaternKernel(
        sigma=torch.as_tensor(PACKAGE["factor"] * lengths, dtype=torch.float32),
        nu={"gaussian": float("inf"), "matern52": 2.5, "matern32": 1.5}[PACKAGE["kernel"]],
        opt=options,
    )
    penalty = PACKAGE["share"] * noise / len(X)
    mean = y.mean()
    model = Falkon(kernel=kernel, penalty=penalty, M=PACKAGE["centres"], seed=0, maxiter=40, options=options)
    model.fit(_single(X), _single(y - mean)[:, None])
    numbers = sum(part.numel() * part.element_size() for part in (model.ny_points_, model.alpha_))
    sizes = {"numbers": numbers, "pickle": len(pickle.dumps(model))}
    yield Model(
        f"Falkon, {PACKAGE}", sizes, lambda R: model.predict(_single(scaled(R)))[:, 0].numpy().astype(float) + mean
    )


#: The setting of `--part falkon` that counts.
PACKAGE: dict[str, Any] = {"kernel": "matern32", "factor": 1.4, "share": 1.0, "centres": 8000}


def _standard(X: np.ndarray) -> tuple[np.ndarray, Any]:
    mean, scale = X.mean(0), X.std(0)
    return (X - mean) / scale, lambda R: (R - mean) / scale


def _single(a: np.ndarray) -> torch.Tensor:
    return torch.as_tensor(np.ascontiguousarray(a), dtype=torch.float32)


def lightgbm(table: Table) -> Iterator[Model]:
    from lightgbm import LGBMRegressor

    for linear in (False, True):  # leaves that are constant, and leaves that are linear models
        for leaves, rate, n in ((31, 0.1, 2000), (63, 0.05, 3000), (255, 0.05, 1500), (31, 0.05, 8000)):
            model = LGBMRegressor(
                n_estimators=n, num_leaves=leaves, learning_rate=rate, linear_tree=linear, verbose=-1, n_jobs=1
            )
            model.fit(table.X, table.y)
            sizes = {"text": len(model.booster_.model_to_string()), "pickle": len(pickle.dumps(model))}
            name = f"{n} trees of {leaves} leaves, rate {rate}{', linear' if linear else ''}"
            yield Model(name, sizes, model.predict)


PARTS = {"ours": ours, "falkon": falkon, "package": package, "lightgbm": lightgbm}


def chosen(found: list[tuple[float, Model]], within: float) -> Model:
    """The smallest of those within the limit, or the best."""
    good = [model for error, model in found if error <= within]
    return min(good, key=Model.size) if good else min(found, key=lambda pair: pair[0])[1]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--part", action="append", choices=PARTS)
    options.add_argument("--device", default="cpu")
    options.add_argument("--within", type=float, default=1.0, help="percent of the variance")
    given = options.parse_args()
    warnings.filterwarnings("ignore", message="X does not have valid feature names")
    X, X_test, y, y_test = split(load("kin40k"), test_size=0.1, seed=0)
    judge = np.arange(len(X)) % 10 == 0
    table = Table(X[~judge], y[~judge], (X[judge], y[judge]), (X_test, y_test), given.device)
    for part in given.part or ["ours", "falkon", "lightgbm"]:
        began, found = time.perf_counter(), []
        for model in PARTS[part](table):
            found.append((table.error(model), model))
            seconds = time.perf_counter() - began
            print(f"  {found[-1][0]:6.3f} %  {model.bytes}  {model.name}  ({seconds:.0f} s)", flush=True)
        best = chosen(found, given.within)
        print(f"{part}: {best.name}: {table.error(best, test=True):.2f} % on test rows, bytes {best.bytes}", flush=True)


if __name__ == "__main__":
    main()

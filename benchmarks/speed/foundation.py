"""What the package's ground must show: products, sparse ridge and tuning, each beside scikit-learn in one run.

MERCER_DATA=… python benchmarks/speed/foundation.py [products] [ridge] [tuning]
"""

from __future__ import annotations

import time
import timeit
from collections.abc import Callable

import numpy as np
import torch
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import Ridge
from sklearn.metrics.pairwise import laplacian_kernel, rbf_kernel

from mercer import GreedyKernelRegressor, tune_kernel
from mercer.data import TensorRows
from mercer.datasets import load, split
from mercer.engine import KernelMatrix, make_plan
from mercer.kernels import Gaussian, Laplacian


def best_time(run: Callable[[], object], repeats: int) -> float:
    """The shortest of several runs: what the machine can do when nothing else runs."""
    return min(timeit.repeat(run, number=1, repeat=repeats))


def products(n: int = 40_000, m: int = 2048) -> None:
    rng = np.random.default_rng(0)
    for kernel, theirs in ((Gaussian(), rbf_kernel), (Laplacian(2.0), laplacian_kernel)):
        print(f"\n{kernel.short_name} K(X, C)·v, float32, N = {n}, m = {m}, best of 7")
        for D in (8, 54):
            X = (rng.normal(size=(n, D)) / D**0.5).astype(np.float32)
            C, v = X[:m], rng.normal(size=(m, 1)).astype(np.float32)
            plan = make_plan(n, device="cpu", dtype="float32", memory_limit=1 << 28)
            rows, Z, w = TensorRows(torch.from_numpy(X)), torch.from_numpy(C), torch.from_numpy(v)
            ours = best_time(lambda: KernelMatrix(rows, kernel, Z, plan).product(w), 7)  # noqa: B023
            other = best_time(lambda: theirs(X, C, gamma=0.5) @ v, 3)  # noqa: B023
            print(
                f"  D = {D:2d}: {1e3 * ours:6.1f} ms, scikit-learn {1e3 * other:6.1f} ms:"
                f" {other / ours:5.1f} times as fast"
            )
    x, exps = -10 * torch.rand(64, m), (torch.exp, torch.exp2)
    took = {f.__name__: 1e9 * best_time(lambda: f(x), 50) / x.numel() for f in exps}  # noqa: B023
    print("  of it, on these threads: " + ", ".join(f"{name} {ns:.2f} ns a value" for name, ns in took.items()))


def kin40k() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    X, X_test, y, y_test = split(load("kin40k"), test_size=0.1, seed=0)
    mean, scale = X.mean(0), X.std(0)
    return (
        (X - mean) / scale,
        (X_test - mean) / scale,
        (y - y.mean()) / y.std(),
        (y_test - y.mean()) / y.std(),
    )


def ridge(m: int = 3000) -> None:
    X, X_test, y, y_test = kin40k()
    tuned = tune_kernel(X, y, "gaussian", ard=True, random_state=0)
    scaled = tuned.kernel.tunable()
    length, variance = np.array(scaled["left__kernel__length_scale"]), scaled["left__variance"]
    kernel = variance * Gaussian(length.tolist())

    def nmse(prediction: np.ndarray) -> float:
        return 100 * float(np.mean((prediction - y_test) ** 2))

    options = {"criterion": "random", "kernel": kernel, "scale_inputs": False, "random_state": 0, "dtype": "float32"}
    model = GreedyKernelRegressor(m, regularization=tuned.noise, **options)
    ours = best_time(lambda: model.fit(X, y), 3)
    error = nmse(model.predict(X_test))

    features = Nystroem(kernel="rbf", gamma=0.5, n_components=m, random_state=0)
    linear = Ridge(alpha=tuned.noise / variance)
    theirs = best_time(lambda: linear.fit(features.fit_transform(X / length), y), 1)
    error_sklearn = nmse(linear.predict(features.transform(X_test / length)))
    print(f"\nKIN40K, 36 000 / 4000 rows, sparse ridge on {m} random basis vectors, λ = {tuned.noise:.3g}")
    print(
        f"  ours {ours:5.2f} s, NMSE {error:.3f} %;"
        f" scikit-learn Nystroem + Ridge {theirs:5.2f} s, NMSE {error_sklearn:.3f} %"
    )
    print(f"  {theirs / ours:.1f} times as fast")
    for lam in 10.0 ** -np.arange(2, 9):
        sweep = GreedyKernelRegressor(m, regularization=lam, **options).fit(X, y)
        print(f"  λ = {lam:.0e}: NMSE {nmse(sweep.predict(X_test)):.3f} %")


def tuning() -> None:
    X, _, y, _ = kin40k()
    index = np.random.default_rng(0).choice(len(X), 1000, replace=False)
    Xs, ys = X[index], y[index] - y[index].mean()
    began = time.perf_counter()
    tuned = tune_kernel(Xs, ys, "gaussian", ard=True, random_state=0)
    ours = time.perf_counter() - began
    began = time.perf_counter()
    form = ConstantKernel() * RBF(np.ones(8)) + ConstantKernel() + WhiteKernel()
    gp = GaussianProcessRegressor(form, n_restarts_optimizer=2, random_state=0).fit(Xs, ys)
    theirs = time.perf_counter() - began
    print("\nTuning a Gaussian kernel with a length-scale per input on 1000 rows of KIN40K")
    print(f"  ours {ours:5.2f} s, log evidence {tuned.log_marginal_likelihood:.4f}")
    print(f"  scikit-learn, two restarts {theirs:5.2f} s, log evidence {gp.log_marginal_likelihood_value_:.4f}")
    print(f"  {theirs / ours:.1f} times as fast")


if __name__ == "__main__":
    import sys

    wanted = sys.argv[1:] or ["products", "ridge", "tuning"]
    for part in (products, ridge, tuning):
        if part.__name__ in wanted:
            part()

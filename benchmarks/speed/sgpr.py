"""KIN40K and other tables: our sparse Gaussian processes beside GPyTorch's SGPR and SVGP, in one run.

    MERCER_DATA=… python benchmarks/speed/sgpr.py [--data kin40k] [--device cpu] [--steps 25 50 100] [--no-rival]
                                                  [--approximations variational svgp] [--every 0] [--svgp-steps 500]
                                                  [--full 10000] [--greedy 30 60 120] [--splits 10]

Prints RMSE, negative log predictive density and coverage of 95 % intervals (targets of unit variance) with seconds of
training (CPU-seconds without a GPU): ours after each `--every` steps of the search (0: at its end alone), the rivals'
after their steps; then, for each of SGPR's marks, the time at which ours was first as good. `--full` adds the full
model on that many random rows, `--greedy` greedy models whose basis vectors and kernel are refined by so many steps.
`--splits` repeats all of it on so many random splits and prints means with standard errors.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import numpy as np

from mercer import GreedyKernelRegressor, SparseGPRegressor
from mercer.datasets import load, split
from mercer.evidence.coordinates import Point
from mercer.progress import Event

sys.path.insert(0, str(Path(__file__).parents[1] / "peers"))
from rivals.gpytorch import sgpr, svgp

Mark = tuple[str, float, float, float, float]


def judged(name: str, seconds: float, y: np.ndarray, mean: np.ndarray, std: np.ndarray) -> Mark:
    error = (y - mean) / std
    density = float(np.mean(0.5 * error**2 + np.log(std) + 0.5 * np.log(2 * np.pi)))
    mark = name, seconds, float(np.sqrt(np.mean((y - mean) ** 2))), density, float(np.mean(np.abs(error) < 1.96))
    print("{:28s} {:7.1f} s   RMSE {:.4f}   NLPD {:7.3f}   coverage {:.3f}".format(*mark), flush=True)
    return mark


def ours(X, y, X_test, y_test, approximation: str, device: str, m: int, max_iter: int, every: int) -> list[Mark]:
    """The search is watched from outside: some points are refitted, without moving, after the clock stopped."""
    points: list[tuple[float, Point]] = []
    clock = time.process_time if device == "cpu" else time.perf_counter
    began = clock()

    def seen(event: Event) -> None:
        if event.phase == "evidence":
            points.append((clock() - began, event.state))

    options = {"approximation": approximation, "kernel": "gaussian", "ard": True, "device": device, "random_state": 0}
    options["scale_inputs"] = "standard"  # the inputs that the rival sees
    model = SparseGPRegressor(m, max_iter=max_iter, callbacks=[seen], **options).fit(X, y)
    total, marks = clock() - began, []
    for seconds, point in points[every - 1 :: every] if every else ():
        options |= {"kernel": point.kernel, "regularization": point.noise, "optimize_inducing": False}
        Z = point.basis.double().cpu().numpy() * model.inputs_.scale + model.inputs_.mean
        here = SparseGPRegressor(m, inducing=Z, **options).fit(X, y)
        marks.append(judged(f"mercer {approximation}", seconds, y_test, *here.predict(X_test, return_std=True)))
    marks.append(judged(f"mercer {approximation}, end", total, y_test, *model.predict(X_test, return_std=True)))
    return marks


def greedy(X, y, X_test, y_test, device: str, m: int, refine_iter: int) -> Mark:
    """The whole fit: choice of the basis vectors, refinement, weights; its σ is that of the training rows."""
    began = time.perf_counter()
    options = {"kernel": "gaussian", "refine": True, "refine_iter": refine_iter, "device": device, "random_state": 0}
    model = GreedyKernelRegressor(m, **options).fit(X, y)
    seconds = time.perf_counter() - began
    spread = np.full(len(y_test), np.std(y - model.predict(X)))
    return judged(f"mercer greedy, {refine_iter} steps", seconds, y_test, model.predict(X_test), spread)


def one_split(given: argparse.Namespace, seed: int) -> list[Mark]:
    """The marks of our models and of the rivals on one random split of 90 and 10 % of the rows."""
    X, X_test, y, y_test = split(load(given.data), test_size=0.1, seed=seed)
    shift, scale = X.mean(0), np.where(X.std(0) > 0, X.std(0), 1.0)
    X, X_test = (X - shift) / scale, (X_test - shift) / scale
    y, y_test = (y - y.mean()) / y.std(), (y_test - y.mean()) / y.std()
    print(f"{given.data}: {len(X)} / {len(X_test)} rows, {given.inducing} inducing inputs, {given.device}")
    if given.device != "cpu":  # libraries load on first use
        SparseGPRegressor(16, kernel="gaussian", device=given.device, max_iter=2).fit(X[:2000], y[:2000])
    mine = [
        mark
        for name in given.approximations
        for mark in ours(X, y, X_test, y_test, name, given.device, given.inducing, given.max_iter, given.every)
    ]
    mine += [greedy(X, y, X_test, y_test, given.device, given.inducing, steps) for steps in given.greedy]
    if given.full:
        rows = np.random.default_rng(seed).permutation(len(X))[: given.full]
        full = {"kernel": "gaussian", "ard": True, "device": given.device, "random_state": 0}
        began = time.perf_counter()
        model = SparseGPRegressor(approximation="full", **full).fit(X[rows], y[rows])
        seconds = time.perf_counter() - began
        judged(f"full model, {len(rows)} rows", seconds, y_test, *model.predict(X_test, return_std=True))
    theirs = []
    rival = {"m": given.inducing, "seed": seed, "device": given.device}
    for step, seconds, predict in svgp(X, y, given.svgp_steps, **rival) if given.svgp_steps else ():
        theirs.append(judged(f"GPyTorch SVGP, {step} steps", seconds, y_test, *predict(X_test)))
    if given.no_rival:
        return mine + theirs
    for step, seconds, predict in sgpr(X, y, given.steps, **rival):
        mark = judged(f"GPyTorch SGPR, {step} steps", seconds, y_test, *predict(X_test))
        theirs.append(mark)
        reached = [one for one in mine if one[2] <= mark[2]]
        first = min(reached, key=lambda one: one[1]) if reached else None
        print(
            f"    ours as good after {first[1]:.1f} s, a share of {first[1] / seconds:.2f}"
            if first
            else "    not reached"
        )
    return mine + theirs


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--data", default="kin40k")
    options.add_argument("--device", default="cpu")
    options.add_argument("--inducing", type=int, default=512)
    options.add_argument("--max-iter", type=int, default=200)
    options.add_argument("--every", type=int, default=5, help="steps of the search between marks")
    options.add_argument("--svgp-steps", type=int, nargs="*", default=[], help="steps of GPyTorch's SVGP")
    options.add_argument("--steps", type=int, nargs="+", default=[25, 50, 100])
    options.add_argument("--approximations", nargs="*", default=["variational", "spgp"])
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--splits", type=int, default=1)
    options.add_argument("--no-rival", action="store_true")
    options.add_argument("--greedy", type=int, nargs="*", default=[], help="steps of greedy models refined")
    options.add_argument("--full", type=int, default=0, help="rows of a full model beside them")
    given = options.parse_args()
    marks = [mark for seed in range(given.splits) for mark in one_split(given, given.seed + seed)]
    if given.splits == 1:
        return
    print(f"{given.data}, {given.splits} splits: means and standard errors")
    for name in dict.fromkeys(mark[0] for mark in marks):
        values = np.array([mark[1:] for mark in marks if mark[0] == name])
        means, errors = values.mean(0), values.std(0, ddof=1) / np.sqrt(len(values))
        labels = "seconds", "RMSE", "NLPD", "coverage"
        parts = (f"{n} {mean:.4f} ± {error:.4f}" for n, mean, error in zip(labels, means, errors, strict=True))
        print(f"{name:28s} {'   '.join(parts)}", flush=True)


if __name__ == "__main__":
    main()

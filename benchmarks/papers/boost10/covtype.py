"""COVTYPE, class 2 against the rest, 90/10 (Boost10 section IV-B, figure 6): error against time.

    MERCER_DATA=… python benchmarks/papers/boost10/covtype.py [--learners 400] [--seconds 900] [--out curve.json]
    python benchmarks/papers/boost10/covtype.py --drawn-from curve.json … --picture out.png

Length-scales per input by evidence (Matérn 3/2, whose evidence minds rough targets less) on a few thousand training
rows; the kernel and one factor on all length-scales by the error on held-out training rows; then one fit. The test
rows ride along with weight zero, so that the curve costs no extra pass; nothing is chosen by them.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np
import torch

from mercer import tune_kernel
from mercer.data import TensorRows
from mercer.datasets import load, split
from mercer.engine import make_plan
from mercer.forward.combine import JointPursuit
from mercer.forward.criteria import LargestResiduals
from mercer.forward.focus import HingeFocus
from mercer.forward.learners import Ensemble
from mercer.forward.loop import ForwardFit
from mercer.forward.problem import Problem
from mercer.kernels import Gaussian, Matern32, Radial

PAPER = [(17_000, 2.19), (25_000, 2.02)]  # seconds and test error in percent, Boost10 section IV-B


class Curve:
    """Rows on the device, some of weight zero, and the error on those after each learner."""

    def __init__(self, X: torch.Tensor, y: torch.Tensor, held_out: torch.Tensor) -> None:
        self.X, self.y, self.held_out = X, y[:, None], held_out
        self.weight = torch.ones(len(y), device=X.device)
        self.weight[held_out] = 0

    def run(
        self,
        kernel: Radial,
        lam: float,
        size: int,
        subset: int,
        n_learners: int,
        seconds: float = np.inf,
        show: bool = False,
    ) -> list[tuple[int, int, float, float]]:
        plan = make_plan(len(self.y), device=self.X.device, dtype="float32")
        problem = Problem(TensorRows(self.X), self.y, kernel, lam, plan, self.weight)
        learner = Ensemble(LargestResiduals(), JointPursuit(), size, subset)
        fit = ForwardFit(problem, learner, np.random.default_rng(0), block_length=1, focus=HingeFocus())
        curve, began, spent = [], time.perf_counter(), 0.0
        for step in range(1, n_learners + 1):
            fit.step()
            if step % 20 == 0 or step == n_learners or spent > seconds:
                if self.X.device.type == "cuda":
                    torch.cuda.synchronize()
                spent = time.perf_counter() - began
                wrong = (fit.f[self.held_out] * self.y[self.held_out]) <= 0
                curve.append((step, step * size, spent, 100 * float(wrong.float().mean())))
                if show:
                    print(f"{step:8d}  {step * size:13d}  {spent:7.1f}  {curve[-1][3]:.2f}", flush=True)
                if spent > seconds:
                    break
        return curve


def draw(curves: list[Path], path: Path) -> None:
    """Test error against seconds, tuning counted, beside the paper's two marks."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4.5), layout="constrained")
    for kept in (json.loads(curve.read_text()) for curve in curves):
        _, _, seconds, errors = np.array(kept["curve"]).T
        name = "one H200" if kept["device"] == "cuda" else "two CPU cores"
        axes.loglog(kept["tuning"] + seconds, errors, "-", label=f"ours, {name}; tuning {kept['tuning']:.0f} s of it")
    axes.loglog(*zip(*PAPER, strict=True), "kD", label="Sun & Yao 2010")
    ticks = [1.8, 2, 2.5, 3, 4, 5, 6]
    axes.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.yaxis.set_minor_formatter(matplotlib.ticker.NullFormatter())
    axes.set_xlabel("seconds of tuning and fit")
    axes.set_ylabel("test error, %")
    axes.set_title("COVTYPE, class 2 against the rest, 522 910 training rows")
    axes.grid(alpha=0.3, which="both")
    axes.legend(frameon=False)
    figure.savefig(path, dpi=150)


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--learners", type=int, default=400)
    options.add_argument("--size", type=int, default=1000)
    options.add_argument("--subset", type=int, default=20_000)
    options.add_argument("--seconds", type=float, default=np.inf, help="for the final fit")
    options.add_argument("--tuning-rows", type=int, default=6000)
    options.add_argument("--search-rows", type=int, default=10**9, help="training rows used to choose the factor")
    options.add_argument("--search-learners", type=int, default=150)
    options.add_argument("--lam", type=float, default=1e-2)
    options.add_argument("--families", type=int, default=2, help="1: only the Gaussian kernel is tried")
    options.add_argument("--factors", type=float, nargs="+", default=[0.25, 0.18, 0.13])
    options.add_argument("--out", type=Path, default=None)
    options.add_argument("--drawn-from", type=Path, nargs="+", default=[], help="files of --out to draw")
    options.add_argument("--picture", type=Path, default=None)
    given = options.parse_args()
    if given.drawn_from:
        return draw(given.drawn_from, given.picture)

    X, X_test, labels, labels_test = split(load("covtype"), test_size=0.1, seed=0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    n = len(X)
    rows = torch.as_tensor(np.concatenate([X, X_test]), dtype=torch.float32, device=device)
    y = torch.as_tensor(np.where(np.append(labels, labels_test) == 2, 1.0, -1.0), dtype=torch.float32, device=device)
    spread = rows[:n].std(0)
    rows = (rows - rows[:n].mean(0)) / spread.where(spread > 0, 1.0)
    print(f"COVTYPE, {n} training rows, {len(X_test)} test rows, {device}", flush=True)

    began = time.perf_counter()
    tuned = tune_kernel(rows[:n], y[:n], "matern32", ard=True, n_rows=given.tuning_rows, max_iter=60, random_state=0)
    lengths = np.minimum(tuned.kernel.tunable()["left__kernel__length_scale"], 50.0)
    print(f"length-scales per input on {given.tuning_rows} rows: {time.perf_counter() - began:.1f} s", flush=True)

    few = torch.randperm(n, generator=torch.Generator().manual_seed(0))[: min(given.search_rows, n)].to(device)
    search = Curve(rows[few], y[few], torch.arange(len(few) // 20, device=device))
    errors = {}
    for family in (Gaussian, Matern32)[: given.families]:
        for factor in given.factors:
            kernel = family((lengths * factor).tolist())
            curve = search.run(kernel, given.lam, given.size, given.subset, given.search_learners)
            errors[family, factor] = curve[-1][3]
            print(
                f"  {family.__name__}, factor {factor}: {curve[-1][3]:.2f} % of held-out training rows, "
                f"{curve[-1][2]:.1f} s",
                flush=True,
            )
    family, factor = min(errors, key=errors.__getitem__)
    tuning = time.perf_counter() - began
    print(f"tuning took {tuning:.1f} s in all; {family.__name__} with factor {factor} chosen", flush=True)

    test = torch.arange(n, len(rows), device=device)
    final = Curve(rows, y, test)
    kernel = family((lengths * factor).tolist())
    print("learners  basis vectors  seconds  test error %")
    curve = final.run(kernel, given.lam, given.size, given.subset, given.learners, given.seconds, show=True)
    print("the paper: " + ", ".join(f"{error} % in {seconds} s" for seconds, error in PAPER))
    if given.out:
        given.out.write_text(
            json.dumps(
                {"device": device, "tuning": tuning, "kernel": family.__name__, "factor": factor, "curve": curve}
            )
        )


if __name__ == "__main__":
    main()

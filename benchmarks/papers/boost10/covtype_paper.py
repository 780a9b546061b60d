"""COVTYPE as Boost10's section IV-B has it: class 2 against the rest, 90/10, raw inputs, exp(−‖x − x'‖²/β), β = 10⁴,
λ = 10⁻⁴; ensembles of L = 50 learners of S = 50 vectors, chosen by MP from T = 2000 rows, each ensemble on the rows of
margin below ½ (at most half of all); and its rival, the core vector machine, on the same rows.

    MERCER_DATA=… python benchmarks/papers/boost10/covtype_paper.py boosting|cvm|svm --out curve.json [--rows N]
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
from cvm import CoreVectorMachine

from mercer.data import TensorRows
from mercer.datasets import load, split
from mercer.engine import Sample, make_plan
from mercer.forward.combine import Rayleigh
from mercer.forward.criteria import MatchingPursuit
from mercer.forward.focus import MarginFocus
from mercer.forward.learners import Ensemble
from mercer.forward.loop import ForwardFit
from mercer.forward.problem import Problem
from mercer.forward.stopping import MaxSteps, TimeBudget
from mercer.kernels import Gaussian

Keep = Callable[[list[dict]], None]
BETA, LAM, T, S, L, K = 10_000.0, 1e-4, 2000, 50, 50, 100


def rows(n_rows: int | None, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor, int]:
    """Training rows first, then test rows, both centred (which a Gaussian kernel does not see); codes ±1."""
    X, X_test, y, y_test = split(load("covtype"), test_size=0.1, seed=seed)
    if n_rows is not None:
        X, y = X[:n_rows], y[:n_rows]
    centre = X.mean(0)
    both = np.concatenate([X, X_test]) - centre
    codes = np.where(np.concatenate([y, y_test]) == 2, 1.0, -1.0)
    return torch.as_tensor(both, dtype=torch.float32), torch.as_tensor(codes), len(X)


def boosting(X: torch.Tensor, y: torch.Tensor, n: int, device: str, n_ensembles: int, seconds: float) -> list[dict]:
    """Test error after each ensemble."""
    plan = make_plan(len(X), device, "float32")
    weight = torch.ones(len(X), device=plan.device)
    weight[n:] = 0
    codes = y.to(plan.device, plan.dtype)[:, None]
    given = Problem(Sample(TensorRows(X.to(plan.device)), codes, weight, plan), Gaussian((BETA / 2) ** 0.5), LAM)
    learner = Ensemble(MatchingPursuit(), Rayleigh(), S, T)
    test, curve = torch.arange(n, len(X), device=plan.device), []
    began = time.perf_counter()

    def note(fit: ForwardFit) -> None:
        if fit.current is None:  # an ensemble has ended
            wrong = (fit.f[test] * codes[test] <= 0).double().mean()
            focus = int(((fit.f[:n] * codes[:n]) < 0.5).sum())
            line = {"seconds": time.perf_counter() - began, "ensembles": len(fit.blocks), "vectors": S * fit.n_steps,
                    "error": 100 * float(wrong), "below_half": focus}  # fmt: skip
            curve.append(line)
            print(line, flush=True)

    fit = ForwardFit(given, learner, np.random.default_rng(0), block_length=L, focus=MarginFocus(), validation=test)
    fit.run([MaxSteps(L * n_ensembles), TimeBudget(seconds)], callbacks=[note])
    return curve


def cvm(
    X: torch.Tensor, y: torch.Tensor, n: int, device: str, C: float, size: int, seconds: float, keep: Keep
) -> list[dict]:
    machine = CoreVectorMachine(Gaussian((BETA / 2) ** 0.5), C, device=device, max_size=size, seconds=seconds)
    test, codes = X[n:], y[n:].to(device)

    def judge(one: CoreVectorMachine) -> float:
        error = 100 * float((one.decision(test).double() * codes <= 0).double().mean())
        if one.rounds_ and len(one.rounds_) % 10 == 0:
            keep([*one.rounds_[:-1], one.rounds_[-1] | {"stopped": "an interruption"}])
            print(one.rounds_[-1], flush=True)
        return error

    rounds = machine.fit(X[:n], y[:n], judge).rounds_
    rounds[-1]["stopped"] = machine.stop_reason_
    return rounds


def svm(
    X: torch.Tensor, y: torch.Tensor, n: int, device: str, C: float, size: int, seconds: float, keep: Keep
) -> list[dict]:
    """The same machine solved to the end on 2500, 5000, … random rows, all of them core vectors."""
    found: list[dict] = []
    while (m := 2500 * 2 ** len(found)) <= size and (not found or 8 * found[-1]["took"] < seconds):
        machine = CoreVectorMachine(Gaussian((BETA / 2) ** 0.5), C, device=device)
        rows = torch.from_numpy(np.random.default_rng(m).choice(n, m, replace=False))
        began = time.perf_counter()
        decision = machine.solve(X[rows], y[rows]).decision(X[n:]).double()
        error = 100 * float((decision * y[n:].to(device) <= 0).double().mean())
        took = time.perf_counter() - began
        seconds -= took
        found.append({"rows": m, "error": error, "took": took, "bias": machine.bias / machine.margin})
        keep(found)
        print(found[-1], flush=True)
    return found


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("what", choices=["boosting", "cvm", "svm"])
    options.add_argument("--out", type=Path, required=True)
    options.add_argument("--rows", type=int, default=None)
    options.add_argument("--ensembles", type=int, default=K)
    options.add_argument("--C", type=float, default=10_000.0)
    options.add_argument("--size", type=int, default=50_000)
    options.add_argument("--seconds", type=float, default=420.0)
    given = options.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    where: Any = torch.cuda.get_device_name() if device == "cuda" else f"{torch.get_num_threads()} CPU cores"
    X, y, n = rows(given.rows)

    def keep(points: list[dict]) -> None:
        given.out.write_text(json.dumps({"where": where, "rows": n, "C": given.C, "points": points}))

    if given.what == "boosting":
        points = boosting(X, y, n, device, given.ensembles, given.seconds)
    else:
        part = cvm if given.what == "cvm" else svm
        points = part(X, y, n, device, given.C, given.size, given.seconds, keep)
    keep(points)


if __name__ == "__main__":
    main()

"""COVTYPE as Boost10's section IV-B has it: class 2 against the rest, 90/10, raw inputs, exp(−‖x − x'‖²/β), β = 10⁴,
λ = 10⁻⁴; ensembles of L = 50 learners of S = 50 vectors, chosen by MP from T = 2000 rows, each ensemble on the rows of
margin below ½ (at most half of all); and its rival, the core vector machine, on the same rows.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from papers.boost10.cvm import CoreVectorMachine

from mercer.data import TensorRows
from mercer.datasets import load, split
from mercer.engine import Sample, make_plan
from mercer.forward.combine import Rayleigh
from mercer.forward.criteria import MatchingPursuit
from mercer.forward.loop import Ensemble, ForwardFit, MarginFocus
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


def boosting(
    X: torch.Tensor,
    y: torch.Tensor,
    n: int,
    device: str,
    n_ensembles: int,
    seconds: float,
    length: int = L,
    subset: int = T,
) -> list[dict]:
    """Test error after each ensemble."""
    plan = make_plan(len(X), device, "float32")
    weight = torch.ones(len(X), device=plan.device)
    weight[n:] = 0
    codes = y.to(plan.device, plan.dtype)[:, None]
    given = Problem(Sample(TensorRows(X.to(plan.device)), codes, weight, plan), Gaussian((BETA / 2) ** 0.5), LAM)
    learner = Ensemble(MatchingPursuit(), Rayleigh(), S, subset, "all")
    test, curve = torch.arange(n, len(X), device=plan.device), []
    began = time.perf_counter()

    def note(fit: ForwardFit) -> None:
        if fit.current is None:  # an ensemble has ended
            wrong = (fit.f[test] * codes[test] <= 0).double().mean()
            focus = int(((fit.f[:n] * codes[:n]) < 0.5).sum())
            line = {"seconds": time.perf_counter() - began, "ensembles": len(fit.blocks), "vectors": S * fit.n_steps,
                    "error": 100 * float(wrong), "below_half": focus}  # fmt: skip
            curve.append(line)

    fit = ForwardFit(
        given, learner, np.random.default_rng(0), block_length=length, focus=MarginFocus(), validation=test
    )
    fit.run([MaxSteps(length * n_ensembles), TimeBudget(seconds)], callbacks=[note])
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
    return found


def cell(what: str) -> dict[str, Any]:
    """The whole of figure 6 by the ensembles or by the core vector machine; hours without a GPU."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    X, y, n = rows(None)
    if what == "boosting":
        return {"points": _rounded(boosting(X, y, n, device, 64, 590.0)), "rows": n}
    part = cvm if what == "cvm" else svm
    points = part(X, y, n, device, 1 / LAM, 50_000, 420.0, lambda _: None)
    return {"points": _rounded(points[:: max(len(points) // 40, 1)] + points[-1:]), "rows": n, "C": 1 / LAM}


def start_cell() -> dict[str, Any]:
    """The first learner of the first ensemble, on all rows, on a CPU: test error and rows of margin < ½."""
    X, y, n = rows(None)
    return boosting(X, y, n, "cpu", 1, 60.0, 1)[-1]


def _rounded(points: list[dict]) -> list[dict]:
    return [{k: float(f"{v:.6g}") if isinstance(v, float) else v for k, v in p.items()} for p in points]

"""Minimisers: Newton's method for smooth convex functions of a few parameters, and scipy's L-BFGS for the others.

Newton's method is responsible for steps that never raise the value and for saying why it stopped; forming the
Hessian, and whether it is worth forming, is the caller's business.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.optimize import OptimizeResult, minimize
from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]
from torch import Tensor

from mercer.clock import StopKind, StopReason
from mercer.linalg.cholesky import cholesky
from mercer.parts import require

Objective = Callable[[Tensor], tuple[Tensor | float, Tensor, Tensor]]

# Armijo's condition with the customary small slope: any step that lowers the value in proportion will do.
SUFFICIENT_DECREASE = 1e-4
# From a step of 1 to one of 2⁻⁶⁰, beyond which x + step equals x in float64.
MAX_HALVINGS = 60


@dataclass(frozen=True)
class NewtonResult:
    """The result of `minimize_newton`.

    >>> minimize_newton(lambda x: (x @ x, 2 * x, 2 * torch.eye(2)), torch.ones(2)).value
    0.0
    """

    x: Tensor
    value: float
    n_iter: int
    stop_reason: StopReason


def minimize_newton(objective: Objective, start: Tensor, tol: float = 1e-10, max_iter: int = 50) -> NewtonResult:
    """Minimise a convex function given by `objective(x)` = (value, gradient, Hessian), in float64.

    It stops where half the squared Newton decrement, the decrease that the quadratic model promises,
    is at most `tol` times the magnitude of the value, or where no step along the Newton direction
    lowers the value any more, which is rounding. A singular Hessian climbs the jitter ladder of
    `cholesky`; values that are NaN or infinite count as rises. The value never rises.

    >>> def softplus_less_half(x):  # log(1 + eˣ) − x/2, smallest at 0
    ...     p = torch.sigmoid(x)
    ...     return torch.nn.functional.softplus(x).sum() - x.sum() / 2, p - 0.5, torch.diag(p * (1 - p))
    >>> found = minimize_newton(softplus_less_half, torch.tensor([3.0]))
    >>> found.x.abs().item() < 1e-4, found.stop_reason
    (True, 'the promised decrease fell to 1e-10 of the value or below after ... steps')
    """
    require(tol >= 0, "tol", "at least 0", tol)
    require(max_iter >= 0, "max_iter", "at least 0", max_iter)
    x = start.detach().double()
    value, gradient, hessian = _evaluate(objective, x)
    if not isfinite(value):
        raise ValueError(f"the objective must be finite at the start, got {value}")
    for n_iter in range(max_iter + 1):
        direction = _newton_direction(gradient, hessian)
        promise = -0.5 * float(gradient @ direction)
        if promise <= tol * abs(value):
            why = f"the promised decrease fell to {tol:g} of the value or below after {_steps(n_iter)}"
            return NewtonResult(x, value, n_iter, StopReason(why, StopKind.CONVERGED))
        if n_iter == max_iter:
            break
        step = 1.0
        for _ in range(MAX_HALVINGS):
            trial = x + step * direction
            trial_value, trial_gradient, trial_hessian = _evaluate(objective, trial)
            wanted = value - 2 * SUFFICIENT_DECREASE * step * promise
            # Near the minimum `wanted` rounds to `value`, so a true decrease is asked for besides.
            if isfinite(trial_value) and trial_value < value and trial_value <= wanted:
                break
            step /= 2
        else:
            why = f"no step along the Newton direction lowers the value any more after {_steps(n_iter)}"
            return NewtonResult(x, value, n_iter, StopReason(why, StopKind.EXHAUSTED))
        x, value, gradient, hessian = trial, trial_value, trial_gradient, trial_hessian
    why = f"the promised decrease was {promise:.1e} after the {_steps(max_iter)} allowed"
    return NewtonResult(x, value, max_iter, StopReason(why, StopKind.MAX_ITER))


def _evaluate(objective: Objective, x: Tensor) -> tuple[float, Tensor, Tensor]:
    value, gradient, hessian = objective(x)
    return float(value), gradient.to(x), hessian.to(x)


def _newton_direction(gradient: Tensor, hessian: Tensor) -> Tensor:
    """−H⁻¹g from H with a unit diagonal, so that one parameter's scale never drowns another's jitter."""
    d = hessian.diagonal()
    d = d.rsqrt() if bool((d > 0).all()) else torch.ones_like(d)
    factor, _ = cholesky(d[:, None] * hessian * d)
    return -d * torch.cholesky_solve((d * gradient)[:, None], factor)[:, 0]


def _steps(n: int) -> str:
    return "1 step" if n == 1 else f"{n} steps"


def minimize_lbfgs(
    objective: Callable[[np.ndarray], tuple[float, np.ndarray]],
    start: np.ndarray,
    bounds: Sequence[tuple[float | None, float | None]] | None = None,
    callback: Callable[[np.ndarray], object] | None = None,
    short: bool = True,
    **options: Any,
) -> OptimizeResult:
    """Minimise `objective`, which returns a value and its slope, by scipy's L-BFGS-B under its `options`.

    OpenBLAS gets one thread: scipy's vector algebra wakes its threads, which spin for a while after each call and
    compete with torch's: on two cores an evidence evaluation took four times as long. Torch keeps its threads.

    If every variable has two bounds, scipy's first step goes all the way to them, and four or five evaluations are
    lost. One more variable, without bounds or slope, makes it a step of length one, unless `short` is False.

    >>> found = minimize_lbfgs(lambda x: (float(x @ x), 2 * x), np.ones(2), bounds=[(0.5, None), (None, None)])
    >>> bool(np.allclose(found.x, [0.5, 0.0]))
    True
    """

    def sloped(x: np.ndarray) -> tuple[float, np.ndarray]:
        value, slope = objective(x[:-1])
        return value, np.append(slope, 0.0)

    given: dict[str, Any] = {"callback": None if callback is None else lambda x: callback(x[:-1])}
    if bounds is not None:
        given["bounds"] = [*bounds, (None, None) if short else (0.0, 0.0)]
    with _not_of_torch().limit(limits=1, user_api="blas"):
        found = minimize(sloped, np.append(start, 0.0), jac=True, method="L-BFGS-B", options=options, **given)
    found.x, found.jac = found.x[:-1], found.jac[:-1]
    return found


@cache
def libraries() -> Any:
    """The controller of threaded libraries, made once, since finding them reads the memory map of the process."""
    return ThreadpoolController()


@cache
def _not_of_torch() -> Any:
    """The libraries of numpy and scipy, without those of torch."""
    found = libraries()
    return found.select(
        filepath=[lib.filepath for lib in found.lib_controllers if "torch" not in Path(lib.filepath).parts]
    )

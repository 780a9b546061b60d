"""Conjugate gradients for a positive definite operator and several right-hand sides at once.

The operator is a function: this module never sees a matrix, nor how a product is blocked.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from mercer.parts import require

# The recursion's residual drifts from b − A x by rounding; replacing it this often costs one product in ten.
STEPS_PER_TRUE_RESIDUAL = 10


@dataclass(frozen=True)
class CGResult:
    """The result of `conjugate_gradients`: `residual` is ‖b − A x‖ / ‖b‖ per column, usually recomputed from x."""

    x: Tensor
    n_iter: int
    residual: Tensor
    stop_reason: str


def conjugate_gradients(
    apply: Callable[[Tensor], Tensor],
    b: Tensor,
    precondition: Callable[[Tensor], Tensor] | None = None,
    tol: float = 1e-7,
    max_iter: int = 100,
    energy_tol: float = 0.0,
    callback: Callable[[int, Tensor], object] | None = None,
    finer: Callable[[Tensor], float] | None = None,
    recompute: bool = True,
    conjugate_to_all: bool = False,
) -> CGResult:
    """Solve A x = b where `apply(p)` is A p and `precondition(r)`, if given, is about A⁻¹ r.

    `b` is a vector or has one right-hand side per column; `apply` receives arrays of its shape. Every
    column takes its own step lengths and rests, with directions of zeros, once its relative residual is at most `tol`.
    It also rests once a step's share of the decrease of ½x'Ax − b'x so far is at most `energy_tol`, the right measure
    if x minimises an objective and the residual has no meaningful unit.
    `callback(n_iter, x)` runs after each step and stops the iteration by returning true. `finer(x)` is called once,
    when all columns have reached `tol`, and returns the tolerance to continue to; until then no column rests.
    Every tenth residual is recomputed from x, unless `recompute` is False. In float32 b − A x of a large x is dominated
    by rounding sooner than the recursion's residual, whose steps get smaller and smaller.
    With `conjugate_to_all` every direction is made conjugate to all previous ones, which takes two arrays like `b` per
    step. Without it rounding errors grow, so that runs that round differently may stop at different steps.

    >>> A = torch.tensor([[2.0, 1.0], [1.0, 3.0]], dtype=torch.float64)
    >>> found = conjugate_gradients(lambda p: A @ p, torch.tensor([1.0, -2.0], dtype=torch.float64))
    >>> found.x.round(decimals=9).tolist(), found.stop_reason
    ([1.0, -1.0], 'the relative residual fell to 1e-07 or below after 2 steps')
    """
    require(tol >= 0, "tol", "at least 0", tol)
    require(max_iter >= 0, "max_iter", "at least 0", max_iter)
    M = precondition if precondition is not None else lambda r: r
    scale = torch.linalg.vector_norm(b, dim=0)
    scale = scale.where(scale > 0, 1.0)
    b = b / scale  # unit columns: inner products neither overflow nor underflow in float32
    x, r = torch.zeros_like(b), b
    size = torch.linalg.vector_norm(r, dim=0)
    floor = size  # the smallest true residual that rounding has been seen to leave
    running = size > tol
    broken = held = torch.zeros_like(running)
    z = M(r)
    p, rz = z, (r * z).sum(0)
    taken: list[tuple[Tensor, Tensor, Tensor]] = []  # directions p, A p and p'Ap
    energy = torch.zeros_like(rz)
    settled = torch.zeros_like(running)
    n_iter, is_true, asked = 0, True, False
    while bool(running.any()) and n_iter < max_iter and not asked:
        n_iter += 1
        q = apply(p)
        pq = (p * q).sum(0)
        broken = broken | (running & ~(pq > 0))  # also where pq is NaN
        running = running & ~broken
        alpha = torch.where(running, rz / pq, 0.0)
        x = torch.where(running, x + alpha * p, x)
        r = torch.where(running, r - alpha * q, r)
        size = torch.linalg.vector_norm(r, dim=0)
        gain = alpha * rz
        energy = energy + gain
        settled = settled | (gain <= energy_tol * energy)
        if finer is not None and not bool((running & (size > tol)).any()):
            tol, finer = min(tol, float(finer(x * scale))), None
        running = conjugate = running & ((size > tol) | (finer is not None)) & ~settled
        is_true = recompute and (n_iter % STEPS_PER_TRUE_RESIDUAL == 0 or not bool(running.any()))
        if is_true:
            r, recursive = b - apply(x), r
            size = torch.linalg.vector_norm(r, dim=0)
            # Where rounding is most of the residual the directions are no longer conjugate: start afresh
            # from x, and give up where that has been done before without halving the residual.
            drifted = torch.linalg.vector_norm(r - recursive, dim=0) > size / 2
            held = held | (drifted & (size > tol) & (size > floor / 2))
            floor = torch.where(drifted, size, floor)
            conjugate = conjugate & ~drifted
            running = ((size > tol) | (finer is not None)) & ~broken & ~held & ~settled
        asked = callback is not None and bool(callback(n_iter, x * scale))
        z = M(r)
        rz, rz_old = (r * z).sum(0), rz
        if not conjugate_to_all:
            p = torch.where(running, z + torch.where(conjugate, rz / rz_old, 0.0) * p, 0.0)
            continue
        taken.append((p, q, pq.where(pq > 0, 1.0)))
        p = z
        for direction, image, length in taken:
            p = p - (p * image).sum(0) / length * direction
        rz = (r * p).sum(0)
    if recompute and not is_true:
        size = torch.linalg.vector_norm(b - apply(x), dim=0)
    largest, steps = f"{float(size.max()):.1e}", "1 step" if n_iter == 1 else f"{n_iter} steps"
    if bool((size <= tol).all()):
        reason = f"the relative residual fell to {tol:g} or below after {steps}"
    elif asked:
        reason = f"the callback asked to stop after {steps}, at a relative residual of {largest}"
    elif bool(broken.any()):
        reason = f"the operator is not positive definite: a direction within {steps} has p'Ap <= 0 or NaN"
    elif energy_tol > 0 and bool((settled | (size <= tol)).all()):
        reason = f"a step lowered the objective by less than {energy_tol:g} of what all {steps} did"
    elif bool(running.any()):
        reason = f"the relative residual was {largest} after the {steps} allowed"
    else:
        reason = f"rounding held the relative residual at {largest} after {steps}"
    return CGResult(x * scale, n_iter, size, reason)

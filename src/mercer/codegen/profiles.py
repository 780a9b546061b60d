"""Values and slopes of a `ClosedForm` in torch, with the CPU's fastest exponential and few passes over a tile."""

from __future__ import annotations

import torch
from torch import Tensor

from mercer.codegen.cpu import EXP_BASE_FACTOR, FIRST, SECOND, fast_exp, thread_buffer
from mercer.codegen.forms import ClosedForm


def profile(form: ClosedForm, t: Tensor, slope: bool = False) -> tuple[Tensor, Tensor | None]:
    """The value and, if `slope`, its derivative in t = −(scaled distance)²; may overwrite `t`, and is never traced.

    >>> form = ClosedForm(root=True, polynomial=(1, 1))
    >>> value, by_t = profile(form, torch.zeros(1, dtype=torch.float64), slope=True)
    >>> value.item(), by_t.item() * EXP_BASE_FACTOR**2
    (1.0, 0.5)
    """
    if form.root:
        return profile_of_root(form, t.abs_().sqrt_().neg_(), slope)  # rounding may leave t barely positive
    value = fast_exp(t, out=t)
    return value, value / EXP_BASE_FACTOR if slope and EXP_BASE_FACTOR != 1.0 else value


def profile_of_root(form: ClosedForm, b: Tensor, slope: bool = False) -> tuple[Tensor, Tensor | None]:
    """The same for a form of a root, given b = −√−t, which may be overwritten."""
    if len(form.polynomial) == 1:
        if not slope:
            return fast_exp(b, out=b), None
        value = fast_exp(b)
        return value, torch.where(b < 0, -0.5 / EXP_BASE_FACTOR * value / b, 0.0)
    e = fast_exp(b, out=thread_buffer(b, FIRST))
    by_t = _slope(form, b, e) if slope else None
    inner = b
    if len(form.polynomial) == 3:  # 1 + la + qa² = 1 + l(a + (q/l)a²), and b = −ua
        _, linear, quadratic = form.polynomial
        inner = torch.addcmul(b, b, b, value=-quadratic / linear / EXP_BASE_FACTOR, out=thread_buffer(b, SECOND))
    return torch.addcmul(e, e, inner, value=-form.linear, out=b), by_t


def _slope(form: ClosedForm, b: Tensor, e: Tensor) -> Tensor:
    """The derivative in t, from e = exp(−a)."""
    found = form.slope()
    assert found is not None
    divisor, derivative = found[0] * EXP_BASE_FACTOR**2, found[1]
    if len(derivative.polynomial) == 1:
        return e * (1 / divisor)
    return torch.addcmul(e, e, b, value=-derivative.linear).div_(divisor)

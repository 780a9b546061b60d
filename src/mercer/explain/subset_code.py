"""Machine code for values of radial kernels along all sets of the inputs: the fastest way for few inputs.

For each row, sixteen basis vectors at a time: sums of exponents along all 2^D sets, each from one of fewer inputs by an
addition, the kernel's value at each of them, and these times the basis vectors' weights. Numbers are of double
precision, so that nothing but rounding lies between these values and those of `shapley_by_subsets`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from mercer.codegen.cpu import over_rows
from mercer.codegen.forms import ClosedForm
from mercer.explain.product_code import WIDTH, exp2m1
from mercer.explain.subsets import shapley_weights
from mercer.kernels import RationalQuadratic
from mercer.kernels.radial import Radial

#: Inputs up to which all sets take less time than the kernel's mixture: of eight inputs a row of 500 basis vectors
#: takes 0.9, 1.0, 1.0 and 0.3 ms, by mixtures 3.0, 1.5, 1.0 and 0.8 (Matérn 1/2, 3/2, 5/2, rational quadratic; one
#: Neoverse N1 core), of nine twice as long and a fifth more. Powers α of (1 + s)^−α that are a division and a step.
MAX_INPUTS, POWERS = 8, (0.5, 1.0, 2.0)
#: The largest of two numbers that share a division: their product is one still.
LARGEST = 1e150


def form_of(kernel: Radial) -> ClosedForm | float | None:
    """The form from which machine code is written; a number is the power of a rational quadratic kernel."""
    if isinstance(kernel, RationalQuadratic):
        return float(kernel.alpha) if not isinstance(kernel.alpha, Tensor) and kernel.alpha in POWERS else None
    return kernel.closed_form()


def is_fastest(kernel: Radial, n_inputs: int) -> bool:
    """Whether this is the fastest way, where machine code is compiled."""
    return n_inputs <= MAX_INPUTS and form_of(kernel) is not None


def subset_shapley(kernel: Radial, exponents: Tensor, W: Tensor) -> Tensor:
    """Shapley values of the kernel times weights W (m × p), n × D × p, from exponents D × n × m."""
    (D, n, m), p = exponents.shape, W.shape[1]
    beyond = (0, -m % WIDTH)
    pairs = pad(exponents, beyond) if beyond[1] else exponents.contiguous()
    weights = pad(W.T, beyond) if beyond[1] else W.T.contiguous()
    length = pairs.shape[2]
    sums = torch.zeros(n, p, 1 << D, WIDTH, dtype=torch.float64)
    function = compiled_loop(form_of(kernel), float(kernel.log_base_scale) ** 2)

    def work(where: slice) -> None:
        scratch = torch.empty((D + (1 << D)) * WIDTH, dtype=torch.float64)
        first = pairs.data_ptr() + 8 * length * where.start
        out = sums.data_ptr() + 8 * sums.stride(0) * where.start
        sizes = where.stop - where.start, length // WIDTH, D, 1 << D, p, n * length
        function(first, weights.data_ptr(), out, scratch.data_ptr(), *sizes)

    over_rows(n, 1, work)
    return (sums.sum(3) @ shapley_weights(D).T).transpose(1, 2)


@cache
def compiled_loop(form: ClosedForm | float, unit: float) -> Any:
    """The loop: pairs (D × rows × strips · WIDTH), weights (p × strips · WIDTH), sums (rows × p × 2^D × WIDTH, to which
    is added) and scratch; rows, strips, D, 2^D, p, and numbers from one input's pairs to the next.

    The kernel is a function of the sum of exponents in this unit.
    """
    from mercer.codegen.vector_code import DOUBLES, INT, Writer, constant

    w = Writer("subsets", "ddddiiiiii")
    b, (pairs, weights, out, scratch, rows, strips, D, sets, p, stride) = w.build, w.function.args
    length, size = b.mul(strips, INT(WIDTH)), b.mul(sets, INT(WIDTH))
    one, together = constant(1.0, DOUBLES), 1 if isinstance(form, ClosedForm) else 2

    def base(s: Any) -> Any:
        """The reciprocal of a rational quadratic kernel, where the exponents sum to s."""
        whole = b.fadd(s, one)
        whole = w.call("sqrt", whole) if form == 0.5 else b.fmul(whole, whole) if form == 2.0 else whole
        return w.call("minnum", whole, constant(LARGEST, DOUBLES))

    def values(sums: Sequence[Any]) -> list[Any]:
        """The kernel's values at sums of exponents; a division takes long, so two numbers share one."""
        if isinstance(form, ClosedForm):
            return [value(form, s) for s in sums]
        left, right = map(base, sums)
        both = b.fdiv(one, b.fmul(left, right))
        return [b.fmul(both, right), b.fmul(both, left)]

    def value(form: ClosedForm, s: Any) -> Any:
        at = w.call("sqrt", s) if form.root else s
        power = b.fadd(exp2m1(w, b.fmul(at, constant(-form.rate, DOUBLES))), one)
        if not form.linear:
            return power
        inner = constant(form.linear, DOUBLES)
        inner = w.times_plus(constant(form.quadratic, DOUBLES), at, inner) if form.quadratic else inner
        return b.fmul(power, w.times_plus(inner, at, one))

    with w.loop(rows) as (row, _, _), w.loop(strips) as (strip, _, _):
        w.store(constant(0.0, DOUBLES), scratch)
        with w.loop(D, (INT(1),)) as (d, (count,), following):
            here = w.place(pairs, (d, stride), (row, length), (strip, WIDTH))
            apart = b.fmul(w.load(here, DOUBLES), constant(unit, DOUBLES))
            with w.loop(count) as (k, _, _):
                along = b.fadd(w.load(w.place(scratch, (k, WIDTH)), DOUBLES), apart)
                w.store(along, w.place(scratch, (b.add(k, count), WIDTH)))
            following.append(b.add(count, count))
        with w.loop(b.udiv(sets, INT(together))) as (k, _, _):
            sets_here = [b.add(b.mul(k, INT(together)), INT(i)) for i in range(together)]
            found = values([w.load(w.place(scratch, (each, WIDTH)), DOUBLES) for each in sets_here])
            with w.loop(p) as (o, _, _):
                weight = w.load(w.place(weights, (o, length), (strip, WIDTH)), DOUBLES)
                for each, known in zip(sets_here, found, strict=True):
                    place = w.place(out, (b.add(b.mul(row, p), o), size), (each, WIDTH))
                    w.store(w.times_plus(known, weight, w.load(place, DOUBLES)), place)
    return w.compiled()

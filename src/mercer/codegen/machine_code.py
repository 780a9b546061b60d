r"""Machine code for products with stationary kernels on a CPU, compiled by LLVM on first use.

A kernel's value costs two steps, a sum over the inputs and an exponential. As separate library calls, each a pass over
a tile in memory, they take twice as long as in registers; and without MKL (ARM) the exponential alone takes more than
the rest. So a product is one loop here, for any CPU that LLVM knows. For a group of rows and a strip of basis vectors
it makes Σ_k x_k z_k or Σ_k |x_k − z_k|, then the kernel's value, then uses the value (`Use`).

Six rows and sixteen basis vectors fill the registers of NEON and of AVX, eight and 32 those of AVX-512: a number that
is read once serves six or eight multiplications. Compiling a function takes a tenth of a second, so nothing is kept
on disk.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from functools import cache
from typing import Any

from mercer.codegen.cpu import ClosedForm
from mercer.codegen.vector_code import (
    DOUBLE_REGISTER,
    FLOAT,
    INT,
    LANES,
    SMALL,
    WIDE,
    WIDTH,
    Writer,
    constant,
)

#: Rows at a time.
ROWS = 8 if WIDE else 6
#: 2^f ≈ 1 + Σ c_k f^k for |f| ≤ ½: the least largest relative error, 9.2e-8, among polynomials that are one at zero.
POWER = (0.6931469775990667, 0.24022242085215648, 0.05550733743324635, 0.009671512650098512, 0.001326472720656023)
#: Adding it rounds to an integer, which then stands in the lowest bits.
ROUNDING = 1.5 * 2.0**23


def power_of_two(w: Writer, x: Any) -> Any:
    """2^x for −126 ≤ x ≤ 0."""
    b, rounding = w.build, w.fresh(ROUNDING, SMALL)
    shifted = b.fadd(x, rounding)
    f = b.fsub(x, b.fsub(shifted, rounding))
    p = w.fresh(POWER[-1], SMALL)
    for c in (*POWER[-2::-1], 1.0):
        p = w.times_plus(p, f, w.fresh(c))
    return w.raised(p, shifted)


def kernel_value(w: Writer, form: ClosedForm, t: Any) -> Any:
    """The kernel's value, from the sum over the inputs: minus a squared distance, or a distance."""
    if not form.polynomial:
        return t
    b, minus = w.build, form.root or form.city_block
    if not form.city_block:  # rounding may leave it barely positive
        t = w.call("minnum", t, constant(0.0))
    if form.root:
        t = w.call("sqrt", b.fneg(t))
    x = t if form.rate == 1 and not minus else b.fmul(t, w.fresh(-form.rate if minus else form.rate, SMALL))
    value = power_of_two(w, x)
    if form.linear:
        inner = w.fresh(form.linear, SMALL)
        inner = w.times_plus(w.fresh(form.quadratic, SMALL), t, inner) if form.quadratic else inner
        value = b.fmul(value, w.times_plus(inner, t, w.fresh(1.0)))
    return w.where(w.fresh(-form.rate * form.reach(), SMALL), x, value)


class Use:
    """A use of kernel values: this base does nothing. `kinds` are the types of its arguments, after the common ones."""

    kinds = ""

    def __init__(self, writer: Writer, arguments: tuple[Any, ...]) -> None:
        self.w, self.b, self.arguments = writer, writer.build, arguments
        self.prepare()

    def prepare(self) -> None:
        """Before all rows."""

    def begin(self, group: Any) -> None:
        """Before the strips of a group of rows."""

    def use(self, group: Any, strip: Any, values: list[Any]) -> None:
        """A strip of values for each of the group's rows."""

    def end(self, group: Any) -> None:
        """After the strips of a group of rows."""

    def row(self, group: Any, r: int) -> Any:
        return self.b.add(self.b.mul(group, INT(ROWS)), INT(r))


class Tile(Use):
    """Arguments: the tile (n × m), m, variance, bias; rows of it may be as long as all strips, or longer."""

    kinds = "fiss"

    def prepare(self) -> None:
        self.scale, self.shift = (self.w.spread(number) for number in self.arguments[2:])

    def use(self, group: Any, strip: Any, values: list[Any]) -> None:
        tile, m = self.arguments[:2]
        for r, value in enumerate(values):
            place = self.w.place(tile, (self.row(group, r), m), (strip, WIDTH))
            self.w.store(self.w.times_plus(value, self.scale, self.shift), place)


class TimesVectors(Use):
    """Arguments: V (p × strips · WIDTH), p, room (p × ROWS × WIDTH), and K·V (n × p), to which is added."""

    kinds = "fiff"

    def begin(self, group: Any) -> None:
        with self.w.loop(self.arguments[1]) as (o, _, _):
            for r in range(ROWS):
                self.w.store(constant(0.0), self._sum(o, r))

    def use(self, group: Any, strip: Any, values: list[Any]) -> None:
        V, p = self.arguments[:2]
        length = self.b.mul(self.w.function.args[4], INT(WIDTH))
        with self.w.loop(p) as (o, _, _):
            v = self.w.load(self.w.place(V, (o, length), (strip, WIDTH)))
            for r, value in enumerate(values):
                self.w.store(self.w.times_plus(value, v, self.w.load(self._sum(o, r))), self._sum(o, r))

    def end(self, group: Any) -> None:
        p, out = self.arguments[1], self.arguments[3]
        with self.w.loop(p) as (o, _, _):
            for r in range(ROWS):
                place = self.w.place(out, (self.row(group, r), p), o)
                total = self.w.total(self.w.load(self._sum(o, r)))
                self.w.store(self.b.fadd(self.w.load(place, FLOAT), total), place)

    def _sum(self, o: Any, r: int) -> Any:
        return self.w.place(self.arguments[2], (o, ROWS * WIDTH), r * WIDTH)


class Transposed(Use):
    """Arguments: R (n × p), p, and KᵀR (p × strips · WIDTH), to which is added."""

    kinds = "fif"

    def use(self, group: Any, strip: Any, values: list[Any]) -> None:
        R, p, out = self.arguments[:3]
        length = self.b.mul(self.w.function.args[4], INT(WIDTH))
        with self.w.loop(p) as (o, _, _):
            place = self.w.place(out, (o, length), (strip, WIDTH))
            total = self.w.load(place)
            for r, value in enumerate(values):
                weight = self.w.load(self.w.place(R, (self.row(group, r), p), o), FLOAT)
                total = self.w.times_plus(value, self.w.spread(weight), total)
            self.w.store(total, place)


class Scores(Transposed):
    """Further arguments: weights (n), and the sums of weighted squares (strips · WIDTH), to which is added."""

    kinds = "fifff"

    def use(self, group: Any, strip: Any, values: list[Any]) -> None:
        super().use(group, strip, values)
        weights, out = self.arguments[3:]
        place = self.w.place(out, (strip, WIDTH))
        total = self.w.load(place)
        for r, value in enumerate(values):
            weight = self.w.load(self.w.place(weights, self.row(group, r)), FLOAT)
            total = self.w.times_plus(self.b.fmul(value, value), self.w.spread(weight), total)
        self.w.store(total, place)


USES: dict[str, type[Use]] = {"tile": Tile, "product": TimesVectors, "transposed": Transposed, "scores": Scores}
#: The first arguments: rows (groups · ROWS × K), groups, K, basis vectors (strips × K × WIDTH), strips, and room for a
#: group of rows, each of its numbers LANES times (K × ROWS × LANES), and for their values (ROWS × WIDTH).
FIRST = "fiifif"
#: Two threads must not compile the same function at once; a forked process finds the lock open.
_lock = threading.Lock()
if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)


def function(form: ClosedForm, name: str) -> Callable[..., None]:
    """The compiled function for one of `USES` and a kernel of this form."""
    with _lock:
        return _made(form, name)


@cache
def _made(form: ClosedForm, name: str) -> Callable[..., None]:
    """The loops over groups of rows, strips of basis vectors and inputs."""
    w = Writer(name, FIRST + USES[name].kinds)
    b, (left, groups, K, right, strips, room) = w.build, w.function.args[: len(FIRST)]
    user = USES[name](w, w.function.args[len(FIRST) :])
    with w.loop(groups) as (group, _, _):
        rows = w.place(left, (b.mul(group, INT(ROWS)), K))
        with w.loop(K) as (k, _, _):
            for r in range(ROWS):
                number = w.spread(w.load(w.place(rows, (r, K), k), FLOAT), SMALL)
                w.store(number, w.place(room, (k, ROWS * LANES), r * LANES))
        user.begin(group)
        values = w.place(room, (K, ROWS * LANES))
        with w.loop(strips) as (strip, _, _):
            here = w.place(right, (b.mul(strip, K), WIDTH))
            inputs = b.sub(K, INT(2)) if form.differences else K  # the others are norms
            with w.loop(inputs, (constant(0.0),) * ROWS) as (k, sums, following):
                z = w.load(w.place(here, (k, WIDTH)))
                for r in range(ROWS):
                    x = w.spread(w.load(w.place(room, (k, ROWS * LANES), r * LANES), SMALL))
                    following.append(_added(w, form, x, z, sums[r]))
            for r, total in enumerate(following):
                w.store(total, w.place(values, r * WIDTH))
            with w.loop(INT(ROWS)) as (r, _, _):  # one row after the other: the registers hold no more
                place = w.place(values, (r, WIDTH))
                w.store(kernel_value(w, form, w.load(place)), place)
            user.use(group, strip, [w.load(w.place(values, r * WIDTH)) for r in range(ROWS)])
        user.end(group)
    return w.compiled()


def _added(w: Writer, form: ClosedForm, x: Any, z: Any, total: Any) -> Any:
    """The sum over inputs with one more: an absolute difference, or minus a squared one, or a product with z = 2w."""
    b = w.build
    if form.city_block:
        return b.fadd(total, w.call("fabs", b.fsub(x, z)))
    if form.differences:
        apart = w.times_plus(z, constant(-0.5), x)
        return w.times_plus(b.fneg(apart), apart, total)
    return w.times_plus(x, z, total)


def thin(double: bool) -> Callable[..., None]:
    """The compiled product of LANES columns with a matrix of single or double precision, which is read once."""
    with _lock:
        return _thin(double)


@cache
def _thin(double: bool) -> Callable[..., None]:
    """Rows (groups · LANES, each `length` numbers after the last), columns (LANES × strips · WIDTH), their products.

    Four rows and four columns have sixteen sums, which together with the operands fill the registers of NEON.
    """
    w = Writer("thin", "diidid" if double else "fiifif")
    kind = DOUBLE_REGISTER if double else SMALL
    b, (rows, groups, length, right, strips, out) = w.build, w.function.args
    with w.loop(groups) as (group, _, _):
        first = b.mul(group, INT(LANES))
        here = [w.place(rows, (b.add(first, INT(r)), length)) for r in range(LANES)]
        there = [w.place(right, (b.mul(strips, INT(c)), WIDTH)) for c in range(LANES)]
        with w.loop(strips, (constant(0.0, kind),) * LANES**2) as (strip, sums, following):
            at = b.mul(strip, INT(WIDTH))
            for k in range(0, WIDTH, kind.count):
                xs = [w.load(w.place(row, at, k), kind) for row in here]
                vs = [w.load(w.place(column, at, k), kind) for column in there]
                pairs = [(x, v) for x in xs for v in vs]
                sums = [w.times_plus(x, v, total) for (x, v), total in zip(pairs, sums, strict=True)]
            following += sums
        for k, total in enumerate(following):
            w.store(w.total(total), w.place(out, (first, LANES), k))
    return w.compiled()

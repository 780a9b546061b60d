"""The Triton programs behind `mercer.engine.fused`, which launches them, and `mercer.engine.packing`.

A program has a block of rows, keeps their packed inputs on the chip and loops over columns: one matrix product of
packed float16 inputs gives a block of s, the profile gives kernel values, and these are multiplied by V in registers.
No block of K is written to memory, except by `tile_program`. Operands are padded by zeros to full blocks, so no load
needs a mask: a padded column is multiplied by a zero of V, a padded row is not stored.
"""

# No postponed annotations here: Triton reads `tl.constexpr` off the signatures.

import triton
import triton.language as tl

#: Kernel values in [0, 1] are multiplied by this before they are split into float16, so that small ones keep digits.
LIFT = tl.constexpr(32768.0)


@triton.jit
def _power(a, exponent):
    """a to a positive power, for a of zero or more, in its own precision: a number passed in may count as float64."""
    return tl.where(a > 0.0, tl.exp2(exponent * tl.log2(tl.maximum(a, 1e-38))), 0.0).to(a.dtype)


@triton.jit
def _profile(
    s, exponent, offset, PROFILE: tl.constexpr, DEGREE: tl.constexpr, PLAIN: tl.constexpr,
    ROOT: tl.constexpr, LINEAR: tl.constexpr, QUADRATIC: tl.constexpr,
):  # fmt: skip
    """The kernel's value; inputs were scaled so that every exponential is a power of two."""
    if PROFILE == "rational-quadratic":
        k = tl.exp2(-exponent * tl.log2(tl.maximum(1.0 - s, 1.0)))
    elif PROFILE == "separable":
        k = tl.exp2(s if PLAIN else -_power(-s, exponent))
    elif PROFILE == "power":
        base = s + offset
        k = base
        for _ in tl.static_range(DEGREE - 1):
            k = k * base
    elif ROOT:  # a closed form, as `mercer.codegen.cpu.ClosedForm` has it
        b = tl.sqrt(tl.maximum(-s, 0.0))
        k = tl.exp2(-b)
        if QUADRATIC != 0:
            k = k * (1.0 + b * (LINEAR + QUADRATIC * b))
        elif LINEAR != 0:
            k = k * (1.0 + LINEAR * b)
    else:
        k = tl.exp2(tl.minimum(s, 0.0))  # rounding of large norms may leave it far above zero
    return k


@triton.jit
def _inner(
    x0, x1, x2, left, right, rows, cols, BIG: tl.constexpr, TAIL: tl.constexpr, TIP: tl.constexpr, REST: tl.constexpr
):
    """The products of packed rows and columns; x0, x1 and x2 stay on the chip, further inputs are streamed."""
    WIDTH: tl.constexpr = BIG + TAIL + TIP + REST
    column = right + cols[None, :] * WIDTH
    acc = tl.dot(x0, tl.load(column + tl.arange(0, BIG)[:, None]))
    if TAIL > 0:
        acc = tl.dot(x1, tl.load(column + BIG + tl.arange(0, TAIL)[:, None]), acc)
    if TIP > 0:
        acc = tl.dot(x2, tl.load(column + BIG + TAIL + tl.arange(0, TIP)[:, None]), acc)
    if REST > 0:
        part = tl.arange(0, 64)
        row = left + rows[:, None] * WIDTH
        for k in range(BIG + TAIL + TIP, WIDTH, 64):
            acc = tl.dot(tl.load(row + k + part[None, :]), tl.load(column + k + part[:, None]), acc)
    return acc


@triton.jit
def _difference(u, w, norm, PLAIN: tl.constexpr, SQUARED: tl.constexpr):
    """|u − w|^p of one input of rows and columns: p is 2 where SQUARED, 1 where PLAIN, else `norm`."""
    apart = u[:, None] - w[None, :]
    if SQUARED:
        power = apart * apart
    elif PLAIN:
        power = tl.abs(apart)
    else:
        power = _power(tl.abs(apart), norm)
    return power


@triton.jit
def _differences(
    left, right, rows, cols, left_length, right_length, norm,
    INPUTS: tl.constexpr, PLAIN: tl.constexpr, SQUARED: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """s = −Σ_k |u_k − w_k|^p of inputs that lie one after the other, as many numbers each as the lengths say."""
    s = tl.zeros((ROWS, COLUMNS), tl.float32)
    if INPUTS <= 4:  # without a loop, which takes 1.4 times as long
        for k in tl.static_range(INPUTS):
            u, w = tl.load(left + k * left_length + rows), tl.load(right + k * right_length + cols)
            s -= _difference(u, w, norm, PLAIN, SQUARED)
    else:
        for k in range(INPUTS):
            u, w = tl.load(left + k * left_length + rows), tl.load(right + k * right_length + cols)
            s -= _difference(u, w, norm, PLAIN, SQUARED)
    return s


@triton.jit
def _stationary(left, rows, BIG: tl.constexpr, TAIL: tl.constexpr, TIP: tl.constexpr, REST: tl.constexpr):
    row = left + rows[:, None] * (BIG + TAIL + TIP + REST)
    x0 = tl.load(row + tl.arange(0, BIG)[None, :])
    x1 = x0
    x2 = x0
    if TAIL > 0:
        x1 = tl.load(row + BIG + tl.arange(0, TAIL)[None, :])
    if TIP > 0:
        x2 = tl.load(row + BIG + TAIL + tl.arange(0, TIP)[None, :])
    return x0, x1, x2


@triton.jit(do_not_specialize=["n"])
def product_program(
    left, right, unscale, V, weight, out, squares, n, m, span,
    left_length, right_length, exponent, offset, norm,
    PROFILE: tl.constexpr, ROOT: tl.constexpr, LINEAR: tl.constexpr, QUADRATIC: tl.constexpr,
    DEGREE: tl.constexpr, PLAIN: tl.constexpr, SQUARED: tl.constexpr,
    BIG: tl.constexpr, TAIL: tl.constexpr, TIP: tl.constexpr, REST: tl.constexpr,
    P: tl.constexpr, SPLIT: tl.constexpr, SQUARES: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """out[part] = K V over the columns of this part, and squares[part] = (K∘K) weight where SQUARES.

    With SPLIT both K and V are sums of two float16 numbers, else they are float32, multiplied in three parts. A matrix
    unit truncates as it accumulates, so its sums are kept short, within one block of columns, and added up outside it.
    """
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    start = tl.program_id(1) * span
    stop = tl.minimum(start + span, m)
    if BIG > 0:
        x0, x1, x2 = _stationary(left, rows, BIG, TAIL, TIP, REST)
        scale = tl.load(unscale)
    acc = tl.zeros((ROWS,) if P == 1 else (ROWS, P), tl.float32)
    square = tl.zeros((ROWS,), tl.float32)
    each = tl.arange(0, P)
    for j in range(start, stop, COLUMNS):
        cols = j + tl.arange(0, COLUMNS)
        if P == 1:
            v = tl.load(V + cols)  # before the product, which hides the wait
        if BIG == 0:
            s = _differences(
                left, right, rows, cols, left_length, right_length, norm, REST, PLAIN, SQUARED, ROWS, COLUMNS
            )  # fmt: skip
        else:
            s = _inner(x0, x1, x2, left, right, rows, cols, BIG, TAIL, TIP, REST) * scale
        k = _profile(s, exponent, offset, PROFILE, DEGREE, PLAIN, ROOT, LINEAR, QUADRATIC)
        if P == 1:
            acc += tl.sum(k * v[None, :], 1)
        else:
            at = V + each[None, :] * m + cols[:, None]
            v = tl.load(at)
            if SPLIT:
                lifted = k * LIFT
                high = lifted.to(tl.float16)
                part = tl.dot(high, v)
                part = tl.dot((lifted - high.to(tl.float32)).to(tl.float16), v, part)
                part = tl.dot(high, tl.load(at + P * m), part)
                acc += part * (1.0 / LIFT)
            else:
                acc += tl.dot(0.5 * k, v, input_precision="tf32x3") * 2.0  # the factor keeps the sum outside
        if SQUARES:
            square += tl.sum(k * (k * tl.load(weight + cols)[None, :]), 1)
    first = tl.program_id(1).to(tl.int64) * n
    if P == 1:
        tl.store(out + first + rows, acc, mask=rows < n)
    else:
        tl.store(out + (first + rows)[:, None] * P + each[None, :], acc, mask=(rows < n)[:, None])
    if SQUARES:
        tl.store(squares + first + rows, square, mask=rows < n)


@triton.jit(do_not_specialize=["n"])
def tile_program(
    left, right, unscale, out, n, m,
    left_length, right_length, exponent, offset, norm, variance, bias,
    PROFILE: tl.constexpr, ROOT: tl.constexpr, LINEAR: tl.constexpr, QUADRATIC: tl.constexpr,
    DEGREE: tl.constexpr, PLAIN: tl.constexpr, SQUARED: tl.constexpr,
    BIG: tl.constexpr, TAIL: tl.constexpr, TIP: tl.constexpr, REST: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """out = variance · K + bias, for products that torch does."""
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    cols = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    if BIG == 0:
        s = _differences(
            left, right, rows, cols, left_length, right_length, norm, REST, PLAIN, SQUARED, ROWS, COLUMNS
        )  # fmt: skip
    else:
        x0, x1, x2 = _stationary(left, rows, BIG, TAIL, TIP, REST)
        s = _inner(x0, x1, x2, left, right, rows, cols, BIG, TAIL, TIP, REST) * tl.load(unscale)
    k = variance * _profile(s, exponent, offset, PROFILE, DEGREE, PLAIN, ROOT, LINEAR, QUADRATIC) + bias
    inside = (rows < n)[:, None] & (cols < m)[None, :]
    tl.store(out + rows.to(tl.int64)[:, None] * m + cols[None, :], k, mask=inside)


@triton.jit
def _scaled(X, shift, scale, shift_step, scale_step, factor, rows, at, n, D):
    """Some inputs of some rows as the kernel sees them; zeros outside. Steps are zero where inputs share a number."""
    inside = (rows < n)[:, None] & (at < D)[None, :]
    x = tl.load(X + rows.to(tl.int64)[:, None] * D + at[None, :], mask=inside, other=0.0)
    origin = tl.load(shift + at * shift_step, mask=at < D, other=0.0)
    unit = tl.load(scale + at * scale_step, mask=at < D, other=0.0) * factor
    return tl.where(inside, (x - origin[None, :]) * unit[None, :], 0.0)


@triton.jit(do_not_specialize=["n"])
def longest_program(
    X, shift, scale, shift_step, scale_step, factor, longest, n, D, ROWS: tl.constexpr, INPUTS: tl.constexpr
):
    """The largest squared length among the scaled rows; `longest` is zero before the first program."""
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    total = tl.zeros((ROWS,), tl.float32)
    for d in range(0, D, INPUTS):
        u = _scaled(X, shift, scale, shift_step, scale_step, factor, rows, d + tl.arange(0, INPUTS), n, D)
        total += tl.sum(u * u, 1)
    tl.atomic_max(longest, tl.max(total, 0))


@triton.jit
def _power_of_two(exponent):
    """2 to an integer between -126 and 127, exactly: built from the bits of a float32 number."""
    return ((exponent + 127) << 23).to(tl.float32, bitcast=True)


@triton.jit(do_not_specialize=["n"])
def pack_program(
    X, shift, scale, shift_step, scale_step, factor, longest, unscale, out, n, D, width,
    CARRIER: tl.constexpr, DIGIT: tl.constexpr, EXPONENT: tl.constexpr,
    RADIAL: tl.constexpr, RIGHT: tl.constexpr, ROWS: tl.constexpr, INPUTS: tl.constexpr, EXTRA: tl.constexpr,
):  # fmt: skip
    """Packed rows of one side: two float16 digits of every input, three of the squared norm, zeros to the end.

    Inputs are multiplied by the power of two that brings the longest row to a length between 2^(EXPONENT - 1) and
    2^EXPONENT; `unscale` undoes it in products.
    """
    bits = tl.load(longest).to(tl.int32, bitcast=True)
    exponent = EXPONENT - (((bits >> 23) - 125) >> 1)  # from the squared length
    exponent = tl.minimum(tl.maximum(exponent, -60), 60)
    power = _power_of_two(exponent)
    tl.store(unscale, _power_of_two(-2 * exponent))  # all programs store the same number
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    row = out + rows.to(tl.int64)[:, None] * width
    norm = tl.zeros((ROWS,), tl.float32)
    for d in range(0, D, INPUTS):
        at = d + tl.arange(0, INPUTS)
        u = _scaled(X, shift, scale, shift_step, scale_step, factor, rows, at, n, D) * power
        first = u.to(tl.float16)
        second = (u - first.to(tl.float32)).to(tl.float16)
        value = first.to(tl.float32) + second.to(tl.float32)
        norm += tl.sum(value * value, 1)
        if RADIAL and RIGHT:
            first = first * 2
            second = second * 2
        inside = (at < D)[None, :]
        tl.store(row + at[None, :], first, mask=inside)
        tl.store(row + D + at[None, :], first if RIGHT else second, mask=inside)
        tl.store(row + 2 * D + at[None, :], second if RIGHT else first, mask=inside)
    used = D * 3
    extra = tl.arange(0, EXTRA)
    value = tl.zeros((ROWS, EXTRA), tl.float32)
    if RADIAL:
        norm_at, carrier_at = 0, 3
        sign = 1.0
        if RIGHT:
            norm_at, carrier_at = 3, 0
            sign = -1.0
        rest = norm / CARRIER
        unit = 1.0
        for digit in tl.static_range(3):
            half = rest.to(tl.float16).to(tl.float32)
            value = tl.where((extra == norm_at + digit)[None, :], sign * half[:, None], value)
            value = tl.where((extra == carrier_at + digit)[None, :], sign * CARRIER * unit, value)
            rest = (rest - half) * DIGIT
            unit = unit / DIGIT
        value = tl.where((rows < n)[:, None], value, 0.0)
    tl.store(row + used + extra[None, :], value.to(tl.float16), mask=(used + extra < width)[None, :])

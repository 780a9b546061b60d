"""Operands of the fused products: rows of inputs as float16 numbers whose products are exact to float32.

A scaled input u is the sum of two float16 numbers, u = u₁ + u₂, exact to 2⁻²² of the longest row. One float16 matrix
product with float32 sums then gives s to float32 accuracy,

    [u₁, u₂, u₁ | ν₁, ν₂, ν₃ | c₁, c₂, c₃] · [2w₁, 2w₁, 2w₂ | −c₁, −c₂, −c₃ | −ω₁, −ω₂, −ω₃] = −|u − w|²,

where ν₁c₁ + ν₂c₂ + ν₃c₃ = |u|², and ω are the same digits of |w|²: the norms cost six columns and no further
arithmetic. Inputs are first multiplied by a power of two, so that none over- or underflows float16. Each digit of a
norm has its unit c, 2¹¹ times as fine as the previous one. A common unit for all three digits would limit the norm of
a short row to 2⁻³⁰ of the longest norm. A single row of a rare category then made kernel values of COVTYPE wrong by
1 %, and by 15 % at the shortest length-scales.

Two Triton programs make two passes over the inputs: the first finds the longest row, the second writes packed rows.
Separable kernels have no matrix product: their scaled inputs stay float32 numbers and are laid out input by input. The
same holds for rows of few inputs whose squared distances are sums of squared differences (`choose_geometry`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn.functional import pad

from mercer.codegen.cpu import LOG2E, ClosedForm, FusedForm

#: The profiles that the programs know.
PROFILES = ("closed", "rational-quadratic", "power", "separable")
#: Operands are padded to a multiple of every block size.
PADDING = 256
#: The longest row is scaled to at most 2¹⁰, its squared norm to 2²⁰ = 2⁵ · c: within float16 with room on both sides.
EXPONENT, CARRIER = 10, 2.0**15
#: The remainder of a float16 rounding is smaller by this factor: the ratio of the units of two digits of a norm.
DIGIT = 2.0**11
#: Numbers (rows times inputs) of a packing program's block, and the most and fewest inputs of a block.
BLOCK_NUMBERS, MOST_INPUTS, FEWEST_INPUTS = 2048, 32, 8
#: The shift and the scale of each input, the steps between their numbers in memory, and a factor on all scales.
Scaling = tuple[Tensor, Tensor, int, int, float]


@dataclass(frozen=True)
class Packed:
    """Operands of one launch: packed rows of both sides, and the factor that undoes the power of two."""

    left: Tensor
    right: Tensor
    unscale: Tensor


def pack(form: FusedForm, X: Tensor, Z: Tensor) -> Packed:
    """Rows of `X` and of `Z` as the module's docstring lays them out."""
    if not form.multiplies:
        scale = form.scale.float() * input_factor(form)
        left, right = (_by_inputs((rows.float() - form.shift.float()) * scale) for rows in (X, Z))
        return Packed(left, right, left)  # no power of two
    radial, width = form.geometry == "distance", packed_width(form, X.shape[1])
    shift, scale = (a.to(X.device, torch.float32).expand(X.shape[1]) for a in (form.shift, form.scale))
    scaling = (shift, scale, shift.stride(0), scale.stride(0), input_factor(form))
    sides = [rows.float().contiguous() for rows in (X, Z)]
    longest, unscale = X.new_zeros(2, dtype=torch.float32).split(1)
    for rows in sides:
        _find_longest(rows, scaling, longest)
    left, right = (_pack_side(rows, scaling, longest, unscale, width, radial, i == 1) for i, rows in enumerate(sides))
    return Packed(left, right, unscale)


def in_powers_of_two(form: FusedForm) -> ClosedForm:
    """The formula for inputs that make its exponential a power of two; any formula where the profile has none."""
    return replace(form.formula or ClosedForm(), base_factor=LOG2E)


def input_factor(form: FusedForm) -> float:
    """The factor on the inputs that makes the exponential of a closed form a power of two."""
    return 1.0 if form.formula is None else in_powers_of_two(form).distance_scale


def _by_inputs(u: Tensor) -> Tensor:
    """D × n, with zeros up to a multiple of `PADDING` rows: the values of one input are contiguous."""
    return pad(u.T, (0, -u.shape[0] % PADDING)).contiguous()


def _find_longest(rows: Tensor, scaling: Scaling, longest: Tensor) -> None:
    """Raise `longest` to the largest squared length of a scaled row."""
    from mercer.engine.fused_kernels import longest_program

    n, D = rows.shape
    if n:
        block = _packed_block(D)
        longest_program[(-(-n // block["ROWS"]),)](rows, *scaling, longest, n, D, **block)


def _pack_side(
    rows: Tensor, scaling: Scaling, longest: Tensor, unscale: Tensor, width: int, radial: bool, right: bool
) -> Tensor:
    """Packed rows, with zeros up to a multiple of `PADDING` rows."""
    from mercer.engine.fused_kernels import pack_program

    n, D = rows.shape
    padded = -(-n // PADDING) * PADDING
    out, block = rows.new_empty(padded, width, dtype=torch.float16), _packed_block(D)
    if padded:
        pack_program[(padded // block["ROWS"],)](
            rows, *scaling, longest, unscale, out, n, D, width, CARRIER=CARRIER, DIGIT=DIGIT, EXPONENT=EXPONENT,
            RADIAL=radial, RIGHT=right, EXTRA=1 << max(width - 3 * D, 1).bit_length(), **block,
        )  # fmt: skip
    return out


def _packed_block(D: int) -> dict[str, int]:
    """Rows and inputs of a packing program's block: few inputs are not padded to many."""
    inputs = min(max(1 << (D - 1).bit_length(), FEWEST_INPUTS), MOST_INPUTS)
    return {"ROWS": BLOCK_NUMBERS // inputs, "INPUTS": inputs}


def split_columns(V: Tensor, m: int, split: bool) -> tuple[Tensor, Tensor]:
    """V by columns of m entries, in float32 or `split` into two float16 numbers each, and the inverse scale."""
    p, rows = V.shape[1], m - V.shape[0]
    ones = V.new_ones(p)
    if p <= 1:
        return pad(V, (0, 1 - p, 0, rows)).reshape(1, m), ones
    padding = (0, rows, 0, max(16, 1 << (p - 1).bit_length()) - p)
    if not split:
        return pad(V.T, padding).contiguous(), ones
    scale = power_of_two(EXPONENT - torch.frexp(V.abs().amax(0)).exponent, limit=120)
    scaled = V * scale
    first = scaled.half()
    halves = first, (scaled - first).half()
    return torch.stack([pad(half.T, padding) for half in halves]), scale.reciprocal()


def power_of_two(exponent: Tensor, limit: int) -> Tensor:
    """2 to these integers, exactly: built from the bits of a float32 number."""
    return ((exponent.clamp(-limit, limit).int() + 127) << 23).view(torch.float32)


def packed_width(form: FusedForm, D: int) -> int:
    """Float16 numbers of a packed row of D inputs: as many as `chunks` can cut, or two for each where none are cut."""
    if not form.multiplies:
        return 2 * D
    return sum(chunks(3 * D + (6 if form.geometry == "distance" else 0)))


def chunks(width: int) -> tuple[int, int, int, int]:
    """At least `width` columns: up to three powers of two that stay on the chip, and a multiple of 64 that streams by.

    >>> chunks(30), chunks(69), chunks(168), chunks(396)
    ((32, 0, 0, 0), (64, 16, 0, 0), (128, 32, 16, 0), (128, 64, 0, 256))
    """
    if width > 192:
        return 128, 64, 0, -(-(width - 192) // 64) * 64
    units = max(-(-width // 16), 1)  # the matrix units take 16 columns at a time; up to 12 units are three powers
    powers = [16 << bit for bit in range(units.bit_length() - 1, -1, -1) if units >> bit & 1]
    big, tail, tip = (*powers, 0, 0, 0)[:3]
    return big, tail, tip, 0

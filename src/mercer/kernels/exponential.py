r"""The exponential that this machine is fastest at: :math:`e^x` as a power whose base is e or two.

Of a kernel's value the exponential costs more than all the rest. MKL's `exp` is several times as fast as any other;
without it torch falls back on one value after the other of Sleef, whose powers of two need no splitting of the
argument. On an ARM Neoverse N1 (one core, float32, eight inputs, 2048 basis vectors) the steps of a product with a
Gaussian kernel take

    =============================  ==============
    the exponents, one product     0.95 ns a value
    `exp`                          3.7
    `exp2`                         2.4
    the tile times v               0.2
    clamping, zeroing (far rows)   0.25, 0.35
    =============================  ==============

The factor on the argument is part of the scaled inputs (`Radial.unit`), so it costs nothing. The choice follows from
how torch was built and not from a clock: two processes that share a model must not round differently.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

LOG2E = math.log2(math.e)
#: The logarithm of e to the base of `power`: e^x = power(RATE · x).
RATE = 1.0 if torch.backends.mkl.is_available() else LOG2E


def power(x: Tensor, out: Tensor | None = None) -> Tensor:
    """The base to the power of `x`.

    >>> import torch
    >>> from mercer.kernels.exponential import RATE, power
    >>> power(RATE * torch.ones(1, dtype=torch.float64)).item()
    2.718...
    """
    return torch.exp(x, out=out) if RATE == 1.0 else torch.exp2(x, out=out)

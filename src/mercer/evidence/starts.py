"""Where searches start: plain kernels, and other starts around them. Rows to start from are the faces' business."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from torch import Tensor

from mercer.engine.sample import Sample
from mercer.kernels import Bias, Kernel, Scaled, Stationary, Sum

#: Noise of targets of unit variance at which a search starts: with less, the first steps chase single rows.
PLAIN_NOISE = 0.3
#: Rows per input from which on every input gets a length-scale of its own, where nobody said.
ARD_ROWS = 20
#: Rows from which the spread of the inputs is taken.
SPREAD_ROWS = 5000
#: How much longer or shorter the length-scales of a further start may be.
RESTART_FACTOR = 3.0


def plain_start(family: type[Stationary], X: Tensor, ard: bool | str = "auto") -> Kernel:
    """variance · family + bias as nobody tuned it: length-scales that follow the inputs' spread in rows `X`.

    Radial families take √(D/2) times the spread, kernels of absolute differences, which add up faster, D/√2 times.

    A search that moves kernel, noise and inducing inputs together starts here, with much noise. The parameters of a
    tuned full model are no better start: Titsias' bound counts unexplained variance against the model, flees from
    them to long length-scales and comes back slowly; and where tuning ends at variances of hundreds (elevators), the
    slopes drown in the rounding of float32 tiles. A hundred steps from here end as high or higher on KIN40K, elevators,
    pol and protein, and spare the tuning.

    >>> import torch
    >>> from mercer.kernels import Gaussian
    >>> X = torch.tensor([[-1.0, -2.0], [1.0, 2.0]])
    >>> plain_start(Gaussian, X, ard=True).tunable()["left__kernel__length_scale"]
    [1.0, 2.0]
    """
    n, D = X.shape
    spread = X.double().std(0, correction=0).cpu().numpy()
    lengths = np.where(spread > 0, spread, 1.0) * family.typical_length(D) / math.sqrt(2)
    several = D > 1 and n >= ARD_ROWS * D if isinstance(ard, str) else ard
    length = lengths.tolist() if several else float(np.sqrt(np.mean(lengths**2)))
    return Sum(Scaled(family(length_scale=length)), Bias(0.01))


def spread_rows(data: Sample) -> Tensor:
    """Evenly spaced rows from which `plain_start` takes the spread of the inputs."""
    return data.rows.fetch(data.spaced(SPREAD_ROWS))


def named_family(choice: Any) -> type[Stationary] | None:
    """The radial family that a user named; None for any other choice of kernel."""
    return Stationary.choices().get(choice) if isinstance(choice, str) else None


def family_of(kernel: Kernel) -> type[Stationary]:
    """The family of the one stationary kernel in a kernel."""
    (family,) = {type(one) for one in _inside(kernel) if isinstance(one, Stationary)}
    return family


def as_many_lengths(kernel: Kernel, plain: Kernel) -> Kernel:
    """A tuned kernel with a length-scale for each input where the plain one of the same form has them."""
    lengths = {name: value for name, value in plain.tunable().items() if name.endswith("length_scale")}
    now = kernel.tunable()
    return kernel.replaced({k: np.broadcast_to(now[k], np.shape(v)).tolist() for k, v in lengths.items() if np.ndim(v)})


def _inside(kernel: Kernel) -> Iterator[Kernel]:
    yield kernel
    for one in vars(kernel).values():
        if isinstance(one, Kernel):
            yield from _inside(one)


def elsewhere(kernel: Kernel, rng: np.random.Generator) -> Kernel:
    """Another start: all length-scales times one factor within `RESTART_FACTOR`."""
    factor = RESTART_FACTOR ** rng.uniform(-1, 1)
    scales = {name: value for name, value in kernel.tunable().items() if name.endswith("length_scale")}
    return kernel.replaced({name: (np.asarray(value) * factor).tolist() for name, value in scales.items()})

"""Kernels for class codes: what the evidence proposes, judged by the classes of rows left out.

The evidence takes ±1 for measurements with Gaussian noise. On classes that are easy to tell apart it therefore drives
the noise to its floor and length-scales down to the gaps between rows. Ratios of length-scales survive that; their
common factor, the noise and the family are chosen here by the log loss of each row under all others.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch

from mercer.evidence.coordinates import Point
from mercer.evidence.exact import left_out, log_evidence
from mercer.kernels import Kernel
from mercer.selection.evidence_search import LENGTH, NOISE_BOUNDS, EvidenceSearch

#: Least noise variance, of unit variance of the codes, that is considered.
LEAST_NOISE = 1e-2
#: Factors of one step in the length-scales and in the noise, and the share by which the loss must fall for it.
LONGER, NOISIER, GAIN = 1.6, 2.5, 2e-3
#: Temperatures tried: decision values are no log odds, and how far they are from it must not matter.
TEMPERATURES = torch.logspace(-2, 1.5, 36, dtype=torch.float64)


def judged(search: EvidenceSearch, points: Iterable[Point]) -> Point:
    """The point of lowest log loss among those the evidence proposes and those a few steps away from them."""
    best = min(points, key=lambda point: _loss(search, point.kernel, point.noise))
    kernel, noise = best.kernel, best.noise
    lowest = _loss(search, kernel, noise)
    moves = [(LONGER, 1.0), (1 / LONGER, 1.0), (1.0, NOISIER), (1.0, 1 / NOISIER)]
    while moves:
        longer, noisier = moves.pop(0)
        trial = _longer(kernel, longer), float(np.clip(noise * noisier, LEAST_NOISE, NOISE_BOUNDS[1]))
        if trial[1] == noise and longer == 1.0:
            continue
        if (loss := _loss(search, *trial)) < (1 - GAIN) * lowest:
            kernel, noise, lowest = *trial, loss
            moves = [move for move in moves if move != (1 / longer, 1 / noisier)]
            moves.insert(0, (longer, noisier))
    return Point(kernel, noise, value=log_evidence(kernel, noise, search.X, search.Y, search.weight)[0])


def _longer(kernel: Kernel, factor: float) -> Kernel:
    lengths = kernel.tunable()[LENGTH]
    return kernel if factor == 1.0 else kernel.replaced({LENGTH: (factor * np.asarray(lengths)).tolist()})


def _loss(search: EvidenceSearch, kernel: Kernel, noise: float) -> float:
    """Mean logistic loss of the codes under the other rows, at the temperature that suits it best."""
    search.n_evaluations += 1
    low, high = search.Y.min(0).values, search.Y.max(0).values
    middle, half = (low + high) / 2, ((high - low) / 2).clamp(min=1e-300)
    seen = (left_out(kernel, noise, search.X, search.Y, search.weight) - middle) / half
    margin = seen * torch.sign(search.Y - middle)
    share = search.weight[:, None] / search.weight.sum() / margin.shape[1]
    loss = torch.nn.functional.softplus
    return min(float((share * loss(-margin / t)).sum()) for t in TEMPERATURES.tolist())

"""Kernels for class codes: the evidence proposes, the leave-one-out log loss decides.

The evidence treats codes ±1 as measurements with Gaussian noise. If classes are easy to separate, it drives the noise
to its lower bound and length-scales down to the gaps between rows. The ratios of length-scales remain useful. Their
common factor, the noise and the family are chosen here by the leave-one-out log loss.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch

from mercer.evidence.coordinates import Point
from mercer.evidence.exact import left_out, log_evidence
from mercer.kernels import Kernel
from mercer.selection.evidence_search import LENGTH, NOISE_BOUNDS, EvidenceSearch

#: Least noise as a share of the codes' variance.
LEAST_NOISE = 1e-2
#: Factors of a step in the length-scales and in the noise, and the least share by which a step lowers the loss.
LENGTH_STEP, NOISE_STEP, GAIN = 1.6, 2.5, 2e-3
#: Temperatures tried: decision values are not log odds, and their scale must not matter.
TEMPERATURES = torch.logspace(-2, 1.5, 36, dtype=torch.float64)


def refine_by_log_loss(search: EvidenceSearch, points: Iterable[Point]) -> Point:
    """The proposed point of least leave-one-out log loss, improved by steps in length-scale and noise."""
    best = min(points, key=lambda point: _log_loss(search, point.kernel, point.noise))
    kernel, noise = best.kernel, best.noise
    lowest = _log_loss(search, kernel, noise)
    steps = [(LENGTH_STEP, 1.0), (1 / LENGTH_STEP, 1.0), (1.0, NOISE_STEP), (1.0, 1 / NOISE_STEP)]
    while steps:
        by_length, by_noise = steps.pop(0)
        new_kernel = _scaled(kernel, by_length)
        new_noise = float(np.clip(noise * by_noise, LEAST_NOISE, NOISE_BOUNDS[1]))
        if new_noise == noise and by_length == 1.0:
            continue
        loss = _log_loss(search, new_kernel, new_noise)
        if loss < (1 - GAIN) * lowest:
            kernel, noise, lowest = new_kernel, new_noise, loss
            back = 1 / by_length, 1 / by_noise
            steps = [(by_length, by_noise), *(step for step in steps if step != back)]
    return Point(kernel, noise, value=log_evidence(kernel, noise, search.X, search.Y, search.weight)[0])


def _scaled(kernel: Kernel, factor: float) -> Kernel:
    lengths = kernel.tunable()[LENGTH]
    return kernel if factor == 1.0 else kernel.replaced({LENGTH: (factor * np.asarray(lengths)).tolist()})


def _log_loss(search: EvidenceSearch, kernel: Kernel, noise: float) -> float:
    """Mean leave-one-out logistic loss of the codes, at the best temperature."""
    search.n_evaluations += 1
    low, high = search.Y.min(0).values, search.Y.max(0).values
    middle, half = (low + high) / 2, ((high - low) / 2).clamp(min=1e-300)
    decisions = (left_out(kernel, noise, search.X, search.Y, search.weight) - middle) / half
    margin = decisions * torch.sign(search.Y - middle)
    share = search.weight[:, None] / search.weight.sum() / margin.shape[1]
    softplus = torch.nn.functional.softplus
    return min(float((share * softplus(-margin / t)).sum()) for t in TEMPERATURES.tolist())

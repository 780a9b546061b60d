"""What a mixture of local models would say of its rows without them, component by component."""

from __future__ import annotations

import numpy as np
import torch

from mercer.border.intervals import Intervals
from mercer.mixture.em import Mixture, Sample, columns
from mercer.mixture.experts import LinearExperts
from mercer.mixture.inside import gate_probabilities, mean_and_variance

#: Rows that are asked at most.
ASKED_ROWS = 2000


def left_out_intervals(mixture: Mixture, sample: Sample, *, disagree: bool) -> Intervals:
    r"""Residuals of some rows over the mixture's own standard deviation there, as if each had been left out.

    A local model of q weights shares :math:`N_j = N p(j)` rows, so a row has the leverage :math:`q\,p(j \mid x)/N_j` in
    it on average; the gates, which many rows make, stay as they are.
    """
    mixture = mixture.to(sample.plan.device)
    some = sample.part(sample.rows.shard.spaced(sample.weight > 0, ASKED_ROWS))
    x, y, weight = columns(some.rows.take(torch.arange(some.rows.n_rows))), some.y, some.weight
    f, variance = mean_and_variance(mixture, disagree)(x).chunk(2)
    size = 1 + x.shape[0] if isinstance(mixture.experts, LinearExperts) else 1
    rows = sample.total / sample.mean_weight * mixture.gates.weights
    h = (size * gate_probabilities(mixture)(x) / rows.clamp(min=1.0)[:, None]).sum(0)
    left = 1 - h.clamp(max=0.5)  # beyond that the average says little of a row
    std = variance.clamp(min=np.finfo(float).tiny).sqrt()
    return Intervals.of(((y - f) / left / std).T.double().cpu().numpy(), weight.double().cpu().numpy())

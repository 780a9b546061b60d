"""Predictions of a mixture: responsibilities, densities, means and variances, and their leave-one-out scale.

Most functions take a mixture and return a function of a block's inputs (D × n).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mercer.engine import Sample
from mercer.mixture.em import Mixture, posterior
from mercer.mixture.experts import LinearExperts, NoisyExperts
from mercer.mixture.features import columns
from mercer.mixture.fit import Fitted
from mercer.preprocessing.inputs import InputMap

#: Largest number of rows with leave-one-out residuals.
LEFT_OUT_ROWS = 2000


def gate_probabilities(mixture: Mixture) -> Callable[[Tensor], Tensor]:
    """p(j | x), k × n."""
    log_gates = mixture.log_gates()
    return lambda x: posterior(log_gates(x))[0]


def responsibilities(mixture: Mixture) -> Callable[[Tensor, Tensor], Tensor]:
    """p(j | x, y), k × n, of inputs and their targets (p × n)."""
    log_joint, experts, layout = mixture.log_joint(), mixture.experts, mixture.layout

    def answer(x: Tensor, y: Tensor) -> Tensor:
        return posterior(log_joint(x, y, layout.of(x, experts.further(x, y))))[0]

    return answer


def log_densities(mixture: Mixture) -> Callable[[Tensor], Tensor]:
    """log p(x), 1 × n."""
    log_gates = mixture.log_gates()
    return lambda x: posterior(log_gates(x))[1][None]


def conditional_mean(mixture: Mixture) -> Callable[[Tensor], Tensor]:
    """E[y | x] = Σ_j p(j | x) E[y | x, j] (eq. 2.6, 3.4), p × n."""
    log_gates, experts = mixture.log_gates(), mixture.experts

    def answer(x: Tensor) -> Tensor:
        A, _ = posterior(log_gates(x))
        return (A[:, None] * experts.mean(x)).sum(0)

    return answer


def mean_and_variance(mixture: Mixture, disagree: bool) -> Callable[[Tensor], Tensor]:
    """E[y | x] and Var[y | x] below it (2p × n); `disagree` adds the variance between local means."""
    log_gates, experts = mixture.log_gates(), mixture.experts
    assert isinstance(experts, NoisyExperts)

    def answer(x: Tensor) -> Tensor:
        A, _ = posterior(log_gates(x))
        m = experts.mean(x)
        f = (A[:, None] * m).sum(0)
        spread = (m - f).square() if disagree else torch.zeros_like(m)
        return torch.cat([f, (A[:, None] * (experts.noise[:, :, None] + spread)).sum(0)])

    return answer


def gate_attributes(fitted: Fitted, wanted: int, inputs: InputMap) -> dict[str, Any]:
    """Fitted attributes of the gates, in the inputs' own units."""
    result, gates = fitted.result, fitted.mixture.gates
    why = result.stop_reason
    if gates.n_components < wanted:
        why = why.noting(f"{gates.n_components} of {wanted} components were of use")
    s, covariances = inputs.scale, gates.covariances.numpy()
    with np.errstate(over="ignore"):  # in units of 1e200 a square is infinite
        covariances = covariances * s * s if covariances.ndim == 2 else covariances * s * s[:, None]
    return {
        "weights_": gates.weights.numpy(),
        "means_": gates.means.numpy() * s + inputs.mean,
        "covariances_": covariances,
        "n_components_": gates.n_components,
        "n_iter_": max(len(result.path) - 1, 1),
        "stop_reason_": why,
        "log_likelihood_path_": np.array(result.path),
    }


def leave_one_out_scale(
    mixture: Mixture, sample: Sample, part: Sample, *, disagree: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    r"""Means, standard deviations and 1 − leverage at rows `part` of a sample, n × p, n × p and n × 1.

    A local model of q weights shares :math:`N_j = N p(j)` rows, so a row has the leverage :math:`q\,p(j \mid x)/N_j` in
    it on average. The gates depend on many rows and are kept as they are.
    """
    x = columns(part.rows.take(torch.arange(part.rows.n_rows)))
    f, variance = mean_and_variance(mixture, disagree)(x).chunk(2)
    size = 1 + x.shape[0] if isinstance(mixture.experts, LinearExperts) else 1
    rows = sample.total_weight / sample.mean_weight * mixture.gates.weights
    h = (size * gate_probabilities(mixture)(x) / rows.clamp(min=1.0)[:, None]).sum(0)
    kept = 1 - h.clamp(max=0.5)  # larger leverages are far from the average
    mean, std, factor = (values.double().cpu().numpy() for values in (f.T, variance.sqrt().T, kept[:, None]))
    return mean, std, factor

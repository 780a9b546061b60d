"""What can be asked of a mixture at rows: who is responsible there, and how likely they are.

Each function takes a mixture and returns a function of a block's inputs (D × n).
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from mercer.mixture.em import Mixture, posterior


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

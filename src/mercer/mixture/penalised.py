"""Mixtures whose experts are penalised, and what such a mixture answers: the mean of its experts, by their gates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from mercer.border.estimator import require_number
from mercer.border.weights import penalty_in_units, warn_of_small_weights
from mercer.mixture.em import Mixture, posterior
from mercer.mixture.estimator import MixtureEstimator
from mercer.mixture.experts import NoisyExperts


class PenalisedMixture(MixtureEstimator):
    """A mixture whose experts or output weights are penalised."""

    def __init__(
        self,
        n_components: Any = 5,
        *,
        covariance_type: str = "diagonal",
        regularization: float = 1e-2,
        max_components: int = 20,
        n_folds: int = 3,
        n_init: int = 3,
        init: str = "k-means++",
        max_iter: int = 200,
        tol: float = 1e-5,
        covariance_floor: float = 1e-4,
        time_budget: float | None = None,
        scale_inputs: bool = True,
        device: Any = "auto",
        dtype: Any = "auto",
        memory_limit: Any = None,
        random_state: Any = None,
        verbose: bool = False,
        callbacks: Any = None,
    ) -> None:
        super().__init__(
            n_components,
            covariance_type=covariance_type,
            max_components=max_components,
            n_folds=n_folds,
            n_init=n_init,
            init=init,
            max_iter=max_iter,
            tol=tol,
            covariance_floor=covariance_floor,
            time_budget=time_budget,
            scale_inputs=scale_inputs,
            device=device,
            dtype=dtype,
            memory_limit=memory_limit,
            random_state=random_state,
            verbose=verbose,
            callbacks=callbacks,
        )
        self.regularization = regularization

    def _require_parameters(self) -> None:
        super()._require_parameters()
        require_number("regularization", self.regularization, "a number of at least 0", 0.0)

    def _ridge(self, unit: float, total: float) -> float:
        warn_of_small_weights(float(self.regularization), unit, total, "regularization")
        return penalty_in_units(float(self.regularization), unit)


def gated(mixture: Mixture) -> Callable[[Tensor], Tensor]:
    """E[y | x] = Σ_j p(j | x) E[y | x, j] (eq. 2.6, 3.4), p × n."""
    log_gates, experts = mixture.log_gates(), mixture.experts

    def answer(x: Tensor) -> Tensor:
        A, _ = posterior(log_gates(x))
        return (A[:, None] * experts.mean(x)).sum(0)

    return answer


def mean_and_variance(mixture: Mixture, disagree: bool) -> Callable[[Tensor], Tensor]:
    """E[y | x] and Var[y | x] below it (2p × n); `disagree`: whether what local means differ by is part of it."""
    log_gates, experts = mixture.log_gates(), mixture.experts
    assert isinstance(experts, NoisyExperts)

    def answer(x: Tensor) -> Tensor:
        A, _ = posterior(log_gates(x))
        m = experts.mean(x)
        f = (A[:, None] * m).sum(0)
        spread = (m - f).square() if disagree else torch.zeros_like(m)  # a sum of squares is never negative
        return torch.cat([f, (A[:, None] * (experts.noise[:, :, None] + spread)).sum(0)])

    return answer

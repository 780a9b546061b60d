"""Experts p(y | x, j) of components: none, a constant or a linear form with Gaussian noise.

An expert defines the features of the targets that its M step needs, its log density, and the M step from the sums over
rows. Experts of classes are in `class_experts`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import log, pi
from typing import ClassVar, Self, final

import torch
from torch import Tensor

from mercer.mixture.features import Features
from mercer.mixture.gates import EPS

Sums = tuple[Tensor, ...]


class Experts(ABC):
    """The experts of all k components."""

    #: Fields that have a row for each component.
    by_component: ClassVar[tuple[str, ...]] = ()
    #: Whether the sums must hold all products of inputs.
    needs_products = False
    #: Whether the M step is one of Newton steps, which may have to be shortened, and how many it has at most.
    newton = False
    newton_steps = 1

    def further(self, x: Tensor, y: Tensor) -> Sequence[Tensor]:
        """Features of the targets of a block x (D × n), y (p × n): tensors of n columns, q rows together."""
        return ()

    def log_density(self, x: Tensor, y: Tensor) -> Tensor | None:
        """log p(y | x, j), k × n; None if there are no experts."""
        return None

    def sums(self, x: Tensor, y: Tensor, R: Tensor, psi: Tensor) -> Sums:
        """Sums that the M step needs besides R Ψᵀ."""
        return ()

    def width(self) -> int:
        """Numbers per row that `sums` and `log_density` hold at a time."""
        return 0

    def penalty(self) -> Tensor | float:
        """The penalty that is subtracted from the log-likelihood."""
        return 0.0

    def badness(self) -> Tensor | float:
        """Misfit of each component on its rows (k): the largest one is split."""
        return 1.0

    @abstractmethod
    def updated(self, moments: Tensor, sums: Sums, layout: Features, step: float = 1.0) -> Self:
        """The M step."""

    def select(self, index: Tensor) -> Self:
        """The experts of these components, in this order; an index may be repeated."""
        selected = {name: getattr(self, name)[index] for name in self.by_component}
        return replace(self, **selected)  # type: ignore[type-var]

    def mean(self, x: Tensor) -> Tensor:
        """E[y | x, j] (k × p × n); class probabilities for classes."""
        raise NotImplementedError


@final
@dataclass(frozen=True)
class NoExperts(Experts):
    """A mixture of the inputs alone."""

    def updated(self, moments: Tensor, sums: Sums, layout: Features, step: float = 1.0) -> Self:
        return self


@dataclass(frozen=True)
class NoisyExperts(Experts):
    """y ~ N(m_j(x), σ_j²), each output with its own σ_j² (k × p), which the floor bounds below."""

    by_component: ClassVar[tuple[str, ...]] = ("intercept", "noise")
    intercept: Tensor
    noise: Tensor
    floor: Tensor

    def log_density(self, x: Tensor, y: Tensor) -> Tensor:
        squares = (y - self.mean(x)).square() / self.noise[:, :, None]
        return -0.5 * (squares.sum(1) + (log(2 * pi) + self.noise.log()).sum(1)[:, None])

    def badness(self) -> Tensor:
        return self.noise.sum(1)

    def width(self) -> int:
        return self.intercept.numel()


@final
@dataclass(frozen=True)
class ConstantExperts(NoisyExperts):
    """NRBF (eq. 2.8, 2.16): m_j(x) = w_j."""

    @classmethod
    def start(cls, k: int, variance: Tensor, floor: float) -> Self:
        return cls(variance.new_zeros(k, len(variance)), variance.expand(k, -1).clone(), floor * variance)

    def further(self, x: Tensor, y: Tensor) -> Sequence[Tensor]:
        return y, y.square()

    def updated(self, moments: Tensor, sums: Sums, layout: Features, step: float = 1.0) -> Self:
        n, p = moments[:, :1], self.intercept.shape[1]
        targets = moments[:, layout.size :] / n
        mean = targets[:, :p]
        return replace(self, intercept=mean, noise=torch.maximum(targets[:, p : 2 * p] - mean.square(), self.floor))

    def mean(self, x: Tensor) -> Tensor:
        return self.intercept[:, :, None].expand(-1, -1, x.shape[1])


@final
@dataclass(frozen=True)
class LinearExperts(NoisyExperts):
    """ENRBF (eq. 2.17, 2.19): m_j(x) = w_jᵀ[x; 1], with the penalty (λ/2)‖slopes‖²/σ_j² of a ridge regression."""

    needs_products = True
    by_component = ("intercept", "noise", "coef")

    coef: Tensor  # k × p × D
    ridge: float

    @classmethod
    def start(cls, k: int, D: int, variance: Tensor, floor: float, ridge: float = 0.0) -> Self:
        zeros = variance.new_zeros(k, len(variance))
        return cls(
            zeros, variance.expand(k, -1).clone(), floor * variance, zeros[:, :, None].repeat(1, 1, D), float(ridge)
        )

    def further(self, x: Tensor, y: Tensor) -> Sequence[Tensor]:
        return y, y.square(), (y[:, None] * x).flatten(0, 1)  # output by output

    def penalty(self) -> Tensor:
        return 0.5 * self.ridge * (self.coef.square().sum(2) / self.noise).sum()

    def updated(self, moments: Tensor, sums: Sums, layout: Features, step: float = 1.0) -> Self:
        n, p, D = moments[:, :1], self.intercept.shape[1], layout.n_inputs
        x_mean = moments[:, layout.linear] / n
        S = layout.matrices(moments[:, layout.second] / n) - x_mean[:, :, None] * x_mean[:, None, :]
        targets = moments[:, layout.size :] / n
        y_mean = targets[:, :p]
        y_var = targets[:, p : 2 * p] - y_mean.square()
        c = targets[:, 2 * p :].reshape(-1, p, D) - y_mean[:, :, None] * x_mean[:, None, :]
        values, V = torch.linalg.eigh(S)
        # directions in which a component has no extent leave their slope at zero
        least = 4 * D * EPS * (values[:, -1:].clamp(min=0) + x_mean.square().sum(1, keepdim=True))
        inverse = torch.where(values > least, 1 / (values + self.ridge / n).clamp(min=1e-300), 0.0)
        along = c @ V  # k × p × D
        slopes = along * inverse[:, None]
        rss = y_var - 2 * (along * slopes).sum(2) + (slopes.square() * values.clamp(min=0)[:, None]).sum(2)
        noise = rss.clamp(min=0) + self.ridge / n * slopes.square().sum(2)
        coef = slopes @ V.mT
        intercept = y_mean - (coef @ x_mean[:, :, None])[:, :, 0]
        return replace(self, coef=coef, intercept=intercept, noise=torch.maximum(noise, self.floor))

    def mean(self, x: Tensor) -> Tensor:
        k, p, D = self.coef.shape
        return (self.coef.reshape(k * p, D) @ x).reshape(k, p, -1) + self.intercept[:, :, None]

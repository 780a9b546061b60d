"""Experts whose targets are classes: one class each, class proportions, logistic and softmax regressions.

Targets come as one row of class numbers 0 … C − 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self, final

import torch
from torch import Tensor

from mercer.losses import Logistic, Softmax
from mercer.mixture.experts import Experts, Sums
from mercer.mixture.features import Features

#: Stands for log 0: finite, so that zero times it is zero.
NEVER = -1e30
#: Penalty on intercepts per unit of weight: it keeps the intercept of a component with a single class finite.
INTERCEPT_PENALTY = 1e-11
#: Largest number of coefficients of a component for which the full Hessian, of cubic cost, is used.
LARGEST_HESSIAN = 256


def indicators(y: Tensor, n_classes: int) -> Tensor:
    """C × n: one where the row is of the class."""
    return (y == torch.arange(n_classes, device=y.device)[:, None]).to(torch.float64)


@dataclass(frozen=True)
class ClassTable(Experts):
    """P(C_c | j), the share of class c in component j, whatever the inputs; `table` is k × C.

    A share of zero is treated as a very small one, so rows of a class without components still count.
    """

    by_component = ("table",)
    table: Tensor

    def further(self, x: Tensor, y: Tensor) -> Sequence[Tensor]:
        return (indicators(y, self.table.shape[1]),)

    def log_density(self, x: Tensor, y: Tensor) -> Tensor:
        return self.table.log().clamp(min=NEVER)[:, y[0].long()]

    def mean(self, x: Tensor) -> Tensor:
        return self.table[:, :, None].expand(-1, -1, x.shape[1])


@final
@dataclass(frozen=True)
class Categorical(ClassTable):
    """Common-basis GMC (eq. 3.17): each component has rows of several classes."""

    def updated(self, moments: Tensor, sums: Sums, layout: Features, step: float = 1.0) -> Self:
        counts = moments[:, layout.size :]
        mass = counts.sum(1, keepdim=True)
        return replace(self, table=torch.where(mass > 0, counts / mass.clamp(min=1e-300), self.table))


@final
@dataclass(frozen=True)
class Owned(ClassTable):
    """GMC (eq. 3.15): each component belongs to one class for good, so that EM over all is EM within each class."""

    def updated(self, moments: Tensor, sums: Sums, layout: Features, step: float = 1.0) -> Self:
        return self


@final
@dataclass(frozen=True)
class LogisticExperts(Experts):
    """ENRBFC (eq. 3.1): a logistic regression per component, softmax for more than two classes.

    `coef` is k × c × (1 + D), the intercept first, with one row of coefficients for two classes (c = 1) and one per
    class for more. The penalty is (λ/2)‖slopes‖² per component. The M step is one Newton step of IRLS (eq. 3.10 to
    3.13) per EM iteration, and the loop shortens a step after which the likelihood would have fallen. The thesis
    iterates IRLS to the end inside each (`newton_steps` above one): the same fixed points, for many passes.

    With more than `LARGEST_HESSIAN` coefficients per component the step is that of Böhning's bound: the curvature of a
    softmax is at most ½ Σ r [1; x][1; x]ᵀ for each class by itself, so the likelihood never falls and the cost is
    linear in the number of classes. It takes more iterations to the same fixed points.
    """

    needs_products = True
    newton = True
    by_component = ("coef",)

    coef: Tensor
    ridge: float
    #: The weight of all rows.
    total: float
    newton_steps: int = 1

    @classmethod
    def start(cls, k: int, D: int, n_classes: int, ridge: float, total: float, device: torch.device) -> Self:
        c = 1 if n_classes == 2 else n_classes
        return cls(torch.zeros(k, c, 1 + D, dtype=torch.float64, device=device), float(ridge), total)

    def _logits(self, x: Tensor) -> Tensor:
        k, c, width = self.coef.shape
        flat = self.coef.reshape(k * c, width)
        return torch.addmm(flat[:, :1], flat[:, 1:], x).reshape(k, c, -1)

    def log_density(self, x: Tensor, y: Tensor) -> Tensor:
        logits = self._logits(x)
        c = logits.shape[1]
        loss, t = (Logistic(), y) if c == 1 else (Softmax(), indicators(y, c))
        return -loss.value((2 * t - 1)[None], logits)[:, 0]

    def mean(self, x: Tensor) -> Tensor:
        logits = self._logits(x)
        if logits.shape[1] == 1:
            return torch.cat([torch.sigmoid(-logits), torch.sigmoid(logits)], 1)
        return torch.softmax(logits, 1)

    @property
    def bounded(self) -> bool:
        """Whether the step is that of the bound."""
        return self.coef.shape[1] > 1 and self.many

    @property
    def many(self) -> bool:
        """Whether a component has too many coefficients for its Hessian."""
        return self.coef[0].numel() > LARGEST_HESSIAN

    def width(self) -> int:
        k, c, _ = self.coef.shape
        return k * (4 * c + (0 if self.bounded else c * (c + 1) // 2))

    def sums(self, x: Tensor, y: Tensor, R: Tensor, psi: Tensor) -> Sums:
        """Slope and curvature of Σ r log p(y | x, j) for every component (eq. 3.11, 3.12); slopes alone if bounded."""
        k, c, width = self.coef.shape
        inputs = psi[:width]
        features = psi[: Features(width - 1, products=True).size]
        p = self.mean(x)
        if self.bounded:
            slope = R[:, None] * (indicators(y, c) - p)
            return ((slope.flatten(0, 1) @ inputs.T).reshape(k, c, width),)
        if c == 1:
            p = p[:, 1:]
            slope, pairs = R[:, None] * (y - p), R[:, None] * p * (1 - p)
        else:
            slope = R[:, None] * (indicators(y, c) - p)
            i, j = torch.triu_indices(c, c, device=x.device)
            pairs = R[:, None] * p[:, i] * ((i == j)[:, None].to(p) - p[:, j])
        curvature = (pairs.flatten(0, 1) @ features.T).reshape(k, pairs.shape[1], -1)
        return (slope.flatten(0, 1) @ inputs.T).reshape(k, c, width), curvature

    def penalty(self) -> Tensor:
        return 0.5 * (self.penalties() * self.coef.square()).sum()

    def penalties(self) -> Tensor:
        """The penalty of each coefficient of a class, the intercept first."""
        penalties = torch.full_like(self.coef[0, 0], self.ridge)
        penalties[0] = INTERCEPT_PENALTY * self.total
        return penalties

    def updated(self, moments: Tensor, sums: Sums, layout: Features, step: float = 1.0) -> Self:
        slope, *curvature = sums
        slope = slope - self.penalties() * self.coef
        if self.bounded:
            hessian = 0.5 * _second_moments(moments, layout) + torch.diag(self.penalties())
            direction = _uphill(hessian, slope.mT).mT  # each class by itself
        else:
            products = Features(layout.n_inputs, products=True)
            pairs = _second_moments(curvature[0].flatten(0, 1), products)
            hessian = self._assembled(pairs.unflatten(0, curvature[0].shape[:2]))
            direction = _uphill(hessian, slope.flatten(1)[:, :, None]).reshape(self.coef.shape)
        if slope.shape[1] > 1:  # only differences between classes matter to an intercept
            direction[:, :, 0] -= direction[:, :, 0].mean(1, keepdim=True)
        return replace(self, coef=self.coef + step * direction)

    def _assembled(self, H: Tensor) -> Tensor:
        """The whole negative Hessian (k × c(1+D) × c(1+D)) from its blocks for pairs of classes, with the penalty."""
        k, c, width = self.coef.shape
        full = H.new_empty(k, c, width, c, width)
        for block, (i, j) in enumerate(torch.triu_indices(c, c).T.tolist()):
            full[:, i, :, j] = H[:, block]
            full[:, j, :, i] = H[:, block]
        full = full.reshape(k, c * width, c * width)
        return full + torch.diag(self.penalties().repeat(c))


def _second_moments(sums: Tensor, layout: Features) -> Tensor:
    """Σ r [1; x][1; x]ᵀ from sums over the features of the inputs (b × F): b × (1+D) × (1+D)."""
    width = layout.n_inputs + 1
    H = sums.new_empty(len(sums), width, width)
    H[:, 0, 0] = sums[:, 0]
    H[:, 0, 1:] = H[:, 1:, 0] = sums[:, layout.linear]
    H[:, 1:, 1:] = layout.matrices(sums[:, layout.second])
    return H


def _uphill(hessian: Tensor, slope: Tensor) -> Tensor:
    """H⁻¹g for negative Hessians (k × m × m) and slopes (k × m × c); zero along directions flat up to rounding."""
    size = hessian.diagonal(dim1=1, dim2=2).clamp(min=1e-300).rsqrt()
    values, V = torch.linalg.eigh(size[:, :, None] * hessian * size[:, None, :])
    inverse = torch.where(values > values[:, -1:] * 1e-13, 1 / values.clamp(min=1e-300), 0.0)
    return size[:, :, None] * ((V * inverse[:, None]) @ (V.mT @ (size[:, :, None] * slope)))

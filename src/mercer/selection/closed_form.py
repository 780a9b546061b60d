"""Kernel ridge with every row left out in turn, in closed form, and the losses by which kernels are compared.

The objective is Σ w (y − f)² + λ ‖f‖². What a model without row i says at row i is y − α/C, with α = C y and C the
inverse of K + λ/w: one eigendecomposition gives it for all rows and all penalties.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from mercer.selection.link import FLOORS, Codes, Link, log_losses


def penalty_path(K: Tensor, Y: Tensor, weight: Tensor, penalties: Tensor) -> Tensor:
    """Leave-one-out values for every penalty, L × n × p, from one eigendecomposition.

    >>> Y = torch.tensor([[1.0], [-1.0]], dtype=torch.float64)
    >>> penalty_path(torch.eye(2, dtype=torch.float64), Y, torch.ones(2), torch.tensor([0.1])).abs().sum().item()
    0.0
    """
    root = weight.to(K).sqrt()[:, None]
    spectrum, Q = torch.linalg.eigh(K * root * root.T)
    inverse = 1 / (spectrum.clamp(min=0) + penalties.to(K)[:, None])  # L × n
    rotated = Q.T @ (root * Y)
    dual = Q @ (inverse[:, :, None] * rotated)
    diagonal = Q.square() @ inverse.T
    return Y - dual / (diagonal.T[:, :, None] * root)


@dataclass(frozen=True)
class Judge:
    """What values at rows that were not fitted are worth: squared error over that of the constant, or log loss."""

    Y: Tensor
    weight: Tensor
    codes: Codes | None = None

    def __call__(self, F: Tensor) -> Tensor:
        """Losses of values … × n × p, one for each leading index."""
        w = (self.weight / self.weight.sum()).to(F)
        if self.codes is not None:  # in single precision, which is more than enough to compare by, and half the time
            return log_losses(self.codes, F.float(), self._truth, w)[0]
        scale = (w[:, None] * self.Y.square()).sum().clamp(min=1e-300)
        return (w[:, None] * (F - self.Y).square()).sum((-1, -2)) / scale

    @cached_property
    def _truth(self) -> Tensor:
        assert self.codes is not None
        return self.codes.truth(self.Y)

    @property
    def constant(self) -> float:
        """The loss of the constant: with squared error 1."""
        return float(self(torch.zeros_like(self.Y)[None])[0])

    def gain(self, F: Tensor, link: Link | None) -> Tensor:
        """By how much each row loses less with values n × p (of classes, through a link) than with the constant."""
        if link is None:
            return (self.Y.square() - (F - self.Y).square()).sum(-1)
        own, prior = link.codes.truth(self.Y)[:, None], Link(link.codes, FLOORS[0], 1.0)
        p, q = (one.probabilities(V).gather(-1, own)[:, 0] for one, V in ((link, F), (prior, torch.zeros_like(F))))
        return (p / q).log()

    def luck(self, F: Tensor) -> Tensor:
        """The part of the gain f² + 2 f (y − f) in squared error that residuals make: f² differs without any."""
        return (2 * F * (self.Y - F)).sum(-1)

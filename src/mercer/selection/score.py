"""Losses by which candidates are compared, from their values at rows that were not fitted."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from mercer.selection.link import FLOORS, Codes, Link, all_logits, log_losses, logit_losses


@dataclass(frozen=True)
class Score:
    """Squared error over the constant's, or the log loss of classes, at rows with targets `Y` and weights.

    Values of classes are predictions of their codes, or log odds (`logits`).
    """

    Y: Tensor
    weight: Tensor
    codes: Codes | None = None
    logits: bool = False

    def __call__(self, F: Tensor) -> Tensor:
        """Losses of values … × n × p, one for each leading index."""
        w = (self.weight / self.weight.sum()).to(F)
        if self.logits:
            return logit_losses(F, self._classes, w)[0]
        if self.codes is not None:  # single precision is enough to compare by, and takes half the time
            return log_losses(self.codes, F.float(), self._classes, w)[0]
        scale = (w[:, None] * self.Y.square()).sum().clamp(min=1e-300)
        return (w[:, None] * (F - self.Y).square()).sum((-1, -2)) / scale

    @cached_property
    def _classes(self) -> Tensor:
        assert self.codes is not None
        return self.codes.classes(self.Y)

    @property
    def constant(self) -> float:
        """The loss of the constant prediction; squared error gives 1."""
        return float(self(torch.zeros_like(self.Y)[None])[0])

    def gain(self, F: Tensor, link: Link | None) -> Tensor:
        """The loss of the constant less that of values n × p, for each row; classes go through the link."""
        if link is None:
            return (self.Y.square() - (F - self.Y).square()).sum(-1)
        prior = Link(link.codes, FLOORS[0], 1.0)
        return self.log_probability(F, link) - self.log_probability(torch.zeros_like(F), prior)

    def log_probability(self, F: Tensor, link: Link | None = None) -> Tensor:
        """The log probability of each row's class by values n × p through a link, or by log odds."""
        classes = self._classes
        if link is not None:
            return link.probabilities(F).gather(-1, classes[:, None])[:, 0].log()
        factor = logit_losses(F, classes, self.weight / self.weight.sum())[1]
        return (factor * all_logits(F)).log_softmax(-1).gather(-1, classes[:, None])[:, 0]

    def noise_part(self, F: Tensor) -> Tensor:
        """The part of the gain f² + 2 f (y − f) in squared error that comes from residuals."""
        return (2 * F * (self.Y - F)).sum(-1)

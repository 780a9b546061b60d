"""Likelihoods of classes given latent functions: log p, its slope, and the curvature as one small matrix a row."""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor

from mercer.parts import Part, part


class Likelihood(Part):
    """log p(y | f) of each row; y and f are n × p."""

    @abstractmethod
    def value(self, y: Tensor, f: Tensor) -> Tensor:
        """log p, one number a row."""

    @abstractmethod
    def slope(self, y: Tensor, f: Tensor) -> Tensor:
        """∂ log p / ∂f, n × p."""

    @abstractmethod
    def curvature(self, f: Tensor) -> Tensor:
        """W = −∂² log p / ∂f², n × p × p, positive semi-definite."""

    def third(self, f: Tensor, spread: Tensor) -> Tensor:
        """Derivative of tr(spread · W(f)) in f, n × p, for a symmetric `spread` (n × p × p) that stands still."""
        with torch.enable_grad():
            leaf = f.detach().clone().requires_grad_()
            (grad,) = torch.autograd.grad((spread * self.curvature(leaf)).sum(), leaf)
        return grad


@part
class Bernoulli(Likelihood):
    """σ(y f) for y = ±1 and one latent function (eq. 4.18).

    >>> import torch
    >>> from mercer.evidence.likelihoods import Bernoulli
    >>> Bernoulli().slope(torch.ones(1, 1), torch.zeros(1, 1)).item()
    0.5
    """

    short_name = "bernoulli"

    def value(self, y: Tensor, f: Tensor) -> Tensor:
        return torch.nn.functional.logsigmoid(y * f)[:, 0]

    def slope(self, y: Tensor, f: Tensor) -> Tensor:
        return y * torch.sigmoid(-y * f)

    def curvature(self, f: Tensor) -> Tensor:
        return (torch.sigmoid(f) * torch.sigmoid(-f))[:, :, None]


@part
class Categorical(Likelihood):
    """softmax(f) over p classes; y is +1 for a row's class and −1 for the others. Not in the thesis.

    >>> import torch
    >>> from mercer.evidence.likelihoods import Categorical
    >>> Categorical().curvature(torch.zeros(1, 2)).tolist()
    [[[0.25, -0.25], [-0.25, 0.25]]]
    """

    short_name = "categorical"

    def value(self, y: Tensor, f: Tensor) -> Tensor:
        return torch.where(y > 0, torch.log_softmax(f, 1), 0.0).sum(1)

    def slope(self, y: Tensor, f: Tensor) -> Tensor:
        return (y > 0).to(f.dtype) - torch.softmax(f, 1)

    def curvature(self, f: Tensor) -> Tensor:
        pi = torch.softmax(f, 1)
        return torch.diag_embed(pi) - pi[:, :, None] * pi[:, None, :]

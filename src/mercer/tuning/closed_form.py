"""Kernel ridge with every row left out in turn, in closed form, and the losses by which kernels are compared.

The objective is Σ w (y − f)² + λ ‖f‖². What a model without row i says at row i is y − α/C, with α = C y and C the
inverse of K + λ/w: one factor gives it for all rows, one eigendecomposition for all rows and all penalties.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from mercer.linalg import cholesky

#: The slope of the logistic link is looked for between these; codes differ by 1 or 2 between classes.
SLOPES = (0.05, 100.0)


def penalty_path(K: Tensor, Y: Tensor, weight: Tensor, penalties: Tensor) -> Tensor:
    """Leave-one-out values for every penalty, L × n × p, from one eigendecomposition.

    >>> import torch
    >>> from mercer.tuning.closed_form import penalty_path
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


def left_out(K: Tensor, Y: Tensor, weight: Tensor, penalty: float) -> tuple[Tensor, Tensor]:
    """Leave-one-out values and dual coefficients (n × p both) for one penalty, from one Cholesky factor."""
    noise = (penalty / weight.to(K)).clamp(max=1e300)
    C = torch.cholesky_inverse(cholesky(K + torch.diag(noise))[0])
    alpha = C @ Y
    return Y - alpha / C.diagonal()[:, None], alpha


@dataclass(frozen=True)
class Judge:
    """What a candidate's leave-one-out values are worth on these targets: the loss of the constant is 1 (squares)
    or the entropy of the classes (log loss), in mean over rows."""

    Y: Tensor
    weight: Tensor
    classes: bool

    def __call__(self, F: Tensor) -> Tensor:
        """Losses of values … × n × p, one for each leading index."""
        w = (self.weight / self.weight.sum()).to(F)
        if not self.classes:
            scale = (w[:, None] * self.Y.square()).sum()
            return (w[:, None] * (F - self.Y).square()).sum((-1, -2)) / scale
        return self._log_loss(F, w)

    @property
    def constant(self) -> float:
        """The loss of the constant."""
        return float(self(torch.zeros_like(self.Y)[None])[0])

    def slope(self, F: Tensor) -> Tensor:
        """The slope b of the link, softmax(log prior + b f), under which the log loss is least.

        The loss is convex in b: its derivative is bisected, on a logarithmic scale.
        """
        w = (self.weight / self.weight.sum()).to(F)
        lead = F.shape[:-2]
        low, high = (torch.full(lead, SLOPES[i], dtype=F.dtype, device=F.device).log() for i in (0, 1))
        for _ in range(12):
            middle = 0.5 * (low + high)
            rising = self._derivative(F, w, middle.exp()) > 0
            low, high = torch.where(rising, low, middle), torch.where(rising, middle, high)
        return (0.5 * (low + high)).exp()

    def _signed(self, F: Tensor) -> tuple[Tensor, Tensor]:
        """Values of two classes as those of two columns; and the index of the true class."""
        if self.Y.shape[1] == 1:
            return torch.cat([-0.5 * F, 0.5 * F], -1), (self.Y[:, 0] > 0).long()
        return F, self.Y.argmax(1)

    def _prior(self, true: Tensor, n_classes: int, w: Tensor) -> Tensor:
        share = torch.zeros(n_classes, dtype=w.dtype, device=w.device).index_add_(0, true, w)
        return share.clamp(min=1e-12).log()

    def _log_loss(self, F: Tensor, w: Tensor) -> Tensor:
        G, true = self._signed(F)
        logits = self._prior(true, G.shape[-1], w) + self.slope(F)[..., None, None] * G
        logp = logits.log_softmax(-1)
        return -(w * logp.gather(-1, true[:, None].expand(*logp.shape[:-1], 1))[..., 0]).sum(-1)

    def _derivative(self, F: Tensor, w: Tensor, b: Tensor) -> Tensor:
        G, true = self._signed(F)
        p = (self._prior(true, G.shape[-1], w) + b[..., None, None] * G).softmax(-1)
        own = G.gather(-1, true[:, None].expand(*G.shape[:-1], 1))[..., 0]
        return (w * ((p * G).sum(-1) - own)).sum(-1)

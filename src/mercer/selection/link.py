"""From values of least squares on codes to probabilities of classes: p ∝ max(p̂, ε)^t.

Least squares on codes estimates the probabilities themselves, so p̂ is the value on the codes' own scale. Floor ε and
exponent t are fitted on values at rows that were not fitted; for a given floor the log loss is convex in t. Beside
these rows stands one of which nobody knows the class: n rows without a mistake do not say that there are none.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from mercer.selection.shrinkage import shrinkage_factor

#: Rows of unknown class added to those by which probabilities are fitted. One instead of none takes 14 % off the log
#: loss (`docs/ablations.md`).
UNKNOWN_ROWS = 1.0
#: Floors that are tried, and the one by which candidates are compared, in shares of 1/classes; the exponent's bounds.
FLOORS, FLOOR, EXPONENTS = (0.006, 0.02, 0.06, 0.2, 0.5), 0.04, (0.1, 10.0)


@dataclass(frozen=True)
class Codes:
    """What two numbers a code takes in each column: one column for two classes, else one for each class.

    >>> codes = codes_of(torch.tensor([[1.5], [-0.5], [-0.5], [-0.5]]))
    >>> codes.shares(torch.tensor([[0.5]])).tolist(), codes.truth(torch.tensor([[1.5]])).tolist()
    ([[0.5, 0.5]], [1])
    """

    low: Tensor
    span: Tensor

    def shares(self, F: Tensor) -> Tensor:
        """Values … × p as estimates p̂ of the probabilities of every class, … × classes; not yet within 0 and 1."""
        p = (F - self.low.to(F)) / self.span.to(F)
        return torch.cat([1 - p, p], -1) if len(self.low) == 1 else p

    def truth(self, Y: Tensor) -> Tensor:
        """The class of each row of codes."""
        return self.shares(Y).argmax(-1)


def codes_of(Y: Tensor) -> Codes:
    """The codes of rows of which at least one is of each class."""
    low, high = Y.amin(0), Y.amax(0)
    return Codes(low, torch.where(high > low, high - low, 1.0))


@dataclass(frozen=True)
class Link:
    """A floor and an exponent."""

    codes: Codes
    floor: float
    exponent: float

    def probabilities(self, F: Tensor) -> Tensor:
        """Probabilities of every class for values … × p."""
        p = self.codes.shares(F)
        return (self.exponent * p.clamp(min=self.floor / p.shape[-1]).log()).softmax(-1)


def log_losses(codes: Codes, F: Tensor, true: Tensor, weight: Tensor, floor: float = FLOOR) -> tuple[Tensor, Tensor]:
    """Least log loss over the exponent, and that exponent, for values … × n × p and weights of sum one."""
    p, weight = codes.shares(F), weight.to(F)
    G = p.clamp(min=floor / p.shape[-1]).log().mT.contiguous()  # classes by rows: sums over few classes are slow
    G = G - G.amax(-2, keepdim=True)
    own = G.gather(-2, true.expand(*G.shape[:-2], 1, len(true)))[..., 0, :]
    own = own + (G.mean(-2) - own) * (UNKNOWN_ROWS / (UNKNOWN_ROWS + len(true)))
    t, powers = torch.full(G.shape[:-2], 1.3, dtype=F.dtype, device=F.device), torch.stack([G, G.square()])
    for _ in range(4):  # Newton's steps, none over a factor of three
        p = (t[..., None, None] * G).exp_()
        mean, square = (p * powers).sum(-2) / p.sum(-2)
        new = t - (mean - own) @ weight / ((square - mean.square()) @ weight).clamp(min=1e-9)
        t = new.clamp(t / 3, t * 3).clamp(*EXPONENTS)
    logits = t[..., None, None] * G
    return (logits.exp_().sum(-2).log() - t[..., None] * own) @ weight, t


def fitted_link(codes: Codes, F: Tensor, Y: Tensor, weight: Tensor) -> Link:
    """The link of least log loss on values n × p that were not fitted to these codes.

    The exponent is drawn to one, by which shares are probabilities, as far as its gain may be luck.
    """
    share, true = weight / weight.sum(), codes.truth(Y)
    found = [(floor, *log_losses(codes, F, true, share, floor)) for floor in FLOORS]
    floor, _, exponent = min(found, key=lambda one: float(one[1]))
    best, plain = Link(codes, floor, float(exponent)), Link(codes, floor, 1.0)
    p, q = (one.probabilities(F).gather(-1, true[:, None])[:, 0] for one in (best, plain))
    return replace(best, exponent=best.exponent ** shrinkage_factor((p / q).log(), weight))

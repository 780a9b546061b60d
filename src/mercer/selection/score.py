"""Losses by which candidates are compared, and class probabilities p ∝ max(p̂, ε)^t.

Least squares on codes estimates probabilities p̂, up to the scale of the codes. Floor ε and exponent t minimise the log
loss on held-out rows; for a given floor it is convex in t. One row of unknown class is added to them, since n rows
without a mistake do not prove that mistakes have probability zero.

Values come from small kernel ridge regressions, Σ w (y − f)² + λ ‖f‖², whose dual coefficients solve (K + λ/w) α = y.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from mercer.data.row_groups import Split
from mercer.linalg import cholesky, solve_factored

#: Rows of unknown class added to the held-out rows, against overconfident probabilities (`docs/ablations.md`).
UNKNOWN_ROWS = 1.0
#: Floors tried, and the floor under which candidates are compared, in shares of 1/classes.
FLOORS, FLOOR = (0.006, 0.02, 0.06, 0.2, 0.5), 0.04
#: Bounds of the exponent.
EXPONENTS = (0.1, 10.0)


@dataclass(frozen=True)
class Codes:
    """Lower code and span between the two codes of each column: one column for two classes, else one per class."""

    low: Tensor
    span: Tensor

    def shares(self, F: Tensor) -> Tensor:
        """Estimates p̂ of all class probabilities (… × classes) from values (… × p); they may leave [0, 1]."""
        p = (F - self.low.to(F)) / self.span.to(F)
        return torch.cat([1 - p, p], -1) if len(self.low) == 1 else p

    def classes(self, Y: Tensor) -> Tensor:
        """Index of the class of each row of codes."""
        return self.shares(Y).argmax(-1)


def codes_of(Y: Tensor) -> Codes:
    """Codes from targets that hold every class at least once."""
    low, high = Y.amin(0), Y.amax(0)
    return Codes(low, torch.where(high > low, high - low, 1.0))


@dataclass(frozen=True)
class Link:
    """Class probabilities by a floor and an exponent."""

    codes: Codes
    floor: float
    exponent: float

    def probabilities(self, F: Tensor) -> Tensor:
        """Probabilities of all classes (… × classes) from values (… × p)."""
        p = self.codes.shares(F)
        return (self.exponent * p.clamp(min=self.floor / p.shape[-1]).log()).softmax(-1)


def log_losses(codes: Codes, F: Tensor, true: Tensor, weight: Tensor, floor: float = FLOOR) -> tuple[Tensor, Tensor]:
    """Least log loss over the exponent, and that exponent, for values (… × n × p) and weights of sum one."""
    p = codes.shares(F)
    return scaled_log_losses(p.clamp(min=floor / p.shape[-1]).log(), true, weight)


def logit_losses(F: Tensor, true: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """The same for log odds of two classes (one column) or logits of more: least log loss, and the factor on them."""
    return scaled_log_losses(all_logits(F), true, weight)


def all_logits(F: Tensor) -> Tensor:
    """A column for each class: log odds of two classes (one column) are those of the second beside zero."""
    return torch.cat([torch.zeros_like(F), F], -1) if F.shape[-1] == 1 else F


def scaled_log_losses(scores: Tensor, true: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Least log loss of softmax(t · scores) over t, and t, for scores (… × n × classes) and weights of sum one."""
    G, weight = scores.mT.contiguous(), weight.to(scores)  # classes × rows: faster sums over classes
    G = G - G.amax(-2, keepdim=True)
    target = G.gather(-2, true.expand(*G.shape[:-2], 1, len(true)))[..., 0, :]
    target = target + (G.mean(-2) - target) * (UNKNOWN_ROWS / (UNKNOWN_ROWS + len(true)))
    t, powers = G.new_full(G.shape[:-2], 1.3), torch.stack([G, G.square()])
    for _ in range(4):  # Newton steps, each within a factor of three
        p = (t[..., None, None] * G).exp_()
        mean, square = (p * powers).sum(-2) / p.sum(-2)
        new = t - (mean - target) @ weight / ((square - mean.square()) @ weight).clamp(min=1e-9)
        t = new.clamp(t / 3, t * 3).clamp(*EXPONENTS)
    logits = t[..., None, None] * G
    return (logits.exp_().sum(-2).log() - t[..., None] * target) @ weight, t


def fitted_link(codes: Codes, F: Tensor, Y: Tensor, weight: Tensor) -> Link:
    """The link of least log loss on held-out values (n × p).

    The exponent is shrunk towards one as far as chance may explain its gain.
    """
    share, true = weight / weight.sum(), codes.classes(Y)
    found = [(floor, *log_losses(codes, F, true, share, floor)) for floor in FLOORS]
    floor, _, exponent = min(found, key=lambda trial: float(trial[1]))
    best, plain = Link(codes, floor, float(exponent)), Link(codes, floor, 1.0)
    p, q = (link.probabilities(F).gather(-1, true[:, None])[:, 0] for link in (best, plain))
    return replace(best, exponent=best.exponent ** shrinkage_factor((p / q).log(), weight))


def shrinkage_factor(gain: Tensor, weight: Tensor, noise_part: Tensor | None = None) -> float:
    """The factor on values whose `gain` over the constant was measured: 1 − ½ (standard error / gain)².

    The candidate that is best on some rows is best partly by chance. The slope of the truth on its values is known up
    to half of the gain's relative error e/g, so this is James and Stein's 1 − (p − 2)/z² for z = 2g/e and the p = 4
    choices made on these rows: input map, family, length-scale, penalty. A gain far below its standard error leaves
    nothing. The standard error is that of `noise_part`, or of the whole gain by default.
    """
    mean, variance = mean_and_variance(gain, weight)
    if noise_part is not None:
        variance = mean_and_variance(noise_part, weight)[1]
    return float((1 - 0.5 * variance / mean.square()).clamp(min=0)) if mean > 0 else 0.0


def mean_and_variance(values: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """The weighted mean of values, and the variance of this mean: its squared standard error."""
    share = weight / weight.sum()
    mean = (share * values).sum()
    return mean, (share.square() * (values - mean).square()).sum()


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


def dual_coefficients(K: Tensor, Y: Tensor, weight: Tensor, lam: float) -> Tensor | None:
    """Solve (K + λ/w) α = Y; None where rounding leaves no positive definite matrix.

    A matrix in single precision is factored in it, or in double precision where that fails.
    """
    diagonal = K.diagonal().clone()
    K.diagonal().add_(lam / weight)  # in place: a copy of K would take a tenth of the time of its factor
    factor, info = torch.linalg.cholesky_ex(K)
    if int(info) and K.dtype == torch.float32:
        factor, info = torch.linalg.cholesky_ex(K.double())
    K.diagonal().copy_(diagonal)
    return None if int(info) else solve_factored(factor, Y.to(factor))


def held_out_values(K: Tensor, K_score: Tensor, Y: Tensor, weight: Tensor, lam: float) -> Tensor:
    """Values at held-out rows of kernel ridge on targets centred by their weighted mean, in double precision.

    `K_score` holds kernel values from held-out rows to fit rows. The factor gets a jitter if rounding calls for one.

    >>> K, Y = torch.eye(2, dtype=torch.float64), torch.tensor([[1.0], [3.0]], dtype=torch.float64)
    >>> held_out_values(K, K[:1], Y, torch.ones(2, dtype=torch.float64), 1.0).tolist()
    [[1.5]]
    """
    mean = (weight[:, None] * Y).sum(0) / weight.sum()
    factor, _ = cholesky(K + torch.diag(lam / weight))
    return K_score @ solve_factored(factor, Y - mean) + mean


def leave_one_out_path(K: Tensor, Y: Tensor, weight: Tensor, penalties: Tensor, splits: Sequence[Split] = ()) -> Tensor:
    """Leave-one-out values for every penalty, L × n × p, from one eigendecomposition.

    The model without row i predicts y − α/C at row i, with C the inverse of K + λ/w and α = C y. With `splits` several
    rows F are left out together, where the values are y − α/C with the blocks of these rows; other rows have NaN.
    """
    root = weight.to(K).sqrt()[:, None]
    spectrum, Q = torch.linalg.eigh(K * root * root.T)
    inverse = 1 / (spectrum.clamp(min=0) + penalties.to(K)[:, None])  # L × n
    rotated = Q.T @ (root * Y)
    dual = Q @ (inverse[:, :, None] * rotated)
    if splits:
        values = torch.full_like(dual, torch.nan)
        for split in splits:
            out = torch.as_tensor(split.left_out, device=K.device)
            scored = torch.as_tensor(split.scored, device=K.device)
            errors = torch.zeros_like(dual)
            errors[:, out] = torch.linalg.solve((Q[out] * inverse[:, None]) @ Q[out].T, dual[:, out]) / root[out]
            values[:, scored] = Y[scored] - errors[:, scored]
        return values
    diagonal = Q.square() @ inverse.T
    return Y - dual / (diagonal.T[:, :, None] * root)

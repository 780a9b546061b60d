"""Criteria: which candidate becomes the next basis vector (Boost10 sections II and IV; Greedy02 section 3.1).

A criterion scores candidates from a few statistics that `mercer.forward.candidates` computes on
demand; the best-scoring candidate enters. Scores have one entry per candidate.
"""

from __future__ import annotations

from abc import abstractmethod

import numpy as np
import torch
from torch import Tensor

from mercer.forward.candidates import Candidates, DenseCandidates
from mercer.kernels import Kernel
from mercer.parts import Component, component


class Criterion(Component):
    """Scores candidates; `n_candidates` of them are drawn at random, or all rows are (None)."""

    n_candidates: int | None = None
    #: Where positive, any candidate above it is as good as any other, and those at or below it are passed over.
    threshold: float = 0.0
    #: Whether the residual alone decides, so that several vectors may enter in one pass.
    uses_residual_only = False
    #: Whether a row's score needs nothing of other rows but the basis vectors, so that each process scores its own.
    scores_locally = False

    @abstractmethod
    def score(self, seen: Candidates) -> Tensor:
        """One number per candidate; larger is better."""

    def select(self, kernel: Kernel, X: Tensor, r: Tensor, lam: float, size: int, rng: np.random.Generator) -> Tensor:
        """The `size` rows of `X` that serve residuals `r` (T × p) best, chosen one after the other.

        One tile of the kernel, then a few vector operations a step on the device: no number comes back
        to the host.

        >>> import numpy as np, torch
        >>> from mercer.forward.criteria import MaxResidual
        >>> from mercer.kernels import Gaussian
        >>> X, r = torch.tensor([[0.0], [0.1], [5.0]]), torch.tensor([[2.0], [1.9], [1.0]])
        >>> MaxResidual().select(Gaussian(), X, r, 1e-6, 2, np.random.default_rng(0)).tolist()
        [0, 2]
        """
        seen = DenseCandidates(kernel(X, X), r, lam, size, rng)
        open_to = torch.zeros(len(X), dtype=X.dtype, device=X.device)  # −∞ for rows already taken
        chosen = torch.empty(size, dtype=torch.long, device=X.device)
        for s in range(size):
            j = (self.score(seen) + open_to).argmax()
            chosen[s] = j
            open_to[j] = -torch.inf
            if s + 1 < size:
                seen.add(j)
        return chosen


@component
class Random(Criterion):
    """A row at random: the baseline that must not be ignored."""

    short_name = "random"
    scores_locally = True

    def score(self, seen: Candidates) -> Tensor:
        return seen.random()

    def select(self, kernel: Kernel, X: Tensor, r: Tensor, lam: float, size: int, rng: np.random.Generator) -> Tensor:
        return torch.from_numpy(rng.permutation(len(X))[:size]).to(X.device)


@component
class MaxResidual(Criterion):
    """MAX-RES: the row of largest residual (Greedy02 eq. 5); several outputs count by their norm."""

    short_name = "max-res"
    uses_residual_only = scores_locally = True

    def score(self, seen: Candidates) -> Tensor:
        return seen.residual.square().sum(1)


@component
class LargestResiduals(MaxResidual):
    """The S rows of largest residual at once: MAX-RES without its loop and its Gram matrix."""

    short_name = "largest-residuals"

    def select(self, kernel: Kernel, X: Tensor, r: Tensor, lam: float, size: int, rng: np.random.Generator) -> Tensor:
        return r.square().sum(1).topk(size).indices


@component
class MatchingPursuit(Criterion):
    """MP: decrease of the objective along one column (Boost10 eq. 28)."""

    short_name = "mp"
    n_candidates: int | None = 59

    def score(self, seen: Candidates) -> Tensor:
        return 0.5 * _ratio(seen.slope.square().sum(1), seen.lam * seen.diagonal + seen.curvature)


@component
class Boost(Criterion):
    """BOOST: squared slope over the function's RKHS norm (Boost10 eq. 27)."""

    short_name = "boost"
    n_candidates: int | None = 59

    def score(self, seen: Candidates) -> Tensor:
        return 0.5 * _ratio(seen.slope.square().sum(1), seen.diagonal)


@component
class OneDimensional(Criterion):
    """The best single column for the residual, without penalty (Greedy02 section 3.1)."""

    short_name = "one-dimensional"
    n_candidates: int | None = 60

    def score(self, seen: Candidates) -> Tensor:
        return _ratio(seen.data_slope.square().sum(1), seen.curvature)


@component
class ApproximateLinearDependence(Criterion):
    """ALD: a row enters if δ_j, what the chosen vectors leave of k(x_j, ·), exceeds `threshold` (τ₁). Ignores y.

    Rows are looked at in random order, `n_candidates` together; one that is not new enough is passed over, and the fit
    ends when a whole round finds none (Boost10, footnote 4). Chosen vectors are those of the block at hand: in
    blocks of one learner every row is new.
    """

    short_name = "ald"
    scores_locally = True
    n_candidates: int | None = 59
    threshold: float = 1e-2

    def score(self, seen: Candidates) -> Tensor:
        return seen.novelty


@component
class ResourceAllocating(Criterion):
    """RAN: a row enters if δ_j times the decrease of the objective exceeds `threshold` (τ₂; Boost10, footnote 5).

    The decrease is that after all weights have followed. Rows are looked at as ALD looks at them; few together, because
    each costs as much as its entry would.
    """

    short_name = "ran"
    n_candidates: int | None = 4
    threshold: float = 1e-4

    def score(self, seen: Candidates) -> Tensor:
        return 0.5 * seen.novelty * OrderRecursive().score(seen)


@component
class InformationGain(Criterion):
    r"""INFO-GAIN: what including x_j changes in the sparse posterior (Seeger, Williams and Lawrence 2003).

    The posterior at :math:`x_j` has mean :math:`\mu_j` and variance :math:`\sigma^2 q_j + \delta_j`: the first part is
    the chosen vectors', and δ what they leave of the prior. Including :math:`x_j`, with all other rows' terms as they
    are, ties its target to :math:`f(x_j)` itself. With :math:`\rho = \delta_j/\sigma^2` and
    :math:`t = \rho(1 - q_j)` the Kullback-Leibler divergence of the posterior after from the one before is

    .. math:: \tfrac12\Bigl[\log(1 + t) + \frac{\rho + 2}{1 + t} - 2
        + \frac{\rho(1 + \rho q_j)}{(1 + t)^2}\frac{(y_j - \mu_j)^2}{\sigma^2}\Bigr],

    the paper's score with its :math:`\xi = \rho/(1 + t)` and :math:`\kappa = (\rho + 2)/(1 + t)`. The best of all rows
    is apt to be an outlier beside a chosen vector, so `n_candidates` random ones are looked at.
    """

    short_name = "info-gain"
    scores_locally = True
    n_candidates: int | None = 59

    def score(self, seen: Candidates) -> Tensor:
        q = seen.leverage.clamp(max=1.0)
        noise = torch.as_tensor(seen.noise).to(q).clamp(min=1e-12)
        rho = seen.novelty / noise
        rest = 1 + rho * (1 - q)
        surprise = seen.innovation.to(rho.dtype).square().mean(1) / noise
        return 0.5 * (rest.log() + (rho + 2) / rest - 2 + rho * (1 + rho * q) / rest.square() * surprise)


@component
class OrderRecursive(Criterion):
    """ORMP: largest product of the residual with a column re-orthogonalised to the chosen ones (Greedy02 eq. 1–4).

    The re-orthogonalised columns are never formed: their norms follow from their products with the
    functions already in the span. Needs the Gram matrix, hence few rows.
    """

    short_name = "ormp"

    def score(self, seen: Candidates) -> Tensor:
        full = seen.curvature + seen.lam * seen.diagonal
        rest = full - seen.captured
        # below rounding of what was subtracted, a column has nothing left to offer
        return torch.where(rest > 1e-10 * full, seen.slope.square().sum(1) / rest.clamp(min=1e-300), 0.0)


def _ratio(numerator: Tensor, denominator: Tensor) -> Tensor:
    """Their ratio, and zero for a column of zeros: NaN would win every comparison."""
    return numerator / denominator.clamp(min=torch.finfo(denominator.dtype).tiny)

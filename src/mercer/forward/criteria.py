"""Criteria that choose the next basis vector.

See Boost10 sections II and IV and Greedy02 section 3.1.

A criterion scores candidates by a few statistics that `mercer.forward.candidates` computes on demand; the candidate of
best score enters.
"""

from __future__ import annotations

from abc import abstractmethod

import numpy as np
import torch
from torch import Tensor

from mercer.forward.candidates import Candidates, DenseCandidates
from mercer.kernels import Kernel
from mercer.parts import Component, component

#: Random rows that are scored: the best of 59 is among the best 5 % of all rows with a probability of 95 %.
N_CANDIDATES = 59


class Criterion(Component):
    """Scores candidates: `n_candidates` rows drawn at random, or all rows (None)."""

    n_candidates: int | None = None
    #: If positive, the first candidate above it enters, and those at or below it are skipped.
    threshold: float = 0.0
    #: Whether scores depend on the residual only, so that several vectors may enter in one pass.
    uses_residual_only = False
    #: Whether a score depends on its row and the basis vectors only, so that each process scores its own rows.
    scores_locally = False

    @abstractmethod
    def score(self, candidates: Candidates) -> Tensor:
        """One score per candidate; larger is better."""

    def select(self, kernel: Kernel, X: Tensor, r: Tensor, lam: float, size: int, rng: np.random.Generator) -> Tensor:
        """Choose `size` rows of `X` for residuals `r` (T × p), one after the other.

        It takes one tile of the kernel and a few vector operations a step, without any transfer to the host.

        >>> import numpy as np, torch
        >>> from mercer.forward.criteria import MaxResidual
        >>> from mercer.kernels import Gaussian
        >>> X, r = torch.tensor([[0.0], [0.1], [5.0]]), torch.tensor([[2.0], [1.9], [1.0]])
        >>> MaxResidual().select(Gaussian(), X, r, 1e-6, 2, np.random.default_rng(0)).tolist()
        [0, 2]
        """
        candidates = DenseCandidates(kernel(X, X), r, lam, size, rng)
        available = torch.zeros(len(X), dtype=X.dtype, device=X.device)  # −∞ for rows already chosen
        chosen = torch.empty(size, dtype=torch.long, device=X.device)
        for s in range(size):
            j = (self.score(candidates) + available).argmax()
            chosen[s] = j
            available[j] = -torch.inf
            if s + 1 < size:
                candidates.add(j)
        return chosen


@component
class Random(Criterion):
    """A random row, the baseline of all criteria."""

    short_name = "random"
    scores_locally = True

    def score(self, candidates: Candidates) -> Tensor:
        return candidates.random()

    def select(self, kernel: Kernel, X: Tensor, r: Tensor, lam: float, size: int, rng: np.random.Generator) -> Tensor:
        return torch.from_numpy(rng.permutation(len(X))[:size]).to(X.device)


@component
class MaxResidual(Criterion):
    """MAX-RES: the row of largest residual (Greedy02 eq. 5).

    The residual of several outputs is their norm.
    """

    short_name = "max-res"
    uses_residual_only = scores_locally = True

    def score(self, candidates: Candidates) -> Tensor:
        return candidates.residual.square().sum(1)


@component
class LargestResiduals(MaxResidual):
    """The S rows of largest residual at once.

    It needs neither the loop nor the Gram matrix of MAX-RES.
    """

    short_name = "largest-residuals"

    def select(self, kernel: Kernel, X: Tensor, r: Tensor, lam: float, size: int, rng: np.random.Generator) -> Tensor:
        return r.square().sum(1).topk(size).indices


@component
class MatchingPursuit(Criterion):
    """MP: decrease of the objective along one column (Boost10 eq. 28)."""

    short_name = "mp"
    n_candidates: int | None = N_CANDIDATES

    def score(self, candidates: Candidates) -> Tensor:
        return 0.5 * _ratio(
            candidates.slope.square().sum(1), candidates.lam * candidates.diagonal + candidates.curvature
        )


@component
class Boost(Criterion):
    """BOOST: squared slope over the function's RKHS norm (Boost10 eq. 27)."""

    short_name = "boost"
    n_candidates: int | None = N_CANDIDATES

    def score(self, candidates: Candidates) -> Tensor:
        return 0.5 * _ratio(candidates.slope.square().sum(1), candidates.diagonal)


@component
class OneDimensional(Criterion):
    """The best single column for the residual, unpenalised (Greedy02, 3.1)."""

    short_name = "one-dimensional"
    n_candidates: int | None = 1 + N_CANDIDATES

    def score(self, candidates: Candidates) -> Tensor:
        return _ratio(candidates.data_slope.square().sum(1), candidates.curvature)


@component
class ApproximateLinearDependence(Criterion):
    """ALD: a row enters if its novelty δ_j exceeds `threshold` (τ₁).

    δ_j is the squared distance of k(x_j, ·) to the span; y is ignored.

    Rows are scored in random order, `n_candidates` together; rows that are not new enough are skipped, and the fit
    ends when no row is new (Boost10, footnote 4). The span is that of the current block: in blocks of one learner every
    row is new.
    """

    short_name = "ald"
    scores_locally = True
    n_candidates: int | None = N_CANDIDATES
    threshold: float = 1e-2

    def score(self, candidates: Candidates) -> Tensor:
        return candidates.novelty


@component
class ResourceAllocating(Criterion):
    """RAN: novelty δ_j times the decrease of the objective.

    A row enters if it exceeds `threshold` (τ₂; Boost10, footnote 5).

    The decrease is that after an update of all weights. Rows are scored in random order as in ALD, but few together,
    because each score costs as much as a step.
    """

    short_name = "ran"
    n_candidates: int | None = 4
    threshold: float = 1e-4

    def score(self, candidates: Candidates) -> Tensor:
        return 0.5 * candidates.novelty * OrderRecursive().score(candidates)


@component
class InformationGain(Criterion):
    r"""INFO-GAIN: the change of the sparse posterior by including x_j.

    See Seeger, Williams and Lawrence (2003).

    The posterior at :math:`x_j` has mean :math:`\mu_j` and variance :math:`\sigma^2 q_j + \delta_j`: the first part
    comes from the chosen vectors, and δ is the rest of the prior. Including :math:`x_j` ties its target to
    :math:`f(x_j)` and leaves the terms of all other rows unchanged. With :math:`\rho = \delta_j/\sigma^2` and
    :math:`t = \rho(1 - q_j)` the Kullback-Leibler divergence of the posterior after from the one before is

    .. math:: \tfrac12\Bigl[\log(1 + t) + \frac{\rho + 2}{1 + t} - 2
        + \frac{\rho(1 + \rho q_j)}{(1 + t)^2}\frac{(y_j - \mu_j)^2}{\sigma^2}\Bigr],

    the paper's score with its :math:`\xi = \rho/(1 + t)` and :math:`\kappa = (\rho + 2)/(1 + t)`. The best of all rows
    is often an outlier next to a chosen vector, so `n_candidates` random rows are scored.
    """

    short_name = "info-gain"
    scores_locally = True
    n_candidates: int | None = N_CANDIDATES

    def score(self, candidates: Candidates) -> Tensor:
        q = candidates.leverage.clamp(max=1.0)
        noise = torch.as_tensor(candidates.noise).to(q).clamp(min=1e-12)
        rho = candidates.novelty / noise
        rest = 1 + rho * (1 - q)
        surprise = candidates.innovation.to(rho.dtype).square().mean(1) / noise
        return 0.5 * (rest.log() + (rho + 2) / rest - 2 + rho * (1 + rho * q) / rest.square() * surprise)


@component
class OrderRecursive(Criterion):
    """ORMP: largest product of the residual with a re-orthogonalised column.

    Columns are orthogonalised to the chosen ones (Greedy02 eq. 1–4).

    The re-orthogonalised columns are never formed: their norms follow from their products with the functions of the
    span. It needs the Gram matrix, hence few rows.
    """

    short_name = "ormp"

    def score(self, candidates: Candidates) -> Tensor:
        full = candidates.curvature + candidates.lam * candidates.diagonal
        rest = full - candidates.captured
        # below the rounding of the difference a column has nothing new
        return torch.where(rest > 1e-10 * full, candidates.slope.square().sum(1) / rest.clamp(min=1e-300), 0.0)


def _ratio(numerator: Tensor, denominator: Tensor) -> Tensor:
    """Their ratio, and zero for a column of zeros: NaN would win every argmax."""
    return numerator / denominator.clamp(min=torch.finfo(denominator.dtype).tiny)

r"""Compression: few basis vectors for a function that all rows have fitted.

The exact solution f* minimises :math:`J(f) = \tfrac12\sum_n w_n(y_n - f(x_n))^2 + \tfrac\lambda2\|f\|^2_{\mathcal H}`,
so for every f

.. math:: J(f) - J(f^*) = \tfrac12\|f - f^*\|^2, \qquad
    \langle f, g\rangle = \sum_n w_n f(x_n) g(x_n) + \lambda\langle f, g\rangle_{\mathcal H} .

The same penalised fit on fewer basis vectors is therefore the best approximation of f* in their span, in the metric of
the loss. `GrowingBasis` adds basis vectors in blocks where f* is not yet met, at the speed of matrix products. It keeps
functions that are orthonormal in this metric: fitted values and leave-one-out predictions follow from them at every
size. `compression_path` records them, and `JointSizes` compares sizes of all ensemble members together.

**How a size is judged.** Rows that judge are never basis vectors: leave-one-out errors at selected rows are far too low
(0.6 of the true ones on KIN40K), because rows are selected by what their targets did to f*. With e the left-out errors
of the full model at the judging rows and d the change of their left-out predictions by the compression, the mean
squared error rises by the share

.. math:: \frac{\mathrm{mean}(d^2) - 2\,\mathrm{mean}(ed)}{\mathrm{mean}(e^2)} \le \delta^2 + 2\rho\delta, \qquad
    \delta^2 = \frac{\mathrm{mean}(d^2)}{\mathrm{mean}(e^2)},

where −ρ is the correlation of e and d. δ is known well from a few hundred rows; ρ is not. It would be zero if e were
noise, and is positive as a rule: a compressed model is smoother, as the full model already is beside the truth. With
`CORRELATION` for ρ none of 116 fits lost more than 1 % of its test error (docs/compression.md).

**Other losses.** With the rows' weights times V'' at f* the metric is that of the second-order expansion of J around
its minimum, and f* itself is projected (`likelihood_path`). Judging rows have weight zero there.

Cost: 3nm² multiplications for m basis vectors of n rows, in float64.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from mercer.base.out_of_fold import LARGEST
from mercer.forward.problem import Problem
from mercer.linalg import cholesky
from mercer.losses import Loss, Squared

#: Basis vectors of the first block; later blocks add this share of the present size.
FIRST_BLOCK, GROWTH = 16, 0.25
#: Rows from which a block is chosen, for each of its basis vectors.
CANDIDATES = 2
#: Share of a kernel column's squared norm that must lie outside the span of the basis vectors before it.
NOVELTY = 1e-9
#: A path ends early if the rise, continued as a power of the size from the last sizes, would be too large at its end.
TREND_SIZES = 4
#: ρ, the correlation of a compression's changes with the errors of the full model. With 0.12 two of 99 fits lost more
#: than 1 %; measured values and two standard errors of 1500 rows were too low on cal_housing.
CORRELATION = 0.16
#: Rise of the log loss of calibrated probabilities over the rise of the squared error of class codes: 1.3 on waveform.
LOG_LOSS_FACTOR = 1.5
#: The least curvature of a loss that counts: rows far on the right side of a boundary have next to none.
LEAST_CURVATURE = 1e-3
#: Squared errors below this are zero.
SMALLEST = 1e-30


class GrowingBasis:
    """Basis vectors chosen block by block against a function, and the penalised fit in their span.

    With K_JJ = LLᵀ the functions V = K_nJ L⁻ᵀ are orthonormal in the RKHS; with VᵀDV + λI = RᵀR the functions
    U = V R⁻¹ are orthonormal in the metric of the loss, the fit is U·UᵀDy, and rows have the leverages w|U_i|². Only
    the values of U at all rows are kept (capacity × n). With `projects` the function itself is projected on the span,
    whether it minimises the loss or not: the coordinates are UᵀDf + λ⟨U, f⟩, and ⟨V, f⟩ = L⁻¹f(x_J).
    """

    def __init__(
        self, problem: Problem, rows: Tensor, f: Tensor, is_candidate: Tensor, capacity: int, projects: bool = False
    ) -> None:
        self.kernel, self.lam, self.size, self.projects = problem.kernel, problem.lam, 0, projects
        self.X = problem.rows.take(rows).to(problem.plan.device, torch.float64)
        self.columns = self.kernel.columns(self.X)
        self.y, self.f = problem.y[rows].double(), f.double()
        self.weight, self.is_candidate = problem.weight[rows].double(), is_candidate.clone()
        self.fitted = torch.zeros_like(self.y)
        self.chosen = torch.empty(0, dtype=torch.long, device=rows.device)
        self.U = self.X.new_empty(capacity, len(rows))
        self.L, self.R = self.X.new_zeros(2, capacity, capacity)
        self.coef, self.f_in_V, self.f_in_U = self.X.new_zeros(3, capacity, self.y.shape[1])

    def grow(self, n_new: int, rng: np.random.Generator) -> int:
        """Add at most `n_new` basis vectors; returns how many are new."""
        block = self._choose(n_new, rng)
        if not len(block):
            return 0
        m, b = self.size, len(block)
        new = slice(m, m + b)
        U, R = self.U[:m], self.R[:m, :m]
        at_block = U[:, block].T @ R
        V = torch.addmm(self.columns(self.X[block]), at_block @ R.T, U, alpha=-1)
        L = cholesky(V[:, block])[0]
        V = torch.linalg.solve_triangular(L, V, upper=False)
        weighted = (V * self.weight).T
        along = U @ weighted
        inner = V @ weighted - along.T @ along
        inner.diagonal().add_(self.lam)
        factor = cholesky(inner)[0]
        self.U[new] = torch.linalg.solve_triangular(factor, V.addmm_(along.T, U, alpha=-1), upper=False)
        self.L[new, :m], self.L[new, new] = at_block, L
        self.R[:m, new], self.R[new, new] = along, factor.T
        self.coef[new] = self.U[new] @ (self.weight[:, None] * (self.f if self.projects else self.y))
        if self.projects:
            inner = self.f[block] - at_block @ self.f_in_V[:m]
            self.f_in_V[new] = torch.linalg.solve_triangular(L, inner, upper=False)
            inner = self.f_in_V[new] - along.T @ self.f_in_U[:m]
            self.f_in_U[new] = torch.linalg.solve_triangular(factor, inner, upper=False)
            self.coef[new] += self.lam * self.f_in_U[new]
        self.fitted += self.U[new].T @ self.coef[new]
        self.chosen, self.size = torch.cat([self.chosen, block]), m + b
        self.is_candidate[block] = False
        return b

    def _choose(self, n_new: int, rng: np.random.Generator) -> Tensor:
        """A block of rows, drawn by the squared residual of the function, then picked by residual and novelty.

        Rows of the largest residuals alone lie close together; drawn rows do not. Each pick is the drawn row of the
        largest w·residual² times the share of its kernel column that earlier picks do not explain.
        """
        score = self.weight * (self.f - self.fitted).square().sum(1)
        score = torch.where(self.is_candidate, score, 0.0)
        n_drawn = min(CANDIDATES * n_new, int((score > 0).sum()))
        if n_drawn == 0:
            return self.chosen[:0]
        waiting = torch.as_tensor(rng.exponential(size=len(score))).to(score)
        drawn = (score / waiting).topk(n_drawn)[1]  # n rows without replacement, in proportion to their scores
        V = self.U[: self.size, drawn].T @ self.R[: self.size, : self.size]
        K = self.kernel(self.X[drawn], self.X[drawn])
        left, diagonal = (K - V @ V.T).cpu().numpy(), K.diagonal().cpu().numpy()
        return drawn[_pick(score[drawn].cpu().numpy(), left, diagonal, n_new)]


def _pick(score: np.ndarray, S: np.ndarray, diagonal: np.ndarray, n: int) -> list[int]:
    """Greedy picks of at most `n` rows by score times novelty; S is the kernel matrix that earlier vectors leave.

    NumPy: its calls for such short arrays take a fifth of PyTorch's time.
    """
    left = S.diagonal().copy()
    score = score / left.clip(min=1e-300)
    factor: np.ndarray = np.zeros((n, len(S)))
    picks: list[int] = []
    for step in range(min(n, len(S))):
        value = np.where(left > NOVELTY * diagonal, score * left, -1.0)
        best = int(value.argmax())
        if value[best] < 0:
            break
        factor[step] = (S[best] - factor[:step, best] @ factor[:step]) / math.sqrt(left[best])
        left -= np.square(factor[step])
        left[best] = 0.0
        picks.append(best)
    return picks


@dataclass(frozen=True)
class Judges:
    """Rows that judge a size: places among the fitted rows, targets, weights and predictions of the full model.

    `values` are the predictions that a compressed model is compared with, and `left_out` those of the full model
    without these rows, which tell its error. They are the same where the compressed model leaves the rows out as well:
    those of a fold at once, with `folds` as the rows' fold numbers, or each one by itself. With `root` the error is the
    root of the mean loss, as for numbers; otherwise it is the log loss, as for classes.
    """

    places: Tensor
    values: Tensor
    left_out: Tensor
    targets: Tensor
    weight: Tensor
    folds: Tensor | None = None
    loss: Loss = field(default_factory=Squared)
    root: bool = False

    def rise(self, change: Tensor) -> float:
        """The share by which a change of predictions raises the error at most: δ² + 2ρδ, or √(1 + δ² + 2ρδ) − 1.

        δ² is the mean of V''d² over twice the mean of V; of the squared loss this is mean(d²) / mean(e²).
        """
        curvature = self.loss.curvature(self.targets, self.left_out)
        square = float((self.weight @ (curvature * change.square())).sum())
        error = 2 * float((self.weight @ self.loss.value(self.targets, self.left_out)).sum())
        share = square / max(error, SMALLEST)
        rise = share + 2 * CORRELATION * math.sqrt(share)
        if self.root:
            return math.sqrt(1 + rise) - 1
        return LOG_LOSS_FACTOR * rise if self.loss.quadratic else rise


@dataclass(frozen=True)
class CompressionPath:
    """Nested compressed models of one function, of growing sizes.

    `rows` are the basis vectors in order of entry, as places among the fitted rows, and L, R and `coef` the small
    arrays of `GrowingBasis`. `predictions` has those of the judging rows, for each of `sizes`.
    """

    rows: Tensor
    L: Tensor
    R: Tensor
    coef: Tensor
    judges: Judges
    sizes: list[int]
    predictions: list[Tensor]

    def weights(self, size: int) -> Tensor:
        """Weights (size × p) of the first basis vectors: L⁻ᵀR⁻¹UᵀDy."""
        v = torch.linalg.solve_triangular(self.R[:size, :size], self.coef[:size], upper=True)
        return torch.linalg.solve_triangular(self.L[:size, :size].T, v, upper=True)

    def change(self, size: int) -> Tensor:
        """The change of left-out predictions at the judging rows by a compression to `size` basis vectors."""
        return self.predictions[self.sizes.index(size)] - self.judges.values

    def rise(self, size: int, share: float = 1.0) -> float:
        """The share by which the error of an average rises at most if this `share` of it alone is compressed."""
        return self.judges.rise(share * self.change(size))


def compression_path(
    problem: Problem, rows: Tensor, f: Tensor, judges: Judges, most: int, tol: float = 0.0, share: float = 1.0
) -> CompressionPath:
    """Choose basis vectors among `rows` until the error rises by at most `tol`, or there are `most`.

    `f` (n × p) has the values of the full model at `rows`. The path ends early if the function has no hope to be within
    the tolerance as a `share` of an average whose other functions keep all rows; ``tol=0`` goes on to `most`.
    """
    is_candidate = problem.distinct[rows].clone()
    is_candidate[judges.places] = False
    return grown(GrowingBasis(problem, rows, f, is_candidate, most), judges, tol, share)


def likelihood_path(
    problem: Problem, rows: Tensor, f: Tensor, judges: Judges, most: int, tol: float = 0.0, share: float = 1.0
) -> CompressionPath:
    """The same for a loss with curvature V'': the function is projected in the metric of weights w·V'' at f.

    Judging rows do not count, and outputs share their mean curvature.
    """
    weight = problem.weight.clone()
    weight[rows] *= problem.loss.curvature(problem.y[rows], f.to(problem.y)).mean(1).clamp(min=LEAST_CURVATURE)
    weight[rows[judges.places]] = 0.0
    projected = problem.with_sample(weight=weight)
    basis = GrowingBasis(projected, rows, f, projected.distinct[rows], most, projects=True)
    return grown(basis, judges, tol, share)


def grown(basis: GrowingBasis, judges: Judges, tol: float, share: float = 1.0) -> CompressionPath:
    """Grow a basis up to its capacity, or until the tolerance is met or out of reach (`compression_path`)."""
    rng, most = np.random.default_rng(0), len(basis.U)
    hat = LeftOutRows(basis, judges)
    sizes: list[int] = []
    predictions: list[Tensor] = []
    rises: list[float] = []  # of the average
    while basis.size < most:
        wanted = max(FIRST_BLOCK, int(GROWTH * basis.size))
        if not basis.grow(min(wanted, most - basis.size), rng):
            break
        sizes.append(basis.size)
        predictions.append(hat.predictions())
        change = predictions[-1] - judges.values
        rises.append(judges.rise(share * change))
        if tol and (judges.rise(change) <= tol or _is_hopeless(sizes, rises, most, tol)):
            break
    m = basis.size
    factors = basis.L[:m, :m].clone(), basis.R[:m, :m].clone()
    return CompressionPath(basis.chosen, *factors, basis.coef[:m].clone(), judges, sizes, predictions)


class LeftOutRows:
    """Predictions of the judging rows by the compressed model without them, with the basis vectors kept.

    Without the rows F the residuals are (I − U_FᵀU_F D_F)⁻¹r = r + U_Fᵀ(I − U_F D_F U_Fᵀ)⁻¹U_F D_F r.
    """

    def __init__(self, basis: GrowingBasis, judges: Judges) -> None:
        self.basis, self.judges, self.seen = basis, judges, 0
        folds = judges.folds
        self.folds = [] if folds is None else [(folds == fold).nonzero()[:, 0] for fold in folds.unique()]
        self.U = [basis.X.new_zeros(len(basis.L), len(fold)) for fold in self.folds]
        self.inner = [basis.X.new_zeros(len(basis.L), len(basis.L)) for _ in self.folds]  # U_F D_F U_Fᵀ
        self.leverage = basis.X.new_zeros(len(judges.places))

    def predictions(self) -> Tensor:
        """The predictions (n × p) at the present size."""
        basis, places = self.basis, self.judges.places
        m, new = basis.size, slice(self.seen, basis.size)
        U_new, weight, y = basis.U[new, places], basis.weight[places], basis.y[places]
        self.seen = m
        residual = y - basis.fitted[places]
        if not self.folds:
            self.leverage += weight * U_new.square().sum(0)
            return y - residual / (1 - self.leverage).clamp(min=1 - LARGEST)[:, None]
        for fold, U, inner in zip(self.folds, self.U, self.inner, strict=True):
            U[new] = U_new[:, fold]
            inner[new, :m] = (U[new] * weight[fold]) @ U[:m].T
            factor = cholesky(torch.eye(m).to(inner) - inner[:m, :m])[0]  # the lower triangle counts
            right = U[:m] @ (weight[fold, None] * residual[fold])
            residual[fold] += U[:m].T @ torch.cholesky_solve(right, factor)
        return y - residual


def _is_hopeless(sizes: list[int], rises: list[float], most: int, tol: float) -> bool:
    """Whether the rise, continued as a power of the size, would be above `tol` at the largest size."""
    if len(sizes) <= TREND_SIZES or 4 * sizes[-1] < most:
        return False
    before, now = sizes[-1 - TREND_SIZES], sizes[-1]
    fallen = max(rises[-1], SMALLEST) / max(rises[-1 - TREND_SIZES], SMALLEST)
    power = math.log(fallen) / math.log(now / before)
    return rises[-1] * (most / now) ** power > tol


@dataclass(frozen=True)
class Sizes:
    """Sizes of all ensemble members, None for all rows, and the rise of their average's error at most."""

    sizes: tuple[int | None, ...]
    rise: float

    @property
    def n_basis(self) -> int:
        """Number of basis vectors of the members that do not keep all rows."""
        return sum(size or 0 for size in self.sizes)


class JointSizes:
    """Sizes of ensemble members that are judged together, by the average of their left-out predictions.

    Errors of members partly cancel, so each may be smaller than it could be alone.
    """

    def __init__(self, paths: Sequence[CompressionPath], shares: Sequence[float]) -> None:
        self.paths, self.shares = paths, shares
        left_out = sum(share * path.judges.left_out for share, path in zip(shares, paths, strict=True))
        self.judges = replace(paths[0].judges, left_out=torch.as_tensor(left_out))

    def rise(self, sizes: Sequence[int | None]) -> float:
        """The rise of the average's error at most."""
        change = torch.zeros_like(self.judges.left_out)
        for path, share, size in zip(self.paths, self.shares, sizes, strict=True):
            if size is not None:
                change = change + share * path.change(size)
        return self.judges.rise(change)

    def curve(self, tol: float) -> list[Sizes]:
        """Ever smaller sizes, from the largest on: the member whose vectors are worth least shrinks by one size.

        Before that, members keep all rows, those that change most first, until the rise is at most `tol`.
        """
        largest = Sizes(tuple(path.sizes[-1] for path in self.paths), 0.0)
        found = [replace(largest, rise=self.rise(largest.sizes))]
        while found[0].rise > tol:
            kept = [_with(found[0].sizes, place, None) for place, size in enumerate(found[0].sizes) if size is not None]
            found = [min((Sizes(sizes, self.rise(sizes)) for sizes in kept), key=lambda step: step.rise)]
        places = range(len(self.paths))
        while smaller := [step for place in places if (step := self._shrunk(found[-1], place)) is not None]:
            found.append(min(smaller, key=lambda step: self._price(found[-1], step)))
        return found

    def _shrunk(self, at: Sizes, place: int) -> Sizes | None:
        path, size = self.paths[place], at.sizes[place]
        if size is None or size == path.sizes[0]:
            return None
        sizes = _with(at.sizes, place, path.sizes[path.sizes.index(size) - 1])
        return Sizes(sizes, self.rise(sizes))

    @staticmethod
    def _price(before: Sizes, after: Sizes) -> float:
        return (after.rise - before.rise) / (before.n_basis - after.n_basis)


def _with(sizes: tuple[int | None, ...], place: int, size: int | None) -> tuple[int | None, ...]:
    return (*sizes[:place], size, *sizes[place + 1 :])

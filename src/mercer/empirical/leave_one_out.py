r"""Kernels, the penalty c and the coupling λ by leave-one-out errors in closed form.

The objective of `coupled_ridge` is a sum over rows of
:math:`s_n (y_n 1 - f_n)^\top B (y_n 1 - f_n)` plus :math:`c\|w\|^2`, with the values
:math:`f_n = Z_n w + a \in R^M` of the M kernels at row n and :math:`B = I + \lambda(I - 11^\top/M)`. Without row n the
residuals there are :math:`(I - H_n)^{-1} r_n`, with :math:`H_n = s_n (Z_n A^{-1} Z_n^\top B + I/\sum s)` and A the
matrix of the system. One eigendecomposition of A − cI serves all penalties. Classes count as ±1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mercer.base.out_of_fold import LARGEST
from mercer.empirical.kernel_map import empirical_map, mean_distance
from mercer.empirical.learners import LARGEST_COUPLING
from mercer.engine import Sample
from mercer.kernels import Gaussian, Kernel, Linear
from mercer.selection.evidence_metric import relevances

#: Penalties that are tried, for weights of mean one and kernels of about unit size; of classes those from
#: `LEAST_OF_CLASSES` on, since their codes are never free of noise.
PENALTIES, LEAST_OF_CLASSES = tuple(10.0 ** (k / 2) for k in range(-10, 5)), 1e-2
#: Widths that are tried, as shares of the mean distance between rows.
WIDTHS = (0.25, 0.5, 1.0, 2.0)
#: Variance of the linear kernel added to every Gaussian, over the mean square of rows.
LINEAR = 0.1
#: Rows and basis vectors of a trial, and rows that find the relevances: each trial then takes about 0.1 s.
TRIAL_ROWS, TRIAL_BASIS, RELEVANCE_ROWS = 1000, 500, 400
#: Rows needed for the relevance of each column. With fewer the relevances fit noise.
ROWS_A_COLUMN = 2
#: Relevances alone, or none, replace both together if they have this share of the error. The relevances have seen rows
#: of the trial, so that small differences mean nothing.
CLEARLY = 0.9


def coupled_leave_one_out(
    features: Sequence[Tensor], Y: Tensor, weight: Tensor, lam: float, penalties: Sequence[float]
) -> Tensor:
    """Mean value f̄ at every row of the coupled fit without that row, for each penalty: L × n × P.

    `features` are the coordinates of each kernel, n × r_l. The cost is that of eigenvalues of size Σ r_l.

    >>> Y = torch.tensor([[1.0], [2.0], [6.0]], dtype=torch.float64)
    >>> found = coupled_leave_one_out([torch.zeros(3, 1)], Y, torch.ones(3), 0.0, [1.0])
    >>> [round(value, 3) for value in found[0, :, 0].tolist()]  # means of the others
    [4.0, 3.5, 1.5]
    """
    M, s, lam = len(features), weight.double(), min(lam, LARGEST_COUPLING)
    total = s.sum()
    Z = torch.cat([phi.double() for phi in features], 1)
    Z = Z - s @ Z / total
    y_mean = s @ Y.double() / total
    y = Y.double() - y_mean
    edges = [0, *np.cumsum([phi.shape[1] for phi in features]).tolist()]
    gram = (Z * s[:, None]).T @ Z
    A = gram * (-lam / M)
    for a, z in pairwise(edges):
        A[a:z, a:z] = (1 + lam * (M - 1) / M) * gram[a:z, a:z]
    values, V = torch.linalg.eigh(A)
    inverse = 1 / (values.clamp(min=0.0)[:, None] + torch.tensor(penalties, dtype=torch.float64, device=Z.device))
    T = [Z[:, a:z] @ V[a:z] for a, z in pairwise(edges)]  # Z_n V, kernel by kernel
    along = V.T @ (Z.T @ (s[:, None] * y))
    w = inverse[:, :, None] * along[:, None]  # R × L × P
    f = torch.stack([(t @ w.flatten(1)).unflatten(1, w.shape[1:]).transpose(0, 1) for t in T], -1)  # L × n × P × M
    H = torch.stack([torch.stack([((t * u) @ inverse).T for u in T], -1) for t in T], -2)  # L × n × M × M
    identity = torch.eye(M, dtype=torch.float64, device=Z.device)
    B = (1 + lam) * identity - lam / M
    H = s[:, None, None] * (H @ B + identity / total)
    residual = y[..., None] - f  # rows alone in a direction have leverage one: their residuals are rounding
    solved = torch.linalg.solve_ex(identity - LARGEST * H, residual.mT).result
    return y_mean + y - solved.mean(-2)


@dataclass(frozen=True)
class KernelSet:
    """Kernels that are used together; those that are not `preferred` must be clearly better."""

    kernels: list[Kernel]
    name: str
    preferred: bool = True

    def mean(self) -> Kernel:
        """The mean of the kernels: fits of f̄ alone use nothing else."""
        total = self.kernels[0]
        for kernel in self.kernels[1:]:
            total = total + kernel
        return total if len(self.kernels) == 1 else total * (1 / len(self.kernels))


@dataclass(frozen=True)
class LeaveOneOutChoice:
    """The selected kernels, c for weights of mean one and λ, with an error for every trial."""

    kernels: list[Kernel]
    c: float
    lam: float
    report: list[dict[str, Any]]


@dataclass(frozen=True)
class Widths:
    """Gaussians by which kernels are tried: at one width for all columns, and at one over each column's relevance."""

    distance: float
    n_columns: int
    relevance: Tensor | None
    relevant_distance: float

    @classmethod
    def of(cls, sample: Sample, rng: np.random.Generator) -> Widths:
        """From rows in kernel coordinates; relevances from at most `RELEVANCE_ROWS` of them."""
        D = sample.rows.n_columns
        distance = mean_distance(sample.rows, sample.weight, rng)
        part = sample.part(sample.draw(RELEVANCE_ROWS, rng))
        if D < 2 or part.n_rows < ROWS_A_COLUMN * D:
            return cls(distance, D, None, distance)
        X = part.rows.take(np.arange(part.n_rows)).double()
        group = None if sample.groups is None else torch.as_tensor(sample.groups)
        relevance = relevances(X, part.Y.double(), part.weight.double(), group)[0].double().cpu().clamp(min=1e-6)
        scaled = X.cpu() * relevance
        apart = float(torch.cdist(scaled, scaled).mean())
        return cls(distance, D, relevance, apart if apart > 0 else distance)

    def sets(self, width: float) -> list[KernelSet]:
        """The sets of two kernels at a width, the preferred one first."""
        plain = KernelSet([self._plain(width), self._plain(width / 2)], f"one width, {width:g}", self.relevance is None)
        if self.relevance is None:
            return [plain]
        both = KernelSet([self._plain(width), self._relevant(width)], f"one width and relevances, {width:g}")
        relevant = KernelSet([self._relevant(width), self._relevant(width / 2)], f"relevances, {width:g}", False)
        return [both, relevant, plain]

    def _plain(self, width: float) -> Kernel:
        return Gaussian(width * self.distance) + LINEAR / self.n_columns * Linear()

    def _relevant(self, width: float) -> Kernel:
        assert self.relevance is not None
        lengths = (width * self.relevant_distance / self.relevance).tolist()
        return Gaussian(lengths) + LINEAR / self.n_columns * Linear()


def choose_kernels(
    sample: Sample, sets: Sequence[KernelSet] | None, couplings: Sequence[float], penalties: Sequence[float],
    n_basis: int, rng: np.random.Generator, classes: bool = False,
) -> LeaveOneOutChoice:  # fmt: skip
    """Select kernels and c for the mean of the kernels, then c and λ of the coupled fit.

    Without `sets` Gaussians are tried at `WIDTHS`, with and without relevances. A λ of −1 fits the mean alone.
    """
    X = sample.rows.take(np.arange(sample.n_rows))
    basis = X[torch.as_tensor(np.sort(rng.choice(len(X), min(n_basis, TRIAL_BASIS, len(X)), replace=False)))]
    trials = KernelTrials(X, basis, sample.Y, sample.weight, tuple(penalties), classes)
    if sets is None:
        widths = Widths.of(sample, rng)
        preferred = [trials.of_mean(widths.sets(width)[0]) for width in WIDTHS]
        best = min(preferred, key=lambda trial: trial.error)
        others = [trials.of_mean(other) for other in widths.sets(WIDTHS[preferred.index(best)])[1:]]
    else:
        preferred, others = [trials.of_mean(given) for given in sets], []
        best = min(preferred, key=lambda trial: trial.error)
    clearly = [trial for trial in others if trial.error < CLEARLY * best.error]
    best = min([best, *clearly], key=lambda trial: trial.error)
    report = [trial.line() for trial in (*preferred, *others)]
    if len(best.kernels.kernels) > 1 and list(couplings) != [-1.0]:
        coupled = [trials.of_coupling(best.kernels, lam) for lam in couplings]
        report += [trial.line() for trial in coupled]
        best = min(coupled, key=lambda trial: trial.error)
    return LeaveOneOutChoice(best.kernels.kernels, best.c, best.lam, report)


@dataclass(frozen=True)
class KernelTrial:
    kernels: KernelSet
    c: float
    lam: float
    error: float

    def line(self) -> dict[str, Any]:
        return {"kernels": self.kernels.name, "regularization": self.c, "coupling": self.lam, "loss": self.error}


@dataclass(frozen=True)
class KernelTrials:
    """The rows of all trials, and the basis vectors of their maps."""

    X: Tensor
    basis: Tensor
    Y: Tensor
    weight: Tensor
    penalties: tuple[float, ...]
    classes: bool

    def of_mean(self, kernels: KernelSet) -> KernelTrial:
        return self._best(kernels, [kernels.mean()], -1.0)

    def of_coupling(self, kernels: KernelSet, lam: float) -> KernelTrial:
        return self._best(kernels, kernels.kernels, lam)

    def _best(self, kernels: KernelSet, mapped: Sequence[Kernel], lam: float) -> KernelTrial:
        """The penalty of least squared error."""
        maps = [empirical_map(kernel, self.basis) for kernel in mapped]
        features = [kernel.columns(self.basis.double())(self.X.double()) @ made.coefficients
                    for kernel, made in zip(mapped, maps, strict=True)]  # fmt: skip
        f = coupled_leave_one_out(features, self.Y, self.weight, lam if len(mapped) > 1 else 0.0, self.penalties)
        s = self.weight.double() / self.weight.sum()
        Y = self.Y.double()
        misfit = (1 - Y * f).clamp(min=0.0) if self.classes else Y - f  # rows beyond the margin cost nothing
        errors = (misfit.square().sum(2) @ s).nan_to_num(nan=torch.inf).tolist()
        place = int(np.argmin(errors))
        return KernelTrial(kernels, self.penalties[place], lam, errors[place])

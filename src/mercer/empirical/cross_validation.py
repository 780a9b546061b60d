"""Selection of kernels, the penalty c, the coupling λ and the subset size p: leave-one-out or cross-validation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mercer.base.out_of_fold import LARGEST, stratified_folds
from mercer.clock import Clock
from mercer.empirical.coordinates import MappedRows
from mercer.empirical.kernel_map import empirical_map, mean_distance, mean_kernel, resolve_kernels, subset_number
from mercer.empirical.learners import LARGEST_COUPLING, Grid, MemberLearner, coupled_gram
from mercer.empirical.problem import MemberProblem
from mercer.engine import Sample
from mercer.kernels import Gaussian, Kernel, Linear
from mercer.parts import is_auto
from mercer.preprocessing.validate import penalty_in_units, warn_of_small_weights
from mercer.selection.evidence_search import relevances

#: The values of c and λ among which MEKL13 chooses.
PAPER_GRID = tuple(2.0**k for k in range(-4, 5))
#: Rows that cross-validation uses per second of a time budget, and at least.
ROWS_A_SECOND, LEAST_ROWS = 50, 100
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


@dataclass(frozen=True)
class ParameterGrid:
    """The values of c, λ and p among which cross-validation selects, and the kernels and H, which are fixed."""

    kernels: Any
    c: Any
    coupling: Any = 0.0
    subset_size: Any = None
    n_members: int = 1
    #: The values of λ that "auto" compares.
    couplings_tried: tuple[float, ...] = (0.0, 1.0)
    #: Whether targets are ±1.
    classes: bool = True
    #: c by leave-one-out, for weights of mean one.
    chosen_c: float | None = None
    #: Whether kernels that "auto" selects are used as one, their mean.
    merged: bool = False

    def resolved(
        self, sample: Sample, unit: float, clock: Clock, rng: np.random.Generator
    ) -> tuple[ParameterGrid, list[dict[str, Any]]]:
        """Replace "auto" by leave-one-out choices on the whole sample, and report the trials.

        Weights of the sample are divided by `unit`. Machines of pairs of classes share the choice.
        """
        automatic = {name for name in ("kernels", "c", "coupling") if is_auto(getattr(self, name))}
        automatic -= {"coupling"} if self.merged else set()
        if not automatic:
            return self, []
        seed, size = int(rng.integers(2**31)), several(self.subset_size)[0]
        chosen, report = clock.group.first(
            lambda: self._leave_one_out(sample, unit, clock, size, np.random.default_rng(seed))
        )
        one = self.merged and "kernels" in automatic
        values: dict[str, Any] = {"kernels": [mean_kernel(chosen.kernels)] if one else chosen.kernels}
        if "c" in automatic:
            values["chosen_c"] = chosen.c
        if "coupling" in automatic:
            values["coupling"] = chosen.lam
        return replace(self, **values), report

    def _leave_one_out(
        self, sample: Sample, unit: float, clock: Clock, size: Any, rng: np.random.Generator
    ) -> tuple[KernelTrial, list[dict[str, Any]]]:
        """Score kernels and parameters on a part of the rows whose weights sum to those of all."""
        limit = TRIAL_ROWS
        if clock.seconds is not None:
            limit = min(max(int(ROWS_A_SECOND * clock.seconds), LEAST_ROWS), limit)
        part = sample.part(sample.draw(limit, rng))
        part = replace(part, weight=part.weight * (sample.weight.sum() / part.weight.sum()))
        sets = None
        if not is_auto(self.kernels):
            kernels = resolve_kernels(self.kernels, mean_distance(part.rows, part.weight, rng))
            sets = [("given", kernels)]
        couplings = self.couplings_tried if is_auto(self.coupling) else several(self.coupling)
        penalties = [c for c in PENALTIES if c >= LEAST_OF_CLASSES or not self.classes]
        if not isinstance(self.c, str):
            penalties = [float(c) / unit for c in several(self.c)]
        n_basis, couplings = subset_number(size, sample.n_alive), [-1.0] if self.merged else couplings
        return choose_kernels(part, sets, couplings, penalties, n_basis, rng, self.classes)

    def penalties(self, unit: float, total: float) -> dict[float, float]:
        """The values of c for weights divided by `unit`, whose sum is then `total`, with the values the user gave."""
        if self.chosen_c is not None:
            return {self.chosen_c: self.chosen_c * unit}
        if isinstance(self.c, str):  # the paper's grid refers to weights of mean one
            return {c: c * unit for c in PAPER_GRID}
        penalties = {penalty_in_units(float(c), unit): float(c) for c in several(self.c)}
        warn_of_small_weights(min(penalties.values()), unit, total, "regularization")
        return penalties

    def couplings(self, n_kernels: int) -> list[float]:
        """The values of λ; a single kernel has no coupling."""
        return [min(float(lam), LARGEST_COUPLING) for lam in several(self.coupling)] if n_kernels > 1 else [0.0]


def several(choice: Any) -> list[Any]:
    """List the values of a parameter: a single value, several, or the paper's grid.

    >>> several(0.5), several((1, 2)), len(several("paper"))
    ([0.5], [1, 2], 9)
    """
    if isinstance(choice, str):
        return list(PAPER_GRID)
    return list(choice) if isinstance(choice, list | tuple | np.ndarray) else [choice]


@dataclass(frozen=True)
class Validated:
    """The selected values, and the score of every candidate (sizes × grid points)."""

    size: Any
    c: float
    lam: float
    scores: np.ndarray


def choose(
    problems: Sequence[MemberProblem],
    learner: MemberLearner,
    sizes: Sequence[Any],
    grid: Grid,
    n_folds: int,
    seed: int,
    clock: Clock | None = None,
) -> Validated:
    """Select the size p and the pair (c, λ) with the best score on the held-out rows of all problems together.

    All folds and grid points of a problem and size share one map, and all grid points of a fold its moments. A time
    budget limits the rows, and no further problem is scored once half of it is used.
    """
    clock = clock or Clock()
    if len(sizes) * len(grid) == 1:
        return Validated(sizes[0], grid[0][0], grid[0][1], np.zeros((1, 1)))
    scores = torch.zeros(len(sizes), len(grid), 2, dtype=torch.float64)
    for place, problem in enumerate(problems):
        if place and clock.expired(until=0.5):
            break
        if clock.seconds is not None:
            n_rows = max(int(ROWS_A_SECOND * clock.seconds), LEAST_ROWS)
            problem = problem.part(n_rows, np.random.default_rng([seed, place, 0, 0]))
        fold = folds(problem, n_folds, np.random.default_rng([seed, place]))
        for i, size in enumerate(sizes):
            maps = problem.maps(problem.choose(problem.size(size), np.random.default_rng([seed, place, i])))
            coordinates = MappedRows(problem.sample.rows, maps, problem.sample.plan, n_folds * learner.passes)
            for k in range(int(fold.max()) + 1 if problem.sample.n_alive > 1 else 0):
                scores[i] += learner.score(coordinates, problem, fold == k, grid).cpu()
    table = scores.numpy().reshape(-1, 2)
    best = np.lexsort((-table[:, 1], -table[:, 0]))[0]  # the first of tied candidates
    c, lam = grid[best % len(grid)]
    return Validated(sizes[best // len(grid)], c, lam, scores[..., 0].numpy())


def folds(problem: MemberProblem, n_folds: int, rng: np.random.Generator) -> Tensor:
    """Assign every row to a stratified fold (by class or sign of the target); −1 for rows without weight."""
    keys = problem.sample.Y.argmax(1) if problem.sample.Y.shape[1] > 1 else problem.sample.Y[:, 0] > 0
    alive = (problem.sample.weight > 0).cpu().numpy()
    fold = np.full(len(alive), -1)
    fold[alive] = stratified_folds(keys.cpu().numpy()[alive], n_folds, rng)
    return torch.as_tensor(fold, device=problem.sample.plan.device)


def coupled_leave_one_out(
    features: Sequence[Tensor], Y: Tensor, weight: Tensor, lam: float, penalties: Sequence[float]
) -> Tensor:
    r"""Mean value f̄ at every row of the coupled fit without that row, for each penalty: L × n × P.

    The objective of `coupled_ridge` is a sum over rows of :math:`s_n (y_n 1 - f_n)^\top B (y_n 1 - f_n)` plus
    :math:`c\|w\|^2`, with the values :math:`f_n = Z_n w + a \in R^M` of the M kernels at row n and
    :math:`B = I + \lambda(I - 11^\top/M)`. Without row n the residuals there are :math:`(I - H_n)^{-1} r_n`, with
    :math:`H_n = s_n (Z_n A^{-1} Z_n^\top B + I/\sum s)` and A the matrix of the system. One eigendecomposition of
    A − cI serves all penalties.

    `features` are the coordinates of each kernel, n × r_l. The cost is that of eigenvalues of size Σ r_l.
    """
    M, s, lam = len(features), weight.double(), min(lam, LARGEST_COUPLING)
    total = s.sum()
    Z = torch.cat([phi.double() for phi in features], 1)
    Z = Z - s @ Z / total
    y_mean = s @ Y.double() / total
    y = Y.double() - y_mean
    ranks = [phi.shape[1] for phi in features]
    values, V = torch.linalg.eigh(coupled_gram((Z * s[:, None]).T @ Z, ranks, lam))
    inverse = 1 / (values.clamp(min=0.0)[:, None] + torch.tensor(penalties, dtype=torch.float64, device=Z.device))
    T = [z @ v for z, v in zip(Z.split(ranks, 1), V.split(ranks), strict=True)]  # Z_n V, kernel by kernel
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


#: A name, and kernels that are used together.
KernelSet = tuple[str, list[Kernel]]


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
        group = None if sample.column_groups is None else torch.as_tensor(sample.column_groups)
        relevance = relevances(X, part.Y.double(), part.weight.double(), group).double().cpu().clamp(min=1e-6)
        scaled = X.cpu() * relevance
        apart = float(torch.cdist(scaled, scaled).mean())
        return cls(distance, D, relevance, apart if apart > 0 else distance)

    def sets(self, width: float) -> list[KernelSet]:
        """The sets of two kernels at a width, the preferred one first."""
        plain = f"one width, {width:g}", [self._plain(width), self._plain(width / 2)]
        if self.relevance is None:
            return [plain]
        both = f"one width and relevances, {width:g}", [self._plain(width), self._relevant(width)]
        relevant = f"relevances, {width:g}", [self._relevant(width), self._relevant(width / 2)]
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
) -> tuple[KernelTrial, list[dict[str, Any]]]:  # fmt: skip
    """Select kernels and c for the mean of the kernels, then c and λ of the coupled fit; report all trials.

    Without `sets` Gaussians are tried at `WIDTHS`, with and without relevances. A λ of −1 fits the mean alone.
    """
    X = sample.rows.take(np.arange(sample.n_rows))
    basis = X[torch.as_tensor(np.sort(rng.choice(len(X), min(n_basis, TRIAL_BASIS, len(X)), replace=False)))]
    trials = KernelTrials(X, basis, sample.Y, sample.weight, tuple(penalties), classes)
    if sets is None:
        widths = Widths.of(sample, rng)
        preferred = [trials.of_mean(*widths.sets(width)[0]) for width in WIDTHS]
        best = min(preferred, key=lambda trial: trial.error)
        others = [trials.of_mean(*other) for other in widths.sets(WIDTHS[preferred.index(best)])[1:]]
    else:
        preferred, others = [trials.of_mean(*given) for given in sets], []
        best = min(preferred, key=lambda trial: trial.error)
    clearly = [trial for trial in others if trial.error < CLEARLY * best.error]
    best = min([best, *clearly], key=lambda trial: trial.error)
    report = [trial.line() for trial in (*preferred, *others)]
    if len(best.kernels) > 1 and list(couplings) != [-1.0]:
        coupled = [trials.of(best.name, best.kernels, best.kernels, lam) for lam in couplings]
        report += [trial.line() for trial in coupled]
        best = min(coupled, key=lambda trial: trial.error)
    return best, report


@dataclass(frozen=True)
class KernelTrial:
    """Kernels with c, for weights of mean one, and λ, and their leave-one-out error."""

    name: str
    kernels: list[Kernel]
    c: float
    lam: float
    error: float

    def line(self) -> dict[str, Any]:
        return {"kernels": self.name, "regularization": self.c, "coupling": self.lam, "loss": self.error}


@dataclass(frozen=True)
class KernelTrials:
    """The rows of all trials, and the basis vectors of their maps."""

    X: Tensor
    basis: Tensor
    Y: Tensor
    weight: Tensor
    penalties: tuple[float, ...]
    classes: bool

    def of_mean(self, name: str, kernels: list[Kernel]) -> KernelTrial:
        return self.of(name, kernels, [mean_kernel(kernels)], -1.0)

    def of(self, name: str, kernels: list[Kernel], mapped: Sequence[Kernel], lam: float) -> KernelTrial:
        """The penalty of least squared error."""
        maps = [empirical_map(kernel, self.basis) for kernel in mapped]
        features = [kernel.columns(self.basis.double())(self.X.double()) @ made.coefficients
                    for kernel, made in zip(mapped, maps, strict=True)]  # fmt: skip
        f = coupled_leave_one_out(features, self.Y, self.weight, lam, self.penalties)
        s = self.weight.double() / self.weight.sum()
        Y = self.Y.double()
        misfit = (1 - Y * f).clamp(min=0.0) if self.classes else Y - f  # rows beyond the margin cost nothing
        errors = (misfit.square().sum(2) @ s).nan_to_num(nan=torch.inf).tolist()
        place = int(np.argmin(errors))
        return KernelTrial(name, kernels, self.penalties[place], lam, errors[place])

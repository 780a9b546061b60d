r"""Monotone constraints: the nearest function that rises, or falls, with some columns.

The fitted function f is replaced by f + g. The correction g solves

.. math:: \min_g \tfrac12\sum_n w_n g(x_n)^2 + \tfrac{\lambda'}2\|g\|^2_{\mathcal H} \quad\text{subject to}\quad
    s_j\,\partial_j(f + g)(x) \ge \varepsilon_j(x) \text{ for all } x \text{ and constrained columns } j ,

with s = ±1, in the span of the kernel functions of at most 1200 rows. If the truth obeys the constraints, a projection
in the mean square cannot lead away from it. Hence λ' is smaller than the penalty λ of the fit.

The infinitely many constraints are met by cutting planes. Each round draws points, finds those where the slope has the
wrong sign, adds them to the active constraints and solves the quadratic program again, until several rounds in a row
find none. Points are rows of the table, and mixtures of two rows, with a random value in one constrained column. The
small margin ε keeps slopes between the drawn points positive.

Slopes of Laplacian and Matérn 1/2 kernels jump at every basis vector. One kernel therefore replaces the selected
ensemble: of its differentiable members, and of kernels exp(−Σ|x − z|^p/ℓ^p) with p = 1.75 in the coordinates of each
member, the one of least leave-one-out error. With long length-scales these are nearly sums of functions of one
column, like Laplacian kernels, and smooth.

In coordinates p in which the objective is ½|p|² this is a least distance problem, solved by non-negative least squares
(C. L. Lawson and R. J. Hanson, "Solving least squares problems", 1974, chapter 23). Ensemble members are corrected
together: their average is constrained, each by its share.

A constrained column keeps the value at the end of its range beyond it (`InputMap.limits`), since kernels would fall
back to the mean there. Between the outermost rows of a skewed column, far from each other, few functions of the span
rise without changing everything else. A thousandth of the rows therefore lies beyond the range at each end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy as np
import torch
from scipy.optimize import nnls
from torch import Tensor

from mercer.base.parameters import MONOTONE
from mercer.clock import Clock
from mercer.data import SparseRows
from mercer.forward.compress_members import Compressed
from mercer.forward.model_selection import KernelMember, Selection, sample_of
from mercer.forward.path import ExpansionPath
from mercer.forward.solve.exact import AllRows
from mercer.forward.task import FittedMember, Task, ensemble_predictions
from mercer.kernels import Kernel, Laplacian, Matern12, Separable
from mercer.linalg import cholesky
from mercer.parts import require, warn
from mercer.preprocessing.columns import Missing
from mercer.preprocessing.monotonic import has_signs, signs_by_coordinate
from mercer.preprocessing.read import TableData
from mercer.progress import report_step
from mercer.selection.score import leave_one_out_path
from mercer.selection.settings import PENALTIES

#: The exponent of the kernel exp(−Σ|x − z|^p/ℓ^p) that replaces Laplacian kernels, whose slopes jump at basis vectors.
POWER = 1.75
#: Rows on which its length-scale and penalty are chosen, and length-scales in units of that of the rough kernel.
SMOOTHING_ROWS, FACTORS = 400, (0.5, 1.0, 2.0, 4.0, 8.0)
#: Leave-one-out errors within this factor of the least count as equal.
NEARLY = 1.01
#: Folds for rows in groups or in an order of time, where single rows are not left out.
SMOOTHING_FOLDS = 5
#: Kernel functions that span the correction of a member: at least, if there are so many rows, and at most.
FEWEST_VECTORS, MOST_VECTORS = 600, 1200
#: Rows on which the size of the correction is measured, and from which points are drawn, at most.
METRIC_ROWS, POOL_ROWS = 8000, 50_000
#: λ' as a share of the penalty of the fit.
PENALTY_SHARE = 0.1
#: The rise over the whole range of a column that is demanded, as a share of the error of held-out rows.
MARGIN = 0.5
#: Values of a constrained column between which points are drawn, and the length of a difference in units of its range.
GRID, STEP = 128, 1e-4
#: The share of the rows beyond each end of the range.
OUTSIDE = 0.001
#: Points of a round, constraints that it adds for a column, rounds at most, and rounds without a violation at the end.
POINTS, ADDED, ROUNDS, CLEAN_ROUNDS = 4000, 100, 60, 3
#: Points of lowest slopes, by single precision, that are examined in double precision; rows whose tile fits a cache.
LOWEST, BLOCK = 200, 500
#: Time of the rounds at most, in units of the time of the fit without constraints, and seconds that they always have.
TIMES, SECONDS = 2.0, 5.0
#: The largest factor on the held-out error without a warning; constraints that are not met everywhere end at it.
MOST_RISE = 1.25
#: Slopes of at least this are not negative: values of a function are rounded.
ROUNDING = -1e-9


@dataclass(eq=False, repr=False, kw_only=True)
class MonotoneRegression:
    """Mixin of regressors whose predictions rise or fall with some columns.

    Parameters
    ----------
    monotonic_cst : array of -1, 0 and 1, dict by column, or None, default None
        The meaning is that of scikit-learn's `HistGradientBoostingRegressor`: predictions never fall along a column of
        1, never rise along one of -1, and are free along one of 0 and along columns that a dict leaves out. Constrained
        columns hold numbers, and keep the value at the end of their range beyond it. The loss is squared, `y` has one
        column. Constraints hold up to rounding at rows like those of `fit`, with any value in a constrained column.
    """

    monotonic_cst: Annotated[Any, MONOTONE] = None

    def _compressed(self, task: Task, parts: list[FittedMember], budget: Clock) -> Compressed:
        compressed: Compressed = super()._compressed(task, parts, budget)  # type: ignore[misc]
        signs = signs_by_coordinate(self.monotonic_cst, task.data)
        if not signs:
            return compressed
        report_step("monotone constraints")
        seconds = min(max(TIMES * budget.elapsed(), SECONDS), budget.remaining())
        return replace(compressed, parts=monotone_members(compressed.parts, signs, task, Clock(seconds)))


def require_constrainable(estimator: Any, data: TableData) -> None:
    """Refuse what cannot be constrained, before anything is fitted."""
    given, name, kernel = estimator.monotonic_cst, "monotonic_cst", estimator.kernel
    signs_by_coordinate(given, data)
    if not has_signs(given):
        return
    require(not estimator._pairwise, name, "None where the kernel is precomputed", given)
    rough = isinstance(kernel, Laplacian | Matern12) or kernel in ("laplacian", "matern12", "separable")
    rough = rough or (isinstance(kernel, Separable) and kernel.q <= 1)
    require(not rough, "kernel", "differentiable, such as 'matern32', where monotonic_cst is given", kernel)
    squared = estimator._coding_loss().quadratic
    require(squared, "loss", "'squared' where monotonic_cst is given", estimator.loss)
    single = data.y.ndim == 1 or data.y.shape[1] == 1
    require(single, "y", "one column where monotonic_cst is given", data.y.shape)
    require(not estimator.updatable, "updatable", "False where monotonic_cst is given", True)
    require(not isinstance(data.rows, SparseRows), name, "None where X is a wide sparse matrix", given)
    require(data.shard.group.size == 1, name, "None where several processes fit one model", given)


def smooth_selection(selection: Selection, task: Task, Y: np.ndarray) -> Selection:
    """The differentiable kernel of least leave-one-out error in the coordinates of any member of the selection.

    Of nearly equal ones a member is preferred, which the selection chose from more rows, and then the largest penalty,
    which is solved fastest.
    """
    members = selection.members
    found = [candidate for member in members for candidate in smooth_candidates(member, task, Y)]
    least = min(loss for loss, _ in found)
    nearly = [candidate for loss, candidate in found if loss <= NEARLY * least]
    kernels = [member.kernel for member in members]
    best = max(nearly, key=lambda found: (found.kernel in kernels, found.lam))
    return replace(selection, members=[replace(best, share=1.0)])


def smooth_candidates(member: KernelMember, task: Task, Y: np.ndarray) -> Iterator[tuple[float, KernelMember]]:
    """Leave-one-out errors of the member, unless it is rough, and of smooth kernels with its coordinates."""
    kernel: Any = member.kernel
    sample = sample_of(task.data, Y, member.inputs, task.plan, pairwise=False)
    part = sample.part(sample.spaced(SMOOTHING_ROWS))
    X, weight = part.rows.take(np.arange(part.n_rows)).double(), part.weight
    splits = [] if part.row_groups is None else part.row_groups.splits(SMOOTHING_FOLDS)
    trials = [] if isinstance(kernel, Laplacian | Matern12) else [kernel]
    lengths = np.asarray(getattr(kernel, "length_scale", 1.0))
    trials += [Separable((factor * lengths).tolist(), p=POWER, q=POWER) for factor in FACTORS]
    for trial in trials:
        penalties = [member.lam] if trial is kernel or not task.unspecified.penalty else PENALTIES
        values = leave_one_out_path(trial(X, X), part.Y, weight, torch.tensor(penalties), splits)
        errors = (values - part.Y).square().sum(2)
        losses = (weight * errors.nan_to_num()).sum(1) / (weight * errors.isfinite()).sum(1)
        for loss, lam in zip(losses.tolist(), penalties, strict=True):
            yield loss, replace(member, kernel=trial, lam=lam)


@dataclass(frozen=True)
class Steps:
    """Small steps along a constrained coordinate, from `low` to `high`; `place` is its place among the signs."""

    low: Tensor
    high: Tensor
    place: int

    def take(self, index: Tensor) -> Steps:
        """Some of the steps."""
        return Steps(self.low[index], self.high[index], self.place)


class PointSource:
    """Random points of a table: rows, or mixtures of two rows, with a random value in one constrained coordinate.

    Half of the points lie near earlier ones of low slopes.
    """

    def __init__(self, X: np.ndarray, signs: dict[int, int], fills: np.ndarray, indicators: Sequence[int]) -> None:
        self.X, self.fills, self.indicators, self.rng = X, fills, indicators, np.random.default_rng(0)
        self.columns, self.signs = np.array(list(signs)), list(signs.values())
        self.grids = [_grid(X[:, j]) for j in signs]
        self.lowest = X[:0]

    @property
    def limits(self) -> np.ndarray:
        """Bounds of all coordinates, 2 × D; those of free ones are the largest numbers."""
        largest = np.finfo(np.float64).max
        limits = np.tile([[-largest], [largest]], self.X.shape[1])
        limits[:, self.columns] = np.array([[grid[0], grid[-1]] for grid in self.grids]).T
        return limits

    def draw(self, n: int) -> np.ndarray:
        """Random points, n × D."""
        near = self.lowest[self.rng.integers(len(self.lowest), size=n // 2)] if len(self.lowest) else self.lowest
        first, second = self.X[self.rng.integers(len(self.X), size=(2, n))]
        first[: len(near)] = near
        share = np.where(self.rng.random(n) < 0.3, 0.0, 0.5 * self.rng.random(n))
        share[: len(near)] = 0.2 * self.rng.random(len(near))
        points = (first + share[:, None] * (second - first)).clip(*self.limits)
        place = self.rng.integers(len(self.columns), size=n)
        for k, (column, grid) in enumerate(zip(self.columns, self.grids, strict=True)):
            here = np.flatnonzero(place == k)
            v = self._position(points[here, column], grid) + 0.1 * self.rng.normal(size=len(here))
            v = np.where(here < len(near), v.clip(0, 1), self.rng.random(len(here)))
            points[here, column] = self._value(v, grid)
        return points

    def steps(self, points: np.ndarray, place: int, length: float = STEP) -> Steps:
        """Steps of a coordinate around points, within its range."""
        grid, column = self.grids[place], self.columns[place]
        middle = self._position(points[:, column], grid).clip(length / 2, 1 - length / 2)
        low, high = points.copy(), points.copy()
        low[:, column] = self._value(middle - length / 2, grid)
        high[:, column] = self._value(middle + length / 2, grid)
        return Steps(torch.as_tensor(low), torch.as_tensor(high), place)

    def absent(self, points: np.ndarray, place: int) -> np.ndarray:
        """A mask of points where the value of a coordinate stands for a missing one, and has no meaning."""
        missing = (points[:, self.indicators] > 0).any(1)
        return missing & (points[:, self.columns[place]] == self.fills[place])

    def along(self, place: int) -> Steps:
        """Steps over the whole range of a coordinate, at the middle row."""
        rows = np.tile(np.median(self.X, axis=0), (GRID, 1))
        rows[:, self.columns[place]] = self._value((np.arange(GRID) + 0.5) / GRID, self.grids[place])
        return self.steps(rows, place, 1 / GRID)

    @staticmethod
    def _position(values: np.ndarray, grid: np.ndarray) -> np.ndarray:
        return np.interp(values, grid, np.linspace(0, 1, len(grid)))

    @staticmethod
    def _value(v: np.ndarray, grid: np.ndarray) -> np.ndarray:
        return np.interp(v, np.linspace(0, 1, len(grid)), grid)


def _grid(values: np.ndarray) -> np.ndarray:
    """Values of a column between which points are drawn, without the outermost rows at each end."""
    values = values.clip(*np.quantile(values, [OUTSIDE, 1 - OUTSIDE]))
    even = np.linspace(values.min(), values.max(), GRID)
    return np.unique(np.concatenate([np.quantile(values, np.linspace(0, 1, GRID)), even]))


class Correction:
    """The correction of one ensemble member: kernel functions, and coordinates in which its size is Euclidean.

    With K_SS = LLᵀ the functions V = K_nS L⁻ᵀ are orthonormal in the RKHS; with VᵀDV + λ'I = RRᵀ the weights of a
    correction of coordinates p are L⁻ᵀR⁻ᵀp.
    """

    def __init__(self, part: FittedMember) -> None:
        problem, final = part.fit.problem, part.final
        self.inputs, self.share = part.member.inputs, part.member.share
        self.kernel: Kernel = final.kernel
        self.Z, self.W = final.basis.double().cpu(), final.weights.double().cpu()
        rows = problem.candidates()
        self.index = spanning_rows(final.index, rows)
        self.S = problem.basis(self.index).double().cpu()
        self.delta = torch.zeros(len(self.S), 1, dtype=torch.float64)
        same = self.index[:, None] == final.index  # basis vectors among the rows that span the correction
        self.W_S, self.rest = same.cpu().double() @ self.W, ~same.any(0).cpu()
        spaced = rows[torch.linspace(0, len(rows) - 1, min(len(rows), METRIC_ROWS)).long()]
        weight = problem.weight[spaced].double().cpu() * (len(rows) / len(spaced))
        self.L = cholesky(self.kernel(self.S, self.S))[0]
        V = torch.linalg.solve_triangular(
            self.L, self.kernel(self.S, problem.basis(spaced).double().cpu()), upper=False
        )
        inner = (V * weight) @ V.T
        inner.diagonal().add_(PENALTY_SHARE * final.lam)
        self.R = cholesky(inner)[0]
        self.held_out_rows = part.held_out.rows

    def change(self) -> np.ndarray:
        """The change of held-out predictions by the correction."""
        return (self.kernel(self.held_out_rows.double().cpu(), self.S) @ self.delta).numpy()

    def gradients(self, points: np.ndarray, dtype: torch.dtype) -> Tensor:
        """Gradients of the corrected member at points, in the kernel's coordinates."""
        basis, weights = torch.cat([self.S, self.Z[self.rest]]), torch.cat([self.W_S + self.delta, self.W[self.rest]])
        rows, columns = self.inputs.encode(torch.as_tensor(points)).to(dtype), self.kernel.columns(basis.to(dtype))
        slopes = [columns.slopes(block, weights.to(dtype)) for block in rows.split(BLOCK)]
        return self.share * torch.cat(slopes)[:, :, 0].double()

    def moves(self, steps: Steps) -> Tensor:
        """Steps in the kernel's coordinates."""
        return self.inputs.encode(steps.high) - self.inputs.encode(steps.low)

    def rows_of(self, steps: Steps) -> tuple[Tensor, Tensor]:
        """Differences along steps: as rows that multiply the coordinates p, and those of the member as fitted."""
        low, high = self.inputs.encode(steps.low), self.inputs.encode(steps.high)
        G = self.kernel(high, self.S) - self.kernel(low, self.S)
        fitted = (self.kernel(high, self.Z) - self.kernel(low, self.Z)) @ self.W
        white = torch.linalg.solve_triangular(self.L, G.T, upper=False)
        white = torch.linalg.solve_triangular(self.R, white, upper=False)
        return self.share**0.5 * white.T, self.share * fitted[:, 0]

    def set_coordinates(self, p: Tensor) -> None:
        white = torch.linalg.solve_triangular(self.R.T, p[:, None] / self.share**0.5, upper=True)
        self.delta = torch.linalg.solve_triangular(self.L.T, white, upper=True)

    def corrected(self, part: FittedMember, limits: np.ndarray) -> FittedMember:
        """The member with the correction added; its held-out predictions change as the function does."""
        final, held_out = part.final, part.held_out
        added = self.delta.to(final.weights)
        final = replace(
            final,
            index=torch.cat([final.index, self.index]),
            basis=torch.cat([final.basis, self.S.to(final.basis)]),
            weights=torch.cat([final.weights, added]),
        ).merged()
        held_out = replace(held_out, values=held_out.values + self.change())
        member = replace(part.member, inputs=replace(self.inputs, limits=limits))
        path = part.path
        if isinstance(part.fit.learner, AllRows):
            path = ExpansionPath.of_weights(final.index.cpu().numpy(), final.weights.double().cpu().numpy())
        return replace(part, final=final, held_out=held_out, member=member, path=path)


def spanning_rows(basis: Tensor, rows: Tensor) -> Tensor:
    """Rows whose kernel functions span a correction: the basis vectors, fewer or more of them where needed."""
    if len(basis) > MOST_VECTORS:
        return basis[torch.linspace(0, len(basis) - 1, MOST_VECTORS).long()]
    others = rows[~torch.isin(rows, basis)]
    n = min(max(FEWEST_VECTORS - len(basis), 0), len(others))
    return torch.cat([basis, others[torch.linspace(0, max(len(others) - 1, 0), n).long()]])


def least_distance(G: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """The shortest p with Gp ≥ b, and the mask of active constraints; None if there is none.

    >>> p, active = least_distance(np.array([[1.0, 1.0], [1.0, 0.0]]), np.array([2.0, -1.0]))
    >>> p.round(6).tolist(), active.tolist()
    ([1.0, 1.0], [True, False])
    """
    E = np.concatenate([G.T, b[None]])
    size = np.linalg.norm(E, axis=0)
    E = E / np.where(size > 0, size, 1.0)
    target = np.zeros((len(E), 1))
    target[-1] = 1.0
    R: Any = np.linalg.qr(np.concatenate([E, target], 1), mode="r")  # the same problem with fewer rows
    multipliers, distance = nnls(R[:, :-1], R[:, -1], maxiter=30 * E.shape[1])
    if distance < 1e-10:
        return None
    residual = E @ multipliers - target[:, 0]
    return -residual[:-1] / residual[-1], multipliers > 0


def monotone_members(parts: list[FittedMember], signs: dict[int, int], task: Task, clock: Clock) -> list[FittedMember]:
    """Correct ensemble members such that their sum has slopes of these signs along coordinates of the table."""
    error = _held_out_error(parts)
    source = _point_source(task.data, signs)
    corrections = [Correction(part) for part in parts]
    met = CuttingPlanes(corrections, source, error, clock).run()
    corrected = [found.corrected(part, source.limits) for found, part in zip(corrections, parts, strict=True)]
    after = _held_out_error(corrected)
    times = f"{after / error:.3g} times as large"
    if met:
        if after > MOST_RISE * error:
            warn(f"monotonic_cst makes the held-out error {times}: data contradict it, or the kernel cannot follow")
        return corrected
    why = "they took too long to find" if clock.expired() else "its kernels cannot meet them"
    if after > MOST_RISE * error:  # a search that has not ended may leave a function far from the rows
        warn(f"the model does not follow monotonic_cst: {why}, and its error would be {times}")
        return parts
    warn(f"some slopes of the model may have signs other than those of monotonic_cst: {why}")
    return corrected


def _held_out_error(parts: list[FittedMember]) -> float:
    """Root mean squared error of held-out rows, in units of the coded targets."""
    held_out = ensemble_predictions(parts)
    residual = (held_out.targets - held_out.values)[:, 0]
    return float(np.sqrt(np.average(residual**2, weights=held_out.weight)))


def _point_source(data: TableData, signs: dict[int, int]) -> PointSource:
    X = data.rows.fetch(data.spaced(POOL_ROWS)).double().cpu().numpy()
    fills, indicators = np.full(len(signs), np.nan), []
    if data.table is not None:
        codes = np.repeat(np.array(data.table.codes, dtype=object), [code.width for code in data.table.codes])
        fills = np.array([codes[j].fill for j in signs])
        indicators = [j for j, code in enumerate(codes) if isinstance(code, Missing)]
    return PointSource(X, signs, fills, indicators)


def _lengths(corrections: list[Correction], steps: Steps) -> Tensor:
    total = torch.zeros(len(steps.low), dtype=torch.float64)
    return sum((part.share * part.moves(steps).norm(dim=1) for part in corrections), total)


class CuttingPlanes:
    """The quadratic program of the constraints found so far, to which rounds of random points add those violated."""

    def __init__(self, corrections: list[Correction], source: PointSource, error: float, clock: Clock) -> None:
        self.corrections, self.source, self.clock = corrections, source, clock
        self.sizes = [len(part.S) for part in corrections]
        ranges = torch.stack([_lengths(corrections, source.along(k)).sum() for k in range(len(source.signs))])
        self.margin = MARGIN * error / ranges.clamp(min=1e-300)
        self.n_rounds, self.clean = 0, 0
        self.G = torch.zeros(0, sum(self.sizes), dtype=torch.float64)
        self.b = self.G.new_zeros(0)

    def run(self) -> bool:
        """Whether the last rounds found no violation."""
        while self.n_rounds < ROUNDS and self.clean < CLEAN_ROUNDS and not self.clock.expired():
            n_violated = self._round(self.source.draw(POINTS))
            self.n_rounds += 1
            self.clean = 0 if n_violated else self.clean + 1
            if n_violated:
                self._solve()
        return self.clean == CLEAN_ROUNDS

    def _round(self, points: np.ndarray) -> int:
        """Add constraints at points where slopes are below half of the margin; returns how many have the wrong sign."""
        screened = torch.stack([slope for slope, _ in self._slopes(points, torch.float32)])
        lowest = screened.topk(min(LOWEST, len(points)), largest=False)[1].flatten().unique()
        points, n_violated = points[lowest.numpy()], 0
        self.source.lowest = points
        for slope, steps in self._slopes(points, torch.float64):
            n_violated += int((slope < ROUNDING).sum())
            low = (slope < self.margin[steps.place] * _lengths(self.corrections, steps) / STEP / 2).nonzero()[:, 0]
            self._add(steps.take(low[slope[low].argsort()[:ADDED]]))
        return n_violated

    def _slopes(self, points: np.ndarray, dtype: torch.dtype) -> Iterator[tuple[Tensor, Steps]]:
        """Slopes along each constrained coordinate, times the sign wanted, and their steps."""
        gradients = [part.gradients(points, dtype) for part in self.corrections]
        for place, sign in enumerate(self.source.signs):
            steps = self.source.steps(points, place)
            moves = [part.moves(steps) for part in self.corrections]
            slope = torch.stack([(g * move).sum(1) for g, move in zip(gradients, moves, strict=True)]).sum(0)
            slope = sign / STEP * slope
            slope[torch.as_tensor(self.source.absent(points, place))] = torch.inf
            yield slope, steps

    def _add(self, steps: Steps) -> None:
        """Demand slopes of at least the margin along these steps."""
        sign, rows = self.source.signs[steps.place], [part.rows_of(steps) for part in self.corrections]
        fitted = torch.stack([value for _, value in rows]).sum(0)
        margin = self.margin[steps.place] * _lengths(self.corrections, steps)
        self.G = torch.cat([self.G, sign * torch.cat([row for row, _ in rows], 1)])
        self.b = torch.cat([self.b, margin - sign * fitted])

    def _solve(self) -> None:
        """Solve for the corrections, and keep the active constraints."""
        solved = least_distance(self.G.numpy(), self.b.numpy())
        if solved is None:  # no function of the span has such slopes: the last constraints are dropped
            return
        p, active = (torch.as_tensor(part) for part in solved)
        self.G, self.b = self.G[active], self.b[active]
        for part, coordinates in zip(self.corrections, p.split(self.sizes), strict=True):
            part.set_coordinates(coordinates)

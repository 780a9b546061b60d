r"""Monotone constraints: the nearest function that rises, or falls, with some columns.

The fitted function f is replaced by f + g. The correction g solves

.. math:: \min_g \tfrac12\sum_n w_n g(x_n)^2 + \tfrac{\lambda'}2\|g\|^2_{\mathcal H} \quad\text{subject to}\quad
    s_j\,\partial_j(f + g)(x) \ge \varepsilon_j(x) \text{ for all } x \text{ and constrained columns } j ,

with s = ±1, in the span of the kernel functions of at most 1200 rows, and of points with violations that have no row
nearby. Otherwise nothing would rise in the empty outskirts of skewed columns without a change everywhere else. If the
truth obeys the constraints, a projection in the mean square cannot lead away from it. Hence λ' is smaller than the
penalty λ of the fit.

The infinitely many constraints are met by cutting planes. Each round draws points, finds those where the slope has the
wrong sign, adds them to the active constraints and solves the quadratic program again, until several rounds in a row
find none. Points are rows of the table, and mixtures of two rows, with a random value in one constrained column. The
small margin ε keeps slopes between the drawn points positive.

In coordinates p in which the objective is ½|p|² this is a least distance problem, solved by non-negative least squares
(C. L. Lawson and R. J. Hanson, "Solving least squares problems", 1974, chapter 23). Ensemble members are corrected
together: their average is constrained, each by its share. Their kernels are differentiable
(`mercer.forward.smooth_kernels`).

A constrained column keeps the value at the end of its range beyond it (`InputMap.limits`), since kernels would fall
back to the mean there.
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
from mercer.forward.path import ExpansionPath
from mercer.forward.solve.exact import AllRows
from mercer.forward.span import novel
from mercer.forward.task import FittedMember, Task, ensemble_predictions
from mercer.kernels import Kernel, Laplacian, Matern12, Separable
from mercer.linalg import cholesky
from mercer.parts import require, warn
from mercer.preprocessing.columns import Missing
from mercer.preprocessing.monotonic import has_signs, signs_by_coordinate
from mercer.preprocessing.read import TableData
from mercer.progress import report_step

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
#: The span grows by functions of points around a violation, so far apart in units of the range, if the span leaves this
#: share of their squared norm.
REACH, NOVEL = 0.05, 0.01
#: Points of a round, which double after each round without a violation, constraints that it adds for a column, rounds
#: at most, and rounds without a violation at the end.
POINTS, ADDED, ROUNDS, CLEAN_ROUNDS = 1000, 100, 60, 4
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
    """Values of a column between which points are drawn: quantiles and equal steps."""
    even = np.linspace(values.min(), values.max(), GRID)
    return np.unique(np.concatenate([np.quantile(values, np.linspace(0, 1, GRID)), even]))


class Correction:
    """The correction of one ensemble member: kernel functions, and coordinates in which its size is Euclidean.

    With K_SS = LLᵀ the functions V = L⁻¹K_Sn are orthonormal in the RKHS; with VDVᵀ + λ'I = RRᵀ the weights of a
    correction of coordinates p are L⁻ᵀR⁻ᵀp. The span begins with rows and grows by points without a row nearby.
    """

    def __init__(self, part: FittedMember) -> None:
        problem, final = part.fit.problem, part.final
        self.inputs, self.share = part.member.inputs, part.member.share
        self.kernel: Kernel = final.kernel
        self.Z, self.W = final.basis.double().cpu(), final.weights.double().cpu()
        rows = problem.candidates()
        self.index = spanning_rows(final.index, rows)
        same = self.index[:, None] == final.index  # basis vectors among the rows that span the correction
        self.W_S, self.rest = same.cpu().double() @ self.W, ~same.any(0).cpu()
        spaced = rows[torch.linspace(0, len(rows) - 1, min(len(rows), METRIC_ROWS)).long()]
        self.X = problem.basis(spaced).double().cpu()
        self.weight = problem.weight[spaced].double().cpu() * (len(rows) / len(spaced))
        self.penalty = PENALTY_SHARE * final.lam
        self.held_out_rows = part.held_out.rows
        self.S = problem.basis(self.index).double().cpu()
        self.n_rows = len(self.S)
        self.delta = self.S.new_zeros(self.n_rows, 1)
        self.L = cholesky(self.kernel(self.S, self.S))[0]
        self.V = torch.linalg.solve_triangular(self.L, self.kernel(self.S, self.X), upper=False)
        inner = (self.V * self.weight) @ self.V.T
        inner.diagonal().add_(self.penalty)
        self.R = cholesky(inner)[0]

    def grow(self, points: Tensor) -> None:
        """Add the kernel functions of those points that the span does not hold yet."""
        B = self.inputs.encode(points)
        cross = torch.linalg.solve_triangular(self.L, self.kernel(self.S, B), upper=False)
        gram = self.kernel(B, B)
        new = novel(gram - cross.T @ cross, gram.diagonal(), NOVEL)
        if not len(new):
            return
        B, cross, gram = B[new], cross[:, new], gram[new][:, new]
        L = cholesky(gram - cross.T @ cross)[0]
        V = torch.linalg.solve_triangular(L, self.kernel(B, self.X) - cross.T @ self.V, upper=False)
        inner = (self.V * self.weight) @ V.T
        mixed = torch.linalg.solve_triangular(self.R, inner, upper=False)
        own = (V * self.weight) @ V.T - mixed.T @ mixed
        own.diagonal().add_(self.penalty)
        self.R, self.L = bordered(self.R, mixed.T, cholesky(own)[0]), bordered(self.L, cross.T, L)
        nearest = self.kernel(B, self.S[: self.n_rows]).argmax(1)
        self.index = torch.cat([self.index, self.index[nearest.to(self.index.device)]])
        self.S, self.V = torch.cat([self.S, B]), torch.cat([self.V, V])
        added = self.W.new_zeros(len(B), 1)
        self.delta, self.W_S = torch.cat([self.delta, added]), torch.cat([self.W_S, added])

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

    def fitted(self, steps: Steps) -> Tensor:
        """Differences of the member as fitted along steps."""
        low, high = self.inputs.encode(steps.low), self.inputs.encode(steps.high)
        return self.share * ((self.kernel(high, self.Z) - self.kernel(low, self.Z)) @ self.W)[:, 0]

    def rows_of(self, steps: Steps) -> Tensor:
        """Differences along steps as rows that multiply the coordinates p."""
        low, high = self.inputs.encode(steps.low), self.inputs.encode(steps.high)
        G = (self.kernel(high, self.S) - self.kernel(low, self.S)).T
        white = torch.linalg.solve_triangular(self.L, G, upper=False)
        return self.share**0.5 * torch.linalg.solve_triangular(self.R, white, upper=False).T

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
            moved=len(self.S) > self.n_rows,
        ).merged()
        held_out = replace(held_out, values=held_out.values + self.change())
        member = replace(part.member, inputs=replace(self.inputs, limits=limits))
        path = part.path
        if isinstance(part.fit.learner, AllRows):
            path = ExpansionPath.of_weights(final.index.cpu().numpy(), final.weights.double().cpu().numpy())
            path = replace(path, basis=final.basis.double().cpu().numpy())
        return replace(part, final=final, held_out=held_out, member=member, path=path)


def bordered(A: Tensor, B: Tensor, C: Tensor) -> Tensor:
    """The lower block triangular matrix of A and C, with B below A."""
    return torch.cat([torch.cat([A, A.new_zeros(len(A), len(C))], 1), torch.cat([B, C], 1)])


def spanning_rows(basis: Tensor, rows: Tensor) -> Tensor:
    """Rows whose kernel functions span a correction: the basis vectors, fewer or more of them where needed."""
    if len(basis) > MOST_VECTORS:
        return basis[torch.linspace(0, len(basis) - 1, MOST_VECTORS).long()]
    others = rows[~torch.isin(rows, basis)]
    n = min(max(FEWEST_VECTORS - len(basis), 0), len(others))
    return torch.cat([basis, others[torch.linspace(0, max(len(others) - 1, 0), n).long()]])


def least_distance(G: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """The shortest p with Gp ≥ b, and the mask of active constraints; None if there is none."""
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
        ranges = torch.stack([_lengths(corrections, source.along(k)).sum() for k in range(len(source.signs))])
        self.margin = MARGIN * error / ranges.clamp(min=1e-300)
        self.n_rounds, self.clean = 0, 0
        self.active: list[Steps] = []
        self.b = torch.zeros(0, dtype=torch.float64)

    def run(self) -> bool:
        """Whether the last rounds found no violation."""
        while self.n_rounds < ROUNDS and self.clean < CLEAN_ROUNDS and not self.clock.expired():
            n_violated = self._round(self.source.draw(POINTS * 2**self.clean))
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
        """Demand slopes of at least the margin along these steps, with functions in the span that have them."""
        if not len(steps.low):
            return
        sign = self.source.signs[steps.place]
        fitted = torch.stack([part.fitted(steps) for part in self.corrections]).sum(0)
        margin = self.margin[steps.place] * _lengths(self.corrections, steps)
        self.active.append(steps)
        self.b = torch.cat([self.b, margin - sign * fitted])
        ends = self.source.steps(steps.low.numpy(), steps.place, REACH)
        for part in self.corrections:
            part.grow(torch.cat([ends.low, ends.high]))

    def _solve(self) -> None:
        """Solve for the corrections, and keep the active constraints."""
        G = [torch.cat([part.rows_of(steps) for part in self.corrections], 1) for steps in self.active]
        G = [self.source.signs[steps.place] * rows for steps, rows in zip(self.active, G, strict=True)]
        solved = least_distance(torch.cat(G).numpy(), self.b.numpy())
        if solved is None:  # no function of the span has such slopes: the last constraints are dropped
            return
        p, active = (torch.as_tensor(part) for part in solved)
        kept = active.split([len(steps.low) for steps in self.active])
        self.active = [steps.take(keep) for steps, keep in zip(self.active, kept, strict=True) if bool(keep.any())]
        self.b = self.b[active]
        sizes = [len(part.S) for part in self.corrections]
        for part, coordinates in zip(self.corrections, p.split(sizes), strict=True):
            part.set_coordinates(coordinates)

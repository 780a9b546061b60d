r"""How much the predictions of a kernel expansion depend on each column of the table: total-effect Sobol indices.

The total effect of column d is the variance of f that remains when all other columns are known. Jansen's estimator
takes pairs of rows x, x' and exchanges column d alone,

.. math:: T_d = \tfrac12\, E\big[(f(x) - f(x_1, \dots, x'_d, \dots, x_D))^2\big] .

It asks the model for predictions only, so it holds for every kernel, metric and number of outputs.

Reference: M. J. W. Jansen, "Analysis of variance designs for model output", Computer Physics Communications 117 (1999).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from mercer.data import TensorRows
from mercer.engine import KernelMatrix, Plan
from mercer.forward.expansion import Expansion
from mercer.kernels import Function, Kernel
from mercer.preprocessing.inputs import FARTHEST, InputMap
from mercer.preprocessing.read import TableData

#: Pairs of rows that measure every column, at least and at most, and those that measure the columns of largest effect.
FIRST_PAIRS, PAIRS = (5, 20), (200, 500)
#: Columns that have most of the effect, usually.
FEW_COLUMNS = 8
#: Predictions that all columns together may take: this many, a share of the rows of `fit`, or what comes to so many
#: kernel values, whichever is more. It is 1 to 5 % of the time of a default fit. Kernels that are functions of the user
#: have the share only.
PREDICTIONS, SHARE, VALUES = 1600, 0.25, 2e6
#: Numbers in the rows that are predicted at a time.
BLOCK_NUMBERS = 1 << 19


@dataclass(frozen=True)
class Pairs:
    """Pairs of rows of a table, by their places in `rows`, the weight of each pair, and what each output counts."""

    rows: np.ndarray  # n × D, as the table was coded
    base: np.ndarray
    donor: np.ndarray
    weight: np.ndarray
    outputs: np.ndarray | float  # p

    @classmethod
    def of(cls, given: TableData, n_pairs: int) -> Pairs:
        """About `n_pairs` pairs of different rows of positive weight; of few rows, each row with several others."""
        rng = np.random.default_rng(0)  # a stream of its own: fits that go on draw as they would without it
        index = given.draw(n_pairs, rng)
        rows = given.rows.fetch(index).double().cpu().numpy()
        weight = given.pick(given.weight, index).astype(np.float64)
        n = len(index)
        order = rng.permutation(n)
        shifts = range(1, 1 + min(n - 1, max(n_pairs // n, 1)))
        base = np.tile(order, len(shifts))
        donor = np.concatenate([np.roll(order, shift) for shift in shifts]) if n > 1 else order[:0]
        weight = weight / weight.max()
        outputs = _precisions(given.pick(given.y, index)) if given.y.ndim == 2 else 1.0
        return cls(rows, base, donor, weight[base] * weight[donor], outputs)

    def first(self, n: int) -> Pairs:
        """The first pairs."""
        base, donor = self.base[:n], self.donor[:n]
        used, places = np.unique([base, donor], return_inverse=True)
        base, donor = places.reshape(2, -1)
        return Pairs(self.rows[used], base, donor, self.weight[:n], self.outputs)


def _precisions(Y: np.ndarray) -> np.ndarray:
    """1/variance of each output in a common unit; 0 for a constant one."""
    size = np.abs(Y).max(0, initial=np.finfo(float).tiny)
    deviation = (Y / size).std(0)
    deviation = np.where(deviation > 1e-14, deviation * (size / size.max()), np.inf)  # a constant has only rounding
    return np.square(deviation[np.isfinite(deviation)].min(initial=1.0) / deviation)


def effects(expansions: Sequence[Expansion], given: TableData, plan: Plan) -> np.ndarray:
    """The share of each column of the user's table in all total effects: non-negative, of sum 1.

    A column that no kernel sees has exactly 0; all columns have where predictions are constant. Several outputs are
    summed in units of their standard deviations. Few pairs of rows measure all columns; more pairs then measure the
    columns of largest effect.
    """
    layout, D = given.layout, given.n_columns
    coordinates = [np.array([d]) if layout is None else np.flatnonzero(layout.column == d) for d in range(D)]
    most = _affordable(expansions, given.n_alive)
    few, many = (int(np.clip(most / n, *limits)) for n, limits in ((2 * D, FIRST_PAIRS), (FEW_COLUMNS, PAIRS)))
    pairs = Pairs.of(given, many)
    total = _total_effects(expansions, pairs.first(few), coordinates, plan)
    again = np.argsort(-total, kind="stable")[: max(int(most - few * D) // (many - few), 0)]
    total[again] = _total_effects(expansions, pairs, [coordinates[d] for d in again], plan)
    largest = total.max(initial=0.0)
    return total / largest / (total / largest).sum() if largest > 0 else total


def _affordable(expansions: Sequence[Expansion], n_rows: int) -> float:
    """Predictions that all columns together may take."""
    share = SHARE * n_rows
    if any(_calls_the_user(one.kernel) for one in expansions):
        return share
    return max(share, PREDICTIONS, VALUES / max(sum(len(one.basis) for one in expansions), 1))


def _calls_the_user(kernel: Kernel) -> bool:
    return isinstance(kernel, Function) or any(map(_calls_the_user, kernel.parts().values()))


def _total_effects(
    expansions: Sequence[Expansion], pairs: Pairs, coordinates: Sequence[np.ndarray], plan: Plan
) -> np.ndarray:
    """T_d of some columns, each given by its coordinates."""
    if not len(pairs.base) or not len(coordinates):
        return np.zeros(len(coordinates))
    changes = np.sum([_changes(one, pairs, coordinates, plan) for one in expansions], axis=0)
    return (
        (np.square(changes) * pairs.outputs).sum(2) @ pairs.weight / (2 * max(pairs.weight.sum(), np.finfo(float).tiny))
    )


def _changes(one: Expansion, pairs: Pairs, coordinates: Sequence[np.ndarray], plan: Plan) -> np.ndarray:
    """By how much f changes where a column of the first row of a pair takes the second's value.

    The result has the shape columns × pairs × outputs. Rows that the kernel sees unchanged are not predicted: their
    change is exactly 0, without rounding.
    """
    plan = replace(plan, dtype=getattr(torch, one.dtype))
    W, Z = torch.as_tensor(one.weights), torch.as_tensor(one.basis).to(plan.device, plan.dtype)
    steps = Steps.of(one.inputs, pairs)
    limit = FARTHEST[plan.dtype]

    def f(rows: Tensor) -> np.ndarray:
        seen = TensorRows(rows.clamp(-limit, limit).to(plan.device, plan.dtype))
        return KernelMatrix(seen, one.kernel, Z, plan).product(W).double().cpu().numpy()

    before = f(steps.start)[pairs.base]
    out = np.zeros((len(coordinates), *before.shape))
    each = max(BLOCK_NUMBERS // (len(before) * max(Z.shape[1], 1)), 1)
    for first in range(0, len(coordinates), each):
        found = [steps.changed(mine) for mine in coordinates[first : first + each]]
        places = np.concatenate([at for at, _ in found])
        if len(places):
            column = np.repeat(np.arange(first, first + len(found)), [len(at) for at, _ in found])
            out[column, places] = f(torch.cat([rows for _, rows in found])) - before[places]
    return out


@dataclass(frozen=True)
class Steps:
    """The rows of pairs as a kernel sees them, and the way from one row to the other before the transform.

    Columns are mapped one by one before the transform, so a change of one of them is mapped without the others.
    """

    pairs: Pairs
    start: Tensor  # the rows, transformed
    apart: Tensor  # of each pair, mapped but not transformed
    turn: Tensor | None

    @classmethod
    def of(cls, inputs: InputMap, pairs: Pairs) -> Steps:
        mapped = replace(inputs, transform=None).encode(torch.as_tensor(pairs.rows))
        turn = None if inputs.transform is None else torch.as_tensor(inputs.transform)
        start = mapped if turn is None else mapped * turn if turn.ndim == 1 else mapped @ turn.T
        return cls(pairs, start, mapped[pairs.donor] - mapped[pairs.base], turn)

    def changed(self, mine: np.ndarray) -> tuple[np.ndarray, Tensor]:
        """The pairs that differ in these coordinates, and their first rows with the second's values there."""
        apart, turn = self.apart[:, mine], self.turn
        if turn is None or turn.ndim == 1:
            step = torch.zeros(len(apart), self.start.shape[1], dtype=torch.float64)
            step[:, mine] = apart if turn is None else apart * turn[mine]
        else:
            step = apart @ turn[:, mine].T
        places = (step != 0).any(1).nonzero()[:, 0].numpy()
        return places, self.start[self.pairs.base[places]] + step[places]

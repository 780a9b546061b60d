"""Ensemble members, their values at new rows, and their votes (MEKL13 table 1, eqs. 9 and 10)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from mercer.data import RowSource
from mercer.engine import KernelMatrix, Plan, Sample
from mercer.kernels import Kernel


@dataclass(frozen=True)
class EnsembleMember:
    """One trained set of kernels (steps 1 to 7 of table 1), as kernel expansions.

    The function of kernel l is f_l(x) = k_l(x, `basis`) `dual_coef`[l] + `bias`[l]: its weights in the coordinates of
    the map, taken back to kernel values. So predictions need the basis vectors and no map.
    """

    kernels: list[Kernel]
    #: p × D, in the units and the precision of prepared rows.
    basis: Tensor
    #: Rows of the table given to `fit`.
    basis_indices: np.ndarray
    #: M × p × P and M × P.
    dual_coef: Tensor
    bias: Tensor
    #: ‖w_l‖ in each kernel's own space, M × P.
    kernel_norms: np.ndarray
    objective_path: np.ndarray
    stop_reason: str
    #: Weighted share of the training rows at which each kernel's own decision is that of their mean, M.
    agreement: np.ndarray

    def tensors(self) -> tuple[Tensor, Tensor, Tensor]:
        """Basis, weights and biases as tensors; a fitted model holds arrays."""
        return torch.as_tensor(self.basis), torch.as_tensor(self.dual_coef), torch.as_tensor(self.bias)

    def values(self, rows: RowSource, plan: Plan) -> np.ndarray:
        """The mean of the kernels' functions, n × P: its sign is eq. (9)."""
        return values([self], rows, plan)[0]


def values(members: Sequence[EnsembleMember], rows: RowSource, plan: Plan) -> list[np.ndarray]:
    """The mean of the kernels' functions of each member of a problem, n × P, from one product per kernel for all."""
    M = len(members[0].kernels)
    bases, coefficients, biases = zip(*(member.tensors() for member in members), strict=True)
    total = torch.cat([bias.mean(0) for bias in biases]).to(plan.device)
    basis = torch.cat(bases).to(plan.device, plan.dtype)
    for l, kernel in enumerate(members[0].kernels):
        weights = torch.block_diag(*(w[l] for w in coefficients))
        total = total + KernelMatrix(rows, kernel, basis, plan).product(weights / M)
    return np.hsplit(total.cpu().numpy(), len(members))


def ballot(values: Sequence[np.ndarray], n_classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Votes (eq. 10) and mean margins of members for each of `n_classes` classes, both n × n_classes."""
    both = [np.column_stack([-f, f]) if f.shape[1] == 1 else f for f in values]
    # a value of zero decides for the class -1 (eq. 9): argmax takes the first of tied classes
    votes = sum(np.eye(n_classes)[f.argmax(1)] for f in both)
    return np.asarray(votes), np.mean(both, axis=0)


def tally(votes: np.ndarray, margins: np.ndarray) -> np.ndarray:
    """One score per class: votes, and margins scaled below one vote to break ties."""
    return votes + margins / (3 * (1 + np.abs(margins)))


@dataclass(frozen=True)
class MemberEnsemble:
    """A fitted model: the members of every machine, and the rule by which they vote.

    There is a machine for each of the `pairs` of classes, or a single one. `n_classes` is 0 for numbers.
    """

    machines: list[list[EnsembleMember]]
    pairs: list[tuple[int, int]]
    n_classes: int

    def values(self, rows: RowSource, plan: Plan) -> np.ndarray:
        """Combined values of all members: numbers, one score per class, or for two classes their difference."""
        return self.combined(self.outputs(rows, plan))

    def outputs(self, rows: RowSource, plan: Plan) -> list[list[np.ndarray]]:
        """Values of every member of every machine, n × P each."""
        return [values(members, rows, plan) for members in self.machines]

    def combined(self, outputs: list[list[np.ndarray]]) -> np.ndarray:
        """The combined values of these outputs."""
        if self.pairs:
            return self._by_pairs(outputs)
        if self.n_classes == 0:
            return np.mean(outputs[0], axis=0)
        scores = tally(*ballot(outputs[0], self.n_classes))
        return scores[:, 1:] - scores[:, :1] if self.n_classes == 2 else scores

    def at(self, sample: Sample) -> np.ndarray:
        """`values` at the rows of a sample."""
        return self.values(sample.rows, sample.plan)

    def _by_pairs(self, outputs: list[list[np.ndarray]]) -> np.ndarray:
        """Every pair of classes has one vote; margins break ties."""
        n = len(outputs[0][0])
        votes, margins = np.zeros((2, n, self.n_classes))
        for pair, of_members in zip(self.pairs, outputs, strict=True):
            both, margin = ballot(of_members, 2)
            winner = tally(both, margin).argmax(1)
            votes[np.arange(n), np.array(pair)[winner]] += 1
            margins[:, list(pair)] += margin
        return tally(votes, margins)


def agreement(values: Sequence[np.ndarray], weight: np.ndarray) -> list[float]:
    """Weighted share of the rows at which each member decides as all of them together; `values` are n × P each.

    >>> agreement([np.array([[1.0], [1.0]]), np.array([[2.0], [-0.5]])], np.array([1.0, 3.0]))
    [1.0, 0.25]
    """
    n_classes = max(values[0].shape[1], 2)
    together = tally(*ballot(values, n_classes)).argmax(1)
    decided = (ballot([f], n_classes)[0].argmax(1) for f in values)
    return [float(np.average(decision == together, weights=weight)) for decision in decided]

"""What a member of an ensemble is given: rows, targets, weights and kernels, parts of them, and pairs of classes."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from numbers import Integral
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mercer.data import RowSource
from mercer.data.source import RowSubset
from mercer.empirical.mapping import EmpiricalMap, empirical_map, mean_distance, resolve_kernels
from mercer.engine import Plan
from mercer.kernels import Kernel

#: What scikit-learn calls them is understood too.
MULTICLASS = {
    "auto": "auto",
    "one-vs-one": "one-vs-one",
    "one-vs-rest": "one-vs-rest",
    "ovo": "one-vs-one",
    "ovr": "one-vs-rest",
}
#: Classes up to which "auto" trains a machine for every pair of them, and up to which that can be asked for.
FEW_CLASSES, MOST_CLASSES = 45, 64


@dataclass(frozen=True)
class MemberProblem:
    """Targets (n × P, ±1 for classes) and weights (n) of all rows, on the plan's device in its precision."""

    rows: RowSource
    targets: Tensor
    weight: Tensor
    kernels: list[Kernel]
    plan: Plan
    #: Each row's index in the table the user gave.
    original: np.ndarray

    def part(self, n: int, rng: np.random.Generator) -> MemberProblem:
        """At most n of the rows that count, drawn at random; they weigh as much as all of them together."""
        alive = self.weight.nonzero()[:, 0].cpu().numpy()
        if len(alive) <= n:
            return self
        index = np.sort(rng.choice(alive, n, replace=False))
        at = torch.as_tensor(index, device=self.weight.device)
        weight = self.weight[at]
        weight = weight * (self.weight.sum() / weight.sum())
        rows = RowSubset(self.rows, index)
        return MemberProblem(rows, self.targets[at], weight, self.kernels, self.plan, self.original[index])

    @property
    def n_alive(self) -> int:
        """Rows of positive weight."""
        return int((self.weight > 0).sum())

    def choose(self, size: int, rng: np.random.Generator) -> np.ndarray:
        """Step 1 of table 1: `size` random rows of positive weight, or all of them if there are no more."""
        alive = self.weight.nonzero()[:, 0].cpu().numpy()
        chosen = alive if size >= len(alive) else np.sort(rng.choice(alive, size, replace=False))
        self.plan.require_square(len(chosen))
        return chosen

    def maps(self, chosen: np.ndarray) -> list[EmpiricalMap]:
        """Step 2: the map of each kernel on these rows."""
        basis = self.rows.take(chosen)
        return [empirical_map(kernel, basis, dtype=self.plan.dtype) for kernel in self.kernels]

    def size(self, wanted: Any) -> int:
        """The number p of rows of a map (`subset_number`)."""
        return subset_number(wanted, self.n_alive)


def subset_number(wanted: Any, n: int) -> int:
    """How many of n rows: all for None, that number for a whole one (at most n), else a share of them.

    >>> subset_number(None, 50), subset_number(0.1, 50), subset_number(300, 50)
    (50, 5, 50)
    """
    if wanted is None:
        return n
    return min(max(int(wanted) if isinstance(wanted, Integral) else round(float(wanted) * n), 1), n)


@dataclass(frozen=True)
class Table:
    """Rows prepared for kernels, their weights, and each row's index in the table given."""

    rows: RowSource
    weight: np.ndarray
    original: np.ndarray
    plan: Plan

    def part(self, index: np.ndarray) -> Table:
        """Some of the rows."""
        rows = RowSubset(self.rows, index)
        return Table(rows, self.weight[index], self.original[index], self.plan)

    def problem(self, targets: np.ndarray, kernels: Any, rng: np.random.Generator) -> MemberProblem:
        """A problem with these targets (n × P), whose named kernels get the width of these rows."""
        as_tile: dict[str, Any] = {"device": self.plan.device, "dtype": self.plan.dtype}
        w = torch.as_tensor(self.weight, **as_tile)
        parts = resolve_kernels(kernels, mean_distance(self.rows, w, rng))
        return MemberProblem(self.rows, torch.as_tensor(targets, **as_tile), w, parts, self.plan, self.original)


def class_pairs(n_classes: int, multiclass: str) -> list[tuple[int, int]]:
    """The pairs of classes that have machines of their own; none where classes are told from all others together.

    >>> class_pairs(3, "auto"), class_pairs(3, "one-vs-rest"), class_pairs(2, "one-vs-one")
    ([(0, 1), (0, 2), (1, 2)], [], [])
    """
    by_pairs = MULTICLASS[multiclass] == "one-vs-one"
    if by_pairs and n_classes > MOST_CLASSES:
        raise ValueError(
            f"multiclass must be 'auto' or 'one-vs-rest' for more than {MOST_CLASSES} classes, got {multiclass!r} for "
            f"{n_classes}: {n_classes * (n_classes - 1) // 2} machines"
        )
    by_pairs = by_pairs or (multiclass == "auto" and n_classes <= FEW_CLASSES)
    return list(combinations(range(n_classes), 2)) if by_pairs and n_classes > 2 else []


def pair_problems(
    table: Table, Y: np.ndarray, pairs: list[tuple[int, int]], kernels: Any, rng: np.random.Generator
) -> list[MemberProblem]:
    """Each pair of classes on its own rows, the second of them as +1; `Y` (n × classes) are ±1."""
    own = [np.flatnonzero(of_class > 0) for of_class in Y.T]
    problems = []
    for a, b in pairs:
        index = np.sort(np.concatenate([own[a], own[b]]))
        problems.append(table.part(index).problem(Y[index, b : b + 1], kernels, rng))
    return problems

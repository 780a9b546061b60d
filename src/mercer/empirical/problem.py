"""The problem of one machine: rows, targets, weights and kernels; one problem for all classes or one per pair."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np
import torch

from mercer.data.source import RowSubset
from mercer.empirical.kernel_map import EmpiricalMap, empirical_map, mean_distance, resolve_kernels, subset_number
from mercer.engine import Sample
from mercer.kernels import Kernel

#: Names of the two ways, scikit-learn's abbreviations included.
MULTICLASS = {
    "auto": "auto",
    "one-vs-one": "one-vs-one",
    "one-vs-rest": "one-vs-rest",
    "ovo": "one-vs-one",
    "ovr": "one-vs-rest",
}
#: Classes up to which "auto" trains a machine for every pair of them, and up to which a user may ask for it.
FEW_CLASSES, MOST_CLASSES = 3, 64


@dataclass(frozen=True)
class MemberProblem:
    """A sample with targets (n × P, ±1 for classes) and weights in the precision of the tiles, and kernels."""

    sample: Sample
    kernels: list[Kernel]
    #: Each row's index in the user's table.
    original: np.ndarray

    def part(self, n: int, rng: np.random.Generator) -> MemberProblem:
        """Draw at most n of the rows of positive weight; together they weigh as much as all of them."""
        if self.sample.n_alive <= n:
            return self
        index = self.sample.draw(n, rng)
        drawn = subset(self.sample, index)
        weight = drawn.weight * (self.sample.weight.sum() / drawn.weight.sum())
        return MemberProblem(replace(drawn, weight=weight), self.kernels, self.original[index])

    def without(self, rows: np.ndarray) -> MemberProblem:
        """The same problem in which these rows of the user's table weigh nothing."""
        left_out = torch.as_tensor(np.isin(self.original, rows), device=self.sample.weight.device)
        return replace(self, sample=replace(self.sample, weight=torch.where(left_out, 0.0, self.sample.weight)))

    def choose(self, size: int, rng: np.random.Generator) -> np.ndarray:
        """Step 1 of table 1: `size` random rows of positive weight, or all of them if there are no more."""
        chosen = self.sample.draw(size, rng)
        self.sample.plan.require_square(len(chosen))
        return chosen

    def maps(self, chosen: np.ndarray) -> list[EmpiricalMap]:
        """Step 2: the map of each kernel on these rows."""
        basis = self.sample.rows.take(chosen)
        return [empirical_map(kernel, basis, dtype=self.sample.plan.dtype) for kernel in self.kernels]

    def size(self, wanted: Any) -> int:
        """The number p of rows of a map (`subset_number`)."""
        return subset_number(wanted, self.sample.n_alive)


def subset(sample: Sample, index: np.ndarray) -> Sample:
    """Rows of a sample that are read from their source whenever they are used."""
    at = torch.as_tensor(index, device=sample.weight.device)
    return replace(sample, rows=RowSubset(sample.rows, index), Y=sample.Y[at], weight=sample.weight[at])


def member_problem(sample: Sample, original: np.ndarray, kernels: Any, rng: np.random.Generator) -> MemberProblem:
    """The problem of these rows and targets; named kernels get the mean distance between the rows as length-scale."""
    sample = sample.in_tiles(sample.plan)
    return MemberProblem(sample, resolve_kernels(kernels, mean_distance(sample.rows, sample.weight, rng)), original)


def class_pairs(n_classes: int, multiclass: str) -> list[tuple[int, int]]:
    """The pairs of classes with a machine each; none for two classes and under one-vs-rest.

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
    sample: Sample, original: np.ndarray, pairs: list[tuple[int, int]], kernels: Any, rng: np.random.Generator
) -> list[MemberProblem]:
    """One problem per pair of classes on its rows, the second class as +1; the targets (n × classes) are ±1."""
    rows = [np.flatnonzero(is_class > 0) for is_class in sample.Y.T.cpu().numpy()]
    problems = []
    for a, b in pairs:
        index = np.sort(np.concatenate([rows[a], rows[b]]))
        part = subset(sample, index)
        problems.append(member_problem(replace(part, Y=part.Y[:, b : b + 1]), original[index], kernels, rng))
    return problems

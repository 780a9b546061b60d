"""Several classes as machines for two of them: which pairs there are, and the problem of each."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np

from mercer.empirical.problem import MemberProblem, Table

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

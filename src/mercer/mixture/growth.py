"""Mixtures of growing size, each started from the one before with its worst component split in two."""

from __future__ import annotations

from dataclasses import replace

import torch

from mercer.mixture.em import Mixture
from mercer.mixture.gates import Gates, make_gates

#: Numbers that differ by less than this share are taken for equal.
ALIKE = 1e-9


def sizes_up_to(most: int) -> list[int]:
    """Numbers of components worth trying: all up to 10, then steps of about a fifth.

    >>> sizes_up_to(20)
    [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 17, 20]
    """
    sizes = [1]
    while sizes[-1] < most:
        sizes.append(min(sizes[-1] + 1 if sizes[-1] < 10 else round(1.2 * sizes[-1]), most))
    return sizes


def grown(mixture: Mixture, n_components: int) -> Mixture:
    """The mixture with components split until there are `n_components`, the heaviest and worst fitted first."""
    while mixture.n_components < n_components:
        score = mixture.gates.weights * mixture.experts.badness()
        mixture = split(mixture, _first_of_largest(score))
    return mixture


def split(mixture: Mixture, j: int) -> Mixture:
    """Part j as two halves along its longest axis, their joint mean and covariance those of the whole."""
    k, gates = mixture.n_components, mixture.gates
    index = torch.cat([torch.arange(k), torch.tensor([j])]).to(gates.weights.device)
    weights, means, covariances = gates.weights[index], gates.means[index], gates.covariances[index].clone()
    weights[[j, k]] = gates.weights[j] / 2
    axis = _longest_axis(gates, j)
    means[j] = gates.means[j] + 0.75 * axis
    means[k] = gates.means[j] - 0.75 * axis
    shrunk = torch.outer(axis, axis) * 0.75**2
    for half in (j, k):
        covariances[half] -= shrunk if covariances.ndim == 3 else shrunk.diagonal()
    floor = mixture.floor.of(index)
    return replace(
        mixture,
        gates=make_gates(weights, means, covariances, floor),
        experts=mixture.experts.select(index),
        floor=floor,
    )


def _longest_axis(gates: Gates, j: int) -> torch.Tensor:
    """The direction of largest spread, as long as the deviation along it."""
    covariance = gates.covariances[j]
    if covariance.ndim == 2:
        values, V = torch.linalg.eigh(covariance)
        axis = V[:, -1] * values[-1].sqrt()
        return axis * axis[_first_of_largest(axis.abs())].sign()  # an eigenvector has no sign of its own
    largest = _first_of_largest(covariance)
    axis = torch.zeros_like(covariance)
    axis[largest] = covariance[largest].sqrt()
    return axis


def _first_of_largest(values: torch.Tensor) -> int:
    """Where the largest number stands; among equals, as the variances of standardised inputs are, the first one.

    Rounding, which differs between machines and numbers of processes, does not choose among them.
    """
    return int((values >= values.max() * (1 - ALIKE)).nonzero()[0])

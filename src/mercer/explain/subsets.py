r"""Shapley values by all subsets of the inputs: for radial kernels in a full metric, whose inputs are tied together.

With the metric :math:`M = T^T T` and differences :math:`\delta` of two rows, input by input, the squared distance along
a set S of inputs is :math:`\sum_{g, h \in S} \delta_g^T M_{gh} \delta_h`. All 2^D of them come from each other by
additions, input after input; the kernel's values at them, times Shapley's weights, are what each input adds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import factorial

import numpy as np
import torch
from torch import Tensor

from mercer.codegen.cpu import TILE, thread_buffer
from mercer.engine import Plan
from mercer.forward.expansion import Expansion
from mercer.kernels import Bias, Kernel, Product, Scaled, Sum
from mercer.kernels.radial import Radial
from mercer.kernels.sparse_rows import by_products
from mercer.parts import require
from mercer.preprocessing.inputs import InputMap

#: Most inputs whose subsets are all evaluated.
MAX_INPUTS = 12
#: Kernel values computed at a time, on a CPU and on a GPU.
ELEMENTS = (1 << 18, 1 << 22)
#: The least ratio of a metric's singular values at which it can be inverted.
MIN_SINGULAR_RATIO = 1e-8


@dataclass(frozen=True)
class FullMetricExpansion:
    """An expansion in a full metric: basis vectors before the metric, the kernel, and the metric."""

    inputs: InputMap  # without the metric
    kernel: Kernel
    basis: Tensor  # m × D, before the metric
    weights: Tensor  # m × p
    metric: Tensor  # D × D
    groups: Sequence[Sequence[int]]

    @classmethod
    def of(cls, expansion: Expansion, plan: Plan, groups: Sequence[Sequence[int]]) -> FullMetricExpansion:
        """An expansion in a full metric; a metric or kernel that cannot be taken apart gets a sentence."""
        require(len(groups) <= MAX_INPUTS, "the metric of the model", f"diagonal for more than {MAX_INPUTS} inputs "
                "(metric='diagonal'; or take `sklearn.inspection.permutation_importance`)", "a full one")  # fmt: skip
        require(
            radial(expansion.kernel), "the kernel", "radial, with one length-scale, in a full metric", expansion.kernel
        )
        transform = expansion.inputs.transform
        assert transform is not None
        seen = transform.any(0)  # of a column that is coded twice, one code has no weight
        inner = transform[np.ix_(seen, seen)]
        sizes = np.linalg.svd(inner, compute_uv=False)
        wanted = "one that loses no direction (or metric='diagonal')"
        require(sizes[-1] > MIN_SINGULAR_RATIO * sizes[0], "the metric of the model", wanted, "one of lower rank")
        basis = np.zeros_like(expansion.basis)
        basis[:, seen] = np.linalg.solve(inner, expansion.basis[:, seen].T).T
        parts = (
            torch.as_tensor(a, dtype=torch.float64, device=plan.device) for a in (basis, expansion.weights, transform)
        )
        Z, W, T = parts
        return cls(replace(expansion.inputs, transform=None), expansion.kernel, Z, W, T.T @ T, groups)

    def base_value(self) -> Tensor:
        """The value of the expansion without any input: p."""
        return self._profile(self.weights.new_zeros(1)) * self.weights.sum(0)

    def values(self, X: Tensor) -> Tensor:
        """Shapley values at a block of rows, n × inputs × p."""
        G = len(self.groups)
        share, size = shapley_weights(G).to(X), chunk_size(G, X)
        out = X.new_zeros(len(X), G, self.weights.shape[1])
        parts = list(zip(self.basis.split(size), self.weights.split(size), strict=True))
        for k, row in enumerate(X):
            for Z, W in parts:
                out[k] += share @ (self._profile(self._along(row - Z)) @ W)
        return out

    def _profile(self, square: Tensor) -> Tensor:
        zero = square.new_zeros(())
        return by_products(self.kernel, square.mul(-0.5), zero, zero)

    def _along(self, apart: Tensor) -> Tensor:
        """Squared distances along every set of inputs, 2^G × m; the bits of a set's place are its inputs."""
        steps = [apart[:, group] @ self.metric[group] for group in self.groups]  # δ_gᵀ M_g·
        square = apart.new_zeros(1 << len(self.groups), len(apart))
        across = torch.empty_like(square)
        for g in range(len(self.groups)):
            across[0] = 0.0
            for h in range(g):
                product = (steps[g][:, self.groups[h]] * apart[:, self.groups[h]]).sum(1)
                torch.add(across[: 1 << h], product, out=across[1 << h : 2 << h])
            itself = (steps[g][:, self.groups[g]] * apart[:, self.groups[g]]).sum(1)
            torch.add(square[: 1 << g], across[: 1 << g], alpha=2, out=square[1 << g : 2 << g]).add_(itself)
        return square.clamp_(min=0)


def shapley_by_subsets(profile: Callable[[Tensor], Tensor], exponents: Tensor, W: Tensor) -> Tensor:
    """Shapley values of a function of the sum of exponents (D × n × m) times weights W (m × p), n × D × p."""
    D, n, _ = exponents.shape
    share, size = shapley_weights(D).to(exponents), chunk_size(D, exponents)
    values = exponents.new_zeros(n, 1 << D, W.shape[1])
    for chunk, weights in zip(exponents.split(size, 2), W.split(size), strict=True):
        scratch = thread_buffer(chunk, TILE, (1 << D, chunk.shape[2]))
        along = chunk.new_empty(1 << D, chunk.shape[2]) if scratch is None else scratch
        halves = [(along[: 1 << d], along[1 << d : 2 << d]) for d in range(D)]
        for row in range(n):
            along[0] = 0.0
            for (without, with_it), exponent in zip(halves, chunk[:, row], strict=True):
                torch.add(without, exponent, out=with_it)
            values[row].addmm_(profile(along), weights)
    return share @ values


def chunk_size(n_inputs: int, like: Tensor) -> int:
    """Basis vectors whose kernel values along all sets of inputs are computed at a time."""
    return max(ELEMENTS[like.device.type == "cuda"] >> n_inputs, 1)


def radial(kernel: Kernel) -> bool:
    """Whether a kernel is a function of the distance alone."""
    if isinstance(kernel, Radial):
        return np.size(kernel.length_scale) == 1
    return isinstance(kernel, Bias | Scaled | Sum | Product) and all(radial(part) for part in kernel.parts().values())


@lru_cache
def shapley_weights(n_inputs: int) -> Tensor:
    """Shapley's weight of every subset's value for every input, inputs × 2^inputs.

    >>> shapley_weights(2).tolist()  # sets {}, {0}, {1}, {0, 1}
    [[-0.5, 0.5, -0.5, 0.5], [-0.5, -0.5, 0.5, 0.5]]
    """
    places = torch.arange(1 << n_inputs)
    inside = (places[None] >> torch.arange(n_inputs)[:, None]) & 1
    of_size = [factorial(k) * factorial(n_inputs - k - 1) / factorial(n_inputs) for k in range(n_inputs)]
    weight = torch.tensor([0.0, *of_size, 0.0], dtype=torch.float64)  # by the others' number, one further
    size = inside.sum(0)
    return torch.where(inside == 1, weight[size], -weight[size + 1])

"""The empirical kernel map: coordinates whose inner products are a kernel (MEKL13 eqs. 3 and 4).

This module makes maps and the kernels of MEKL13; what is learnt in their coordinates is the business of its siblings.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mercer.data import RowSource
from mercer.engine import Plan
from mercer.kernels import Gaussian, Kernel, Linear, Normalized, Precomputed, as_kernel
from mercer.linalg import spectral_map
from mercer.parts import require

#: Rows from which the mean pairwise distance is taken: its relative error is then below about 1 %.
DISTANCE_ROWS = 2000


@dataclass(frozen=True)
class EmpiricalMap:
    r"""Φ(x) = Λ^{-1/2} Qᵀ [k(x, x_1), …, k(x, x_p)]ᵀ for p basis vectors; make one with `empirical_map`.

    >>> empirical_map(Linear(), torch.tensor([[1.0], [2.0]], dtype=torch.float64)).rank
    1
    """

    kernel: Kernel
    basis: Tensor
    #: Q Λ^{-1/2}, p × r, in float64.
    coefficients: Tensor

    @property
    def rank(self) -> int:
        """The number r of coordinates."""
        return self.coefficients.shape[1]

    def columns(self, plan: Plan) -> Callable[[Tensor], Tensor]:
        """What turns a block of rows into its coordinates, in the plan's device and precision."""
        tile = self.kernel.columns(self.basis.to(plan.device, plan.dtype))
        coefficients = self.coefficients.to(plan.device, plan.dtype)
        return lambda block: tile(block) @ coefficients

    def to(self, device: Any) -> EmpiricalMap:
        """The same map on another device."""
        return EmpiricalMap(self.kernel, self.basis.to(device), self.coefficients.to(device))


def empirical_map(
    kernel: Kernel, basis: Tensor, rank: int | None = None, tol: float | None = None, dtype: torch.dtype = torch.float64
) -> EmpiricalMap:
    """The map of `kernel` on p basis vectors, for tiles of precision `dtype`.

    Eigenvalues above `tol` times the largest are kept (by default eps of `dtype`, at least p eps of float64: what is
    smaller is not known), the largest `rank` of them at most.

    >>> from mercer.engine import make_plan
    >>> X = torch.tensor([[0.0], [1.0], [3.0]], dtype=torch.float64)
    >>> features = empirical_map(Gaussian(), X).columns(make_plan(3, device="cpu"))(X)
    >>> bool(torch.allclose(features @ features.T, Gaussian()(X, X)))
    True
    """
    Z = basis.double()
    coefficients, kept = spectral_map(kernel(Z, Z), rank, tol, dtype)
    return EmpiricalMap(kernel, basis, coefficients[:, : int(kept)])


def mean_distance(rows: RowSource, weight: Tensor, rng: np.random.Generator) -> float:
    """Weighted mean of ‖x_i − x_j‖ over all pairs i, j, equal ones too; from 2000 random rows where there are more.

    At least a millionth of the largest distance: where one row has nearly all the weight its distance to itself counts.
    """
    alive = weight.nonzero()[:, 0].cpu().numpy()
    if len(alive) > DISTANCE_ROWS:
        alive = np.sort(rng.choice(alive, DISTANCE_ROWS, replace=False))
    X, w = rows.take(alive).double(), weight[torch.as_tensor(alive, device=weight.device)].double()
    apart = torch.cdist(X, X, compute_mode="donot_use_mm_for_euclid_dist")
    mean = max(float(w @ apart @ w / w.sum().square()), 1e-6 * float(apart.max()))
    return mean if mean > 0 else 1.0  # all rows are the same, and any width will do


def resolve_kernels(choice: Any, distance: float) -> list[Kernel]:
    """Kernels from "paper", or a kernel, name or callable, or several; named radial ones at that length-scale.

    "paper" is MEKL13 section 3.1: the normalised linear kernel and Gaussians at the mean distance between rows and at
    a tenth of it.

    >>> resolve_kernels(["gaussian", "linear"], distance=3.0)
    [Gaussian(length_scale=3.0), Linear()]
    >>> len(resolve_kernels("paper", distance=3.0))
    3
    """
    if isinstance(choice, str) and choice == "paper":
        return [Normalized(Linear()), Gaussian(distance), Gaussian(distance / 10)]
    several = list(choice) if isinstance(choice, Sequence) and not isinstance(choice, str) else [choice]
    require(len(several) > 0, "kernels", "'paper', a kernel or at least one of them", choice)
    return [_resolve(one, distance) for one in several]


def _resolve(choice: Any, distance: float) -> Kernel:
    kernel = as_kernel(choice)
    kernel = deepcopy(kernel) if isinstance(choice, Kernel) else kernel  # a model is no part of its settings
    precomputed = isinstance(kernel, Precomputed)
    require(
        not precomputed, "a kernel", "a function of rows: maps are not made of kernel values computed before", choice
    )
    if isinstance(choice, str) and hasattr(kernel, "length_scale"):
        kernel.length_scale = distance
    return kernel

"""Novelty and posterior of rows, given the chosen basis vectors.

Both are updated one vector at a time, without a new factorisation.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from mercer.forward.problem import Problem
from mercer.forward.span import FunctionSpan


class KernelFactor:
    """Growing Cholesky factor Q_I = LLᵀ of the basis vectors' kernel matrix.

    A vector in the span of earlier ones, up to rounding, is skipped.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self._begin()

    def _begin(self) -> None:
        wide: dict[str, Any] = {"device": self.problem.plan.device, "dtype": torch.float64}
        self.basis_index = torch.empty(0, dtype=torch.long, device=wide["device"])
        self.positions: list[int] = []  # of the vectors in the factor, within basis_index
        self.Z = torch.empty(0, self.problem.rows.n_columns, **wide)
        self.L = torch.zeros(64, 64, **wide)
        self.explained: Tensor | None = None  # Σ v² at all rows
        self.n_explained = 0  # vectors in that sum

    def extend_to(self, basis_index: Tensor) -> KernelFactor:
        """Add the vectors that entered since the last call; start again if one has left."""
        n = len(self.basis_index)
        if n > len(basis_index) or not torch.equal(self.basis_index, basis_index[:n]):
            self._begin()
        for position in range(len(self.basis_index), len(basis_index)):
            self._add(basis_index[position][None], position)
        self.basis_index = basis_index
        return self

    def _add(self, row: Tensor, position: int) -> None:
        z, m = self.problem.basis(row).double(), len(self.positions)
        v, k = self._whitened(z)[:, 0], self.problem.kernel.diag(z)[0]
        pivot = k - v.square().sum()
        if float(pivot) <= (m + 1) * torch.finfo(torch.float64).eps * float(k):
            return
        if m == len(self.L):
            self.L = torch.nn.functional.pad(self.L, (0, m, 0, m))
        self.L[m, :m], self.L[m, m] = v, pivot.sqrt()
        self.Z = torch.cat([self.Z, z])
        self.positions.append(position)

    def _whitened(self, X: Tensor) -> Tensor:
        """V = L⁻¹K(Z, X)."""
        m = len(self.positions)
        return torch.linalg.solve_triangular(self.L[:m, :m], self.problem.kernel(self.Z, X), upper=False)

    def novelty(self, X: Tensor) -> Tensor:
        """δ = k(x, x) − k_I(x)ᵀQ_I⁻¹k_I(x) of rows X, in O(m²) each."""
        return (self.problem.kernel.diag(X) - self._whitened(X).square().sum(0)).clamp(min=0)

    def novelty_of_all(self, span: FunctionSpan) -> Tensor:
        """δ of all rows, in O(nm) for each new vector.

        The whitened columns are the functions of `span` times R L⁻ᵀ, so one product with the span's values gives each
        of them. Their length is that of the functions, so rounding is not multiplied.
        """
        m = len(self.positions)
        if self.explained is None:
            self.explained, self.n_explained = torch.zeros(span.values.shape[1], **_like(self.L)), 0
        if self.n_explained < m:
            new = torch.eye(m, **_like(self.L))[:, self.n_explained :]
            weights = torch.linalg.solve_triangular(self.L[:m, :m].T, new, upper=True)
            along = span.R[: span.size, self.positions] @ weights
            values = along.T.to(span.values.dtype) @ span.values[: span.size]
            self.explained, self.n_explained = self.explained + values.double().square().sum(0), m
        rows = self.problem.basis(torch.arange(len(self.explained), device=self.L.device))
        return (self.problem.kernel.diag(rows.double()) - self.explained).clamp(min=0)


class SmallPosterior:
    """Posterior mean and variance at T rows of a model with noise σ².

    Both are updated for each basis vector.

    `functions` are orthonormal in Σ_t f(x_t) g(x_t) + σ²⟨f, g⟩_H, so the mean is Σφ(φᵀy) and its variance σ²Σφ².
    """

    def __init__(self, y: Tensor, noise: float, n_steps: int) -> None:
        self.y, self.noise, self.size = y, noise, 0
        self.innovation, self.leverage = y.clone(), y.new_zeros(len(y))
        self.functions, self.weights = y.new_zeros(n_steps, len(y)), y.new_zeros(n_steps, n_steps)

    def add(self, v: Tensor) -> None:
        """Add a function of unit norm in the RKHS, orthogonal to the earlier ones."""
        m = self.size
        P, G, g = self.functions[:m], self.weights[:m], self.weights.new_zeros(self.weights.shape[1])
        g[m] = 1.0
        for _ in range(2):
            along = P @ v + self.noise * (G @ g)
            v, g = v - along @ P, g - along @ G
        scale = (v @ v + self.noise * (g @ g)).clamp(min=torch.finfo(v.dtype).tiny).rsqrt()
        self.functions[m], self.weights[m] = scale * v, scale * g
        phi = self.functions[m]
        self.innovation = self.innovation - phi[:, None] * (phi @ self.y)
        self.leverage = self.leverage + phi.square()
        self.size = m + 1


def _like(tensor: Tensor) -> dict[str, Any]:
    return {"device": tensor.device, "dtype": tensor.dtype}

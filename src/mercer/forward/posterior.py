"""What chosen basis vectors say about other rows: the Cholesky factor of their kernel matrix, and the sparse posterior.

Both grow by one vector at a time; nothing is factorised anew.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from mercer.forward.problem import Problem
from mercer.forward.span import FunctionSpan


class KernelFactor:
    """L of the kernel matrix between basis vectors Q_I = LLᵀ, one row longer for each vector that enters.

    A vector that those before it hold up to rounding is passed over: it adds nothing to any row.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self._begin()

    def _begin(self) -> None:
        wide: dict[str, Any] = {"device": self.problem.plan.device, "dtype": torch.float64}
        self.members = torch.empty(0, dtype=torch.long, device=wide["device"])
        self.places: list[int] = []  # of the vectors kept, among the members
        self.Z = torch.empty(0, self.problem.rows.n_columns, **wide)
        self.L = torch.zeros(64, 64, **wide)
        self.held: Tensor | None = None  # Σ v² at all rows, and how many vectors it counts
        self.n_held = 0

    def follow(self, members: Tensor) -> KernelFactor:
        """Take in the vectors that entered since; where one has left, begin again."""
        n = len(self.members)
        if n > len(members) or not torch.equal(self.members, members[:n]):
            self._begin()
        for place in range(len(self.members), len(members)):
            self._take_in(members[place][None], place)
        self.members = members
        return self

    def _take_in(self, row: Tensor, place: int) -> None:
        z, m = self.problem.basis(row).double(), len(self.places)
        v, k = self._whitened(z)[:, 0], self.problem.kernel.diag(z)[0]
        pivot = k - v.square().sum()
        if float(pivot) <= (m + 1) * torch.finfo(torch.float64).eps * float(k):
            return
        if m == len(self.L):
            self.L = torch.nn.functional.pad(self.L, (0, m, 0, m))
        self.L[m, :m], self.L[m, m] = v, pivot.sqrt()
        self.Z = torch.cat([self.Z, z])
        self.places.append(place)

    def _whitened(self, X: Tensor) -> Tensor:
        """V = L⁻¹K(Z, X)."""
        m = len(self.places)
        return torch.linalg.solve_triangular(self.L[:m, :m], self.problem.kernel(self.Z, X), upper=False)

    def left(self, X: Tensor) -> Tensor:
        """δ = k(x, x) − k_I(x)ᵀQ_I⁻¹k_I(x) of some rows, in O(m²) each."""
        return (self.problem.kernel.diag(X) - self._whitened(X).square().sum(0)).clamp(min=0)

    def left_of_all(self, span: FunctionSpan) -> Tensor:
        """δ of all rows, in O(nm) for each new vector.

        The functions that L⁻¹ makes of the columns are those of `span` times R L⁻ᵀ, so one product with the span's
        values gives each of them; their length is that of the functions, so rounding is not multiplied.
        """
        m = len(self.places)
        if self.held is None:
            self.held, self.n_held = torch.zeros(span.values.shape[1], **_like(self.L)), 0
        if self.n_held < m:
            new = torch.eye(m, **_like(self.L))[:, self.n_held :]
            weights = torch.linalg.solve_triangular(self.L[:m, :m].T, new, upper=True)
            along = span.R[: span.size, self.places] @ weights
            values = along.T.to(span.values.dtype) @ span.values[: span.size]
            self.held, self.n_held = self.held + values.double().square().sum(0), m
        own = self.problem.kernel.diag(self.problem.basis(torch.arange(len(self.held), device=self.L.device)).double())
        return (own - self.held).clamp(min=0)


class SmallPosterior:
    """Mean and variance at T rows of a model with noise σ² on basis vectors that enter one by one.

    `functions` are orthonormal in Σ_t f(x_t) g(x_t) + σ²⟨f, g⟩_H, so the mean is Σφ(φᵀy), and σ²Σφ² its variance.
    """

    def __init__(self, y: Tensor, noise: float, n_steps: int) -> None:
        self.y, self.noise, self.size = y, noise, 0
        self.innovation, self.leverage = y.clone(), y.new_zeros(len(y))
        self.functions, self.weights = y.new_zeros(n_steps, len(y)), y.new_zeros(n_steps, n_steps)

    def take_in(self, v: Tensor) -> None:
        """A new function of norm one in the RKHS, orthogonal there to those before it."""
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

"""Kernels of sparse rows: radial and dot-product kernels by sparse products, with rows given by their indices.

Radial and dot-product kernels are functions of |x|², |z|² and xᵀz. So a block of rows is a block of row indices of a
sparse table, n × 1, and a tile is one sparse product: no row is ever made dense.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, final

import numpy as np
import scipy.sparse
import torch
from torch import Tensor

from mercer.kernels.base import Bias, Kernel, Product, Scaled, Sum
from mercer.kernels.columns import Columns
from mercer.kernels.custom import Normalized
from mercer.kernels.dot import Linear, Polynomial
from mercer.kernels.radial import Radial
from mercer.parts import component, require

#: Kernel values made at a time.
TILE = 1 << 21


@dataclass(frozen=True)
class Entries:
    """A sparse table by its entries, row after row (CSR): plain arrays, as model files hold them."""

    data: np.ndarray = field(repr=False)
    indices: np.ndarray = field(repr=False)
    indptr: np.ndarray = field(repr=False)
    n_columns: int

    @classmethod
    def of(cls, X: Any) -> Entries:
        """The entries of a scipy matrix in CSR form."""
        return cls(X.data, X.indices, X.indptr, int(X.shape[1]))

    @cached_property
    def table(self) -> Any:
        """The same as a scipy array."""
        shape = len(self.indptr) - 1, self.n_columns
        return scipy.sparse.csr_array((self.data, self.indices, self.indptr), shape=shape)

    def check(self) -> None:
        """Raise ValueError for arrays that are no valid table: they may come from a file."""
        is_vector = self.indptr.ndim == 1 and len(self.indptr) > 0
        are_integers = self.indptr.dtype.kind == self.indices.dtype.kind == "i"
        require(is_vector and are_integers, "the entries of a sparse table", "in CSR form", "others")
        self.table.check_format(full_check=True)

    @cached_property
    def norms(self) -> np.ndarray:
        """|x|² of every row."""
        return np.asarray(self.table.multiply(self.table).sum(1)).reshape(-1)


@final
@component
class SparseRowKernel(Kernel):
    """A radial or dot-product kernel between rows of two sparse tables, given by their indices there.

    >>> from mercer.kernels import Gaussian
    >>> table = Entries.of(scipy.sparse.csr_array([[0.0, 2.0, 0.0], [1.0, 0.0, 0.0]]))
    >>> first, second = torch.tensor([[0.0]]), torch.tensor([[1.0]])
    >>> SparseRowKernel(Gaussian(), table, table)(first, second).item()  # exp(−5/2)
    0.0820...
    """

    kernel: Kernel
    left: Entries
    right: Entries

    def check(self) -> None:
        require_products(self.kernel)
        for entries in (self.left, self.right):
            entries.check()
        super().check()

    def columns(self, Z: Tensor) -> Columns:
        places = _places(Z)
        return SparseRowColumns(self, self.right.table[places].T.tocsc(), self.right.norms[places])

    def diag(self, X: Tensor) -> Tensor:
        norms = torch.from_numpy(self.left.norms[_places(X)])
        return by_products(self.kernel, norms.clone(), norms, norms).to(X)

    def restrict(self, basis: np.ndarray) -> tuple[SparseRowKernel, np.ndarray]:
        """The kernel with these rows of its right-hand table alone, and their indices there."""
        few = Entries.of(self.right.table[np.rint(basis[:, 0]).astype(np.int64)])
        return SparseRowKernel(self.kernel, few, few), np.arange(len(basis), dtype=np.float64)[:, None]

    def with_rows_of(self, left: Entries) -> SparseRowKernel:
        """The kernel between the rows of another table and the basis vectors of this one."""
        return SparseRowKernel(self.kernel, left, self.right)


@final
@dataclass(frozen=True)
class SparseRowColumns(Columns):
    """A `SparseRowKernel` bound to basis vectors: their table by columns (D × m), and |z|² of each."""

    kernel: SparseRowKernel
    basis: Any
    norms: np.ndarray

    def __call__(self, X: Tensor) -> Tensor:
        left, rows, out = self.kernel.left, _places(X), X.new_empty(len(X), len(self.norms))
        size = max(TILE // max(len(self.norms), 1), 1)
        for start in range(0, len(rows), size):  # sparse products take several times the memory of the tile
            block = rows[start : start + size]
            parts = ((left.table[block] @ self.basis).toarray(), left.norms[block][:, None], self.norms)
            out[start : start + size] = by_products(self.kernel.kernel, *(torch.from_numpy(part) for part in parts))
        return out

    def with_basis(self, Z: Tensor) -> Columns:
        return self.kernel.columns(Z)


def by_products(kernel: Kernel, products: Tensor, left: Tensor, right: Tensor) -> Tensor:
    """Values of a kernel from xᵀz, |x|² and |z|², of any shapes that go together; may overwrite `products`."""
    if isinstance(kernel, Radial):
        far = products.mul_(2).sub_(left).sub_(right).clamp_(max=0)  # −|x − z|²
        return kernel.profile(far.mul_(float(kernel.coefficient) * (kernel.log_base_scale / _length(kernel)) ** 2))
    if isinstance(kernel, Linear):
        return products
    if isinstance(kernel, Polynomial):
        return (kernel.gamma * products + kernel.offset) ** kernel.degree
    if isinstance(kernel, Bias):
        return torch.full_like(products, float(kernel.variance))
    if isinstance(kernel, Scaled):
        return by_products(kernel.kernel, products, left, right).mul_(float(kernel.variance))
    if isinstance(kernel, Sum | Product):
        first = by_products(kernel.left, products.clone(), left, right)
        second = by_products(kernel.right, products, left, right)
        return first + second if isinstance(kernel, Sum) else first * second
    assert isinstance(kernel, Normalized)
    norms = [by_products(kernel.kernel, side.clone(), side, side).clamp(min=0).sqrt() for side in (left, right)]
    value = by_products(kernel.kernel, products, left, right)
    size = norms[0] * norms[1]
    return torch.where(size > 0, value / size.where(size > 0, 1.0), 0.0)


def require_products(kernel: Kernel) -> None:
    """Raise ValueError for a kernel that is no function of products of rows."""
    inner = list(kernel.parts().values())
    known = isinstance(kernel, Radial | Linear | Polynomial | Bias | Scaled | Sum | Product | Normalized)
    wanted = "radial or of dot products, with one length-scale, where X is sparse and wide (or pass X.toarray())"
    require(known and (not isinstance(kernel, Radial) or np.size(kernel.length_scale) == 1), "kernel", wanted, kernel)
    for part in inner:
        require_products(part)


def _length(kernel: Radial) -> float:
    return float(np.asarray(kernel.length_scale).reshape(-1)[0])


def _places(X: Tensor) -> np.ndarray:
    return np.rint(X[:, 0].detach().cpu().double().numpy()).astype(np.int64)

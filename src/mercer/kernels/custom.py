"""User-defined kernels: functions of two blocks of rows, precomputed matrices; normalisation to a unit diagonal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, final

import torch
from torch import Tensor

from mercer.kernels.base import Kernel
from mercer.kernels.columns import Columns, Tiles
from mercer.parts import component


class _Rows(Tensor):
    """Rows for functions of users: NumPy's functions of them return tensors, in the way that NumPy 2 asks for."""

    def __array__(self, *args: Any, **options: Any) -> Any:
        if self.requires_grad:
            raise ValueError(
                "the kernel function must be written in torch: its gradients are wanted, and NumPy has none"
            )
        return self.as_subclass(Tensor).__array__(*args, **options)

    def __array_wrap__(self, array: Any, context: Any = None, return_scalar: bool = False) -> Tensor:
        return torch.as_tensor(array).as_subclass(_Rows)


@final
@component
class Function(Kernel):
    """Any function of two blocks of rows (torch tensors) that returns the tile between them: finite numbers.

    On the CPU NumPy's functions take these tensors as arrays, and so do scikit-learn's pairwise kernels. Where
    gradients are wanted (of inducing inputs, for example) and on a GPU, the function has to be written in torch.

    >>> import torch
    >>> from sklearn.metrics.pairwise import chi2_kernel
    >>> from mercer.kernels import Function
    >>> Function(chi2_kernel)(torch.ones(1, 2), torch.ones(3, 2)).tolist()
    [[1.0, 1.0, 1.0]]
    """

    function: Callable[[Any, Any], Any]

    def columns(self, Z: Tensor) -> Columns:
        return Tiles(self._tile, Z)

    def _tile(self, X: Tensor, Z: Tensor) -> Tensor:
        rows = (X.as_subclass(_Rows), Z.as_subclass(_Rows))
        values = torch.as_tensor(self.function(*rows), dtype=X.dtype, device=X.device).as_subclass(Tensor)
        if values.shape != (X.shape[0], Z.shape[0]):
            raise ValueError(
                f"the kernel function must return shape {(X.shape[0], Z.shape[0])}, got {tuple(values.shape)}"
            )
        if not bool(values.isfinite().all()):
            seen = float(values[~values.isfinite()][0])
            raise ValueError(f"the kernel function must return finite numbers, got {seen}")
        return values

    def diag(self, X: Tensor) -> Tensor:
        blocks = X.split(64)  # 64 × 64 tiles: the waste stays small and so do the temporaries
        return torch.cat([self(block, block).diagonal() for block in blocks])


@final
@component
class Precomputed(Kernel):
    """A kernel matrix computed beforehand, as scikit-learn's ``kernel="precomputed"``.

    Rows carry k(x, every training row) and, in one last column, their own index among the training
    rows, so that a basis vector knows which column it is. Estimators append that column themselves.

    >>> import torch
    >>> from mercer.kernels import Precomputed
    >>> rows = torch.tensor([[1.0, 0.5, 0.0], [0.5, 1.0, 1.0]])
    >>> Precomputed()(rows, rows[1:]).tolist()
    [[0.5], [1.0]]
    """

    short_name = "precomputed"

    def columns(self, Z: Tensor) -> Columns:
        return Tiles(self._tile, Z)

    def _tile(self, X: Tensor, Z: Tensor) -> Tensor:
        return X[:, Z[:, -1].round().long()]

    def diag(self, X: Tensor) -> Tensor:
        return X.gather(1, X[:, -1:].round().long())[:, 0]


@final
@component
class Normalized(Kernel):
    """k(x, z) / √(k(x, x) k(z, z)): unit diagonal; zero where a row has no length.

    >>> import torch
    >>> from mercer.kernels import Linear, Normalized
    >>> Normalized(Linear())(torch.tensor([[2.0, 0.0]]), torch.tensor([[5.0, 0.0]])).item()
    1.0
    """

    kernel: Kernel

    def columns(self, Z: Tensor) -> Columns:
        return Tiles(self._tile, Z)

    def _tile(self, X: Tensor, Z: Tensor) -> Tensor:
        return self.kernel(X, Z) * self._inverse_norm(Z) * self._inverse_norm(X)[:, None]

    def _inverse_norm(self, X: Tensor) -> Tensor:
        square = self.kernel.diag(X)
        return torch.where(square > 0, square.clamp(min=torch.finfo(X.dtype).tiny).rsqrt(), 0.0)

    def diag(self, X: Tensor) -> Tensor:
        return (self.kernel.diag(X) > 0).to(X.dtype)

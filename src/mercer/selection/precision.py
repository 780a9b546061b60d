"""Choice of float32 or float64 kernel values, from the kernel, the penalty and a sample of rows.

A fit does not notice rounding, except by larger errors. Rounding is therefore estimated before the fit and compared
with the leave-one-out error: a model of targets with little noise tolerates little rounding.
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import torch
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from mercer.engine import Plan
from mercer.kernels import Kernel
from mercer.linalg import cholesky, inverse_diagonal, solve_factored

#: Largest rounding as a share of the model's error: 0.1 adds 1 % to the mean squared error. Predictions have a
#: stricter bound, measured on the fitted model (`mercer.forward.held_out`).
LARGEST_SHARE = 0.1
#: Largest rounding, in standard deviations of the targets, that does not raise the penalty. It costs at most 3e-4 of
#: R²; four times as much costs up to 4e-3.
LARGEST_ROUNDING = 0.1
#: Least penalty, for targets of unit variance, at which float32 is accurate enough. Targets without noise tune the
#: penalty to nearly zero.
FLOAT32_PENALTY = 1e-4
#: Rows from which on a GPU such targets are fitted in float32 all the same. Float64 is sixty times slower there, and
#: several float32 stages summed in float64 leave less error in the same time.
MANY_ROWS = 100_000


def precise(
    plan: Plan,
    kernel: Kernel,
    lam: float,
    X: Tensor,
    Y: Tensor,
    weight: Any,
    n_rows: int,
    *,
    free_dtype: bool,
    free_penalty: bool,
) -> tuple[Plan, float]:
    """Choose precision and penalty so that rounding does not show, from the rows that tuned the kernel.

    If float32 rounding exceeds `LARGEST_SHARE` of the model's error, the plan gets float64 (`free_dtype`), or a warning
    if the user chose the precision. With float32 a tuned penalty (`free_penalty`) is raised until rounding is at most
    `LARGEST_ROUNDING`. A tuned penalty below `FLOAT32_PENALTY` calls for float64 as well. Exceptions are tables small
    enough for an exact solution, and tables of `MANY_ROWS` on a GPU.
    """
    if plan.dtype != torch.float32:
        return plan, lam
    w = torch.as_tensor(weight, dtype=torch.float64)
    least = FLOAT32_PENALTY * float(w.mean()) if free_penalty and n_rows > plan.exact_rows() else 0.0
    error, residual = rounding(kernel, max(lam, least), X, Y, w, n_rows)
    keeps_float32 = free_penalty and plan.device.type == "cuda" and n_rows >= MANY_ROWS
    if free_dtype and not keeps_float32 and (lam < least or error > LARGEST_SHARE * residual):
        return replace(plan, dtype=torch.float64), lam
    if not free_dtype and error > LARGEST_SHARE * residual:
        warnings.warn(
            f"float32 cannot hold this model: rounding would change its values by {error:.2g} standard deviations of "
            f"the targets, and its own error is about {residual:.2g}; take dtype='float64', a larger regularization or "
            "a kernel of smaller variance",
            ConvergenceWarning,
            stacklevel=3,
        )
    if not free_penalty or error <= LARGEST_ROUNDING:
        return plan, max(lam, least)
    return plan, max(lam, least) * (error / LARGEST_ROUNDING) ** 2  # the error falls at least as 1/√λ


def rounding(kernel: Kernel, lam: float, X: Tensor, Y: Tensor, weight: Tensor, n_rows: int) -> tuple[float, float]:
    r"""Estimate how float32 changes the values of kernel ridge on `n_rows` rows, and its leave-one-out error.

    Both are in standard deviations of the targets. Kernel values of mean square κ² have errors of eps κ, so values K a
    have errors of :math:`\mathrm{eps}\,\kappa\,|a|`. The dual coefficients a = G⁻¹y, G = K + λD⁻¹, of the sample are
    about as large as those of all rows, and |a|² grows with the number of rows. The leave-one-out error at row i
    is :math:`a_i/[G^{-1}]_{ii}`.

    >>> from mercer.kernels import Gaussian
    >>> X = torch.linspace(-1, 1, 50, dtype=torch.float64)[:, None]
    >>> short, long = (rounding(v * Gaussian(v), 1e-2, X, X, torch.ones(50), 50)[0] for v in (1.0, 1e4))
    >>> short < 1e-3 < 1e-2 < long
    True
    """
    X, Y, w = X.double(), Y.double().to(X.device), weight.double().to(X.device)
    G = kernel(X, X)
    kappa2 = float(G.square().mean())
    G.diagonal().add_((lam / w).clamp(min=1e-10 * float(G.diagonal().mean())))
    centred = Y - (w[:, None] * Y).sum(0) / w.sum()
    L = cholesky(G)[0]
    a = solve_factored(L, centred)
    residual = a / inverse_diagonal(L)[:, None]
    variance, error = (float((w[:, None] * v.square()).sum() / (w.sum() * Y.shape[1])) for v in (centred, residual))
    if variance <= 0:
        return 0.0, 0.0
    change = float(torch.finfo(torch.float32).eps * (n_rows * kappa2 * float(a.square().mean()) / variance) ** 0.5)
    return change, (error / variance) ** 0.5

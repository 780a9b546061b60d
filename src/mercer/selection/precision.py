"""Whether float32 tiles hold a model: from the kernel, the penalty and a few rows, before it is fitted.

The effect of rounding shows nowhere in a fit but in its errors, so it is estimated here, once. It is compared with the
errors that the model is expected to make: where the noise is small, small rounding counts.
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

#: Deviation, as a share of the model's own error, from which rounding is worth float64 tiles: they add 1 % to the mean
#: squared error of the fit. Predictions have a finer bound, measured on the fitted model (`mercer.forward.held_out`).
LARGEST_SHARE = 0.1
#: Deviation, of unit deviation of the targets, up to which a penalty is not raised because of rounding. Polished
#: models lose 1e-4 of R² there (the ridge of `mercer.forward.solve.whitened` keeps the rounding off at the price
#: of some fit), others 3e-4; at four times as much 2e-4 and 4e-3 (friedman1, 15 480 rows).
LARGEST_ROUNDING = 0.1
#: Targets without noise tune the penalty to nearly zero; below this, of unit variance, float32 tiles only add noise.
FLOAT32_PENALTY = 1e-4
#: Rows from which on a GPU such targets are learned in float32 all the same: float64 has a sixtieth of its speed there,
#: and many stages that add up in float64 get further than one with a smaller penalty (a robot's arm, 100 000 rows, one
#: H200: 0.097 % of the variance are left instead of 0.142).
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
    """Plan and penalty under which rounding does not show, judged from some rows (those that tuned the kernel).

    Where the rounding of float32 tiles is more than `LARGEST_SHARE` of the model's error and the user left the
    precision open (`free_dtype`), tiles are float64; a precision that was given brings a warning. A tuned penalty
    (`free_penalty`) is then raised until rounding is at most `LARGEST_ROUNDING`. Targets without noise, whose tuned
    penalty is below `FLOAT32_PENALTY`, are worth float64 as well, unless rows are so few that the model is solved
    exactly or, on a GPU, `MANY_ROWS`.
    """
    if plan.dtype != torch.float32:
        return plan, lam
    w = torch.as_tensor(weight, dtype=torch.float64)
    least = FLOAT32_PENALTY * float(w.mean()) if free_penalty and n_rows > plan.exact_rows() else 0.0
    error, residual = rounding(kernel, max(lam, least), X, Y, w, n_rows)
    quick = free_penalty and plan.device.type == "cuda" and n_rows >= MANY_ROWS
    if free_dtype and not quick and (lam < least or error > LARGEST_SHARE * residual):
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
    r"""By how much float32 tiles change the values of kernel ridge on `n_rows` rows, and its leave-one-out error.

    Both are in deviations of the targets. Entries of mean square κ² are off by eps κ, so values K a are by
    :math:`\mathrm{eps}\,\kappa\,|a|`; the weights a = G⁻¹y, G = K + λD⁻¹, of the rows at hand are about as large as
    those of all rows, and |a|² grows with their number. The leave-one-out error at row i is
    :math:`a_i/[G^{-1}]_{ii}`.

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
    left_out = a / inverse_diagonal(L)[:, None]
    spread, error = (float((w[:, None] * v.square()).sum() / (w.sum() * Y.shape[1])) for v in (centred, left_out))
    if spread <= 0:
        return 0.0, 0.0
    changed = float(torch.finfo(torch.float32).eps * (n_rows * kappa2 * float(a.square().mean()) / spread) ** 0.5)
    return changed, (error / spread) ** 0.5

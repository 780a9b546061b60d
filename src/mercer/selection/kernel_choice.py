"""Kernel and penalty of a fit: given by the user, or tuned on a sample of rows.

Both decide between float32 and float64 kernel values. A fit does not notice rounding, except by larger errors. Rounding
is therefore estimated before the fit and compared with the leave-one-out error.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from mercer.engine import Plan
from mercer.engine.plan import Sample
from mercer.kernels import Function, Kernel, Precomputed, as_kernel
from mercer.linalg import cholesky, inverse_diagonal, solve_factored
from mercer.parts import warn
from mercer.selection.settings import FLOAT32_PENALTY, MANY_ROWS
from mercer.selection.tune import tune_kernel, tune_noise

#: Largest rounding, as a share of the model's error: 0.1 adds 1 % to the mean squared error. Predictions have a
#: stricter bound, measured on the fitted model (`mercer.forward.held_out`). It is also the largest rounding, in
#: standard deviations of the targets, that does not raise the penalty: it costs at most 3e-4 of R²; four times as much
#: costs up to 4e-3.
LARGEST_ROUNDING = 0.1


@dataclass(frozen=True)
class ChosenKernel:
    """A kernel and the penalty λ."""

    kernel: Kernel
    lam: float


def is_precomputed(kernel: Any) -> bool:
    """Whether columns of `X` are kernel values."""
    return isinstance(kernel, Precomputed) or (isinstance(kernel, str) and kernel == "precomputed")


def sees_any_column(estimator: Any) -> bool:
    """Whether a user's function or matrix compares rows, so that columns must stay as they are."""
    kernels: list[Any] = []
    for name in ("kernel", "kernels"):
        given = getattr(estimator, name, None)
        kernels += given if isinstance(given, list | tuple) else [given]
    return any(map(_is_user_defined, kernels))


def _is_user_defined(kernel: Any) -> bool:
    if isinstance(kernel, Kernel):
        return isinstance(kernel, Function | Precomputed) or any(map(_is_user_defined, kernel.parts().values()))
    return callable(kernel) or is_precomputed(kernel)


def is_tuned(kernel: Any) -> bool:
    """Whether a kernel is given by name, so that its parameters are tuned."""
    return isinstance(kernel, str) and kernel != "precomputed"


def choose_kernel(
    sample: Sample,
    kernel: Any,
    regularization: Any,
    n_rows: int,
    rng: np.random.Generator,
    seconds: float | None = None,
    ard: bool | str = "auto",
) -> ChosenKernel:
    """Tune kernel and penalty on at most `n_rows` rows; a kernel object and a number are kept."""
    automatic = isinstance(regularization, str)
    fixed = None if is_tuned(kernel) else as_kernel(kernel)
    if fixed is not None and not automatic:
        _warn_of_large_penalty(sample, fixed, float(regularization))
        return ChosenKernel(fixed, float(regularization))
    drawn = sample.part(sample.draw(n_rows, rng))
    table = drawn.rows.take(np.arange(drawn.n_rows)), drawn.Y
    options: dict[str, Any] = {"sample_weight": drawn.weight.cpu().numpy(), "device": sample.plan.device}
    first = sample.rows.shard.group.first
    if fixed is None:
        options |= {"n_rows": n_rows, "max_iter": 50, "tol": 1e-6, "random_state": int(rng.integers(2**31))}
        options |= {"time_budget": seconds, "ard": ard, "groups": sample.column_groups}
        tuned = first(lambda: tune_kernel(*table, kernel, **options))
        fixed, noise = tuned.kernel, tuned.noise
    else:
        given = fixed
        noise = first(lambda: tune_noise(given, *table, **options))
    return ChosenKernel(fixed, float(noise if automatic else regularization))


def _warn_of_large_penalty(sample: Sample, kernel: Kernel, lam: float) -> None:
    """Warn if the penalty is far above the trace of the weighted kernel matrix, a bound of its eigenvalues."""
    rows = sample.rows.fetch(sample.spaced(100)).double()
    largest = sample.total_weight * float(kernel(rows, rows).diagonal().abs().mean())
    if lam > 100 * largest:
        warn(
            f"regularization={lam:g} leaves nothing to learn from: all rows with their weights together reach "
            f"{largest:.3g}. Take a smaller penalty, larger weights, or regularization='auto'."
        )


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

    If float32 rounding exceeds `LARGEST_ROUNDING` of the model's error, the plan gets float64 (`free_dtype`), or a
    warning if the user chose the precision. With float32 a tuned penalty (`free_penalty`) is raised until rounding is
    at most `LARGEST_ROUNDING`. A tuned penalty below `FLOAT32_PENALTY` calls for float64 as well. Exceptions are tables
    small enough for an exact solution, and tables of `MANY_ROWS` on a GPU: float64 is sixty times slower there, and
    several float32 stages summed in float64 leave less error in the same time.
    """
    if plan.dtype != torch.float32:
        return plan, lam
    w = torch.as_tensor(weight, dtype=torch.float64)
    least = FLOAT32_PENALTY * float(w.mean()) if free_penalty and n_rows > plan.exact_rows() else 0.0
    error, residual = rounding(kernel, max(lam, least), X, Y, w, n_rows)
    keeps_float32 = free_penalty and plan.device.type == "cuda" and n_rows >= MANY_ROWS
    if free_dtype and not keeps_float32 and (lam < least or error > LARGEST_ROUNDING * residual):
        return replace(plan, dtype=torch.float64), lam
    if not free_dtype and error > LARGEST_ROUNDING * residual:
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

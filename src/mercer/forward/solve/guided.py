"""Kernel ridge on thousands of rows without a factor of their matrix: conjugate gradients, guided by some rows.

A factor of n rows takes n³/3 operations; a step of conjugate gradients reads the matrix once, 2n². Guided (`guide`)
tuned kernels of tables need some 10 to 60 steps, so from a few thousand rows on steps are quicker. One reading of the
matrix serves several right-hand sides, so folds of rows are left out in the same steps: each has a right-hand side that
is zero there.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from mercer.codegen.compiled import thin_product
from mercer.forward.solve.guide import Guide
from mercer.linalg import conjugate_gradients

#: Folds of rows that are left out, at most; their share of all rows, and their rows at most.
FOLDS, FOLD_SHARE, FOLD_ROWS = 3, 0.1, 500
#: The relative residual that steps end at: a bound on what is left of the solution, as a share of the targets' size.
#: Where folds are left out: at a coarse one they are looked at, the end is at this share of the error that they show.
TOLERANCE, COARSE, SHARE = 1e-6, 1e-2, 2e-2
#: Rows for each step that is allowed: with fewer a factor would have been quicker; and the share of these steps after
#: which the coarse residual must have been reached.
ROWS_A_STEP, FIRST_SHARE = 60, 1 / 3
#: Rows from which there are no factors, if there are as many for each right-hand side as the second number: 50 steps
#: are 100 n² operations for each, a factor n³/3, and thin products run at half its rate.
FEWEST_ROWS, ROWS_A_COLUMN = 4000, 600
#: Single precision guides a solution in double where its rounding is less than this share of the penalty.
SINGLE_SHARE = 0.3
#: Norm of what is wrong with a kernel matrix that was made in single precision, for each of its rows, in units of its
#: resolution: 0.12 to 0.24 for the kernels of a race on 3000 normal rows of eight inputs; and where only distances were
#: made in double precision: 0.007 to 0.019 (3000 rows of pol and diamonds).
MADE, THIN = 0.25, 0.02


def folds_in_steps(n: int, p: int, wanted: bool) -> int | None:
    """Folds to leave out where steps are quicker than a factor of n rows for p targets; None where they are not.

    >>> folds_in_steps(8000, 1, True), folds_in_steps(8000, 6, True), folds_in_steps(8000, 10, True)
    (3, 1, None)
    """
    columns = n // ROWS_A_COLUMN // p
    if n < FEWEST_ROWS or columns < 1 + wanted:
        return None
    return min(FOLDS, columns - 1) if wanted else 0


def rows_of_folds(n: int, folds: int) -> Tensor:
    """The rows that folds leave out, evenly spaced; every so many of them are one fold's.

    >>> rows_of_folds(30, 2).tolist()
    [0, 5, 11, 17, 23, 29]
    """
    return torch.linspace(0, n - 1, folds * min(int(FOLD_SHARE * n), FOLD_ROWS)).long()


def single_is_enough(n: int, least: float) -> bool:
    """Whether rounding, n times the resolution of single precision, is small beside the `least` penalty.

    >>> single_is_enough(8000, 0.01), single_is_enough(8000, 1e-3)
    (True, False)
    """
    return n * torch.finfo(torch.float32).eps < SINGLE_SHARE * least


def single_steps(n: int, least: float) -> bool:
    """Whether steps may take a matrix that is kept in single precision.

    Its entries, at most one, are rounded by up to half the resolution each, independently: a symmetric matrix of such
    errors has a norm of about 2√n times their deviation, the resolution over √12. Below the penalty it leaves the
    system positive definite, and moves the solution's values by less than what that leaves of the targets.

    >>> single_steps(12_000, 1e-5), single_steps(12_000, 1e-6)
    (True, False)
    """
    return (n / 3) ** 0.5 * torch.finfo(torch.float32).eps < least


def single_is_made(n: int, least: float) -> bool:
    """Whether steps may take a matrix that is not only kept but also made in single precision.

    >>> single_is_made(12_000, 2e-3), single_is_made(12_000, 1e-3)
    (True, False)
    """
    return MADE * n * torch.finfo(torch.float32).eps < SINGLE_SHARE * least


def thin_is_made(n: int, least: float) -> bool:
    """Whether all but the distances may be made in single precision.

    >>> thin_is_made(12_000, 1e-4), thin_is_made(12_000, 3e-5)
    (True, False)
    """
    return THIN * n * torch.finfo(torch.float32).eps < SINGLE_SHARE * least


def ridge_by_steps(
    K: Tensor,
    ridge: Tensor,
    y: Tensor,
    folds: int,
    rows_of: Callable[[Tensor], Tensor],
    expired: Callable[[], bool] = lambda: False,
) -> tuple[Tensor, Tensor] | None:
    """(K + D)⁻¹y, and what the others predict at the rows of each fold (NaN elsewhere); None where steps do not end.

    Steps stop early where `expired` says so; the iterate is then returned whatever its residual.

    The rows of the folds are evenly spaced. `rows_of` gives rows of K in double precision, which K itself need not be.
    """
    n, p = y.shape
    kept, spaced = y.new_ones(n, 1 + folds), rows_of_folds(n, folds).to(y.device)
    for fold in range(folds):
        kept[spaced[fold::folds], 1 + fold] = 0.0
    guide, most = Guide.of(K, rows_of, ridge, [spaced[fold::folds] for fold in range(folds)]), n // ROWS_A_STEP
    b = _masked(y.repeat(1, 1 + folds), kept)
    single = K.dtype == torch.float32

    def applied(v: Tensor) -> Tensor:
        Kv = thin_product(K, v) if single else (v.T.contiguous() @ K).T  # BLAS is half as fast at K times columns
        return _masked(torch.addcmul(Kv, ridge[:, None], v), kept)

    def predicted(x: Tensor) -> Tensor:
        others = torch.full_like(y, torch.nan)
        for fold in range(folds):
            rows = spaced[fold::folds]
            others[rows] = K[rows].double() @ x[:, (fold + 1) * p : (fold + 2) * p]
        return others

    tol, looked = COARSE if folds else TOLERANCE, False

    def enough(x: Tensor) -> float:
        nonlocal tol, looked
        looked = True
        errors = (predicted(x) - y)[spaced].square().mean(0).sqrt() / y.square().mean(0).sqrt().clamp(min=1e-300)
        tol = min(max(SHARE * float(errors.min()), TOLERANCE), COARSE)
        return tol

    stopped = False

    def ends(steps: int, x: Tensor) -> bool:
        nonlocal stopped
        stopped = expired()
        hopeless = bool(folds) and not looked and steps > FIRST_SHARE * most
        return stopped or hopeless

    found = conjugate_gradients(
        applied, b, None, guide.solve, tol, most, 0.0, ends, enough if folds else None, recompute=not single
    )
    if not (stopped and bool(found.x.isfinite().all())) and not float(found.residual.max()) <= tol:  # or NaN
        return None
    return found.x[:, :p].contiguous(), predicted(found.x)


def _masked(columns: Tensor, kept: Tensor) -> Tensor:
    """n × (f·p) columns, fold after fold, zero where their fold leaves a row out."""
    return columns if kept.shape[1] == 1 else columns * kept.repeat_interleave(columns.shape[1] // kept.shape[1], 1)

"""Kernel ridge on thousands of rows without a factor of their matrix: conjugate gradients, guided by some rows.

A factor of n rows takes n³/3 operations; a step of conjugate gradients reads the matrix once, 2n². With the Nyström
approximation BBᵀ of `GUIDES` rows as their guide, tuned kernels of tables need some 10 to 100 steps, so from a few
thousand rows on steps are quicker, unless the penalty is tiny beside what BBᵀ leaves of K. One reading of the matrix
serves several right-hand sides, so folds of rows are left out in the same steps: each has a right-hand side that is
zero there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from mercer.kernels.compiled import thin_product
from mercer.linalg import cholesky, conjugate_gradients, mirrored, upper_gram

#: Rows whose Nyström approximation guides the steps: with half as many, half as many steps again (cal_housing and
#: house_16H, 5000 and 6000 rows: 32 to 37 steps; 18 to 28 with 1000 rows, which take as long to prepare as to solve).
#: Twice as many where the first say that steps are more than `MANY`: pol, 12 000 rows, 164 steps instead of some 260.
GUIDES, MANY = 500, 30
#: Rows at which it is asked what the guide leaves of K.
ASKED = 1000
#: Folds of rows that are left out, at most; their share of all rows, and their rows at most.
FOLDS, FOLD_SHARE, FOLD_ROWS = 3, 0.1, 500
#: The relative residual that steps end at: a bound on what is left of the solution, as a share of the targets' size.
#: Where folds are left out: at a coarse one they are looked at, the end is at this share of the error that they show.
TOLERANCE, COARSE, SHARE = 1e-6, 1e-2, 1e-2
#: Rows for each step that is allowed: with fewer a factor would have been quicker. Where steps are many, they were four
#: times the root of what the guide leaves of K's diagonal, in penalties (98 on KIN40K); none begin where six are more.
ROWS_A_STEP, STEPS_A_ROOT = 60, 6
#: Rows from which there are no factors, if there are as many for each right-hand side as the second number: 50 steps
#: are 100 n² operations for each, a factor n³/3, and thin products run at half its rate.
FEWEST_ROWS, ROWS_A_COLUMN = 4000, 600
#: Single precision guides a solution in double where its rounding is less than this share of the penalty.
SINGLE_SHARE = 0.3
#: Norm of what is wrong with a kernel matrix that was made in single precision, for each of its rows, in units of its
#: resolution: 0.12 to 0.24 for the kernels of a race on 3000 normal rows of eight inputs.
MADE = 0.25


@dataclass(frozen=True)
class Guide:
    """About (K + D)⁻¹ for several sets of rows at once, D diagonal: by Woodbury's identity from K ≈ BBᵀ.

    `kept` (n × f) is one for the rows of each set, and `inverses` (f × r × r) are of I + BᵀD⁻¹B over its rows.
    """

    B: Tensor
    ridge: Tensor
    kept: Tensor
    inverses: Tensor
    steps: float

    @classmethod
    def of(cls, rows_of: Callable[[Tensor], Tensor], diagonal: Tensor, ridge: Tensor, kept: Tensor) -> Guide:
        """From every k-th row of K, by `rows_of` places, of those that no set leaves out.

        A row that guides where it is left out makes twice as many steps. `steps` is about how many it takes.
        """
        always = kept.all(1).nonzero()[:, 0]
        asked = torch.linspace(0, len(ridge) - 1, min(ASKED, len(ridge)), device=ridge.device).long()
        for guides in (GUIDES, 2 * GUIDES):
            rows = always[torch.linspace(0, len(always) - 1, min(guides, len(always)), device=ridge.device).long()]
            K_rn = rows_of(rows)
            L = cholesky(K_rn[:, rows])[0]
            told = torch.linalg.solve_triangular(L, K_rn[:, asked], upper=False).square().sum(0)
            left = (diagonal[asked] - told).clamp(min=0) / ridge[asked]
            steps = STEPS_A_ROOT * float(left.mean()) ** 0.5
            if steps <= MANY:
                break
        B = torch.linalg.solve_triangular(L, K_rn, upper=False).T.contiguous()
        whole = upper_gram(B, 1 / ridge)
        whole.diagonal().add_(1.0)
        inverses = []
        for fold in kept.T:
            out = (fold == 0).nonzero()[:, 0]
            moment = mirrored(whole - upper_gram(B[out], 1 / ridge[out]))
            inverses.append(torch.cholesky_inverse(cholesky(moment)[0]))
        return cls(B, ridge, kept, torch.stack(inverses), steps)

    def solve(self, R: Tensor) -> Tensor:
        """The approximate solutions of n × (f·p) right-hand sides, which are zero where rows are left out."""
        f, r, _ = self.inverses.shape
        scaled = R / self.ridge[:, None]
        inner = (scaled.T.contiguous() @ self.B).reshape(f, -1, r) @ self.inverses
        found = scaled - (self.B @ inner.reshape(-1, r).T) / self.ridge[:, None]
        return _masked(found, self.kept)


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


def ridge_by_steps(
    K: Tensor, ridge: Tensor, y: Tensor, folds: int, rows_of: Callable[[Tensor], Tensor]
) -> tuple[Tensor, Tensor] | None:
    """(K + D)⁻¹y, and what the others predict at the rows of each fold (NaN elsewhere); None where steps do not end.

    The rows of the folds are evenly spaced. `rows_of` gives rows of K in double precision, which K itself need not be.
    """
    n, p = y.shape
    kept, spaced = y.new_ones(n, 1 + folds), rows_of_folds(n, folds).to(y.device)
    for fold in range(folds):
        kept[spaced[fold::folds], 1 + fold] = 0.0
    guide, most = Guide.of(rows_of, K.diagonal(), ridge, kept), n // ROWS_A_STEP
    if guide.steps > most:
        return None
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

    tol = COARSE if folds else TOLERANCE

    def enough(x: Tensor) -> float:
        nonlocal tol
        errors = (predicted(x) - y)[spaced].square().mean(0).sqrt() / y.square().mean(0).sqrt().clamp(min=1e-300)
        tol = min(max(SHARE * float(errors.min()), TOLERANCE), COARSE)
        return tol

    finer = enough if folds else None
    found = conjugate_gradients(applied, b, None, guide.solve, tol, most, finer=finer, recompute=not single)
    if not float(found.residual.max()) <= tol:  # or NaN
        return None
    return found.x[:, :p].contiguous(), predicted(found.x)


def _masked(columns: Tensor, kept: Tensor) -> Tensor:
    """n × (f·p) columns, fold after fold, zero where their fold leaves a row out."""
    return columns if kept.shape[1] == 1 else columns * kept.repeat_interleave(columns.shape[1] // kept.shape[1], 1)

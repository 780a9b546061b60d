"""Kernel ridge by preconditioned conjugate gradients.

A factor of n rows takes n³/3 operations; a step of conjugate gradients reads the matrix once, 2n². With the
`NystroemPreconditioner` tuned kernels of tables need 10 to 60 steps, so steps are faster
from a few thousand rows on. One reading of the matrix serves several right-hand sides, so folds of rows are left out in
the same steps: each fold has a right-hand side that is zero at its rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from mercer.codegen.compiled import thin_product
from mercer.linalg import cholesky, conjugate_gradients, inverse_factor, mirrored, upper_product

#: Folds of rows that are left out, at most; the share of all rows in each, at most; and the rows wanted in all of them.
FOLDS, FOLD_SHARE, HELD_OUT_ROWS = 3, 0.1, 1500
#: Relative residual at which steps end at the latest: a bound on the error of the solution, as a share of the targets'
#: norm. The folds' error is measured once the residual is `COARSE`, and steps end at `SHARE` of that error.
TOLERANCE, COARSE, SHARE = 1e-6, 1e-2, 2e-2
#: Rows for each allowed step: with fewer a factor would have been faster; and the share of these steps after which the
#: coarse residual must have been reached.
ROWS_PER_STEP, FIRST_SHARE = 60, 1 / 3
#: Rows from which steps replace factors, if there are `ROWS_PER_COLUMN` for each right-hand side: some 30 steps are
#: 60 n² operations for each, a factor n³/3, and products with few columns run at half its rate.
MIN_ROWS, ROWS_PER_COLUMN = 4000, 300
#: A float32 factor is a preconditioner of a float64 solution if its rounding is below this share of the penalty.
ROUNDING_SHARE = 0.3
#: Norm of the error of a kernel matrix computed in float32, per row and in units of the resolution: 0.12 to 0.24 for
#: the selected kernels on 3000 normal rows of eight inputs.
FLOAT32_ERROR = 0.25
#: Rows of the Nyström approximation, in units of √n times the root of a step's time: a step reads n² numbers, and
#: `READ_COLUMNS` right-hand sides take as long again. The approximation takes time in proportion to the square of its
#: rows; three times as many rows need half of the steps (`docs/ablations.md`). Blocks have so many rows at most.
NYSTROEM_PER_ROOT, READ_COLUMNS, BLOCK_ROWS = 5, 32, 125
#: Columns of a panel of symmetric products: 256 to 384 take least time for 700 to 1500 columns.
GRAM_PANEL = 384


def iterative_folds(n: int, p: int) -> int | None:
    """Number of folds to leave out, or None if a factor is faster than steps.

    Each fold adds a right-hand side per target. Those of one target cost nothing, since reading the matrix takes the
    time; several targets take the fewest folds that hold the rows wanted.
    """
    folds = FOLDS if p == 1 else min(FOLDS, math.ceil(HELD_OUT_ROWS / (FOLD_SHARE * n)))
    return folds if n >= max(MIN_ROWS, ROWS_PER_COLUMN * p * (1 + folds)) else None


def fold_rows(n: int, folds: int) -> Tensor:
    """The rows that folds leave out, evenly spaced; every `folds`-th of them belongs to one fold.

    >>> fold_rows(30, 2).tolist()
    [0, 5, 11, 17, 23, 29]
    """
    return torch.linspace(0, n - 1, min(folds * int(FOLD_SHARE * n), HELD_OUT_ROWS)).long()


def float32_storage_suffices(n: int, penalty: float) -> bool:
    """Whether steps may read a matrix that is stored in float32.

    Its entries, at most one, are rounded by up to half the resolution each, independently: a symmetric matrix of such
    errors has a norm of about 2√n times their deviation, the resolution over √12. Below the penalty the system stays
    positive definite, and the solution changes by less than the penalty changes the targets.
    """
    return (n / 3) ** 0.5 * torch.finfo(torch.float32).eps < penalty


def float32_kernel_suffices(n: int, penalty: float) -> bool:
    """Whether steps may read a matrix that is also computed in float32.

    >>> float32_kernel_suffices(12_000, 2e-3), float32_kernel_suffices(12_000, 1e-3)
    (True, False)
    """
    return FLOAT32_ERROR * n * torch.finfo(torch.float32).eps < ROUNDING_SHARE * penalty


class FoldedSystem:
    """(K + D)X = y for all rows and without each of f folds: X is n × ((1 + f)·p), zero at left-out rows."""

    def __init__(self, K: Tensor, ridge: Tensor, y: Tensor, n_folds: int) -> None:
        self.K, self.ridge, self.y = K, ridge, y
        self.spaced = fold_rows(len(y), n_folds).to(y.device)
        self.folds = [self.spaced[fold::n_folds] for fold in range(n_folds)]
        kept = y.new_ones(len(y), 1 + n_folds)
        for column, rows in enumerate(self.folds, 1):
            kept[rows, column] = 0.0
        self.kept = kept.repeat_interleave(y.shape[1], 1)
        self.right_hand_side = self.kept * y.repeat(1, 1 + n_folds)

    def apply(self, v: Tensor) -> Tensor:
        """(K + D)v, zero at left-out rows."""
        return self.kept * torch.addcmul(thin_product(self.K, v), self.ridge[:, None], v)

    def held_out(self, X: Tensor) -> Tensor:
        """Predictions at the rows of each fold by the solution without it (n × p), NaN at all other rows."""
        p, predictions = self.y.shape[1], torch.full_like(self.y, torch.nan)
        for number, rows in enumerate(self.folds, 1):
            predictions[rows] = self.K[rows].double() @ X[:, number * p : (number + 1) * p]
        return predictions

    def held_out_error(self, X: Tensor) -> float:
        """Smallest relative root mean square error of the folds over the outputs."""
        errors = (self.held_out(X) - self.y)[self.spaced].square().mean(0).sqrt()
        return float((errors / self.y.square().mean(0).sqrt().clamp(min=1e-300)).min())


class StepControl:
    """Decides when steps end: tolerance, time, or no hope of convergence."""

    def __init__(self, system: FoldedSystem, expired: Callable[[], bool]) -> None:
        self.system, self._expired = system, expired
        self.max_iter = int(len(system.y) // ROWS_PER_STEP)
        self.tol = COARSE
        self.stopped = self._measured = False

    def refine_tolerance(self, X: Tensor) -> float:
        """The final tolerance, once the coarse one is reached."""
        self._measured = True
        self.tol = min(max(SHARE * self.system.held_out_error(X), TOLERANCE), COARSE)
        return self.tol

    def ends(self, n_steps: int, X: Tensor) -> bool:
        """Whether to stop after this step: the time is over, or the coarse tolerance is too far away."""
        self.stopped = self._expired()
        hopeless = not self._measured and n_steps > FIRST_SHARE * self.max_iter
        return self.stopped or hopeless


def iterative_ridge(
    K: Tensor,
    ridge: Tensor,
    y: Tensor,
    folds: int,
    rows_of: Callable[[Tensor], Tensor],
    expired: Callable[[], bool] = lambda: False,
) -> tuple[Tensor, Tensor] | None:
    """(K + D)⁻¹y, and held-out predictions of the folds (NaN elsewhere); None if steps do not converge.

    Once `expired` returns true, the current iterate is returned whatever its residual. `rows_of` gives rows of K in
    float64; K itself may be float32.
    """
    system = FoldedSystem(K, ridge, y, folds)
    control = StepControl(system, expired)
    n_rows = nystroem_rows(len(y), system.right_hand_side.shape[1])
    found = conjugate_gradients(
        system.apply,
        system.right_hand_side,
        precondition=NystroemPreconditioner.of(K, rows_of, ridge, system.folds, n_rows).solve,
        tol=control.tol,
        max_iter=control.max_iter,
        callback=control.ends,
        finer=control.refine_tolerance,
        recompute=K.dtype == torch.float64,
    )
    usable = control.stopped and bool(found.x.isfinite().all())
    if not usable and not float(found.residual.max()) <= control.tol:  # or NaN
        return None
    return found.x[:, : y.shape[1]].contiguous(), system.held_out(found.x)


@dataclass(frozen=True)
class NystroemPreconditioner:
    """P⁻¹ = Δ⁻¹ − VFFᵀVᵀ for all rows, and P⁻¹ without the rows of each fold.

    The Nyström approximation BBᵀ from some of the rows captures the smooth part of K; the remainder is large
    between near rows only. So K + D ≈ P = BBᵀ + Δ, where Δ is the block diagonal of K − BBᵀ + D (Snelson and
    Ghahramani, "Local and global sparse Gaussian process approximations", AISTATS 2007), inverted by Woodbury's
    identity.

    `blocks` (b × s) holds the rows of each block, padded by n. `positions` are the positions of the n rows in the
    flattened blocks; V = Δ⁻¹B (b·s × r) and `block_inverses`, the blocks of Δ⁻¹ (b × s × s), are in this order.
    `factor` is F (r × r) with FFᵀ = (1 + BᵀV)⁻¹. Without rows E the solution must be zero there, which takes the values
    −(EᵀP⁻¹E)⁻¹EᵀP⁻¹r on the right-hand side: for each fold `left_out` are the positions of its rows, `left_out_VF` the
    rows of VF there, and `left_out_inverses` these inverses.
    """

    blocks: Tensor
    positions: Tensor
    block_inverses: Tensor
    V: Tensor
    factor: Tensor
    left_out: list[Tensor]
    left_out_VF: list[Tensor]
    left_out_inverses: list[Tensor]

    @classmethod
    def of(
        cls, K: Tensor, rows_of: Callable[[Tensor], Tensor], ridge: Tensor, folds: list[Tensor], n_rows: int
    ) -> NystroemPreconditioner:
        """Build it from `n_rows` evenly spaced rows of K (`rows_of` indices) that no fold leaves out.

        A Nyström row that a fold leaves out doubles the number of steps.
        """
        n, blocks = len(K), neighbour_blocks(K)
        positions = torch.empty(n + 1, dtype=torch.long).scatter_(0, blocks.flatten(), torch.arange(blocks.numel()))[:n]
        in_all_folds = torch.ones(n, dtype=torch.bool)
        in_all_folds[torch.cat(folds)] = False
        B = pad(nystroem_factor(rows_of, in_all_folds.nonzero()[:, 0], n_rows), (0, 0, 0, 1))[blocks]
        block_inverses = _inverses(_residual_blocks(K, B, ridge, blocks))
        V = (block_inverses @ B).flatten(0, 1)
        W = mirrored(upper_product(B.flatten(0, 1), V, GRAM_PANEL))
        W.diagonal().add_(1.0)
        factor = inverse_factor(W)
        left_out = [positions[fold] for fold in folds]
        left_out_VF = [V[out] @ factor for out in left_out]
        corners = [_submatrix(block_inverses, out) - VF @ VF.T for out, VF in zip(left_out, left_out_VF, strict=True)]
        inverses = [torch.cholesky_inverse(cholesky(corner)[0]) for corner in corners]
        return cls(blocks, positions, block_inverses, V, factor, left_out, left_out_VF, inverses)

    def solve(self, R: Tensor) -> Tensor:
        """P⁻¹R for n × ((1 + f)·p) right-hand sides.

        Those of all rows come first, then those of each fold, zero at the rows it leaves out.
        """
        p = R.shape[1] // (1 + len(self.left_out))
        blocks = pad(R, (0, 0, 0, 1))[self.blocks]
        r, x = blocks.flatten(0, 1), (self.block_inverses @ blocks).flatten(0, 1)
        inner = ((r.T.contiguous() @ self.V) @ self.factor).T
        folds = zip(self.left_out, self.left_out_VF, self.left_out_inverses, strict=True)
        for number, (out, VF, inverse) in enumerate(folds, 1):
            columns = slice(number * p, (number + 1) * p)
            r[out, columns] = -inverse @ (x[out, columns] - VF @ inner[:, columns])
            inner[:, columns] += VF.T @ r[out, columns]
        smooth = self.factor @ inner
        return torch.addmm((self.block_inverses @ blocks).flatten(0, 1), self.V, smooth, alpha=-1)[self.positions]


def _residual_blocks(K: Tensor, B: Tensor, ridge: Tensor, blocks: Tensor) -> Tensor:
    """Diagonal blocks (b × s × s) of K − BBᵀ + D; padding is an identity."""
    rows, padding = blocks.clamp(max=len(K) - 1), blocks == len(K)
    residual = K[rows[:, :, None], rows[:, None, :]].double().baddbmm_(B, B.mT, alpha=-1)
    residual.diagonal(dim1=1, dim2=2).add_(ridge[rows])
    residual.masked_fill_(padding[:, :, None] | padding[:, None, :], 0.0)
    residual.diagonal(dim1=1, dim2=2).add_(padding)
    return residual


def _inverses(blocks: Tensor) -> Tensor:
    return torch.cholesky_inverse(torch.stack([cholesky(block)[0] for block in blocks]))


def _submatrix(blocks: Tensor, positions: Tensor) -> Tensor:
    """Rows and columns `positions` of a block-diagonal matrix."""
    block, place = positions // blocks.shape[1], positions % blocks.shape[1]
    return blocks[block, place][:, place] * (block[:, None] == block)


def nystroem_rows(n: int, n_columns: int) -> int:
    """Rows of the Nyström approximation for n rows and so many right-hand sides.

    >>> nystroem_rows(10_000, 4), nystroem_rows(10_000, 52)
    (530, 810)
    """
    return int(NYSTROEM_PER_ROOT * (n * (1 + n_columns / READ_COLUMNS)) ** 0.5)


def nystroem_factor(rows_of: Callable[[Tensor], Tensor], among: Tensor, n_rows: int) -> Tensor:
    """B (n × r) with K ≈ BBᵀ, exact at evenly spaced rows among those given, `n_rows` of them at most."""
    rows = among[torch.linspace(0, len(among) - 1, min(n_rows, len(among))).long()]
    K_rn = rows_of(rows)
    return torch.linalg.solve_triangular(cholesky(K_rn[:, rows])[0], K_rn, upper=False).T.contiguous()


def neighbour_blocks(K: Tensor) -> Tensor:
    """Blocks of at most `BLOCK_ROWS` near rows, by repeated bisection: b × s row indices, padded by n.

    Two rows far from each other in the kernel's distance split a block by which of them is nearer.

    >>> neighbour_blocks(torch.eye(3)).tolist()
    [[0, 1, 2]]
    """
    blocks, diagonal = [torch.arange(len(K))], K.diagonal()
    while len(blocks[0]) > BLOCK_ROWS:  # the first is one of the largest
        blocks = [half for block in blocks for half in _bisect(K, diagonal, block)]
    size = len(blocks[0])
    return torch.stack([pad(block, (0, size - len(block)), value=len(K)) for block in blocks])


def _bisect(K: Tensor, diagonal: Tensor, block: Tensor) -> tuple[Tensor, Tensor]:
    first = block[(diagonal[block] - 2 * K[block[0], block]).argmax()]
    other = block[(diagonal[block] - 2 * K[first, block]).argmax()]
    order = block[(K[other, block] - K[first, block]).argsort(stable=True)]
    half = -(-len(block) // 2)
    return order[:half], order[half:]

"""The small dense algebra: factors that grow and shrink, whitening, conjugate gradients, Newton steps.

Everything here is about m×m matrices (in float64) and m or N-sized vectors already formed. It knows
nothing of kernels, rows or losses: the engine forms the products, the algorithms choose what to solve.
"""

from mercer.linalg.cg import CGResult, conjugate_gradients
from mercer.linalg.cholesky import GrowingCholesky, cholesky, inverse_diagonal, refined_solve
from mercer.linalg.givens import drop_column, rotate_rows
from mercer.linalg.lbfgs import minimize_lbfgs
from mercer.linalg.newton import NewtonResult, minimize_newton
from mercer.linalg.qr import GrowingQR
from mercer.linalg.tiled import TiledCholesky
from mercer.linalg.whiten import Whitening, whitening

__all__ = [
    "CGResult",
    "GrowingCholesky",
    "GrowingQR",
    "NewtonResult",
    "TiledCholesky",
    "Whitening",
    "cholesky",
    "conjugate_gradients",
    "drop_column",
    "inverse_diagonal",
    "minimize_lbfgs",
    "minimize_newton",
    "refined_solve",
    "rotate_rows",
    "whitening",
]

"""The small dense algebra: factors, whitening, k-means++, conjugate gradients, L-BFGS.

Everything here is about m×m matrices (in float64) and m or N-sized vectors already formed. It knows
nothing of kernels, rows or losses: the engine forms the products, the algorithms choose what to solve.
"""

from mercer.linalg.cg import conjugate_gradients
from mercer.linalg.cholesky import (
    TiledCholesky,
    cholesky,
    drop_column,
    float32_factor,
    inverse_diagonal,
    pivoted_rows,
    rotate_rows,
    solve_factored,
)
from mercer.linalg.distances import exact_distances
from mercer.linalg.kmeans import spread_out
from mercer.linalg.minimise import minimize_lbfgs
from mercer.linalg.products import mirrored, upper_product
from mercer.linalg.whitening import inverse_factor, lifted, spectral_map, whitening

__all__ = [
    "TiledCholesky",
    "cholesky",
    "conjugate_gradients",
    "drop_column",
    "exact_distances",
    "float32_factor",
    "inverse_diagonal",
    "inverse_factor",
    "lifted",
    "minimize_lbfgs",
    "mirrored",
    "pivoted_rows",
    "rotate_rows",
    "solve_factored",
    "spectral_map",
    "spread_out",
    "upper_product",
    "whitening",
]

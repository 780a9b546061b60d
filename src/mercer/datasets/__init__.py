"""Data sets: generators of the papers' artificial problems, and a reader of folders of ``.npz`` files.

Generators return plain ``(X, y)`` arrays; `load` returns a `Bunch`. Nothing here scales or cleans.
"""

from mercer.datasets.gaussians import (
    RIPLEY,
    THREE_GAUSSIANS,
    TwoClassMixture,
    make_redundant_gaussians,
    make_ripley,
    make_three_gaussians,
)
from mercer.datasets.npz import available, load, split
from mercer.datasets.synthetic import make_random_function, make_sin2, make_sinc, make_smooth_regression

__all__ = [
    "RIPLEY",
    "THREE_GAUSSIANS",
    "TwoClassMixture",
    "available",
    "load",
    "make_random_function",
    "make_redundant_gaussians",
    "make_ripley",
    "make_sin2",
    "make_sinc",
    "make_smooth_regression",
    "make_three_gaussians",
    "split",
]

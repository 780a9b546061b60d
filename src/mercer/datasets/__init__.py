"""Data sets: generators of the papers' artificial problems, and loaders of public ones.

Generators return plain ``(X, y)`` arrays; `load` returns a `Bunch` read from a folder of ``.npz`` files or downloaded
once. Nothing here scales or cleans.
"""

from mercer.datasets.fetch import available, load, split
from mercer.datasets.gaussians import (
    RIPLEY,
    THREE_GAUSSIANS,
    TwoClassMixture,
    make_redundant_gaussians,
    make_ripley,
    make_three_gaussians,
)
from mercer.datasets.registry import REGISTRY, Dataset
from mercer.datasets.synthetic import make_random_function, make_sin2, make_sinc, make_smooth_regression

__all__ = [
    "REGISTRY",
    "RIPLEY",
    "THREE_GAUSSIANS",
    "Dataset",
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

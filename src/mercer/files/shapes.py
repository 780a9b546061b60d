"""What the arrays of a fitted part look like beside one another: declared once, checked when a file is read.

A letter is a size that is the same wherever it stands within one object; "=D" says that a whole number equals it, and
alternatives stand beside a bar. What is not listed is checked by its type alone, and by the trial that ends `load`.
"""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np

from mercer.files.registry import name_of, parameters
from mercer.parts import require

SHAPES: dict[str, dict[str, str]] = {
    "border.InputMap": {"mean": "D", "scale": "D"},
    "border.RealTargets": {"mean": "p"},
    "border.ClassTargets": {"classes": "C"},
    "data.Bend": {"columns": "b", "centre": "b", "width": "b"},
    "data.ColumnMap": {"centre": "D", "width": "D", "mean": "D", "spread": "D", "knots": "D K", "levels": "D K"},
    "evidence.Posterior": {"basis": "m D", "weights": "m p", "explained": "m r", "scatter": "c m s"},
    "forward.Expansion": {"basis": "m D", "weights": "m p|z"},  # those of stages have no weights of their own
    "mixture.Gates": {"weights": "k", "means": "k D", "covariances": "k D|k D D", "root": "k D|k D D", "log_det": "k"},
    "mixture.Floor": {"variance": "D", "groups": "k"},
    "mixture.ConstantExperts": {"intercept": "k p", "noise": "k p", "floor": "p"},
    "mixture.LinearExperts": {"intercept": "k p", "noise": "k p", "floor": "p", "coef": "k p D"},
    "mixture.Categorical": {"table": "k C"},
    "mixture.Owned": {"table": "k C"},
    "mixture.LogisticExperts": {"coef": "k c w"},
    "mixture.Mixture": {"gates.means": "k D", "layout.n_inputs": "=D", "floor.variance": "D", "floor.groups": "k"},
    "empirical.Member": {"basis": "p D", "basis_indices": "p", "dual_coef": "M p P", "bias": "M P"},
}
#: Fields that are one of a few words.
WORDS = {"forward.Expansion": {"dtype": ("float32", "float64")}}
#: Fields of fitted parts that may hold numbers that are none.
MAY_BE_INFINITE = {"empirical.Member": {"agreement", "kernel_norms", "objective_path"}}


def check_arrays(value: Any) -> None:
    """Refuse a fitted part whose arrays do not fit together, or hold numbers that are none."""
    name = name_of(type(value))
    for field in parameters(type(value)):
        array = getattr(value, field.name)
        if isinstance(array, np.ndarray) and array.dtype.kind == "f":
            finite = field.name in MAY_BE_INFINITE.get(name, ()) or bool(np.isfinite(array).all())
            require(finite, f"{field.name} of {name}", "finite", "an array with NaN or infinity")
    for key, words in WORDS.get(name, {}).items():
        require(getattr(value, key) in words, f"{key} of {name}", f"one of {words}", getattr(value, key))
    sizes: dict[str, int] = {}
    for path, forms in SHAPES.get(name, {}).items():
        held = reduce(getattr, path.split("."), value)
        if held is not None:
            found = _matched(held, forms, sizes)
            wanted = f"of shape {forms} with {sizes}"
            require(found is not None, f"{path} of {name}", wanted, getattr(held, "shape", held))
            sizes = found or {}


def _matched(held: Any, forms: str, sizes: dict[str, int]) -> dict[str, int] | None:
    """The sizes with those of one more array, or None where it fits to no form."""
    if forms.startswith("="):
        return sizes if held == sizes.get(forms[1:]) else None
    for form in forms.split("|"):
        letters = form.split()
        if not isinstance(held, np.ndarray) or held.ndim != len(letters):
            continue
        merged = dict(sizes)
        if all(merged.setdefault(one, n) == n for one, n in zip(letters, held.shape, strict=True)):
            return merged
    return None

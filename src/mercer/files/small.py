"""What a small file leaves out: all that users look at and no prediction needs, and digits that none is made of."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import numpy as np

from mercer.forward.expansion import Expansion

#: Attributes of models whose expansions or posteriors predict alone: basis vectors in the user's units, where they came
#: from, and how the fit went.
LOOKED_AT = (
    "basis_",
    "basis_indices_",
    "dual_coef_",
    "history_",
    "objective_path_",
    "tuning_report_",
)


def smaller(model: Any) -> Any:
    """A copy of a fitted model that answers the same with fewer numbers, or the model where nothing can go."""
    if not (hasattr(model, "expansions_") or hasattr(model, "_models")):
        return model
    made = copy.copy(model)
    for name in LOOKED_AT:
        vars(made).pop(name, None)
    if hasattr(model, "expansions_"):
        made.expansions_ = tuple(_rounded(one) for one in model.expansions_)
    return made


def _rounded(one: Expansion) -> Expansion:
    """Basis vectors and weights as products take them: where kernel values are float32, so are they."""
    if one.dtype != "float32":
        return one
    return replace(one, basis=_single(one.basis), weights=_single(one.weights))


def _single(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float32).astype(array.dtype)

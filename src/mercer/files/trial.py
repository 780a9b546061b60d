"""A trial prediction of one row, before a model is written and after it was read."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from mercer.codec.registry import name_of
from mercer.parts import require


def try_one_row(model: Any, size: int) -> None:
    """Let a model predict one row: shapes that disagree show here, and not when it is in use.

    `size` is the number of bytes of its file, which bounds the number of columns.
    """
    D = model.n_features_in_
    require(type(D) is int and 1 <= D <= size, "n_features_in_", "an integer of columns", D)
    row, device = np.zeros((1, D)), getattr(model, "device", None)
    if hasattr(model, "table_") and not hasattr(model, "get_support"):  # columns of any kind may be missing
        row = np.full((1, D), np.nan)  # but a selector would give them back
    for name in ("basis_", "means_") if not hasattr(model, "table_") else ():
        known = getattr(model, name, None)
        if isinstance(known, np.ndarray) and known.ndim == 2 and known.shape[1] == D and len(known):
            row = known[:1].astype(np.float64)
            break
    if device is not None:
        model.device = "cpu"
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        answers = [getattr(model, ask)(row) for ask in ("predict", "predict_proba", "transform") if hasattr(model, ask)]
    for answer in answers:
        finite = isinstance(answer, np.ndarray) and (answer.dtype.kind not in "fc" or bool(np.isfinite(answer).all()))
        require(finite, "the prediction of the model", "finite numbers", answer)
    if device is not None:
        model.device = device
    require(bool(answers), "the model", f"one that answers, as a {name_of(type(model))} does", "one that does not")

"""Exposure of rows: years, kilometres or people over which a row's total was counted."""

from __future__ import annotations

from typing import Any

import numpy as np

from mercer.losses import Loss, PowerVarianceLoss
from mercer.parts import require
from mercer.preprocessing.validate import checked_weights, host


def rates(loss: Loss, y: Any, sample_weight: Any, exposure: Any) -> tuple[Any, Any]:
    """Targets per unit of exposure, if any, and the weights with which they have the loss of the totals.

    Deviances are homogeneous, d(y, eμ) = e^(2 − p) d(y/e, μ). Rates with weights e^(2 − p) therefore give the same
    model as totals whose means are e times the rates.

    >>> from mercer.losses import Poisson
    >>> rates(Poisson(), [2, 3], None, [1.0, 2.0])
    (array([2. , 1.5]), array([1., 2.]))
    """
    if exposure is None:
        return y, sample_weight
    wanted = "None unless the loss is 'poisson', 'gamma' or 'tweedie'"
    require(isinstance(loss, PowerVarianceLoss), "exposure", wanted, f"one with loss={loss}")
    require(y is not None, "y", "given where exposure is given", None)
    totals, known = np.asarray(host(y)), np.asarray(host(exposure))
    require(known.dtype.kind in "iuf", "exposure", "numbers", f"values of type {known.dtype}")
    require(known.shape == totals.shape[:1], "exposure", f"of shape {totals.shape[:1]} as y has", known.shape)
    good = np.isfinite(known) & (known > 0)
    require(bool(good.all()), "exposure", "positive and finite", known[~good][:1].tolist())
    require(totals.dtype.kind in "biuf", "y", "numbers where exposure is given", f"values of type {totals.dtype}")
    weight = checked_weights(sample_weight, len(totals)) * known ** (2.0 - loss.variance_power())
    return totals / known.reshape(-1, *[1] * (totals.ndim - 1)), weight

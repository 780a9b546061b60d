"""A fitted Gaussian process, and the attributes that estimators show of one or several of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from mercer.clock import StopReason
from mercer.engine import Plan
from mercer.evidence.posterior import Posterior
from mercer.forward.expansion import Expansion
from mercer.forward.kernel_metric import column_spread
from mercer.forward.relevance import background_rows, effect_shares
from mercer.kernels import Kernel
from mercer.preprocessing.inputs import InputMap
from mercer.preprocessing.read import TableData


@dataclass(frozen=True)
class FittedGP:
    """A fitted Gaussian process."""

    kernel: Kernel
    noise: float
    posterior: Posterior
    log_evidence: float
    index: np.ndarray  # rows that the inducing inputs are or started from
    why: str
    n_iter: int = 1
    predictive_noise: float = 0.0  # of new targets


def fitted_attributes(models: list[FittedGP], given: TableData, inputs: InputMap, plan: Plan) -> dict[str, Any]:
    """Attributes of models on the host: inducing inputs in the user's units, weights, kernel, evidence.

    Several models, one per class, give lists; their relevances and inverse length-scales are the rows of an array.
    """
    dtype = str(plan.dtype).removeprefix("torch.")
    each: list[dict[str, Any]] = [
        {
            "basis_": inputs.decode(torch.as_tensor(model.posterior.basis)),
            "basis_indices_": given.original_indices(model.index),
            "dual_coef_": model.posterior.weights,
            "kernel_": model.kernel,
            "relevance_": effect_shares([_expansion(model, inputs, dtype)], given, plan),
            "inverse_length_scales_": _by_column(model.kernel, given, inputs),
        }
        for model in models
    ]
    if len(models) == 1:
        attributes = each[0]
    else:
        attributes = {name: [attributes_of[name] for attributes_of in each] for name in each[0]}
        for name in ("relevance_", "inverse_length_scales_"):
            attributes[name] = np.stack(attributes[name])
    return {
        **given.columns(),
        **attributes,
        "inputs_": inputs,
        "background_": background_rows(given),
        "dtype_": dtype,
        "log_marginal_likelihood_": float(sum(model.log_evidence for model in models)),
        "n_iter_": max(1, *(model.n_iter for model in models)),
        "stop_reason_": StopReason.joined(model.why for model in models),
        "_models": models,
    }


def _expansion(model: FittedGP, inputs: InputMap, dtype: str) -> Expansion:
    """The posterior mean."""
    basis, weights = (np.asarray(part, dtype=np.float64) for part in (model.posterior.basis, model.posterior.weights))
    return Expansion(inputs, model.kernel, basis, weights, dtype)


def inverse_length_scales(kernel: Kernel, n_inputs: int) -> np.ndarray:
    """Inverse length-scales of standardised inputs; ones for kernels without them."""
    scales = [value for name, value in kernel.tunable().items() if name.endswith("length_scale")]
    return np.broadcast_to(1 / np.asarray(scales[0], dtype=float), (n_inputs,)).copy() if scales else np.ones(n_inputs)


def _by_column(kernel: Kernel, given: TableData, inputs: InputMap) -> np.ndarray:
    """Inverse length-scale of each column of the user's table.

    A column of several coordinates has the root of their sum of squares, each in units of its standard deviation.
    """
    relevance = inverse_length_scales(kernel, given.rows.n_columns)
    if given.table is None:
        return given.per_column(relevance)
    return np.sqrt(given.per_column((relevance * column_spread(inputs, given)) ** 2))

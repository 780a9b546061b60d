"""Fitted models as kernel expansions in the units of their answers: all that explanations need to know of a family."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from mercer.border.inputs import InputMap
from mercer.engine import Plan, make_plan
from mercer.explain.inputs import Inputs
from mercer.explain.subsets import Turned
from mercer.explain.terms import ELSEWHERE, Term, diagonal_of, require_columns_apart, terms_of
from mercer.forward.expansion import Expansion
from mercer.parts import require


@dataclass(frozen=True)
class Expanded:
    """offset + Σ over expansions, n × p: what the model says, in the targets' units or as decision values."""

    expansions: tuple[Expansion, ...]
    offset: np.ndarray  # p
    flat: bool  # whether answers have one number a row

    @property
    def n_outputs(self) -> int:
        return len(self.offset)

    def shaped(self, values: np.ndarray) -> Any:
        """Numbers whose last axis runs over outputs, as the model's answers have it."""
        return values[..., 0] if self.flat else values


@dataclass(frozen=True)
class Piece:
    """One product kernel of an expansion, bound to its basis vectors and weights."""

    inputs: InputMap
    term: Term
    basis: Tensor  # m × D as the kernel sees them
    weights: Tensor  # m × p
    groups: Sequence[Sequence[int]]  # the coded columns of each input


def expanded(model: Any) -> Expanded:
    """The kernel expansions of a fitted model; a model that is none gets a sentence."""
    if not hasattr(model, "expansions_"):  # asking scikit-learn takes a tenth of the time of one row
        check_is_fitted(model)
    require(not getattr(model, "_pairwise", False), "the kernel", f"one of inputs ({ELSEWHERE})", "precomputed")
    if hasattr(model, "expansions_"):
        return _in_units(model, model.expansions_)
    if hasattr(model, "_models"):
        p = sum(one.posterior.weights.shape[1] for one in model._models)
        parts, place = [], 0
        for one in model._models:
            weights = np.zeros((len(one.posterior.basis), p))
            own = np.asarray(one.posterior.weights, dtype=np.float64)
            weights[:, place : place + own.shape[1]] = own
            basis = np.asarray(one.posterior.basis, dtype=np.float64)
            parts.append(Expansion(model.inputs_, one.kernel, basis, weights, "float64"))
            place += own.shape[1]
        return _in_units(model, tuple(parts))
    if hasattr(model, "ensemble_") and not hasattr(model, "classes_"):
        members = model.ensemble_.machines[0]
        parts, bias = [], 0.0
        for one in members:
            share = 1 / (len(members) * len(one.kernels))
            bias = bias + share * np.asarray(one.bias, dtype=np.float64).sum(0)
            basis, weights = (np.asarray(part, dtype=np.float64) for part in (one.basis, share * one.dual_coef))
            parts += [
                Expansion(model.inputs_, k, basis, w, "float64") for k, w in zip(one.kernels, weights, strict=True)
            ]
        return _in_units(model, tuple(parts), bias)
    wanted = f"a kernel expansion (boosted, greedy, Gaussian process; {ELSEWHERE})"
    raise ValueError(f"the model must be {wanted}, got {type(model).__name__}")


def turned(model: Expanded, plan: Plan, inputs: Inputs) -> tuple[Expanded, list[Turned]]:
    """The model without its expansions in full metrics, and those."""
    apart = [diagonal_of(one.inputs.transform) for one in model.expansions]
    both = list(zip(model.expansions, apart, strict=True))
    rest = replace(model, expansions=tuple(one for one, alone in both if alone))
    return rest, [Turned.of(one, plan, inputs.groups(one.basis.shape[1])) for one, alone in both if not alone]


def pieces(model: Expanded, plan: Plan, inputs: Inputs) -> list[Piece]:
    """The product kernels of all expansions, on the plan's device in float64."""
    found = []
    for one in model.expansions:
        require_columns_apart(one.inputs.transform)
        D = one.basis.shape[1]
        basis = torch.as_tensor(one.basis, dtype=torch.float64, device=plan.device)
        weights = torch.as_tensor(one.weights, dtype=torch.float64, device=plan.device)
        for term in terms_of(one.kernel, D):
            found.append(Piece(one.inputs, term, basis, weights, inputs.groups(D)))
    return found


def plan_for(model: Any, inputs: Inputs) -> Plan:
    """Where rows are explained: in float64, since sums over basis vectors cancel."""
    return make_plan(inputs.source.n_rows, model.device, "float64", model.memory_limit)


def names_of(model: Any) -> list[str]:
    """Names of the inputs, x0, x1, … where they have none."""
    known = getattr(model, "feature_names_in_", None)
    return [f"x{d}" for d in range(model.n_features_in_)] if known is None else [str(name) for name in known]


def _in_units(model: Any, parts: tuple[Expansion, ...], bias: Any = 0.0) -> Expanded:
    targets, p = model.targets_, parts[0].weights.shape[1]
    if hasattr(model, "classes_"):
        return Expanded(parts, np.broadcast_to(targets.offset, (p,)).astype(float), p == 1)
    scaled = tuple(replace(one, weights=targets.scale * one.weights) for one in parts)
    return Expanded(scaled, targets.mean + targets.scale * np.broadcast_to(bias, (p,)), targets.flat)

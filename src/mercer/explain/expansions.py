"""Fitted models as kernel expansions in the units of their predictions, which is all that explanations use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from operator import is_
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor
from torch.nn.functional import pad

from mercer.data import ArrayRows, RowSource, spaced_rows
from mercer.engine import Plan, make_plan
from mercer.explain.inputs import groups_of
from mercer.explain.products import WIDTH
from mercer.explain.subsets import FullMetricExpansion
from mercer.explain.terms import ELSEWHERE, Term, diagonal_of, terms_of
from mercer.forward.expansion import Expansion
from mercer.forward.relevance import BACKGROUND_ROWS
from mercer.parts import require
from mercer.preprocessing.inputs import ClassTargets, InputMap


@dataclass(frozen=True)
class KernelExpansion:
    """offset + Σ over expansions, n × p: predictions in the targets' units, or decision values."""

    expansions: tuple[Expansion, ...]
    offset: np.ndarray  # p
    flat: bool  # whether predictions have one number a row

    @property
    def n_outputs(self) -> int:
        return len(self.offset)

    def shaped(self, values: np.ndarray) -> Any:
        """Numbers whose last axis runs over outputs, in the shape of the model's predictions."""
        return values[..., 0] if self.flat else values


@dataclass(frozen=True)
class BoundTerm:
    """One product kernel of an expansion, bound to its basis vectors and weights."""

    inputs: InputMap
    term: Term
    basis: Tensor  # m × D as the kernel sees them
    weights: Tensor  # m × p
    groups: Sequence[Sequence[int]]  # the coded columns of each input

    @cached_property
    def strips(self) -> tuple[Tensor, Tensor]:
        """Basis vectors by input (D × M) and weights times variance (M × p), M being a multiple of `WIDTH`.

        The basis is padded with copies of its first vector, of weight zero.
        """
        beyond = -len(self.basis) % WIDTH
        padding = self.basis[:1].expand(beyond, -1)
        basis = torch.cat([self.basis, padding]).T.contiguous()
        return basis, pad(self.term.variance * self.weights, (0, 0, 0, beyond))


@dataclass(frozen=True)
class PreparedModel:
    """All that explaining rows of a model takes, except the rows."""

    expansion: KernelExpansion
    terms: list[BoundTerm]  # product kernels
    full_metric: list[FullMetricExpansion]
    base: Tensor  # the prediction without any input, p


#: Fitted attributes on which the mean over training rows depends. It is kept while they are the same objects.
FITTED = ("expansions_", "_models", "ensemble_", "targets_", "inputs_", "table_", "background_")
_training_means: WeakKeyDictionary[Any, tuple[list[Any], Tensor]] = WeakKeyDictionary()


def training_mean(model: Any, statistic: Callable[[RowSource], Tensor]) -> Tensor:
    """The mean over training rows of a statistic of each row, kept until the model is fitted again.

    The training rows are those that the model keeps as its background; else some of its basis vectors.
    """
    state = [getattr(model, name, None) for name in ("device", *FITTED)]
    before, mean = _training_means.get(model, ([], None))
    if mean is None or not all(map(is_, before, state)):
        mean = statistic(ArrayRows(_background(model))).mean(0)
        _training_means[model] = state, mean
    return mean


def _background(model: Any) -> np.ndarray:
    if hasattr(model, "background_"):
        return np.asarray(model.background_, dtype=np.float64)
    first = expansion_of(model).expansions[0]
    index = spaced_rows(np.ones(len(first.basis)), BACKGROUND_ROWS)
    return first.inputs.decode(torch.as_tensor(first.basis[index]))


def prepared(model: Any) -> PreparedModel:
    """Prepare a fitted model for explanations."""
    expansion, plan = expansion_of(model), plan_for(model)
    groups = partial(groups_of, getattr(model, "table_", None))
    diagonal = [part for part in expansion.expansions if diagonal_of(part.inputs.transform)]
    full = [part for part in expansion.expansions if not diagonal_of(part.inputs.transform)]
    terms = _bound_terms(diagonal, plan, groups)
    full_metric = [FullMetricExpansion.of(part, plan, groups(part.basis.shape[1])) for part in full]
    base = torch.as_tensor(expansion.offset, dtype=torch.float64, device=plan.device)
    for bound in terms:
        base = base if bound.term.additive else base.add(bound.weights.sum(0), alpha=bound.term.variance)
    return PreparedModel(expansion, terms, full_metric, sum((part.base_value() for part in full_metric), base))


def expansion_of(model: Any) -> KernelExpansion:
    """The kernel expansion of a fitted model; refuse, in a sentence, a model that has none."""
    if not hasattr(model, "expansions_"):  # asking scikit-learn takes a tenth of the time of one row
        check_is_fitted(model)
    require(not getattr(model, "_pairwise", False), "the kernel", f"one of inputs ({ELSEWHERE})", "precomputed")
    if hasattr(model, "expansions_"):
        return _in_units(model, model.expansions_)
    if hasattr(model, "_models"):
        return _in_units(model, _process_expansions(model))
    if hasattr(model, "ensemble_") and not hasattr(model, "classes_"):
        return _in_units(model, *_ensemble_expansions(model))
    wanted = f"a kernel expansion (boosted, greedy, Gaussian process; {ELSEWHERE})"
    raise ValueError(f"the model must be {wanted}, got {type(model).__name__}")


def _process_expansions(model: Any) -> tuple[Expansion, ...]:
    """The posterior means of Gaussian processes, each with weights for its own outputs."""
    widths = [process.posterior.weights.shape[1] for process in model._models]
    parts = []
    for process, end, width in zip(model._models, np.cumsum(widths), widths, strict=True):
        arrays = (process.posterior.basis, process.posterior.weights)
        basis, weights = (np.asarray(array, dtype=np.float64) for array in arrays)
        weights = np.pad(weights, ((0, 0), (end - width, sum(widths) - end)))
        parts.append(Expansion(model.inputs_, process.kernel, basis, weights, "float64"))
    return tuple(parts)


def _ensemble_expansions(model: Any) -> tuple[tuple[Expansion, ...], Any]:
    """The kernels of all ensemble members with their share of the mean, and the mean bias."""
    members = model.ensemble_.machines[0]
    parts: list[Expansion] = []
    bias = 0.0
    for member in members:
        share = 1 / (len(members) * len(member.kernels))
        bias = bias + share * np.asarray(member.bias, dtype=np.float64).sum(0)
        basis, weights = (np.asarray(part, dtype=np.float64) for part in (member.basis, share * member.dual_coef))
        parts += [
            Expansion(model.inputs_, kernel, basis, w, "float64")
            for kernel, w in zip(member.kernels, weights, strict=True)
        ]
    return tuple(parts), bias


def _bound_terms(
    expansions: Sequence[Expansion], plan: Plan, groups: Callable[[int], list[list[int]]]
) -> list[BoundTerm]:
    """The product kernels of expansions, on the plan's device in float64; `groups` of as many coordinates."""
    found = []
    for expansion in expansions:
        D = expansion.basis.shape[1]
        basis = torch.as_tensor(expansion.basis, dtype=torch.float64, device=plan.device)
        weights = torch.as_tensor(expansion.weights, dtype=torch.float64, device=plan.device)
        for term in terms_of(expansion.kernel, D):
            found.append(BoundTerm(expansion.inputs, term, basis, weights, groups(D)))
    return found


def plan_for(model: Any) -> Plan:
    """The plan for explaining rows: in float64, since sums over basis vectors cancel."""
    return make_plan(1, model.device, "float64", model.memory_limit)


def names_of(model: Any) -> list[str]:
    """Names of the inputs, x0, x1, … where they have none."""
    known = getattr(model, "feature_names_in_", None)
    return [f"x{d}" for d in range(model.n_features_in_)] if known is None else [str(name) for name in known]


def _in_units(model: Any, parts: tuple[Expansion, ...], bias: Any = 0.0) -> KernelExpansion:
    targets, p = model.targets_, parts[0].weights.shape[1]
    if isinstance(targets, ClassTargets):
        return KernelExpansion(parts, np.broadcast_to(targets.offset, (p,)).astype(float), p == 1)
    scaled = tuple(replace(part, weights=targets.scale * part.weights) for part in parts)
    return KernelExpansion(scaled, targets.mean + targets.scale * np.broadcast_to(bias, (p,)), targets.flat)

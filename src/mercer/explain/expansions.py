"""Fitted models as kernel expansions in the units of their answers: all that explanations need to know of a family."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from operator import is_
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted
from torch import Tensor
from torch.nn.functional import pad

from mercer.data import ArrayRows, RowSource, spaced_rows
from mercer.engine import Plan, make_plan
from mercer.explain.inputs import groups_of
from mercer.explain.product_code import WIDTH
from mercer.explain.subsets import Turned
from mercer.explain.terms import ELSEWHERE, Term, diagonal_of, terms_of
from mercer.forward.expansion import Expansion
from mercer.forward.relevance import BACKGROUND_ROWS
from mercer.parts import require
from mercer.preprocessing.inputs import InputMap


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

    @cached_property
    def strips(self) -> tuple[Tensor, Tensor]:
        """The basis vectors input by input (D × M) and their weights times the variance (M × p), M being what machine
        code has in strips.

        What is more than the basis vectors is the first of them, without weight.
        """
        beyond = -len(self.basis) % WIDTH
        more = self.basis[:1].expand(beyond, -1)
        return torch.cat([self.basis, more]).T.contiguous(), pad(self.term.variance * self.weights, (0, 0, 0, beyond))


@dataclass(frozen=True)
class PreparedPieces:
    """All that explaining rows of a model takes, but the rows."""

    told: Expanded
    parts: list[Piece]  # product kernels
    tied: list[Turned]  # kernels in full metrics
    base: Tensor  # what is said without any input, p


T = TypeVar("T")
#: Fitted attributes that this is made of. Where they are the same objects, so is what was made of them: preparing takes
#: a fifth of the time of one row. Models of more numbers than KEPT take so long that it does not matter.
FITTED, KEPT = ("expansions_", "_models", "ensemble_", "targets_", "inputs_", "table_", "background_"), 1 << 20
_pieces_of: WeakKeyDictionary[Any, tuple[list[Any], PreparedPieces]] = WeakKeyDictionary()
_means_of: WeakKeyDictionary[Any, tuple[list[Any], Tensor]] = WeakKeyDictionary()


def prepared(model: Any) -> PreparedPieces:
    """What explanations need of a fitted model, kept as long as the model lives and is not fitted again."""
    return _remembered(_pieces_of, model, partial(_prepared, model), lambda made: _size(made.told) <= KEPT)


def training_mean(model: Any, of_rows: Callable[[RowSource], Tensor]) -> Tensor:
    """The mean over training rows of what `of_rows` says of rows as the model reads them, kept in the same way.

    The training rows are those that the model keeps as its background; else some of its basis vectors.
    """
    return _remembered(_means_of, model, lambda: of_rows(ArrayRows(_background(model))).mean(0), lambda _: True)


def _background(model: Any) -> np.ndarray:
    if hasattr(model, "background_"):
        return np.asarray(model.background_, dtype=np.float64)
    first = expanded(model).expansions[0]
    some = spaced_rows(np.ones(len(first.basis)), BACKGROUND_ROWS)
    return first.inputs.decode(torch.as_tensor(first.basis[some]))


def _remembered(
    known: WeakKeyDictionary[Any, tuple[list[Any], T]], model: Any, make: Callable[[], T], worth: Callable[[T], bool]
) -> T:
    state = [getattr(model, name, None) for name in ("device", *FITTED)]
    before, made = known.get(model, ([], None)) if isinstance(model, BaseEstimator) else ([], None)
    if made is not None and all(map(is_, before, state)):
        return made
    made = make()
    if isinstance(model, BaseEstimator) and worth(made):
        known[model] = state, made
    return made


def _size(told: Expanded) -> int:
    return sum(one.basis.size + one.weights.size for one in told.expansions)


def _prepared(model: Any) -> PreparedPieces:
    told, plan = expanded(model), plan_for(model)
    groups = partial(groups_of, getattr(model, "table_", None))
    alone = [one for one in told.expansions if diagonal_of(one.inputs.transform)]
    full = [one for one in told.expansions if not diagonal_of(one.inputs.transform)]
    parts, tied = _pieces(alone, plan, groups), [Turned.of(one, plan, groups(one.basis.shape[1])) for one in full]
    base = torch.as_tensor(told.offset, dtype=torch.float64, device=plan.device)
    for one in parts:
        base = base if one.term.additive else base.add(one.weights.sum(0), alpha=one.term.variance)
    return PreparedPieces(told, parts, tied, sum((whole.nothing() for whole in tied), base))


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


def _pieces(some: Sequence[Expansion], plan: Plan, groups: Callable[[int], list[list[int]]]) -> list[Piece]:
    """The product kernels of expansions, on the plan's device in float64; `groups` of as many coordinates."""
    found = []
    for one in some:
        D = one.basis.shape[1]
        basis = torch.as_tensor(one.basis, dtype=torch.float64, device=plan.device)
        weights = torch.as_tensor(one.weights, dtype=torch.float64, device=plan.device)
        for term in terms_of(one.kernel, D):
            found.append(Piece(one.inputs, term, basis, weights, groups(D)))
    return found


def plan_for(model: Any) -> Plan:
    """Where rows are explained: in float64, since sums over basis vectors cancel."""
    return make_plan(1, model.device, "float64", model.memory_limit)


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

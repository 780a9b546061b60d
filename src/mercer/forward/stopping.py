"""Stopping rules: each reads the history of a fit and returns the reason to stop, or None."""

from __future__ import annotations

import copy
import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice, takewhile

import numpy as np

from mercer.clock import StopKind, StopReason, kinds_of
from mercer.parts import Component, component

#: Steps that may bring nothing before a fit ends, and the share of its norm below which a function brings nothing new.
PATIENCE, MIN_NOVELTY = 20, 1e-6


@dataclass
class History:
    """Measurements of each step of a fit, one entry per step."""

    n_rows: float
    n_basis: list[int] = field(default_factory=list)
    objective: list[float] = field(default_factory=list)
    residual_norm: list[float] = field(default_factory=list)
    validation: list[float] = field(default_factory=list)
    novelty: list[list[float]] = field(default_factory=list)  # of each new function of a step
    seconds: list[float] = field(default_factory=list)

    def as_arrays(self) -> dict[str, np.ndarray]:
        """The arrays that users see, one entry per step."""
        names = ("n_basis", "objective", "residual_norm", "seconds", "validation")
        shown = {name: np.array(getattr(self, name)) for name in names}
        by_size = {"mdl": description_length, "aic": information_criterion}
        return shown | {name: np.array(self.prices(price)) for name, price in by_size.items()}

    def prices(self, price: Callable[[float, int, float], float]) -> list[float]:
        """MDL (`description_length`) or AIC (`information_criterion`) after each step."""
        return [price(*at, self.n_rows) for at in zip(self.residual_norm, self.n_basis, strict=True)]


def joined(histories: Sequence[History]) -> History:
    """Join the histories of stages that follow each other."""
    first, *rest = histories
    out = copy.deepcopy(first)
    for stage in rest:
        n_basis = out.n_basis[-1] if out.n_basis else 0
        seconds = out.seconds[-1] if out.seconds else 0.0
        out.n_basis += [n_basis + m for m in stage.n_basis]
        out.seconds += [seconds + s for s in stage.seconds]
        for name in ("objective", "residual_norm", "validation", "novelty"):
            getattr(out, name).extend(getattr(stage, name))
    return out


def description_length(residual_norm: float, size: int, n: float) -> float:
    """MDL, (N/2) log(rᵀr) + (l/2) log N (Greedy02 eq. 10)."""
    return n * math.log(max(residual_norm, 1e-300)) + 0.5 * size * math.log(n)


def information_criterion(residual_norm: float, size: int, n: float) -> float:
    """AIC for small samples, (N/2) log(rᵀr) + (l/2)(1 + l/N)/(1 − (l+2)/N) (Greedy02 eq. 11)."""
    if size + 2 >= n:
        return math.inf
    return n * math.log(max(residual_norm, 1e-300)) + 0.5 * size * (1 + size / n) / (1 - (size + 2) / n)


def interrupted(n_steps: int) -> StopReason:
    """The reason of a fit that Ctrl-C ended."""
    return StopReason(f"interrupted after {n_steps} steps, which are kept", StopKind.INTERRUPTED)


class Stopping(Component):
    """A rule that ends a fit; `best` is the step to which the model is cut back."""

    @abstractmethod
    def reason(self, history: History) -> StopReason | None:
        """The reason to stop, or None."""

    def best(self, history: History) -> int | None:
        """The number of steps to keep, or None to keep all."""
        return None


@component
class MaxSteps(Stopping):
    """Stop after a number of steps; `why` replaces the sentence that counts them."""

    n_steps: int = 100
    what: str = "learners"
    why: str = ""  # a `StopReason` where the rule is made here

    def reason(self, history: History) -> StopReason | None:
        if len(history.seconds) >= self.n_steps:
            n, what = self.n_steps, self.what
            counted = f"the one {what.removesuffix('s')} was added" if n == 1 else f"all {n} {what} were added"
            return StopReason(self.why, *kinds_of(self.why)) if self.why else StopReason(counted, StopKind.SIZE)
        return None


@component
class Tolerance(Stopping):
    """Stop when the residual norm falls to `tol` times the norm of the targets."""

    tol: float = 1e-6
    start: float = 1.0

    def reason(self, history: History) -> StopReason | None:
        r = history.residual_norm
        if r and r[-1] <= self.tol * self.start:
            sentence = f"the residual norm fell to {r[-1]:.3g}, within tol={self.tol:g} of the targets' norm"
            return StopReason(sentence, StopKind.CONVERGED)
        return None


@component
class TimeBudget(Stopping):
    """Stop when a further step, as long as those before, would end after `seconds` of growing.

    `budget` is the time of the whole fit that the user gave; `seconds` is a part of it.
    """

    seconds: float = 60.0
    budget: float | None = None

    def reason(self, history: History) -> StopReason | None:
        spent = history.seconds
        if not spent or spent[-1] + spent[-1] / len(spent) <= self.seconds:
            return None
        asked = self.seconds if self.budget is None else self.budget
        steps = f"{len(spent)} step{'s' if len(spent) > 1 else ''} took {spent[-1]:.1f} s"
        return StopReason(f"the time budget of {asked:g} s was used up: {steps} of it", StopKind.TIME_BUDGET)


@component
class Dependence(Stopping):
    """Stop when `patience` new functions in turn lie in the span of those before; cut back to the last that did not.

    Greedy02 (section 4.2) stops at the first one, by a condition number. But a row beside a basis vector, with another
    target, has a large residual and brings nothing: on protein, that stopped at 30 vectors what 200 improve.
    """

    threshold: float = MIN_NOVELTY
    patience: int = PATIENCE

    def reason(self, history: History) -> StopReason | None:
        newest_first = chain.from_iterable(reversed(step) for step in reversed(history.novelty))
        if sum(1 for _ in islice(takewhile(self._is_dependent, newest_first), self.patience)) < self.patience:
            return None
        sentence = (
            f"the last {self.patience} basis vectors lie in the span of those before them, "
            f"up to less than {self.threshold:g} of their norm"
        )
        return StopReason(sentence, StopKind.EXHAUSTED)

    def best(self, history: History) -> int | None:
        if self.reason(history) is None:
            return None
        idle_steps = takewhile(lambda step: all(map(self._is_dependent, step)), reversed(history.novelty))
        return max(len(history.novelty) - len(list(idle_steps)), 1)

    def _is_dependent(self, novelty: float) -> bool:
        return novelty < self.threshold


class _Minimum(Stopping):
    """Stop once a curve has not fallen below its minimum for `patience` steps; cut back to the minimum."""

    patience: int
    label: str = ""

    @abstractmethod
    def curve(self, history: History) -> list[float]: ...

    def best(self, history: History) -> int | None:
        values = self.curve(history)
        return 1 + min(range(len(values)), key=values.__getitem__) if values else None

    def reason(self, history: History) -> StopReason | None:
        best = self.best(history)
        if best is not None and len(history.seconds) - best >= self.patience:
            sentence = f"{self.label} had its minimum at step {best}, {self.patience} steps before the last"
            return StopReason(sentence, StopKind.MINIMUM)
        return None


@component
class MinimumDescriptionLength(_Minimum):
    """MDL (Greedy02 eq. 10)."""

    short_name = "mdl"
    patience: int = PATIENCE
    label = "the description length"

    def curve(self, history: History) -> list[float]:
        return history.prices(description_length)


@component
class AkaikeInformation(_Minimum):
    """AIC in its small-sample form (Greedy02 eq. 11)."""

    short_name = "aic"
    patience: int = PATIENCE
    label = "Akaike's information criterion"

    def curve(self, history: History) -> list[float]:
        return history.prices(information_criterion)


@component
class Validation(_Minimum):
    """The error on held-out rows."""

    short_name = "validation"
    patience: int = 10
    label = "the validation error"

    def curve(self, history: History) -> list[float]:
        return history.validation

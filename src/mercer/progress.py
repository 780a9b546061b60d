"""Where a fit stands: one stream of events for the progress bar, the logger "mercer" and the user's callbacks.

Like logging, it is told by whoever works and heard by whoever listens: an algorithm calls `tell`, or takes functions to
call after each step (`listeners`), and knows nothing of bars. Who listens is said by the estimator whose `fit` is
`watched`; an estimator fitted inside another one is heard by the outer one unless it has listeners of its own.
"""

from __future__ import annotations

import inspect
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import wraps
from threading import RLock
from typing import Any, TypeVar, cast

LOGGER = logging.getLogger("mercer")
Fit = TypeVar("Fit", bound=Callable[..., Any])


@dataclass(frozen=True)
class Event:
    """One step of a phase of a fit: "tuning", "race", "size", "learners", "polish", "evidence", "EM", "members", …

    `total` steps are expected in this phase and `left` seconds of it, where that is known; `seconds` have passed since
    the fit began. `state` is what the phase works on, such as the model grown so far, or None. Where rows are read from
    a file or travel to a GPU on the way, `rows_per_second` of them did so since the phase began.
    """

    phase: str
    step: int
    total: int | None
    seconds: float
    left: float | None
    state: Any = None
    rows_per_second: float | None = None

    def __str__(self) -> str:
        of = "" if self.total is None else f" of {self.total}"
        left = "" if self.left is None else f", {self.left:.1f} s to go"
        rate = "" if self.rows_per_second is None else f", {self.rows_per_second:.3g} rows/s"
        return f"{self.phase}: step {self.step}{of} after {self.seconds:.1f} s{rate}{left}"


class Progress:
    """Counts the steps of each phase and hands them to a bar, the logger and callbacks."""

    def __init__(self, callbacks: tuple[Callable[[Event], Any], ...], bar: Any = None, budget: float | None = None):
        self.callbacks, self.bar, self.budget = callbacks, bar, budget
        self.began = time.perf_counter()
        self.phase, self.since, self.first = "", self.began, 0  # a phase, when and at which step it was first heard of
        self.steps: Counter[str] = Counter()
        self.rows = 0  # that were read since the phase began
        self.turn = RLock()  # pieces of work run side by side, callbacks one after the other

    def tell(self, phase: str, total: int | None = None, state: Any = None, step: int | None = None) -> bool:
        """A step was made; whether a callback asks to end the fit."""
        with self.turn:
            now = time.perf_counter()
            self.steps[phase] = self.steps[phase] + 1 if step is None else step
            if phase != self.phase:
                self.phase, self.since, self.first, self.rows = phase, now, self.steps[phase], 0
                LOGGER.info("%s begins after %.1f s", phase, now - self.began)
            rate = self.rows / (now - self.since) if self.rows and now > self.since else None
            event = Event(phase, self.steps[phase], total, now - self.began, self._left(phase, total, now), state, rate)
            LOGGER.debug("%s", event)
            if self.bar is not None:
                self.bar.set_description_str(phase, refresh=False)
                self.bar.total, self.bar.n = total, event.step
                said = [] if rate is None else [f"{rate:.3g} rows/s"]
                said += [] if event.left is None else [f"{event.left:.0f} s to go"]
                self.bar.set_postfix_str(", ".join(said), refresh=False)
                self.bar.refresh()
            asked = [bool(callback(event)) for callback in self.callbacks]  # all of them hear it
            return any(asked)

    def _left(self, phase: str, total: int | None, now: float) -> float | None:
        """Seconds to go in this phase: steps are as long as those since the first, and end with the budget."""
        step, end = self.steps[phase], None if self.budget is None else max(self.began + self.budget - now, 0.0)
        if total is None or total < step or self.first == step < total:  # how long the first one took nobody knows
            return end
        left = (now - self.since) / max(step - self.first, 1) * (total - step)
        return left if end is None else min(left, end)


_HEARD: ContextVar[Progress | None] = ContextVar("progress of the fit that runs", default=None)


def current() -> Progress | None:
    """Who hears of the fit that runs here; threads that a fit starts have to be handed it."""
    return _HEARD.get()


def tell(phase: str, total: int | None = None, state: Any = None, step: int | None = None) -> bool:
    """A step of a phase was made; whether a callback asks to end the fit, which not every phase can.

    >>> from mercer.progress import tell
    >>> tell("tuning")
    False
    """
    progress = _HEARD.get()
    return progress is not None and progress.tell(phase, total, state, step)


@contextmanager
def unheard() -> Iterator[None]:
    """Nobody hears of what runs within: refits that calibrate a model are no steps of its fit."""
    token = _HEARD.set(None)
    try:
        yield
    finally:
        _HEARD.reset(token)


def passed(n_rows: int) -> None:
    """So many rows were read from where they are kept."""
    progress = _HEARD.get()
    if progress is not None:
        progress.rows += n_rows


def listeners(phase: str, total: int | None = None, step: Callable[[Any], int] | None = None) -> tuple[Any, ...]:
    """What an algorithm calls with its state after each step: nothing where nobody listens."""
    progress = _HEARD.get()
    if progress is None:
        return ()

    def seen(state: Any) -> bool:
        return progress.tell(phase, total, state, None if step is None else step(state))

    return (seen,)


def watched(fit: Fit) -> Fit:
    """A `fit` whose phases are heard by the estimator's bar (`verbose`), its `callbacks`, and the logger "mercer"."""

    signature = inspect.signature(fit)

    @wraps(fit)
    def run(self: Any, *args: Any, **options: Any) -> Any:
        try:
            signature.bind(self, *args, **options)
        except TypeError as error:  # in the name of the estimator, not of the class that defines `fit`
            raise TypeError(f"{type(self).__name__}.fit() {error}") from None
        given = self.callbacks
        callbacks = (given,) if callable(given) else tuple(given) if isinstance(given, Iterable) else ()
        heard = bool(callbacks) or bool(self.verbose) or (current() is None and LOGGER.isEnabledFor(logging.INFO))
        if not heard or not all(map(callable, callbacks)):  # `fit` itself refuses what cannot be called
            return fit(self, *args, **options)
        bar = _bar(type(self).__name__) if self.verbose else None
        budget = self.time_budget if isinstance(self.time_budget, int | float) else None
        token = _HEARD.set(Progress(callbacks, bar, budget))
        try:
            return fit(self, *args, **options)
        finally:
            _HEARD.reset(token)
            if bar is not None:
                bar.close()

    return cast(Fit, run)


def _bar(name: str) -> Any:
    from tqdm.auto import tqdm

    return tqdm(desc=name, unit="", bar_format="{desc}: {n_fmt}/{total_fmt} [{elapsed}] {postfix}")

"""Progress of a fit: one stream of events for the progress bar, the logger "mercer" and the user's callbacks.

It works like logging. An algorithm calls `report_step`, or takes functions to call after each step (`step_callbacks`),
and does not know who receives the events. The estimator whose `fit` is decorated by `with_progress` sets the
receivers; an estimator fitted inside another one reports to the outer one unless it has callbacks or a bar itself.
"""

from __future__ import annotations

import inspect
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import wraps
from threading import RLock
from typing import Any, TypeVar, cast

LOGGER = logging.getLogger("mercer")
Fit = TypeVar("Fit", bound=Callable[..., Any])


@dataclass(frozen=True)
class Event:
    """One step of a phase of a fit: "tuning", "selection", "size", "learners", "polish", "evidence", "EM", "members", …

    `total` is the number of steps expected in this phase and `left` its remaining seconds, or None if unknown;
    `seconds` have passed since the fit began. `state` is what the phase works on, such as the model grown so far, or
    None. `rows_per_second` counts rows read from a file or copied to a GPU since the phase began, or is None. `loss` is
    the loss on validation rows after this step, or of this candidate, and `best` the least one so far; both are None
    where no rows are held out. A step of the selection proposes several candidates, each of which is an event.

    >>> print(Event("learners", 3, 10, 1.5, 3.5, loss=0.25, best=0.25))
    learners: step 3 of 10 after 1.5 s, validation loss 0.25, best 0.25, 3.5 s to go
    """

    phase: str
    step: int
    total: int | None
    seconds: float
    left: float | None
    state: Any = None
    rows_per_second: float | None = None
    loss: float | None = None
    best: float | None = None

    def __str__(self) -> str:
        of = "" if self.total is None else f" of {self.total}"
        return f"{self.phase}: step {self.step}{of} after {self.seconds:.1f} s" + "".join(
            f", {detail}" for detail in self.details()
        )

    def details(self) -> list[str]:
        """Rows a second, validation loss and seconds to go, where they are known."""
        rate = None if self.rows_per_second is None else f"{self.rows_per_second:.3g} rows/s"
        loss = None if self.loss is None else f"validation loss {self.loss:.4g}"
        best = None if self.best is None else f"best {self.best:.4g}"
        left = None if self.left is None else f"{self.left:.1f} s to go"
        return [detail for detail in (rate, loss, best, left) if detail is not None]


@dataclass(frozen=True)
class ValidationLoss:
    """The loss on validation rows now, and the least one so far."""

    now: float
    best: float


class Progress:
    """Counts the steps of each phase and passes them to a bar, the logger and callbacks."""

    def __init__(self, callbacks: tuple[Callable[[Event], Any], ...], bar: Any = None, budget: float | None = None):
        self.callbacks = callbacks
        self.bar = bar
        self.budget = budget
        self.began = time.perf_counter()
        self.phase = ""
        self.phase_began = self.began
        self.first_step = 0  # of the phase
        self.steps: Counter[str] = Counter()
        self.expected: Counter[str] = Counter()  # steps of phases that several searches share
        self.rows = 0  # read since the phase began
        self.lock = RLock()  # work may run in parallel, callbacks run one after the other

    def report_step(
        self,
        phase: str,
        total: int | None = None,
        state: Any = None,
        step: int | None = None,
        loss: ValidationLoss | None = None,
    ) -> bool:
        """Report a step of a phase; returns whether a callback asks to end the fit."""
        with self.lock:
            now = time.perf_counter()
            self.steps[phase] = self.steps[phase] + 1 if step is None else step
            total = total or self.expected[phase] or None
            if phase != self.phase:
                self._begin(phase, now)
            seconds = now - self.phase_began
            rate = self.rows / seconds if self.rows and seconds > 0 else None
            left = self._seconds_left(phase, total, now)
            event = Event(phase, self.steps[phase], total, now - self.began, left, state, rate)
            if loss is not None:
                event = replace(event, loss=loss.now, best=loss.best)
            LOGGER.debug("%s", event)
            if self.bar is not None:
                self._show(event)
            stops = [bool(callback(event)) for callback in self.callbacks]  # every callback is called
            return any(stops)

    def _begin(self, phase: str, now: float) -> None:
        self.phase = phase
        self.phase_began = now
        self.first_step = self.steps[phase]
        self.rows = 0
        LOGGER.info("%s begins after %.1f s", phase, now - self.began)

    def _show(self, event: Event) -> None:
        """Update the bar."""
        self.bar.set_description_str(event.phase, refresh=False)
        self.bar.total = event.total
        self.bar.n = event.step
        self.bar.set_postfix_str(", ".join(event.details()), refresh=False)
        self.bar.refresh()

    def _seconds_left(self, phase: str, total: int | None, now: float) -> float | None:
        """Remaining seconds of a phase, from the mean duration of its steps; at most those of the budget."""
        step = self.steps[phase]
        budget = None if self.budget is None else max(self.began + self.budget - now, 0.0)
        if total is None or total < step or self.first_step == step < total:  # the first step was not timed
            return budget
        left = (now - self.phase_began) / max(step - self.first_step, 1) * (total - step)
        return left if budget is None else min(left, budget)


_CURRENT: ContextVar[Progress | None] = ContextVar("progress of the fit that runs", default=None)


def current() -> Progress | None:
    """Return the progress of the fit that runs here, or None; a thread that a fit starts has to be given it."""
    return _CURRENT.get()


def report_step(
    phase: str,
    total: int | None = None,
    state: Any = None,
    step: int | None = None,
    loss: ValidationLoss | None = None,
) -> bool:
    """Report a step of a phase; returns whether a callback asks to end the fit, which not every phase can.

    >>> from mercer.progress import report_step
    >>> report_step("tuning")
    False
    """
    progress = _CURRENT.get()
    return progress is not None and progress.report_step(phase, total, state, step, loss)


def report_candidate(phase: str, state: Any, loss: ValidationLoss) -> None:
    """Report a candidate within the step of a phase that comes next."""
    progress = _CURRENT.get()
    if progress is not None:
        progress.report_step(phase, None, state, progress.steps[phase], loss)


def expect_steps(phase: str, n: int) -> None:
    """Announce `n` further steps of a phase, which searches that run at the same time may share."""
    progress = _CURRENT.get()
    if progress is not None:
        progress.expected[phase] += n


@contextmanager
def without_progress() -> Iterator[None]:
    """Report no steps inside this context: refits that calibrate a model are not steps of its fit."""
    token = _CURRENT.set(None)
    try:
        yield
    finally:
        _CURRENT.reset(token)


def count_rows(n_rows: int) -> None:
    """Count rows that were read from a file or another memory."""
    progress = _CURRENT.get()
    if progress is not None:
        progress.rows += n_rows


def step_callbacks(
    phase: str,
    total: int | None = None,
    step: Callable[[Any], int] | None = None,
    loss: Callable[[Any], ValidationLoss | None] | None = None,
) -> tuple[Any, ...]:
    """Functions that an algorithm calls with its state after each step; none where nobody receives events."""
    progress = _CURRENT.get()
    if progress is None:
        return ()

    def report(state: Any) -> bool:
        at, found = None if step is None else step(state), None if loss is None else loss(state)
        return progress.report_step(phase, total, state, at, found)

    return (report,)


def with_progress(fit: Fit) -> Fit:
    """Decorate `fit`: its phases go to the estimator's bar (`verbose`), `callbacks` and the logger "mercer"."""

    signature = inspect.signature(fit)

    @wraps(fit)
    def run(self: Any, *args: Any, **options: Any) -> Any:
        try:
            signature.bind(self, *args, **options)
        except TypeError as error:  # name the estimator, not the class that defines `fit`
            raise TypeError(f"{type(self).__name__}.fit() {error}") from None
        given = self.callbacks
        callbacks = (given,) if callable(given) else tuple(given) if isinstance(given, Iterable) else ()
        tasks = FitTasks(self) if FitTasks.wanted(self) else None
        logs = current() is None and LOGGER.isEnabledFor(logging.INFO)
        reports = bool(callbacks) or bool(self.verbose) or logs or tasks is not None
        if not reports or not all(map(callable, callbacks)):  # `fit` itself refuses what cannot be called
            return fit(self, *args, **options)
        bar = _bar(type(self).__name__) if self.verbose else None
        budget = self.time_budget if isinstance(self.time_budget, int | float) else None
        token = _CURRENT.set(Progress(callbacks if tasks is None else (*callbacks, tasks), bar, budget))
        try:
            if tasks is None:
                return fit(self, *args, **options)
            return tasks.run(lambda: fit(self, *args, **options))
        finally:
            _CURRENT.reset(token)
            if bar is not None:
                bar.close()

    return cast(Fit, run)


class FitTasks:
    """Tasks of a fit for scikit-learn's callbacks: each phase is a task of the fit, and each step one of its phase."""

    def __init__(self, estimator: Any):
        self.estimator = estimator
        self.root: Any = None
        self.phase: Any = None
        self.steps = 0

    @staticmethod
    def wanted(estimator: Any) -> bool:
        """Whether an estimator has callbacks of scikit-learn 1.9, or is inside another one that has."""
        known = hasattr(estimator, "_skl_callbacks") or hasattr(estimator, "_parent_callback_ctx")
        return known and hasattr(estimator, "set_callbacks")

    def run(self, fit: Callable[[], Any]) -> Any:
        """Call `fit` between the beginning and the end of the task."""
        from sklearn.callback._callback_support import callback_management_context

        with callback_management_context(self.estimator):
            self.root = self.estimator._init_callback_context(max_subtasks=None)
            self.root.call_on_fit_task_begin(estimator=self.estimator)
            fitted = fit()
            self._end_phase()
            self.root.call_on_fit_task_end(estimator=self.estimator, reconstruction_attributes={})
            return fitted

    def __call__(self, event: Event) -> bool:
        if self.phase is None or self.phase.task_name != event.phase:
            self._end_phase()
            self.phase = self.root.subcontext(task_name=event.phase, max_subtasks=None)
            self.phase.call_on_fit_task_begin(estimator=self.estimator)
            self.steps = 0
        if event.step <= self.steps:  # a candidate of the same step
            return False
        self.steps = event.step
        step = self.phase.subcontext(task_name=f"{event.phase} step")
        step.call_on_fit_task_begin(estimator=self.estimator)
        return bool(step.call_on_fit_task_end(estimator=self.estimator))

    def _end_phase(self) -> None:
        if self.phase is not None:
            self.phase.call_on_fit_task_end(estimator=self.estimator)


def _bar(name: str) -> Any:
    from tqdm.auto import tqdm

    return tqdm(desc=name, unit="", bar_format="{desc}: {n_fmt}/{total_fmt} [{elapsed}]{postfix}")

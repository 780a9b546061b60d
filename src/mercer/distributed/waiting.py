"""Waiting for the workers of a Dask cluster, which has an end: each error names those that were waited for."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

from mercer.distributed.group import GRACE, LostProcessError
from mercer.distributed.partitions import Spooled, forget

#: Seconds between two looks at the workers of a fit.
LOOK = 0.5
#: How names of tasks begin that fit.
FIT = "mercer-fit"


@dataclass
class Patience:
    """Says when workers, or all of them, have done nothing for `timeout` seconds.

    Where `fits`, a fit at work counts as something, however long it takes: it has an end of its own.
    """

    client: Any
    timeout: float
    workers: Sequence[str] | None = None
    fits: bool = True
    last: Any = None
    since: float = field(default_factory=time.monotonic)

    def over(self, state: Any = None) -> bool:
        """Whether neither `state` nor the tasks that the workers have changed for so long."""
        tasks = {str(task) for each in self.client.processing(self.workers).values() for task in each}
        if (tasks, state) != self.last or (self.fits and any(task.startswith(FIT) for task in tasks)):
            self.last, self.since = (tasks, state), time.monotonic()
        return time.monotonic() - self.since > self.timeout


def written(client: Any, futures: list[Any], timeout: float) -> list[Spooled]:
    """Where each partition was written, in their order; an error where no task ends in so many seconds.

    While another fit has the workers, this one waits for it, however long that takes.
    """
    patience = Patience(client, timeout)
    try:
        while (left := _pending(futures)) and not any(one.status == "error" for one in futures):
            if patience.over(len(left)):
                raise _stalled(client, left, len(futures), timeout)
            _settle(futures, LOOK)
        try:
            made = client.sync(lambda: client.gather(futures, asynchronous=True), callback_timeout=timeout)
        except TimeoutError as error:
            raise _stalled(client, futures, len(futures), timeout) from error
        return [replace(one, place=place) for place, one in enumerate(made)]
    finally:
        client.cancel(futures)  # or a worker that is lost later would have its partitions written once more


def _stalled(client: Any, left: list[Any], n: int, timeout: float) -> Exception:
    """The error that names the workers which these partitions wait for; ranks they have none yet."""
    keys = {one.key for one in left}
    names = ", ".join(worker for worker, tasks in client.processing().items() if keys.intersection(tasks))
    return LostProcessError(
        f"no task ended for {timeout:g} s (timeout=), and {len(left)} of {n} partitions are not written; workers that "
        f"have them: {names or 'none, for the cluster has none that can take them'}",
        [],
    )


def _pending(futures: list[Any]) -> list[Any]:
    return [one for one in futures if one.status == "pending"]


@contextmanager
def alone_on(client: Any, workers: Sequence[str], timeout: float) -> Iterator[None]:
    """Two fits never share a worker: the second waits here until the first is done."""
    from distributed import MultiLock

    lock, patience = MultiLock([f"mercer-{worker}" for worker in workers], client=client), Patience(client, timeout)
    while not lock.acquire(timeout=LOOK):
        if patience.over():
            raise LostProcessError(
                f"another fit has kept the workers {', '.join(workers)} for itself, but for {timeout:g} s (timeout=) "
                "no task of it ran: its client was lost, and the cluster must be started again",
                [],
            )
    try:
        yield
    finally:
        lock.release()


def first_answer(client: Any, tasks: list[Any], workers: list[str], where: Any, timeout: float) -> Any:
    """The model of the first process; an error of any ends all, and one that is no mere consequence is told first.

    The first process begins by setting the variable `where`. Once it has, processes wait for each other with an end of
    their own; before, nobody but this function knows that they should be there.
    """
    from distributed import wait

    begun, patience = False, Patience(client, timeout, workers, fits=False)
    try:
        while not all(task.done() for task in tasks):
            present = client.nthreads()  # `scheduler_info` may be emptied by the client's own thread meanwhile
            gone = [rank for rank, worker in enumerate(workers) if worker not in present]
            if gone and not all(tasks[rank].done() for rank in gone):
                raise LostProcessError(
                    f"workers left the cluster during the fit; their ranks: {_of(gone, workers)}", gone
                )
            if any(task.status == "error" for task in tasks):
                _settle(tasks, GRACE + 2)
                break
            begun = begun or _is_set(where)
            if not begun and patience.over():
                raise _late(client, workers, timeout)
            _settle(tasks, LOOK)
        errors = [task.exception() for task in tasks if task.status == "error"]
        for error in sorted(errors, key=lambda one: isinstance(one, LostProcessError)):
            if isinstance(error, LostProcessError) and error.ranks:
                raise LostProcessError(
                    f"{error} Ranks and workers: {_of(error.ranks, workers)}.", error.ranks
                ) from error
            raise error
        wait(tasks)
        return tasks[0].result()
    finally:
        client.cancel(tasks, force=True)
        where.delete()


def cleared(client: Any, key: str) -> None:
    """Partitions of a fit that failed are deleted, where their workers listen: tasks that never began left them."""
    with suppress(TimeoutError, OSError):
        client.sync(lambda: client.run(forget, key, on_error="ignore", asynchronous=True), callback_timeout=10 * LOOK)


def _of(ranks: Sequence[int], workers: Sequence[str]) -> str:
    return ", ".join(f"{rank} ({workers[rank]})" for rank in ranks)


def _is_set(variable: Any) -> bool:
    try:
        variable.get(timeout=LOOK)
    except TimeoutError:
        return False
    return True


def _late(client: Any, workers: Sequence[str], timeout: float) -> Exception:
    """The error that names workers which do not begin: those that are paused, or the first one's."""
    told = client.scheduler_info().get("workers", {})
    state = {worker: told.get(worker, {}).get("status", "unknown") for worker in workers}
    late = [rank for rank, worker in enumerate(workers) if state[worker] != "running"] or [0]
    names = ", ".join(f"{rank} ({workers[rank]}, {state[workers[rank]]})" for rank in late)
    return LostProcessError(
        f"the fit did not begin in {timeout:g} s (timeout=); ranks whose workers take no task: {names}. A worker that "
        "is paused holds more than four fifths of its memory.",
        late,
    )


def _settle(tasks: list[Any], seconds: float) -> None:
    """Wait until all tasks have ended, or for so long."""
    from distributed import wait

    try:
        wait(tasks, timeout=seconds)
    except TimeoutError:
        return

"""Wait for the workers of a Dask cluster, with a timeout: each error names the workers that did not answer."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

from mercer.distributed.group import GRACE, LostProcessError
from mercer.distributed.partitions import Spooled, delete_partitions

#: Seconds between two polls of the workers of a fit.
POLL_SECONDS = 0.5
#: Prefix of the names of tasks that fit.
FIT = "mercer-fit"


@dataclass
class StallDetector:
    """Detects that these workers, or all of them, have done nothing for `timeout` seconds.

    With `fits`, a running fit counts as progress, however long it takes: it has a timeout of its own.
    """

    client: Any
    timeout: float
    workers: Sequence[str] | None = None
    fits: bool = True
    last: Any = None
    since: float = field(default_factory=time.monotonic)

    def stalled(self, state: Any = None) -> bool:
        """Whether neither `state` nor the tasks of the workers have changed for so long."""
        tasks = {str(task) for each in self.client.processing(self.workers).values() for task in each}
        if (tasks, state) != self.last or (self.fits and any(task.startswith(FIT) for task in tasks)):
            self.last, self.since = (tasks, state), time.monotonic()
        return time.monotonic() - self.since > self.timeout


def wait_for_partitions(client: Any, futures: list[Any], timeout: float) -> list[Spooled]:
    """Wait until all partitions are written; an error if no task ends within `timeout` seconds.

    While another fit has the workers, this one waits for it, however long that takes.
    """
    detector = StallDetector(client, timeout)
    try:
        while (left := _pending(futures)) and not any(future.status == "error" for future in futures):
            if detector.stalled(len(left)):
                raise _stalled(client, left, len(futures), timeout)
            _wait(futures, POLL_SECONDS)
        try:
            made = client.sync(lambda: client.gather(futures, asynchronous=True), callback_timeout=timeout)
        except TimeoutError as error:
            raise _stalled(client, futures, len(futures), timeout) from error
        return [replace(spooled, position=position) for position, spooled in enumerate(made)]
    finally:
        client.cancel(futures)  # or Dask would compute the partitions of a worker that is lost later again


def _stalled(client: Any, left: list[Any], n: int, timeout: float) -> Exception:
    """Return the error that names the workers of these partitions; they have no ranks yet."""
    keys = {future.key for future in left}
    names = ", ".join(worker for worker, tasks in client.processing().items() if keys.intersection(tasks))
    return LostProcessError(
        f"no task ended for {timeout:g} s (timeout=), and {len(left)} of {n} partitions are not written; workers that "
        f"have them: {names or 'none, for the cluster has none that can take them'}",
        [],
    )


def _pending(futures: list[Any]) -> list[Any]:
    return [future for future in futures if future.status == "pending"]


@contextmanager
def exclusive_workers(client: Any, workers: Sequence[str], timeout: float) -> Iterator[None]:
    """Reserve workers for a fit; a second fit waits here until the first is done."""
    from distributed import MultiLock

    lock = MultiLock([f"mercer-{worker}" for worker in workers], client=client)
    detector = StallDetector(client, timeout)
    while not lock.acquire(timeout=POLL_SECONDS):
        if detector.stalled():
            raise LostProcessError(
                f"another fit has kept the workers {', '.join(workers)} for itself, but for {timeout:g} s (timeout=) "
                "no task of it ran: its client was lost, and the cluster must be started again",
                [],
            )
    try:
        yield
    finally:
        lock.release()


def wait_for_model(client: Any, tasks: list[Any], workers: list[str], address: Any, timeout: float) -> Any:
    """Return the model of the first process; an error of any process ends all, and its cause is raised first.

    The first process begins by setting the variable `address`. From then on the processes wait for each other with
    their own timeout; before, only this function notices a process that does not begin.
    """
    from distributed import wait

    begun = False
    detector = StallDetector(client, timeout, workers, fits=False)
    try:
        while not all(task.done() for task in tasks):
            present = client.nthreads()  # `scheduler_info` may be empty for a moment
            gone = [rank for rank, worker in enumerate(workers) if worker not in present]
            if gone and not all(tasks[rank].done() for rank in gone):
                raise LostProcessError(
                    f"workers left the cluster during the fit; their ranks: {_names(gone, workers)}", gone
                )
            if any(task.status == "error" for task in tasks):
                _wait(tasks, GRACE + 2)
                break
            begun = begun or _is_set(address)
            if not begun and detector.stalled():
                raise _late(client, workers, timeout)
            _wait(tasks, POLL_SECONDS)
        errors = [task.exception() for task in tasks if task.status == "error"]
        for error in sorted(errors, key=lambda error: isinstance(error, LostProcessError)):
            if isinstance(error, LostProcessError) and error.ranks:
                raise LostProcessError(
                    f"{error} Ranks and workers: {_names(error.ranks, workers)}.", error.ranks
                ) from error
            raise error
        wait(tasks)
        return tasks[0].result()
    finally:
        client.cancel(tasks, force=True)
        address.delete()


def clean_up(client: Any, key: str) -> None:
    """Delete the partitions of a failed fit on the workers that answer: tasks that never began left them."""
    with suppress(TimeoutError, OSError):
        client.sync(
            lambda: client.run(delete_partitions, key, on_error="ignore", asynchronous=True),
            callback_timeout=10 * POLL_SECONDS,
        )


def _names(ranks: Sequence[int], workers: Sequence[str]) -> str:
    return ", ".join(f"{rank} ({workers[rank]})" for rank in ranks)


def _is_set(variable: Any) -> bool:
    try:
        variable.get(timeout=POLL_SECONDS)
    except TimeoutError:
        return False
    return True


def _late(client: Any, workers: Sequence[str], timeout: float) -> Exception:
    """Return the error that names the workers that do not begin: paused ones, or the first."""
    known = client.scheduler_info().get("workers", {})
    state = {worker: known.get(worker, {}).get("status", "unknown") for worker in workers}
    late = [rank for rank, worker in enumerate(workers) if state[worker] != "running"] or [0]
    names = ", ".join(f"{rank} ({workers[rank]}, {state[workers[rank]]})" for rank in late)
    return LostProcessError(
        f"the fit did not begin in {timeout:g} s (timeout=); ranks whose workers take no task: {names}. A worker that "
        "is paused holds more than four fifths of its memory.",
        late,
    )


def _wait(tasks: list[Any], seconds: float) -> None:
    """Wait until all tasks have ended, at most so many seconds."""
    from distributed import wait

    try:
        wait(tasks, timeout=seconds)
    except TimeoutError:
        return

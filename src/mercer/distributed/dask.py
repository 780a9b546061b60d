"""Estimators for Dask: fit where the partitions of a collection are, predict lazily.

A fit has two stages. First an ordinary task writes every partition to the disk of the worker that computes it: nothing
is concatenated or sent through the scheduler, and a table may exceed the memory of all workers. Then one long task on
each worker that has such files joins a group (`mercer.distributed.group`) and runs the fit of the plain estimator on
its rows. Workers without partitions are not used. Every wait has a timeout, and an error names workers that did not
answer.
"""

from __future__ import annotations

import secrets
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any, Self

from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted

from mercer.base.estimator import estimator_dataclass, keep
from mercer.distributed.group import GRACE, LostProcessError
from mercer.distributed.launch import TIMEOUT
from mercer.distributed.partitions import (
    Spooled,
    delete_partitions,
    each_partition,
    fit_partitions,
    release_arrow_memory,
    spool,
    with_worker_memory,
)
from mercer.forward.boosting import KernelBoostingClassifier, KernelBoostingRegressor
from mercer.gp.regressor import SparseGPRegressor
from mercer.mixture.densities import GaussianMixtureClassifier
from mercer.parts import require

#: Seconds between two polls of the workers of a fit.
POLL_SECONDS = 0.5
#: Prefix of the names of tasks that fit.
FIT = "mercer-fit"


@dataclass(eq=False, repr=False, kw_only=True)
class DaskMixin:
    """Run a plain estimator on the workers of a Dask client.

    Parameters
    ----------
    client : distributed.Client or None, default None
        The cluster; None takes the current client. It is not pickled with the estimator.
    timeout : float, default 600
        Seconds after which the fit ends because a worker does not answer, no task finishes while partitions are
        written, or workers do not begin to fit.
    """

    client: Any = None
    timeout: float = TIMEOUT

    @property
    def client_(self) -> Any:
        """The client in use."""
        from distributed import default_client

        return default_client() if self.client is None else self.client

    def __getstate__(self) -> dict[str, Any]:
        state: Any = super().__getstate__()
        return {**state, "client": None}

    def to_local(self) -> Any:
        """Return the plain estimator with the same parameters, and the same model if fitted."""
        plain: Any = next(kind for kind in type(self).__mro__ if not issubclass(kind, DaskMixin))
        local = plain(**{name: getattr(self, name) for name in plain().get_params(deep=False)})
        attributes: dict[str, Any] = vars(self)
        return keep(local, **{name: attributes[name] for name in attributes.get("_kept", ())})

    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        X_val: Any = None,
        y_val: Any = None,
        groups: Any = None,
        time_order: Any = None,
        gap: Any = None,
        exposure: Any = None,
    ) -> Self:
        """Fit to a Dask dataframe or array `X` with targets `y` in a Dask series or array of the same partitions."""
        given = {"groups": groups, "time_order": time_order, "gap": gap, "exposure": exposure}
        for name, value in given.items():
            require(value is None, name, "None on Dask, whose workers divide the rows", type(value))
        require(y is not None, "y", "given: a Dask series or array", None)
        require(X_val is None and y_val is None, "X_val", "None on Dask; use validation_fraction", type(X_val))
        client, key = self.client_, uuid.uuid4().hex
        partitions = each_partition(spool, X, y, sample_weight, key)
        try:
            model = self._fit_on_workers(client, key, client.compute(partitions))
        except BaseException:
            clean_up(client, key)
            raise
        return keep(self, **{name: vars(model)[name] for name in vars(model)["_kept"]})

    def _fit_on_workers(self, client: Any, key: str, partitions: list[Any]) -> Any:
        """Fit the model on the workers together, each to the partitions that it has written."""
        from distributed import Variable

        spooled = wait_for_partitions(client, partitions, self.timeout)
        secret = secrets.token_bytes(32)
        workers = list(dict.fromkeys(partition.worker for partition in spooled))
        with exclusive_workers(client, workers, self.timeout):
            tasks = [
                client.submit(
                    fit_partitions,
                    self.to_local(),
                    [partition for partition in spooled if partition.worker == worker],
                    rank,
                    len(workers),
                    key,
                    secret,
                    self.timeout,
                    workers=[worker],
                    key=f"{FIT}-{key}-{rank}",
                    allow_other_workers=False,
                    pure=False,
                )
                for rank, worker in enumerate(workers)
            ]
            address = Variable(f"mercer-{key}", client=client)
            return wait_for_model(client, tasks, workers, address, self.timeout)

    def _lazily(self, method: str, X: Any, columns: Any = None) -> Any:
        """Apply a method of the model to `X`; a Dask collection gives a lazy one of the same kind."""
        check_is_fitted(self)
        local = self.to_local()
        if not hasattr(X, "to_delayed"):
            return getattr(local, method)(X)
        from dask import delayed

        model = delayed(local, pure=True, traverse=False)  # sent once to each worker, not with every task
        if hasattr(X, "map_partitions"):
            return X.map_partitions(_predict_frame, model, method, columns, meta=_meta(local, method, columns))
        X = X.rechunk({1: -1})
        none = _meta(local, method, columns).to_numpy()
        shape: dict[str, Any] = {"drop_axis": 1} if columns is None else {"chunks": (X.chunks[0], (len(columns),))}
        return X.map_blocks(_predict_block, model, method, dtype=none.dtype, meta=none, **shape)

    def predict(self, X: Any, *args: Any, **options: Any) -> Any:
        """Predict targets, lazily: a Dask array for an array, a series for a dataframe, else as `to_local()` does."""
        if not (args or options):
            return self._lazily("predict", X)
        require(
            not hasattr(X, "to_delayed"), "X", "no Dask collection where more than predictions is asked for", type(X)
        )
        return self.to_local().predict(X, *args, **options)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the score of the plain estimator; Dask collections are computed."""
        from dask.base import compute

        return self.to_local().score(*compute(X, y), *(() if sample_weight is None else (sample_weight,)))


class DaskClassifierMixin(DaskMixin):
    """Run a plain classifier on the workers of a Dask client."""

    classes_: Any

    def predict_proba(self, X: Any) -> Any:
        """Predict class probabilities, lazily; for a dataframe a dataframe whose columns are named as the classes."""
        return self._lazily("predict_proba", X, [str(label) for label in self.classes_])


@estimator_dataclass
class DaskKernelBoostingRegressor(DaskMixin, KernelBoostingRegressor):
    """`KernelBoostingRegressor` on the workers of a Dask cluster."""


@estimator_dataclass
class DaskKernelBoostingClassifier(DaskClassifierMixin, KernelBoostingClassifier):
    """`KernelBoostingClassifier` on the workers of a Dask cluster."""


@estimator_dataclass
class DaskGaussianMixtureClassifier(DaskClassifierMixin, GaussianMixtureClassifier):
    """`GaussianMixtureClassifier` on the workers of a Dask cluster."""


@estimator_dataclass
class DaskSparseGPRegressor(DaskMixin, SparseGPRegressor):
    """`SparseGPRegressor` on the workers of a Dask cluster.

    `to_local()` also predicts standard deviations and draws samples.
    """


def _predict_block(block: Any, model: Any, method: str) -> Any:
    return getattr(with_worker_memory(model), method)(block)


def _predict_frame(frame: Any, model: Any, method: str, columns: Any) -> Any:
    import pandas as pd

    release_arrow_memory()
    if not len(frame):
        return _meta(model, method, columns)
    found = getattr(with_worker_memory(model), method)(frame)
    return pd.Series(found, index=frame.index) if columns is None else pd.DataFrame(found, frame.index, columns)


def _meta(model: Any, method: str, columns: Any) -> Any:
    """Return an empty frame or series of the type that a method of this model returns."""
    import numpy as np
    import pandas as pd

    if columns is not None:
        return pd.DataFrame({name: np.empty(0) for name in columns})
    classes = method == "predict" and not isinstance(model, RegressorMixin)
    return pd.Series(np.empty(0, dtype=model.classes_.dtype if classes else np.float64))


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

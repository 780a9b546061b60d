"""Estimators for Dask: fit where the partitions of a collection are, predict lazily.

A fit has two stages. First an ordinary task writes every partition to the disk of the worker that computes it: nothing
is concatenated or sent through the scheduler, and a table may exceed the memory of all workers. Then one long task on
each worker that has such files joins a group (`mercer.distributed.group`) and runs the fit of the plain estimator on
its rows. Workers without partitions are not used.
"""

from __future__ import annotations

import secrets
import uuid
from dataclasses import dataclass
from typing import Any, Self

from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted

from mercer.base.estimator import estimator_dataclass, keep
from mercer.distributed.launch import TIMEOUT
from mercer.distributed.partitions import (
    each_partition,
    fit_partitions,
    release_arrow_memory,
    spool,
    with_worker_memory,
)
from mercer.distributed.waiting import FIT, clean_up, exclusive_workers, wait_for_model, wait_for_partitions
from mercer.forward.boosting import KernelBoostingClassifier, KernelBoostingRegressor
from mercer.gp.regressor import SparseGPRegressor
from mercer.mixture.densities import GaussianMixtureClassifier
from mercer.parts import require


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
    ) -> Self:
        """Fit to a Dask dataframe or array `X` with targets `y` in a Dask series or array of the same partitions."""
        for name, value in (("groups", groups), ("time_order", time_order), ("gap", gap)):
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

"""Dask faces: fit where the partitions of a collection lie, predict lazily.

A fit has two stages. First every partition becomes a file on the disk of the worker that computes it, by an ordinary
task: nothing is put together, nothing passes the scheduler, and a table may be larger than the memory of all workers.
Then one long task on each worker that has such files joins a group (`mercer.distributed.group`) and runs the fit of the
plain estimator on its own rows. Workers without partitions are left alone.
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
from mercer.distributed.partitions import each_partition, fit_parts, give_back, spool, within_worker
from mercer.distributed.waiting import FIT, alone_on, cleared, first_answer, written
from mercer.forward.boosting import KernelBoostingClassifier, KernelBoostingRegressor
from mercer.gp.regressor import SparseGPRegressor
from mercer.mixture.densities import GaussianMixtureClassifier
from mercer.parts import require


@dataclass(eq=False, repr=False, kw_only=True)
class OnDask:
    """What a plain estimator needs to run on the workers of a Dask client.

    Parameters
    ----------
    client : distributed.Client or None, default None
        The cluster; None takes the client that is current. It is left out when the estimator is pickled.
    timeout : float, default 600
        Seconds after which a worker that does not answer ends the fit, and so do workers that finish no task while
        partitions are written, or do not begin to fit.
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
        """The plain estimator with the same parameters, and the same model where there is one."""
        own: Any = self
        plain: Any = next(kind for kind in type(self).__mro__ if not issubclass(kind, OnDask))
        local = plain(**{name: getattr(self, name) for name in plain().get_params(deep=False)})
        return keep(local, **{name: vars(own)[name] for name in vars(own).get("_kept", ())})

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, *, X_val: Any = None, y_val: Any = None) -> Self:
        """Fit to a Dask dataframe or array `X` with targets `y` in a Dask series or array, of the same partitions."""
        require(y is not None, "y", "given: a Dask series or array", None)
        require(X_val is None and y_val is None, "X_val", "None on Dask; use validation_fraction", type(X_val))
        client, key = self.client_, uuid.uuid4().hex
        partitions = each_partition(spool, X, y, sample_weight, key)
        try:
            model = self._on_workers(client, key, client.compute(partitions))
        except BaseException:
            cleared(client, key)
            raise
        return keep(self, **{name: vars(model)[name] for name in vars(model)["_kept"]})

    def _on_workers(self, client: Any, key: str, partitions: list[Any]) -> Any:
        """The model that workers find together, each from the partitions that it has written."""
        from distributed import Variable

        found, secret = written(client, partitions, self.timeout), secrets.token_bytes(32)
        workers = list(dict.fromkeys(one.worker for one in found))
        with alone_on(client, workers, self.timeout):
            tasks = [
                client.submit(
                    fit_parts,
                    self.to_local(),
                    [one for one in found if one.worker == worker],
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
            return first_answer(client, tasks, workers, Variable(f"mercer-{key}", client=client), self.timeout)

    def _lazily(self, method: str, X: Any, columns: Any = None) -> Any:
        """What a method of the model says of `X`: of a Dask collection another one, of the same kind."""
        check_is_fitted(self)
        local = self.to_local()
        if not hasattr(X, "to_delayed"):
            return getattr(local, method)(X)
        from dask import delayed

        model = delayed(local, pure=True, traverse=False)  # sent to each worker once, and not with every task
        if hasattr(X, "map_partitions"):
            return X.map_partitions(_said_of_frame, model, method, columns, meta=_meta(local, method, columns))
        X = X.rechunk({1: -1})
        none = _meta(local, method, columns).to_numpy()
        shape: dict[str, Any] = {"drop_axis": 1} if columns is None else {"chunks": (X.chunks[0], (len(columns),))}
        return X.map_blocks(_said, model, method, dtype=none.dtype, meta=none, **shape)

    def predict(self, X: Any, *args: Any, **options: Any) -> Any:
        """Predicted targets, lazily: a Dask array of an array, a series of a dataframe, else as of `to_local()`."""
        if not (args or options):
            return self._lazily("predict", X)
        require(
            not hasattr(X, "to_delayed"), "X", "no Dask collection where more than predictions is asked for", type(X)
        )
        return self.to_local().predict(X, *args, **options)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The plain estimator's score; Dask collections are computed."""
        from dask.base import compute

        return self.to_local().score(*compute(X, y), *(() if sample_weight is None else (sample_weight,)))


class OnDaskClasses(OnDask):
    """The same for classifiers."""

    classes_: Any

    def predict_proba(self, X: Any) -> Any:
        """Class probabilities, lazily; of a dataframe another one, its columns named as the classes."""
        return self._lazily("predict_proba", X, [str(one) for one in self.classes_])


@estimator_dataclass
class DaskKernelBoostingRegressor(OnDask, KernelBoostingRegressor):
    """`KernelBoostingRegressor` on the workers of a Dask cluster."""


@estimator_dataclass
class DaskKernelBoostingClassifier(OnDaskClasses, KernelBoostingClassifier):
    """`KernelBoostingClassifier` on the workers of a Dask cluster."""


@estimator_dataclass
class DaskGaussianMixtureClassifier(OnDaskClasses, GaussianMixtureClassifier):
    """`GaussianMixtureClassifier` on the workers of a Dask cluster."""


@estimator_dataclass
class DaskSparseGPRegressor(OnDask, SparseGPRegressor):
    """`SparseGPRegressor` on the workers of a Dask cluster; `to_local()` also gives deviations and draws."""


def _said(block: Any, model: Any, method: str) -> Any:
    return getattr(within_worker(model), method)(block)


def _said_of_frame(frame: Any, model: Any, method: str, columns: Any) -> Any:
    import pandas as pd

    give_back()
    if not len(frame):
        return _meta(model, method, columns)
    said = getattr(within_worker(model), method)(frame)
    return pd.Series(said, index=frame.index) if columns is None else pd.DataFrame(said, frame.index, columns)


def _meta(model: Any, method: str, columns: Any) -> Any:
    """An empty frame or series of the type that a method of this model gives."""
    import numpy as np
    import pandas as pd

    if columns is not None:
        return pd.DataFrame({name: np.empty(0) for name in columns})
    classes = method == "predict" and not isinstance(model, RegressorMixin)
    return pd.Series(np.empty(0, dtype=model.classes_.dtype if classes else np.float64))

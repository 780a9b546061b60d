"""Partitions of a collection as files beside the worker that computed them, and the fit that workers run on their own.

These functions run inside workers. Only `fit_parts` knows about groups; the model it fits is a plain estimator.
"""

from __future__ import annotations

import shutil
import sys
import uuid
from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import numpy as np
from torch import Tensor

from mercer.data import RowSource
from mercer.data.arrays import as_tensor
from mercer.data.group import use_group
from mercer.distributed.group import LostProcessError, ProcessGroup, open_store, reach_store
from mercer.distributed.rows import OwnRows
from mercer.parts import require


@dataclass(frozen=True)
class Spooled:
    """One partition on the disk of a worker: where, its rows and columns, and its place among all."""

    worker: str
    folder: str
    own: str
    n_rows: int
    n_columns: int
    dtype: str
    names: tuple[str, ...] | None
    place: int = -1


#: Bytes that are written at a time.
WRITTEN = 2**24
#: The share of the memory that a worker has left which a fit may plan with at most, and the least it plans with.
SHARE, LEAST = 0.5, 2**26


class SpooledRows(RowSource):
    """Rows of a partition on the disk, one after the other; blocks are read, since pages of a map count as memory."""

    def __init__(self, path: Path, n_rows: int, n_columns: int, dtype: str) -> None:
        self.path, self.n_rows, self.n_columns, self.dtype = path, n_rows, n_columns, dtype

    def blocks(self, size: int) -> Iterator[tuple[int, Tensor]]:
        with open(self.path, "rb") as file:
            for start in range(0, self.n_rows, size):
                n = min(size, self.n_rows - start)
                yield start, as_tensor(np.fromfile(file, self.dtype, n * self.n_columns).reshape(n, -1))

    def take(self, index: Any) -> Tensor:
        table = np.memmap(self.path, self.dtype, "r", shape=(self.n_rows, self.n_columns))
        return as_tensor(np.asarray(table[np.asarray(index)]))


def each_partition(function: Any, X: Any, y: Any, sample_weight: Any, *more: Any) -> list[Any]:
    """``function(rows, targets, weights or None, *more)`` of each partition, not computed yet.

    All three come out of one graph: inputs and targets that are columns of one frame are made once, not twice.
    """
    given = {"X": X, "y": y, **({} if sample_weight is None else {"sample_weight": sample_weight})}
    for name, one in given.items():
        require(hasattr(one, "to_delayed"), name, "a Dask dataframe, series or array", type(one).__name__)
    tabular = _tabular(X)
    if tabular:
        _require_numbers(X)
    X, *others = (_of_kind(one, tabular) for one in given.values())
    for name, one in zip(list(given)[1:], others, strict=True):
        n, wanted = (each.npartitions if tabular else each.numblocks[0] for each in (one, X))
        require(n == wanted, f"the partitions of {name}", f"the {wanted} of X", n)
    y, weight = (*others, None)[:2]
    return _of_frames(function, X, y, weight, *more) if tabular else _of_arrays(function, X, y, weight, *more)


def _require_numbers(frame: Any) -> None:
    """Refuse columns that the plain estimator would code: their levels are not known before all rows are read."""
    from pandas.api.types import is_numeric_dtype

    others = [str(name) for name, kind in frame.dtypes.items() if not is_numeric_dtype(kind)]
    require(not others, "X", "columns of numbers on Dask; text, categories and dates have to be coded first", others)


def _tabular(collection: Any) -> bool:
    return hasattr(collection, "map_partitions")


def _of_kind(collection: Any, tabular: bool) -> Any:
    """The collection as a frame or series, or as an array."""
    from dask.dataframe import from_dask_array

    if _tabular(collection) == tabular:
        return collection
    return from_dask_array(collection) if tabular else collection.to_dask_array()


def _of_frames(function: Any, *given: Any) -> list[Any]:
    import pandas as pd
    from dask.dataframe import map_partitions

    made = map_partitions(function, *given, meta=pd.Series(dtype=object), enforce_metadata=False)
    fused = made.optimize()
    if fused.npartitions != made.npartitions:  # Dask joins files of which few columns are read, not always alike
        fused = made.simplify()
    return list(fused.to_delayed(optimize_graph=False))


def _of_arrays(function: Any, *given: Any) -> list[Any]:
    from dask.array import blockwise

    axes = [
        None if getattr(one, "ndim", None) is None else (0, *range(k + 1, k + one.ndim)) for k, one in enumerate(given)
    ]
    pairs = [part for pair in zip(given, axes, strict=True) for part in pair]
    made = blockwise(
        function, (0,), *pairs, dtype=object, meta=np.empty(0, object), align_arrays=False, concatenate=True
    )
    return list(made.to_delayed())


def spool(X: Any, y: Any, weight: Any, key: str) -> Spooled:
    """Write one partition to the disk of this worker."""
    from distributed import get_worker

    give_back()
    worker, own = get_worker(), uuid.uuid4().hex
    folder = _folder(worker, key)
    folder.mkdir(parents=True, exist_ok=True)
    rows, names = np.asarray(X), getattr(X, "columns", None)
    if rows.dtype == object and names is not None:  # columns of several types, or with a mark for missing numbers
        rows = X.to_numpy(np.float64, na_value=np.nan)
    rows = rows if rows.dtype in (np.float32, np.float64) else rows.astype(np.float64)
    targets = np.asarray(y)
    targets = targets.astype(str) if targets.dtype == object else targets
    require(len(targets) == len(rows), "y in a partition", f"of the {len(rows)} rows of X", len(targets))
    write_rows(folder / f"X-{own}.rows", rows)
    for name, values in {"y": targets, **({} if weight is None else {"w": np.asarray(weight)})}.items():
        np.save(folder / f"{name}-{own}.npy", values, allow_pickle=False)
    columns = None if names is None else tuple(str(one) for one in names)
    return Spooled(worker.address, str(folder), own, rows.shape[0], rows.shape[1], rows.dtype.str, columns)


def forget(key: str, dask_worker: Any) -> None:
    """Delete the partitions of one fit that this worker still has."""
    shutil.rmtree(_folder(dask_worker, key), ignore_errors=True)


def _folder(worker: Any, key: str) -> Path:
    return Path(worker.local_directory) / f"mercer-{key}"


def write_rows(path: Path, rows: np.ndarray) -> None:
    """Row after row, whatever the order in memory: a frame keeps columns, of which one row would touch every page."""
    step = max(WRITTEN // max(rows.itemsize * rows.shape[1], 1), 1)
    with open(path, "wb") as file:
        for start in range(0, len(rows), step):
            np.ascontiguousarray(rows[start : start + step]).tofile(file)


def fit_parts(
    model: Any, parts: Sequence[Spooled], rank: int, size: int, key: str, secret: bytes, timeout: float
) -> Any:
    """Fit `model` to the partitions of this worker, together with those that run the same on theirs.

    They find each other at a store of the first one, and trust who has the `secret`.
    """
    from distributed import Variable, get_client, get_worker

    where, own = Variable(f"mercer-{key}", client=get_client()), None
    try:
        if rank == 0:
            host = urlparse(get_worker().address).hostname or "127.0.0.1"
            own = open_store(host, timeout)
            where.set((host, own.port))
        try:
            host, port = where.get(timeout=timeout)
        except TimeoutError as error:
            raise LostProcessError(
                f"process {rank} of {size} waited {timeout:g} s for the first to begin", [0]
            ) from error
        store = own if own is not None else reach_store(host, port, timeout)
        model = within_worker(model)
        with ProcessGroup(rank, size, store, timeout, secret=secret) as group, use_group(group):
            fitted = model.fit(*_table(parts))
            group.gather(rank)  # nobody leaves, nor does the store close, before all are done
        return fitted if rank == 0 else None
    finally:
        for folder in {part.folder for part in parts}:
            shutil.rmtree(folder, ignore_errors=True)


def give_back() -> None:
    """Free what Arrow keeps of tables that it has read: a worker above four fifths of its memory gets no more tasks."""
    if "pyarrow" in sys.modules:
        sys.modules["pyarrow"].default_memory_pool().release_unused()


def within_worker(model: Any) -> Any:
    """The model, planning with the memory that the worker it is on has left, unless it was given a limit."""
    from distributed import get_worker

    try:
        left = _memory_left(get_worker())
    except ValueError:  # a scheduler of threads, in this very process
        return model
    return model if model.memory_limit is not None or left is None else copy(model).set_params(memory_limit=left)


def _memory_left(worker: Any) -> int | None:
    """Bytes that a fit may plan with, where the worker has a limit."""
    limit = worker.memory_manager.memory_limit
    return planned_memory(limit, worker.monitor.get_process_memory()) if limit else None


def planned_memory(limit: int, used: int) -> int:
    """Bytes that a fit plans with on a worker of this limit that holds so many already.

    Some choices of a fit follow its memory, so that must not change with what a worker happens to hold: it is a quarter
    of the limit, or half of that, and so on, where a quarter is more than half of what is left.

    >>> planned_memory(4 * 2**30, 2**29) == planned_memory(4 * 2**30, 2 * 2**30) == 2**30
    True
    >>> planned_memory(4 * 2**30, 3 * 2**30) == 2**29
    True
    """
    planned = SHARE / 2 * limit
    while planned > max(SHARE * (limit - used), LEAST):
        planned /= 2
    return max(int(planned), LEAST)


def _table(parts: Sequence[Spooled]) -> tuple[OwnRows, np.ndarray, np.ndarray | None]:
    """Rows that stay on the disk, targets, and weights where there are any."""
    first = parts[0]
    sources = [SpooledRows(_file(part, "X"), part.n_rows, part.n_columns, part.dtype) for part in parts]
    rows = OwnRows(sources, [part.place for part in parts], first.n_columns, first.names)
    y = np.concatenate([np.load(_file(part, "y")) for part in parts])
    weighted = _file(first, "w").exists()
    return rows, y, np.concatenate([np.load(_file(part, "w")) for part in parts]) if weighted else None


def _file(part: Spooled, name: str) -> Path:
    return Path(part.folder) / f"{name}-{part.own}.{'rows' if name == 'X' else 'npy'}"

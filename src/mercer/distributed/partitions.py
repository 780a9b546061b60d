"""Partitions of a Dask collection as files of the worker that computed them, and the fit that workers run on them.

These functions run inside workers. Only `fit_partitions` uses a group; the model it fits is a plain estimator.
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
from mercer.data.shard import use_group
from mercer.data.source import as_tensor
from mercer.distributed.group import LostProcessError, ProcessGroup, open_store, reach_store
from mercer.distributed.rows import OwnRows
from mercer.parts import require


@dataclass(frozen=True)
class Spooled:
    """A partition on the disk of a worker, and its position among all partitions."""

    worker: str
    folder: str
    name: str  # of its files
    n_rows: int
    n_columns: int
    dtype: str
    columns: tuple[str, ...] | None
    position: int = -1

    def file(self, array: str) -> Path:
        """Return the path of an array: "X", "y" or "w"."""
        return Path(self.folder) / f"{array}-{self.name}.{'rows' if array == 'X' else 'npy'}"

    def rows(self) -> SpooledRows:
        return SpooledRows(self.file("X"), self.n_rows, self.n_columns, self.dtype)


#: Bytes that are written at a time.
WRITE_BYTES = 2**24
#: Largest share of a worker's free memory for a fit, and the fewest bytes.
MEMORY_SHARE, MIN_MEMORY = 0.5, 2**26


class SpooledRows(RowSource):
    """Rows of a partition on the disk; blocks are read, since pages of a memory map count as memory of the worker."""

    def __init__(self, path: Path, n_rows: int, n_columns: int, dtype: str) -> None:
        self.path = path
        self.n_rows = n_rows
        self.n_columns = n_columns
        self.dtype = dtype

    def blocks(self, size: int) -> Iterator[tuple[int, Tensor]]:
        with open(self.path, "rb") as file:
            for start in range(0, self.n_rows, size):
                n = min(size, self.n_rows - start)
                yield start, as_tensor(np.fromfile(file, self.dtype, n * self.n_columns).reshape(n, -1))

    def take(self, index: Any) -> Tensor:
        table = np.memmap(self.path, self.dtype, "r", shape=(self.n_rows, self.n_columns))
        return as_tensor(np.asarray(table[np.asarray(index)]))


def each_partition(function: Any, X: Any, y: Any, sample_weight: Any, *more: Any) -> list[Any]:
    """Delay ``function(rows, targets, weights or None, *more)`` for each partition.

    All three come from one graph: inputs and targets that are columns of one frame are computed once, not twice.
    """
    given = {"X": X, "y": y, **({} if sample_weight is None else {"sample_weight": sample_weight})}
    for name, collection in given.items():
        require(hasattr(collection, "to_delayed"), name, "a Dask dataframe, series or array", type(collection).__name__)
    tabular = _tabular(X)
    if tabular:
        _require_numbers(X)
    alike = {name: _of_kind(collection, tabular) for name, collection in given.items()}
    counts = {name: each.npartitions if tabular else each.numblocks[0] for name, each in alike.items()}
    for name, count in counts.items():
        require(count == counts["X"], f"the partitions of {name}", f"the {counts['X']} of X", count)
    map_each = _map_frames if tabular else _map_arrays
    return map_each(function, alike["X"], alike["y"], alike.get("sample_weight"), *more)


def _require_numbers(frame: Any) -> None:
    """Refuse columns that the plain estimator would encode: their levels are unknown before all rows are read."""
    from pandas.api.types import is_numeric_dtype

    others = [str(name) for name, kind in frame.dtypes.items() if not is_numeric_dtype(kind)]
    require(not others, "X", "columns of numbers on Dask; text, categories and dates have to be coded first", others)


def _tabular(collection: Any) -> bool:
    return hasattr(collection, "map_partitions")


def _of_kind(collection: Any, tabular: bool) -> Any:
    """Convert a collection to a frame or series, or to an array."""
    from dask.dataframe import from_dask_array

    if _tabular(collection) == tabular:
        return collection
    return from_dask_array(collection) if tabular else collection.to_dask_array()


def _map_frames(function: Any, *given: Any) -> list[Any]:
    import pandas as pd
    from dask.dataframe import map_partitions

    made = map_partitions(function, *given, meta=pd.Series(dtype=object), enforce_metadata=False)
    fused = made.optimize()
    if fused.npartitions != made.npartitions:  # Dask may merge files of which few columns are read
        fused = made.simplify()
    return list(fused.to_delayed(optimize_graph=False))


def _map_arrays(function: Any, *given: Any) -> list[Any]:
    from dask.array import blockwise

    pairs: list[Any] = []
    for k, argument in enumerate(given):
        n_axes = getattr(argument, "ndim", None)
        pairs += [argument, None if n_axes is None else (0, *range(k + 1, k + n_axes))]
    made = blockwise(
        function, (0,), *pairs, dtype=object, meta=np.empty(0, object), align_arrays=False, concatenate=True
    )
    return list(made.to_delayed())


def spool(X: Any, y: Any, weight: Any, key: str) -> Spooled:
    """Write one partition to the disk of this worker."""
    from distributed import get_worker

    release_arrow_memory()
    rows, names = np.asarray(X), getattr(X, "columns", None)
    if rows.dtype == object and names is not None:  # columns of several types, or with pandas' missing value
        rows = X.to_numpy(np.float64, na_value=np.nan)
    rows = rows if rows.dtype in (np.float32, np.float64) else rows.astype(np.float64)
    targets = np.asarray(y)
    targets = targets.astype(str) if targets.dtype == object else targets
    require(len(targets) == len(rows), "y in a partition", f"of the {len(rows)} rows of X", len(targets))
    worker = get_worker()
    folder = _folder(worker, key)
    folder.mkdir(parents=True, exist_ok=True)
    columns = None if names is None else tuple(map(str, names))
    name = uuid.uuid4().hex
    spooled = Spooled(worker.address, str(folder), name, rows.shape[0], rows.shape[1], rows.dtype.str, columns)
    write_rows(spooled.file("X"), rows)
    np.save(spooled.file("y"), targets, allow_pickle=False)
    if weight is not None:
        np.save(spooled.file("w"), np.asarray(weight), allow_pickle=False)
    return spooled


def delete_partitions(key: str, dask_worker: Any) -> None:
    """Delete the partitions of a fit that this worker still has."""
    shutil.rmtree(_folder(dask_worker, key), ignore_errors=True)


def _folder(worker: Any, key: str) -> Path:
    return Path(worker.local_directory) / f"mercer-{key}"


def write_rows(path: Path, rows: np.ndarray) -> None:
    """Write rows in row-major order, some at a time: a frame is column-major, and a single row touches every page."""
    step = max(WRITE_BYTES // max(rows.itemsize * rows.shape[1], 1), 1)
    with open(path, "wb") as file:
        for start in range(0, len(rows), step):
            np.ascontiguousarray(rows[start : start + step]).tofile(file)


def fit_partitions(
    model: Any, parts: Sequence[Spooled], rank: int, size: int, key: str, secret: bytes, timeout: float
) -> Any:
    """Fit `model` to the partitions of this worker, together with the workers that hold the others.

    They meet at a store of the first one, and accept messages signed with the `secret`.
    """
    from distributed import Variable, get_client, get_worker

    address = Variable(f"mercer-{key}", client=get_client())
    store = None
    try:
        if rank == 0:
            host = urlparse(get_worker().address).hostname or "127.0.0.1"
            store = open_store(host, timeout)
            address.set((host, store.port))
        try:
            host, port = address.get(timeout=timeout)
        except TimeoutError as error:
            raise LostProcessError(
                f"process {rank} of {size} waited {timeout:g} s for the first to begin", [0]
            ) from error
        store = reach_store(host, port, timeout) if store is None else store
        model = with_worker_memory(model)
        with ProcessGroup(rank, size, store, timeout, secret=secret) as group, use_group(group):
            fitted = model.fit(*_table(parts))
            group.gather(rank)  # the store must stay open until all are done
        return fitted if rank == 0 else None
    finally:
        for folder in {part.folder for part in parts}:
            shutil.rmtree(folder, ignore_errors=True)


def release_arrow_memory() -> None:
    """Free what Arrow caches of tables it has read: a worker above four fifths of its memory gets no more tasks."""
    if "pyarrow" in sys.modules:
        sys.modules["pyarrow"].default_memory_pool().release_unused()


def with_worker_memory(model: Any) -> Any:
    """Limit the model's memory to what the current worker can spare, unless the model has a limit already."""
    from distributed import get_worker

    try:
        worker = get_worker()
    except ValueError:  # a scheduler of threads, in this process
        return model
    limit = worker.memory_manager.memory_limit
    if model.memory_limit is not None or not limit:
        return model
    return copy(model).set_params(memory_limit=planned_memory(limit, worker.monitor.get_process_memory()))


def planned_memory(limit: int, used: int) -> int:
    """Return the memory limit of a fit on a worker with this limit that already uses `used` bytes.

    Choices of a fit depend on its memory limit, so it must not vary with the memory in use: it is a quarter of the
    worker's limit, halved as often as it exceeds half of the free memory.

    >>> planned_memory(4 * 2**30, 2**29) == planned_memory(4 * 2**30, 2 * 2**30) == 2**30
    True
    >>> planned_memory(4 * 2**30, 3 * 2**30) == 2**29
    True
    """
    planned = MEMORY_SHARE / 2 * limit
    while planned > max(MEMORY_SHARE * (limit - used), MIN_MEMORY):
        planned /= 2
    return max(int(planned), MIN_MEMORY)


def _table(parts: Sequence[Spooled]) -> tuple[OwnRows, np.ndarray, np.ndarray | None]:
    """Rows that stay on the disk, targets, and weights or None."""
    first = parts[0]
    rows = OwnRows([part.rows() for part in parts], [part.position for part in parts], first.n_columns, first.columns)
    weight = _concatenated(parts, "w") if first.file("w").exists() else None
    return rows, _concatenated(parts, "y"), weight


def _concatenated(parts: Sequence[Spooled], array: str) -> np.ndarray:
    return np.concatenate([np.load(part.file(array)) for part in parts])

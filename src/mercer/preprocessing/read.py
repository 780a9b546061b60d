"""Reading a user's table: whatever it comes in, it is checked the same way and becomes one record, `TableData`.

Nothing here touches the estimator: what a fit keeps about names and columns it keeps at its end.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from sklearn.base import clone

from mercer.data import ArrayRows, Group, RowSource, Shard, SparseRows, as_source
from mercer.data.duplicates import hashed, hashed_targets, holds_copies, rows_of
from mercer.data.group import ALONE
from mercer.parts import require
from mercer.preprocessing.columns import Layout, TableMap
from mercer.preprocessing.columns_fit import code_table
from mercer.preprocessing.columns_read import (
    Table,
    names_of,
    new_numbers_or_columns,
    numbers_or_columns,
    require_different,
)
from mercer.preprocessing.columns_targets import CrossFit, averaged_targets, row_hashes
from mercer.preprocessing.constant_columns import Constants, find_constants
from mercer.preprocessing.sources import FiniteRows, dense_or_sparse
from mercer.preprocessing.validate import checked_targets, checked_weights, host, require_same_order
from mercer.preprocessing.weights import class_weighted
from mercer.selection.kernel_choice import sees_any_column

#: Up to this many rows, a table is put into an order of its own: a weight of 2 then *is* the row twice.
MERGED_ROWS = 10_000
#: Rows whose medians stand for numbers that are missing in `predict` alone.
MEDIAN_ROWS = 1000


@dataclass(frozen=True)
class TableData:
    """A table as it came, checked: rows, targets, weights, names of the columns, and where each row stood."""

    rows: RowSource
    y: np.ndarray
    weight: np.ndarray
    names: np.ndarray | None = None
    target: str | None = None  # the column of the file that held the targets
    row_indices: np.ndarray | None = None  # of each row among those given, where some were merged
    table: TableMap | None = None  # how columns became numbers, where they were not all numbers
    means: CrossFit | None = None  # how targets were averaged over levels
    constants: Constants | None = None  # columns of one value, where all are numbers
    validation_weight: np.ndarray | None = (
        None  # what rows count that are held out and have weight zero; 1 each where it is None
    )

    @property
    def alive(self) -> np.ndarray:
        """Rows of positive weight, of this process."""
        return np.flatnonzero(self.weight > 0)

    @property
    def shard(self) -> Shard:
        """Which rows of the whole table these are."""
        return self.rows.shard

    @property
    def n_alive(self) -> int:
        """Rows of positive weight, of all processes."""
        return self.shard.count(torch.as_tensor(self.weight > 0))

    def draw(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """The numbers of at most `n` rows of positive weight, drawn at random, in order."""
        return self.shard.draw(torch.as_tensor(self.weight > 0), n, rng).numpy()

    def spaced(self, n: int) -> np.ndarray:
        """The numbers of at most `n` rows of positive weight, evenly spaced among them."""
        return self.shard.spaced(torch.as_tensor(self.weight > 0), n).numpy()

    def pick(self, values: np.ndarray, numbers: np.ndarray) -> np.ndarray:
        """Entries of an array with one of them for each row (targets, weights) at rows of these numbers."""
        across = self.rows.pick(torch.as_tensor(np.moveaxis(values, 0, -1)), torch.as_tensor(numbers)).numpy()
        return np.moveaxis(across, -1, 0)

    def places(self, index: np.ndarray) -> np.ndarray:
        """Where these rows stood in the table that was given."""
        return index if self.row_indices is None else self.row_indices[index]

    def columns(self) -> dict[str, Any]:
        """What scikit-learn wants an estimator to remember about the columns."""
        return {
            "n_features_in_": self.n_columns,
            "feature_names_in_": self.names,
            "target_column_": self.target,
            "table_": self.table,
            "fill_": self._medians(),
            "constants_": self.constants,
        }

    @property
    def n_columns(self) -> int:
        """Columns of the table that was given; `rows` may have more, or fewer."""
        return self.rows.n_columns if self.table is None else self.table.n_columns

    @property
    def layout(self) -> Layout | None:
        """Which of the numbers in `rows` belong to one column, where that is not one each."""
        return None if self.table is None else self.table.layout

    def per_column(self, values: np.ndarray) -> np.ndarray:
        """Non-negative numbers for each column of `rows`, summed over each column of the table that was given.

        Columns without influence have none of them, unless there are no others.
        """
        if self.table is not None:
            return self.table.layout.per_column(values)
        if self.constants is None or len(self.constants.columns) == self.n_columns:
            return values
        return np.where(self.constants.mask(self.n_columns), 0.0, values)

    def rows_at(self, index: np.ndarray, weight: np.ndarray) -> TableData:
        """The rows at these places of a table in memory, with these weights."""
        assert isinstance(self.rows, ArrayRows)
        means = None if self.means is None else self.means.take(index)
        rows, row_indices = ArrayRows(self.rows.X[index]), self.places(index)
        return replace(self, rows=rows, y=self.y[index], weight=weight, row_indices=row_indices, means=means)

    def with_weights(self, weight: np.ndarray) -> TableData:
        """The same rows with other weights; those of weight zero have no say in the means of targets any more."""
        if self.means is None or self.table is None:
            return replace(self, weight=weight)
        assert isinstance(self.rows, ArrayRows)
        units = weight / weight[weight > 0].mean()
        table = self.means.fitted(self.table, units)
        return replace(self, weight=weight, table=table, rows=ArrayRows(self.means.patched(table, self.rows.X, units)))

    def _medians(self) -> np.ndarray | None:
        """What stands for a number that is missing in `predict` though none was missing in `fit`."""
        if self.table is not None or not isinstance(self.rows, ArrayRows):
            return None
        return np.median(self.rows.fetch(self.spaced(MEDIAN_ROWS)).numpy(), axis=0)


def read(
    estimator: Any,
    X: Any,
    y: Any,
    sample_weight: Any = None,
    *,
    numeric: bool = False,
    group: Group = ALONE,
    supervised: bool = True,
) -> TableData:
    """Rows, targets and weights from arrays, frames, tensors, files or sources; bad ones get a sentence.

    `y=None` takes the target column of a file or source. `numeric` targets are real numbers, in one column
    or several; else they are classes.
    Where rows are not `supervised`, levels are not averaged over. A `group` of processes shares a table that all name.
    """
    target = table = means = row_indices = None
    stored, divided, dealt = y is None, False, False
    X = dense_or_sparse(X, estimator)
    if isinstance(X, RowSource | str | os.PathLike):
        source: RowSource = dense_or_sparse(as_source(X), estimator)
        sparse = isinstance(source, SparseRows)
        require(group is ALONE or not sparse, "X", "dense where processes share a table", "a wide sparse matrix")
        dealt = group is not ALONE and not (source.shard.divided or source.mixed)  # else its own, or whole
        source = source.dealt(group) if dealt else source
        divided = source.shard.divided
        alone = group is not ALONE or not divided or source.shard.group.size == 1
        require(alone, "X", f"whole on each process for a {type(estimator).__name__}", type(X).__name__)
        if stored:
            y, target = source.real_targets() if numeric else source.targets(), source.target_name
        require(y is not None, "y", "given, or a target column of the source", None)
        found = numbers_or_columns(source.columns(), estimator) if source.mixed else None
        rows: RowSource = source if source.mixed or sparse else FiniteRows(source)
        n_rows = source.shard.length(source.n_rows) if dealt else source.n_rows
        names = None if source.names() is None else np.asarray(source.names(), dtype=object)
        require_different(() if names is None else names)
    else:
        if y is None:
            raise ValueError(f"{type(estimator).__name__} requires y to be passed, but the target y is None")
        require_same_order(X, y)
        X = host(X)
        names, found = names_of(X), numbers_or_columns(X, estimator)
        n_rows = len(found) if isinstance(found, np.ndarray) else len(found[0].values)
    if not (divided and rows.n_rows == 0 and (stored or not dealt)):
        y = checked_targets(host(y), numeric, estimator)
    weight = checked_weights(sample_weight, n_rows, alone=not divided) if n_rows else np.ones(0)
    if found is not None and supervised and not divided and not getattr(estimator, "_pairwise", False):
        found, y, weight, row_indices = _without_copies(found, _of_length(y, n_rows), weight)
        n_rows = len(weight)
    if isinstance(found, list):
        _of_length(y, n_rows)
        twice = supervised and hasattr(estimator, "_coded_twice") and estimator._coded_twice(n_rows)
        coded = code_table(found, averaged_targets(y, numeric=numeric) if supervised else None, weight, twice=twice)
        rows, table, means = ArrayRows(coded.X), coded.table, coded.means
        if getattr(estimator, "verbose", False):
            table.tell()
    elif found is not None:
        rows = ArrayRows(found)
    own = rows.shard.numbers(np.arange(rows.n_rows)) if dealt else slice(None)
    y, weight = np.asarray(y) if stored and dealt else _of_length(y, n_rows)[own], weight[own]
    data = TableData(rows, _of_length(y, rows.n_rows), weight, names, target, row_indices, table, means)
    data = data if divided or group is ALONE else _shared(data, group)
    weight = class_weighted(getattr(estimator, "class_weight", None), data.y, data.weight, data.shard)
    data = replace(data, weight=weight)
    require(data.n_alive > 0, "sample_weight", "positive for at least one row", 0.0)
    if table is not None or sees_any_column(estimator):
        return data
    return replace(data, constants=find_constants(data.rows, data.weight))


def _shared(data: TableData, group: Group) -> TableData:
    """The run of rows of a table that falls to this process; what targets mean over levels stays that of all rows."""
    rows = data.rows.dealt(group)
    own = rows.shard.numbers(np.arange(rows.n_rows))
    return replace(data, rows=rows, y=data.y[own], weight=data.weight[own], means=None)


def _without_copies(found: Table, y: np.ndarray, weight: np.ndarray) -> tuple[Table, np.ndarray, np.ndarray, Any]:
    """The table with copies merged into one row of their weight, and where each row stood; None where there are none.

    This comes first: neither columns are coded nor rows split before it, so nothing can part copies.
    """
    inputs = hashed(found.T, len(found)) if isinstance(found, np.ndarray) else row_hashes(found)
    targets, alive = hashed_targets(y), weight > 0
    if not holds_copies(inputs[alive], targets[alive]):
        return found, y, weight, None
    _, first, group = np.unique(rows_of(inputs, targets), return_index=True, return_inverse=True)
    total, order = np.bincount(group.reshape(-1), weights=weight), np.argsort(first)
    index = first[order]
    if isinstance(found, np.ndarray):
        return found[index], y[index], total[order], index
    return [replace(one, values=one.values[index]) for one in found], y[index], total[order], index


def _of_length(y: Any, n_rows: int) -> np.ndarray:
    if len(y) != n_rows:
        raise ValueError(f"X and y have inconsistent numbers of samples: {n_rows} rows, {len(y)} targets")
    return np.asarray(y)


def read_rows(estimator: Any, X: Any, sample_weight: Any = None) -> TableData:
    """A table without targets, for transformers."""
    X = dense_or_sparse(X, estimator)
    if isinstance(X, RowSource | str | os.PathLike):
        n_rows = as_source(X).n_rows
    else:
        found = numbers_or_columns(host(X), estimator)
        n_rows = len(found) if isinstance(found, np.ndarray) else len(found[0].values)
    return read(estimator, X, np.zeros(n_rows), sample_weight, numeric=True, supervised=False)


def read_new(estimator: Any, X: Any) -> RowSource:
    """Rows to predict for, their columns checked against those of `fit`: the file that `fit` read will do as well.

    Columns that were constant in `fit` keep the value they had there.
    """
    constants = getattr(estimator, "constants_", None)
    rows = read_as_given(estimator, X)
    return rows if constants is None else constants.in_rows(rows)


def read_as_given(estimator: Any, X: Any) -> RowSource:
    """Rows as `read_new` has them, with the values that constant columns have now."""
    X = dense_or_sparse(X, estimator)
    if not isinstance(X, RowSource | str | os.PathLike):
        found = new_numbers_or_columns(host(X), estimator)
        return ArrayRows(found if isinstance(found, np.ndarray) else estimator.table_.encode(found))
    known, wanted = getattr(estimator, "feature_names_in_", None), estimator.n_features_in_
    names = None if known is None else list(known)
    source = as_source(X, names=names, target=getattr(estimator, "target_column_", None))
    seen, source = source.n_columns, dense_or_sparse(source, estimator)
    require(seen == wanted, "the number of columns", f"{wanted} as in fit", seen)
    if isinstance(source, SparseRows):
        return source
    if hasattr(estimator, "table_") or source.mixed:
        return read_as_given(estimator, source.columns() if source.mixed else source.take(np.arange(source.n_rows)))
    return FiniteRows(source)


def read_held_out(
    estimator: Any, data: TableData, X_val: Any, y_val: Any, *, numeric: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Rows to watch, and their targets, checked as those of `fit` were and against them."""
    require(isinstance(data.rows, ArrayRows), "X_val", "None where X is a file or a row source", type(X_val))
    require(y_val is not None, "y_val", "given with X_val", None)
    X_val = _encode_like(estimator, data, host(dense_or_sparse(X_val, estimator)))
    y_val = checked_targets(host(y_val), numeric, estimator)
    y_val = y_val[:, 0] if data.y.ndim == 1 and y_val.shape == (len(X_val), 1) else y_val
    require(len(y_val) == len(X_val), "y_val", f"of the length of X_val, {len(X_val)}", len(y_val))
    require(y_val.shape[1:] == data.y.shape[1:], "y_val", f"of the shape of y, {data.y.shape}", y_val.shape)
    return X_val, y_val


def _encode_like(estimator: Any, data: TableData, X_val: Any) -> np.ndarray:
    """Rows to watch as numbers, by the columns of the rows given."""
    shape: tuple[int, ...] = tuple(getattr(X_val, "shape", ()))
    require(len(shape) != 2 or shape[1] == data.n_columns, "X_val", f"of {data.n_columns} columns", shape)
    fitted = clone(estimator)
    vars(fitted).update({name: value for name, value in data.columns().items() if value is not None})
    found = new_numbers_or_columns(X_val, fitted)
    if isinstance(found, np.ndarray):
        return found if data.constants is None else data.constants.in_block(torch.from_numpy(found)).numpy()
    assert data.table is not None
    return data.table.encode(found)


def merged(data: TableData, Y: np.ndarray, *, any_columns: bool = False) -> tuple[TableData, np.ndarray]:
    """The rows of positive weight, sorted, with copies merged into one; `Y` are the coded targets (n × p).

    Copies were merged when the table was read, unless processes shared it or a column told them apart that is left out.
    Rows are sorted by their columns, or by a key that is the same for `any_columns` order.
    """
    if not isinstance(data.rows, ArrayRows) or data.shard.divided or data.rows.n_rows > MERGED_ROWS:
        return data, Y
    alive = data.alive
    table = np.column_stack([data.rows.X[alive], Y[alive]]).astype(np.float64)
    _, first, group = np.unique(table, axis=0, return_index=True, return_inverse=True)
    X, group = data.rows.X[alive], group.reshape(-1)
    if holds_copies(hashed(X.T, len(X)), hashed_targets(Y[alive])):
        index, weight = alive[first], np.bincount(group, weights=data.weight[alive])
    else:
        index = alive[np.argsort(group, kind="stable")]
        weight = data.weight[index]
    if any_columns:
        order = _order_of_rows(data.rows.X[index])
        index, weight = index[order], weight[order]
    return data.rows_at(index, weight), Y[index]


def _order_of_rows(X: np.ndarray) -> np.ndarray:
    """An order of different rows that depends neither on the order they came in nor on that of the columns.

    Random numbers choose rows by their places, so the same table in another order has to have the same places. Rows are
    sorted by a hash of the ranks of their values, which no change of a column's unit or origin alters.
    """
    key = np.zeros(len(X), dtype=np.uint64)
    for column in X.T:
        rank = np.unique(column, return_inverse=True)[1].astype(np.uint64) + np.uint64(1)
        mixed = rank * np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        key += mixed ^ (mixed >> np.uint64(27))
    return np.argsort(key, kind="stable")

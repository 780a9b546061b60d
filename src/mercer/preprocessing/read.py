"""Read a user's table: check it and turn it into one record, `TableData`.

A table in memory is encoded column by column, and copies of rows are merged. A file or row source of numbers stays
where it is; its rows are checked while they are read. Nothing here changes the estimator: a fit keeps the names and
codes of columns at its end.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from sklearn.base import clone
from sklearn.utils.validation import _num_samples

from mercer.data import ArrayRows, Group, RowSource, Shard, SparseRows, as_source
from mercer.data.hashes import has_copies, hash_pairs, hash_rows, hash_targets, repeated
from mercer.data.raw import RawColumn
from mercer.data.row_groups import RowGroups
from mercer.data.shard import ONE_PROCESS
from mercer.data.source import WeightedRows
from mercer.parts import require
from mercer.preprocessing.columns import Layout, TableMap
from mercer.preprocessing.columns_fit import DeclaredCodes, EncodedTable, encode_table
from mercer.preprocessing.columns_read import (
    Constants,
    FiniteRows,
    Table,
    as_columns,
    dense_or_sparse,
    find_constants,
    names_codes,
    names_of,
    new_numbers_or_columns,
    numbers_or_columns,
    require_different,
)
from mercer.preprocessing.columns_targets import CrossFit, averaged_targets, row_hashes
from mercer.preprocessing.validate import (
    checked_targets,
    checked_weights,
    class_weighted,
    host,
    require_groups,
    require_same_order,
)
from mercer.selection.kernel_choice import sees_any_column

#: Rows whose medians replace numbers that are missing in `predict` alone.
MEDIAN_ROWS = 1000
#: Tables that are read by blocks.
SOURCES = (RowSource, str, os.PathLike)


@dataclass(frozen=True)
class TableData(WeightedRows):
    """A checked table: rows, targets, weights, and how its columns became numbers."""

    rows: RowSource
    y: np.ndarray
    weight: np.ndarray
    names: np.ndarray | None = None
    target: str | None = None  # the column of the file that held the targets
    row_indices: np.ndarray | None = None  # of each row in the user's table, where copies were merged
    table: TableMap | None = None  # the codes of the columns, where they were not all numbers
    means: CrossFit | None = None  # the cross-fitted target means among these codes
    constants: Constants | None = None  # columns of one value, where all columns are numbers
    validation_weight: np.ndarray | None = None  # of held-out rows, whose `weight` is zero; None means 1 each
    weight_unit: float = 1.0  # by which the user's weights were multiplied
    row_weight: float = 1.0  # the mean of the user's weights
    row_groups: RowGroups | None = None  # rows that every split keeps together

    @property
    def shard(self) -> Shard:
        """Which rows of the whole table these are."""
        return self.rows.shard

    def pick(self, values: np.ndarray, numbers: np.ndarray) -> np.ndarray:
        """Entries of a per-row array (targets, weights) at rows of these indices, on whichever process they are."""
        across = self.rows.pick(torch.as_tensor(np.moveaxis(values, 0, -1)), torch.as_tensor(numbers)).numpy()
        return np.moveaxis(across, -1, 0)

    def original_indices(self, index: np.ndarray) -> np.ndarray:
        """Indices of these rows in the user's table."""
        return index if self.row_indices is None else self.row_indices[index]

    def columns(self) -> dict[str, Any]:
        """Fitted attributes that describe the columns."""
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
        """Number of columns of the user's table; `rows` may have more or fewer."""
        return self.rows.n_columns if self.table is None else self.table.n_columns

    @property
    def layout(self) -> Layout | None:
        """Which coordinates in `rows` belong to one column; None where each column is one coordinate."""
        return None if self.table is None else self.table.layout

    def per_column(self, values: np.ndarray) -> np.ndarray:
        """Sums of non-negative numbers, one per column of `rows`, over each column of the user's table.

        Constant columns get zero, unless all columns are constant.
        """
        if self.table is not None:
            return self.table.layout.per_column(values)
        if self.constants is None or len(self.constants.columns) == self.n_columns:
            return values
        return np.where(self.constants.mask(self.n_columns), 0.0, values)

    def rows_at(self, index: np.ndarray, weight: np.ndarray) -> TableData:
        """The rows of these indices of a table in memory, with these weights."""
        assert isinstance(self.rows, ArrayRows)
        return self.with_rows(ArrayRows(self.rows.X[index]), index, weight)

    def with_rows(self, rows: RowSource, index: np.ndarray, weight: np.ndarray) -> TableData:
        """The table of these `rows`, which are those of these indices, with these weights."""
        means = None if self.means is None else self.means.take(index)
        row_groups = None if self.row_groups is None else self.row_groups.take(index)
        original = self.original_indices(index)
        return replace(
            self, rows=rows, y=self.y[index], weight=weight, row_indices=original, means=means, row_groups=row_groups
        )

    def with_weights(self, weight: np.ndarray) -> TableData:
        """The same rows with other weights; target means are then those of the rows of positive weight."""
        if self.means is None or self.table is None:
            return replace(self, weight=weight)
        assert isinstance(self.rows, ArrayRows)
        units = weight / weight[weight > 0].mean()
        table = self.means.fitted(self.table, units)
        return replace(self, weight=weight, table=table, rows=ArrayRows(self.means.patched(table, self.rows.X, units)))

    def _medians(self) -> np.ndarray | None:
        """Replacements for numbers that are missing in `predict` though none was missing in `fit`."""
        if self.table is not None or isinstance(self.rows, SparseRows) or self.shard.divided:
            return None
        return np.median(self.rows.fetch(self.spaced(MEDIAN_ROWS)).numpy(), axis=0)


def read(
    estimator: Any,
    X: Any,
    y: Any,
    sample_weight: Any = None,
    *,
    classes: bool = True,
    group: Group = ONE_PROCESS,
    supervised: bool = True,
    row_groups: RowGroups | None = None,
) -> TableData:
    """Read rows, targets and weights from arrays, frames, tensors, files or sources; refuse bad ones in a sentence.

    `y=None` takes the target column of a file or source. The other arguments are those of `TableReader`.
    """
    reader = TableReader(estimator, classes, supervised, group, row_groups)
    whole = row_groups is None or group.size == 1
    require(whole, "groups and time_order", "None where several processes fit one model", f"{group.size} processes")
    X = dense_or_sparse(X, estimator)
    if isinstance(X, SOURCES):
        return reader.finish(reader.read_source(dense_or_sparse(as_source(X), estimator), y, sample_weight))
    if y is None:
        raise ValueError(f"{type(estimator).__name__} requires y to be passed, but the target y is None")
    require_same_order(X, y)
    require_same_order(X, sample_weight, "sample_weight")
    X = host(X)
    names = names_of(X)
    return reader.finish(reader.read_table(numbers_or_columns(X, estimator), y, sample_weight, names))


def read_rows(estimator: Any, X: Any, sample_weight: Any = None) -> TableData:
    """Read a table without targets, for transformers; its targets are zeros."""
    X = dense_or_sparse(X, estimator)
    X = as_source(X) if isinstance(X, SOURCES) else host(X)
    y = np.zeros(X.n_rows if isinstance(X, RowSource) else _num_samples(X))
    return read(estimator, X, y, sample_weight, classes=False, supervised=False)


@dataclass(frozen=True)
class TableReader:
    """Readers for one fit, one for each kind of table.

    Targets are `classes`, or real numbers in one column or several. Where an estimator is
    `supervised`, copies of rows are merged and levels encoded by target means. A `group` of processes shares a table
    that all of them name. Rows of one of `row_groups` stay on one side of every split.
    """

    estimator: Any
    classes: bool
    supervised: bool
    group: Group
    row_groups: RowGroups | None = None

    def read_table(
        self, table: Table, y: Any, sample_weight: Any, names: np.ndarray | None, target: str | None = None
    ) -> TableData:
        """Read numbers or raw columns that are in memory."""
        n_rows = len(table) if isinstance(table, np.ndarray) else len(table[0].values)
        y = self._checked(y)
        weight = checked_weights(sample_weight, n_rows)
        y = _require_length(y, n_rows)
        require_groups(self.row_groups, n_rows)
        table = as_columns(table, names) if names_codes(self.estimator) else table
        row_indices, row_groups = None, self.row_groups
        if self.supervised and not getattr(self.estimator, "_pairwise", False):
            table, y, weight, row_indices = _merge_copies(table, y, weight, row_groups)
            if row_groups is not None and row_indices is not None:
                row_groups = row_groups.take(row_indices)
        if isinstance(table, np.ndarray):
            data = TableData(ArrayRows(table), y, weight, names, target, row_indices)
        else:
            coded = self._encode(table, y, weight, row_groups)
            data = TableData(ArrayRows(coded.X), y, weight, names, target, row_indices, coded.table, coded.means)
        data = replace(data, row_groups=row_groups)
        return data if self.group is ONE_PROCESS else _own_part(data, self.group)

    def read_source(self, source: RowSource, y: Any, sample_weight: Any) -> TableData:
        """Read a file or row source: columns of mixed types whole, numbers by blocks."""
        if isinstance(source, SparseRows):
            require(self.group is ONE_PROCESS, "X", "dense where processes share a table", "a wide sparse matrix")
        if source.shard.divided and self.group is ONE_PROCESS:
            wanted = f"whole on each process for a {type(self.estimator).__name__}"
            require(source.shard.group.size == 1, "X", wanted, type(source).__name__)
        if source.mixed:
            y, target = self._targets(source, y)
            table = numbers_or_columns(source.columns(), self.estimator)
            return self.read_table(table, y, sample_weight, _source_names(source), target)
        wanted = "None where X is sparse, or a file or source of numbers"
        named = "cyclic_features, spherical_features and text_features"
        require(not names_codes(self.estimator), named, wanted, type(source))
        if source.shard.divided or self.group is ONE_PROCESS:
            return self._read_own_rows(source, y, sample_weight)
        return self._read_shared(source, y, sample_weight)

    def _read_own_rows(self, source: RowSource, y: Any, sample_weight: Any) -> TableData:
        """Read a source all of whose rows belong to this process; targets and weights are those of its rows."""
        y, target = self._targets(source, y)
        rows = source if isinstance(source, SparseRows) else FiniteRows(source)
        names, n_rows = _source_names(source), source.n_rows
        if n_rows == 0:  # other processes have the rows
            return TableData(rows, _require_length(y, 0), np.ones(0), names, target)
        y = self._checked(y)
        weight = checked_weights(sample_weight, n_rows, alone=not source.shard.divided)
        require_groups(self.row_groups, n_rows)
        return TableData(rows, _require_length(y, n_rows), weight, names, target, row_groups=self.row_groups)

    def _read_shared(self, source: RowSource, y: Any, sample_weight: Any) -> TableData:
        """Read this process's run of a source that all processes name; `y` and weights are those of all rows."""
        part = source.partition(self.group)
        rows = FiniteRows(part)
        index = part.shard.global_indices(np.arange(part.n_rows))
        names, target = _source_names(source), None
        if y is None:
            y, target = self._targets(part, None)
            y = _require_length(self._checked(y) if part.n_rows else y, part.n_rows)
        else:
            y = _require_length(self._checked(y), source.n_rows)[index]
        weight = checked_weights(sample_weight, source.n_rows, alone=False) if source.n_rows else np.ones(0)
        return TableData(rows, y, weight[index], names, target)

    def _targets(self, source: RowSource, y: Any) -> tuple[Any, str | None]:
        """The targets passed with a source, or those of its target column with the name of that column."""
        if y is not None:
            return y, None
        y = source.targets() if self.classes else source.real_targets()
        require(y is not None, "y", "given, or a target column of the source", None)
        return y, source.target_name

    def _checked(self, y: Any) -> np.ndarray:
        return checked_targets(host(y), self.classes, self.estimator)

    def _encode(
        self, columns: list[RawColumn], y: np.ndarray, weight: np.ndarray, row_groups: RowGroups | None
    ) -> EncodedTable:
        """Turn raw columns into coordinates; only supervised estimators see target means."""
        targets, twice = None, False
        if self.supervised:
            targets = averaged_targets(y, classes=self.classes and y.ndim == 1)
            twice = self.estimator._encodes_twice(len(weight))
        declared = DeclaredCodes.of(self.estimator, columns)
        coded = encode_table(columns, targets, weight, twice=twice, row_groups=row_groups, declared=declared)
        if getattr(self.estimator, "verbose", False):
            coded.table.print_codes()
        return coded

    def finish(self, data: TableData) -> TableData:
        """Apply class weights and find constant columns."""
        class_weight = getattr(self.estimator, "class_weight", None)
        data = replace(data, weight=class_weighted(class_weight, data.y, data.weight, data.shard))
        require(data.n_alive > 0, "sample_weight", "positive for at least one row", 0.0)
        data = replace(data, row_weight=data.shard.total(data.weight.sum()) / data.n_alive)
        if data.table is not None or sees_any_column(self.estimator):
            return data
        return replace(data, constants=find_constants(data.rows, data.weight))


def _own_part(data: TableData, group: Group) -> TableData:
    """The run of rows that belongs to this process; target means stay those of all rows."""
    rows = data.rows.partition(group)
    index = rows.shard.global_indices(np.arange(rows.n_rows))
    return replace(data, rows=rows, y=data.y[index], weight=data.weight[index], means=None)


def _merge_copies(
    table: Table, y: np.ndarray, weight: np.ndarray, row_groups: RowGroups | None
) -> tuple[Table, np.ndarray, np.ndarray, np.ndarray | None]:
    """The table with copies of a row merged into one row of their total weight, and the index of each row.

    The index is None where there are no copies. Copies are merged before columns are encoded and rows are split, so
    nothing can separate them. Rows of different groups or times are no copies.
    """
    inputs = hash_rows(table.T, len(table)) if isinstance(table, np.ndarray) else row_hashes(table)
    if row_groups is not None:
        inputs = hash_pairs(inputs, hash_rows([row_groups.key], len(inputs)))
    targets, alive = hash_targets(y), weight > 0
    if not has_copies(inputs[alive], targets[alive]):
        return table, y, weight, None
    pairs = hash_pairs(inputs, targets)
    copied = np.flatnonzero(repeated(pairs))
    _, first, group = np.unique(pairs[copied], return_index=True, return_inverse=True)
    total, kept = weight.copy(), np.ones(len(weight), dtype=bool)
    kept[copied] = False
    kept[copied[first]] = True
    total[copied[first]] = np.bincount(group.reshape(-1), weights=weight[copied])
    index = np.flatnonzero(kept)
    if isinstance(table, np.ndarray):
        return table[index], y[index], total[index], index
    return [replace(column, values=column.values[index]) for column in table], y[index], total[index], index


def _source_names(source: RowSource) -> np.ndarray | None:
    names = source.names()
    require_different(() if names is None else names)
    return None if names is None else np.asarray(names, dtype=object)


def _require_length(y: Any, n_rows: int) -> np.ndarray:
    if len(y) != n_rows:
        raise ValueError(f"X and y have inconsistent numbers of samples: {n_rows} rows, {len(y)} targets")
    return np.asarray(y)


def read_new(estimator: Any, X: Any) -> RowSource:
    """Read rows to predict for and check their columns against those of `fit`; the file that `fit` read will do.

    Columns that were constant in `fit` keep the value they had there.
    """
    constants = getattr(estimator, "constants_", None)
    table = new_table(estimator, X)
    table = estimator.table_.encode(table) if isinstance(table, list) else table
    rows = ArrayRows(table) if isinstance(table, np.ndarray) else table
    return rows if constants is None else constants.in_rows(rows)


def new_table(estimator: Any, X: Any) -> Table | RowSource:
    """New rows as numbers or raw columns in memory, or as a source of numbers, which stays where it is."""
    X = dense_or_sparse(X, estimator)
    if not isinstance(X, SOURCES):
        return new_numbers_or_columns(host(X), estimator)
    names, wanted = getattr(estimator, "feature_names_in_", None), estimator.n_features_in_
    target = getattr(estimator, "target_column_", None)
    source = as_source(X, names=None if names is None else list(names), target=target)
    seen, source = source.n_columns, dense_or_sparse(source, estimator)
    require(seen == wanted, "the number of columns", f"{wanted} as in fit", seen)
    if isinstance(source, SparseRows):
        return source
    if source.mixed:
        return new_numbers_or_columns(source.columns(), estimator)
    return (
        new_table(estimator, source.take(np.arange(source.n_rows)))
        if hasattr(estimator, "table_")
        else FiniteRows(source)
    )


def read_held_out(
    estimator: Any, data: TableData, X_val: Any, y_val: Any, *, classes: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Read validation rows and their targets, checked as those of `fit` were and against them."""
    require(isinstance(data.rows, ArrayRows), "X_val", "None where X is a file or a row source", type(X_val))
    require(y_val is not None, "y_val", "given with X_val", None)
    shape = tuple(getattr(X_val, "shape", ()))
    require(len(shape) != 2 or shape[1] == data.n_columns, "X_val", f"of {data.n_columns} columns", shape)
    fitted = clone(estimator)
    vars(fitted).update({name: value for name, value in data.columns().items() if value is not None})
    rows = read_new(fitted, X_val)
    X_val = rows.take(np.arange(rows.n_rows)).numpy()
    y_val = checked_targets(host(y_val), classes, estimator)
    y_val = y_val[:, 0] if data.y.ndim == 1 and y_val.shape == (len(X_val), 1) else y_val
    require(len(y_val) == len(X_val), "y_val", f"of the length of X_val, {len(X_val)}", len(y_val))
    require(y_val.shape[1:] == data.y.shape[1:], "y_val", f"of the shape of y, {data.y.shape}", y_val.shape)
    return X_val, y_val

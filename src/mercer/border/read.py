"""Reading a user's table: whatever it comes in, it is checked the same way and becomes one record, `Given`.

Nothing here touches the estimator: what a fit keeps about names and columns it keeps at its end.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from sklearn.utils.validation import _check_sample_weight, _check_y, _get_feature_names, check_array, validate_data
from torch import Tensor

from mercer.data import WHOLE, ArrayRows, Group, Pieces, RowSource, Shard, as_source
from mercer.data.group import ALONE
from mercer.data.shard import even_run
from mercer.parts import require

#: Up to this many rows, identical ones are merged into weights: a weight of 2 then *is* the row twice.
MERGED_ROWS = 10_000


@dataclass(frozen=True)
class Given:
    """A table as it came, checked: rows, targets, weights, names of the columns, and where each row stood."""

    rows: RowSource
    y: np.ndarray
    weight: np.ndarray
    names: np.ndarray | None = None
    target: str | None = None  # the column of the file that held the targets
    original: np.ndarray | None = None  # of each row among those given, where some were merged

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
        return index if self.original is None else self.original[index]

    def columns(self) -> dict[str, Any]:
        """What scikit-learn wants an estimator to remember about the columns."""
        return {"n_features_in_": self.rows.n_columns, "feature_names_in_": self.names, "target_column_": self.target}


def read(
    estimator: Any,
    X: Any,
    y: Any,
    sample_weight: Any = None,
    *,
    numeric: bool = False,
    multi_output: bool = False,
    group: Group = ALONE,
) -> Given:
    """Rows, targets and weights from arrays, frames, tensors, files or sources; bad ones get a sentence.

    `y=None` takes the target column of a file or source. `numeric` targets are real numbers; else they are classes.
    A `group` of processes that all name the same table shares it: each gets some of its rows.
    """
    target, shared, stored = None, group is not ALONE, y is None
    if isinstance(X, RowSource | str | os.PathLike):
        source: RowSource = as_source(X)
        shared = shared and not source.shard.spread  # else rows, targets and weights are those of this process alone
        source = source.dealt(group) if shared else source
        if stored:
            y, target = source.real_targets() if numeric else source.targets(), source.target_name
        require(y is not None, "y", "given, or a target column of the source", None)
        rows: RowSource = FiniteRows(source)
        names = None if source.names() is None else np.asarray(source.names(), dtype=object)
    else:
        require(y is not None, "y", "given: requires y to be passed, but the target y is None", None)
        names = _get_feature_names(X)
        table = _checked_table(host(X), estimator)
        start, stop = even_run(group, len(table))
        rows = ArrayRows(table[start:stop], Pieces(group, [start], [stop - start]) if shared else WHOLE)
    if not (rows.shard.spread and rows.n_rows == 0 and (stored or not shared)):
        y = checked_targets(host(y), numeric, multi_output, estimator)
    n_rows = rows.shard.n_total if shared and isinstance(rows.shard, Pieces) else rows.n_rows
    weight = checked_weights(sample_weight, n_rows, alone=not rows.shard.spread) if n_rows else np.ones(0)
    own = rows.shard.numbers(np.arange(rows.n_rows)) if shared else slice(None)
    y, weight = np.asarray(y) if stored else _of_length(y, n_rows)[own], weight[own]
    given = Given(rows, _of_length(y, rows.n_rows), weight, names, target)
    require(given.n_alive > 0, "sample_weight", "positive for at least one row", 0.0)
    return given


def _of_length(y: Any, n_rows: int) -> np.ndarray:
    if len(y) != n_rows:
        raise ValueError(f"X and y have inconsistent numbers of samples: {n_rows} rows, {len(y)} targets")
    return np.asarray(y)


def gathered(given: Given, n_rows: int) -> Given:
    """A table of at most `n_rows` rows that several processes share, as one that each of them has to itself.

    So few rows are learnt sooner than sums can travel, and then every process does the same.
    """
    shard = given.shard
    if not isinstance(shard, Pieces) or shard.n_total > n_rows:
        return given
    own = np.arange(given.rows.n_rows)
    parts = shard.group.gather((shard.numbers(own), given.rows.take(own).cpu().numpy(), given.y, given.weight))
    full = [part for part in parts if len(part[0])]  # a process without rows does not know the type of targets
    numbers, X, y, weight = (np.concatenate([part[k] for part in full]) for k in range(4))
    order = np.argsort(numbers)
    return replace(given, rows=ArrayRows(X[order]), y=y[order], weight=weight[order])


def read_rows(estimator: Any, X: Any, sample_weight: Any = None) -> Given:
    """A table without targets, for transformers."""
    source = isinstance(X, RowSource | str | os.PathLike)
    n_rows = as_source(X).n_rows if source else len(_checked_table(host(X), estimator))
    return read(estimator, X, np.zeros(n_rows), sample_weight, numeric=True)


def read_new(estimator: Any, X: Any) -> RowSource:
    """Rows to predict for, their columns checked against those of `fit`: the file that `fit` read will do as well."""
    if not isinstance(X, RowSource | str | os.PathLike):
        _require_no_categories(X)
        return ArrayRows(validate_data(estimator, host(X), dtype=[np.float64, np.float32], reset=False))
    known, wanted = getattr(estimator, "feature_names_in_", None), estimator.n_features_in_
    names = None if known is None else list(known)
    source = as_source(X, names=names, target=getattr(estimator, "target_column_", None))
    seen = source.n_columns
    require(seen == wanted, "the number of columns", f"{wanted} as in fit", seen)
    return FiniteRows(source)


def read_held_out(
    estimator: Any, given: Given, X_val: Any, y_val: Any, *, numeric: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Rows to watch, and their targets, checked as those of `fit` were and against them."""
    require(isinstance(given.rows, ArrayRows), "X_val", "None where X is a file or a row source", type(X_val))
    require(y_val is not None, "y_val", "given with X_val", None)
    names = _get_feature_names(X_val)
    same = names is None or given.names is None or list(names) == list(given.names)
    require(same, "the columns of X_val", f"those of X in their order, {given.names}", names)
    X_val = _checked_table(host(X_val), estimator)
    y_val = checked_targets(host(y_val), numeric, given.y.ndim == 2, estimator)
    columns = given.rows.n_columns
    require(X_val.shape[1] == columns, "X_val", f"of {columns} columns", X_val.shape)
    require(len(y_val) == len(X_val), "y_val", f"of the length of X_val, {len(X_val)}", len(y_val))
    require(y_val.shape[1:] == given.y.shape[1:], "y_val", f"of the shape of y, {given.y.shape}", y_val.shape)
    return X_val, y_val


def merged(given: Given, Y: np.ndarray) -> tuple[Given, np.ndarray]:
    """Without rows of weight zero and with identical ones as one; `Y` are the coded targets (n × p)."""
    if not isinstance(given.rows, ArrayRows) or given.shard.spread or given.rows.n_rows > MERGED_ROWS:
        return given, Y
    alive = given.alive
    table = np.column_stack([given.rows.X[alive], Y[alive]]).astype(np.float64)
    _, first, group = np.unique(table, axis=0, return_index=True, return_inverse=True)
    index = alive[first]
    weight = np.bincount(group.reshape(-1), weights=given.weight[alive])
    return replace(given, rows=ArrayRows(given.rows.X[index]), y=given.y[index], weight=weight, original=index), Y[
        index
    ]


class FiniteRows(RowSource):
    """Rows of a source that is refused, with row and column, at the first number that is none."""

    def __init__(self, rows: RowSource) -> None:
        self.rows = rows
        self.n_rows, self.n_columns, self.shard = rows.n_rows, rows.n_columns, rows.shard
        require(self.n_rows > 0 or self.shard.spread, "the number of rows", "at least 1", self.n_rows)
        require(self.n_columns > 0, "the number of columns", "at least 1", self.n_columns)

    def blocks(self, size: int) -> Iterator[tuple[int, Tensor]]:
        for start, block in self.rows.blocks(size):
            yield start, self._finite(block, lambda i, start=start: start + i)

    def take(self, index: Any) -> Tensor:
        return self._finite(self.rows.take(index), lambda i: int(np.asarray(torch.as_tensor(index).cpu())[i]))

    def names(self) -> Sequence[str] | None:
        return self.rows.names()

    def _finite(self, block: Tensor, row_of: Any) -> Tensor:
        if not bool(block.isfinite().all()):
            row, column = (~block.isfinite()).nonzero()[0].tolist()
            names = self.names()
            number = int(self.shard.numbers(np.array([row_of(row)]))[0])
            where = f"row {number}, column {names[column] if names is not None else column}"
            raise ValueError(f"X must hold finite numbers, got {float(block[row, column])} in {where}: NaN or infinity")
        return block


def checked_targets(y: Any, numeric: bool, multi_output: bool, estimator: Any) -> np.ndarray:
    """Targets of one column or, for numbers, of several; finite, real, and of a kind the task can mean."""
    y = np.asarray(_check_y(y, multi_output=multi_output, y_numeric=numeric, estimator=estimator))
    require(y.ndim in (1, 2) and len(y) > 0, "y", "of one or two dimensions with at least one row", y.shape)
    if numeric:
        require(y.dtype.kind in "biuf", "y", "real numbers", y.dtype)
        y = y.astype(np.float64)
        require(bool(np.isfinite(y).all()), "y", "finite numbers", "NaN or infinity")
    return y


def checked_weights(sample_weight: Any, n_rows: int, *, alone: bool = True) -> np.ndarray:
    """Weights of the rows, non-negative and finite, one if none are given; `alone` says that there are no others."""
    like = np.empty((n_rows, 1), dtype=np.float32)  # all that scikit-learn's check asks of a table
    weight = _check_sample_weight(host(sample_weight), like, dtype=np.float64)
    require(bool((weight >= 0).all()), "sample_weight", "non-negative", float(weight.min()))
    require(bool((weight > 0).any()) or not alone, "sample_weight", "positive for at least one row", 0.0)
    return weight


def host(X: Any) -> Any:
    """A tensor as an array, in a precision NumPy knows; anything else as it is."""
    if not isinstance(X, Tensor):
        return X
    if X.layout != torch.strided:
        raise TypeError(f"sparse input is not supported: X is a {X.layout} tensor, pass X.to_dense()")
    X = X.detach().cpu()
    return (X.float() if X.dtype == torch.bfloat16 else X).numpy()


def _checked_table(X: Any, estimator: Any) -> np.ndarray:
    _require_no_categories(X)
    return check_array(X, dtype=[np.float64, np.float32], estimator=estimator, input_name="X")


def _require_no_categories(X: Any) -> None:
    """Refuse a frame with a column of categories, by its name."""
    if hasattr(X, "dtypes") and hasattr(X, "columns"):
        for name, kind in zip(X.columns, X.dtypes, strict=True):
            if str(kind).lower().startswith(("categor", "enum")):
                raise ValueError(f"column {name!r} of X must hold numbers, got {kind}: encode categories before")

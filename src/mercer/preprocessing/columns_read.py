"""Read a table as an array where it is complete numbers, else column by column.

Numbers without missing values, in an array, tensor or frame, are checked as scikit-learn checks them and stay as they
are. Text, categories, dates, missing values and columns named in `categorical_features` make a list of columns.

Columns of numbers with one value in all rows of `fit` keep that value in `predict`: no model can learn the meaning of
another one. A sparse table of few columns is made dense. A wide one stays sparse and is seen by radial and dot-product
kernels alone (`mercer.kernels.sparse_rows`): no column is scaled, mapped or left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any, TypeVar

import numpy as np
import scipy.sparse
import torch
from sklearn.utils.validation import _get_feature_names, check_array, validate_data
from torch import Tensor

from mercer.data import LibsvmRows, RowSource, SparseRows, read_ahead, sparse_matrix
from mercer.data.frames import column_names, holds_numbers, is_arrow, is_frame, raw_columns
from mercer.data.raw import (
    CATEGORICAL,
    EXACT,
    LARGEST,
    NUMBER,
    RawColumn,
    as_levels,
    as_numbers,
    dates_as_levels,
    parse_dates,
    parse_numbers,
    parse_text,
    zone_name,
)
from mercer.data.source import TransformedRows
from mercer.engine import make_plan
from mercer.parts import require
from mercer.preprocessing.columns import ByLevel, ColumnDescription, Rank, numbers

Table = np.ndarray | list[RawColumn]
Kept = TypeVar("Kept", bound=Table)
#: Numbers that are read at a time where constant columns are looked for: few, since a few rows settle most tables.
NUMBERS = 1 << 16
#: Values are equal up to this share of their size, as in `mercer.preprocessing.inputs.standardised`.
ROUNDING = 1e-12
#: Sparse tables of at most this many columns are made dense, so that columns are mapped and metrics learned.
DENSE_COLUMNS = 500


def names_of(X: Any) -> np.ndarray | None:
    """Names of the columns, all of them text and different, or None."""
    columns = column_names(X)
    _require_different_columns(X)
    names = _get_feature_names(X)  # refuses names of several types
    return np.asarray(columns, dtype=object) if names is None and columns is not None else names


def numbers_or_columns(X: Any, estimator: Any) -> Table:
    """The table of `fit`: an array where it holds finite numbers alone, else a list of columns."""
    if getattr(estimator, "_pairwise", False):
        return check_array(X, dtype=[np.float64, np.float32], estimator=estimator, input_name="X")
    choice = getattr(estimator, "categorical_features", "from_dtype")
    return _finite(_simplest(_read(X, estimator, choice), estimator), column_names(X))


def as_columns(table: Table, names: np.ndarray | None) -> list[RawColumn]:
    """An array of numbers as a list of columns with these names."""
    if not isinstance(table, np.ndarray):
        return table
    columns = raw_columns(table)
    named = [column.name for column in columns] if names is None else names
    return [replace(column, name=str(name)) for column, name in zip(columns, named, strict=True)]


def new_numbers_or_columns(X: Any, estimator: Any) -> Table:
    """The table of `predict`, with named columns in the order of `fit`."""
    table = getattr(estimator, "table_", None)
    if table is None and _complete(X, estimator):
        return X
    if getattr(estimator, "_pairwise", False):
        return validate_data(estimator, X, dtype=[np.float64, np.float32], reset=False)
    X = _in_order(X, getattr(estimator, "feature_names_in_", None))
    if table is None:
        return _filled(X, estimator)
    choice = getattr(estimator, "categorical_features", "from_dtype")
    found = _read(X, estimator, choice)
    columns = raw_columns(X if is_frame(X) else found) if isinstance(found, np.ndarray) else found
    _require_as_many(columns, estimator)
    levels = {code.column: code.levels for code in table.codes if isinstance(code, ByLevel | Rank)}
    pairs = enumerate(zip(columns, table.described, strict=True))
    new = [_as_in_fit(column, seen, levels.get(index, ())) for index, (column, seen) in pairs]
    return _finite(_declared(new, estimator))


def _as_in_fit(column: RawColumn, seen: ColumnDescription, levels: Sequence[str]) -> RawColumn:
    """Text as numbers or dates where `fit` saw those; refuse times of another time zone.

    Numbers, dates and booleans are refused too where `fit` saw levels none of which is a number: they belong to another
    column and are not new levels.
    """
    column = dates_as_levels(column, levels) if seen.kind in CATEGORICAL else column
    if (
        seen.kind in CATEGORICAL
        and column.kind not in CATEGORICAL
        and levels
        and not any(map(NUMBER.fullmatch, levels))
    ):
        missing = bool(column.missing.all())
        wanted = f"of levels as in fit, such as {levels[0]!r}"
        require(missing, f"column {column.name!r} of X", wanted, "" if missing else column.example)
    column = parse_dates(column) if seen.kind == "date" else column
    if seen.zone and column.zone:
        same = zone_name(column.zone) == zone_name(seen.zone)
        require(same, f"column {column.name!r} of X", f"of the time zone {seen.zone!r} as in fit", column.zone)
    return parse_numbers(column) if column.text and seen.kind == "number" else column


def _read(X: Any, estimator: Any, choice: Any) -> Table:
    options: dict[str, Any] = {"estimator": estimator, "input_name": "X"}
    columns = _raw_columns(X)
    if columns is not None:
        shape = (len(columns[0].values), len(columns)) if columns else tuple(X.shape)
        if 0 in shape:
            kind = "feature(s)" if shape[0] else "sample(s)"
            raise ValueError(f"Found array with 0 {kind} (shape={shape}) while a minimum of 1 is required.")
        return columns
    try:
        array = check_array(X, dtype=[np.float64, np.float32], ensure_all_finite=False, **options)
    except (ValueError, TypeError):
        objects = _objects(X)
        if objects is None:
            raise
        return raw_columns(check_array(objects, dtype=None, ensure_all_finite=False, **options))
    integers = is_frame(X) or np.asarray(X).dtype.kind in "iu"
    rounded = integers and max(array.max(), -array.min()) > EXACT
    if not names_some(choice) and not _has_missing(array) and not rounded:
        return array
    return raw_columns(X if is_frame(X) else np.asarray(X) if rounded else array)


def _simplest(table: Table, estimator: Any) -> Table:
    """An array where all columns are complete numbers."""
    if isinstance(table, np.ndarray):
        return table
    columns = _declared(table, estimator, parse_text)
    if all(column.kind in ("number", "bool") and bool(np.isfinite(column.values).all()) for column in columns):
        return np.column_stack([column.values for column in columns])
    return columns


def _declared(
    columns: Sequence[RawColumn], estimator: Any, others: Callable[[RawColumn], RawColumn] = lambda column: column
) -> list[RawColumn]:
    """Columns as `categorical_features` asks: named ones as levels, all but named text as numbers where it is None.

    `others` converts the columns that it does not name. In `predict` they stay as they are, since their codes convert
    them.
    """
    names = [column.name for column in columns]
    if getattr(estimator, "categorical_features", "from_dtype") is None:
        texts = column_indices(estimator, "text_features", names)
        return [column if k in texts else as_numbers(parse_dates(column)) for k, column in enumerate(columns)]
    named = column_indices(estimator, "categorical_features", names)
    return [as_levels(column) if index in named else others(column) for index, column in enumerate(columns)]


def names_codes(estimator: Any) -> bool:
    """Whether an estimator names the codes of any column."""
    pairs = getattr(estimator, "cyclic_features", None), getattr(estimator, "spherical_features", None)
    return any(map(bool, pairs)) or names_some(getattr(estimator, "text_features", None))


def names_some(choice: Any) -> bool:
    """Whether `categorical_features` or `text_features` names any column."""
    if choice is None or isinstance(choice, str):
        return False
    return len(choice) > 0 and (np.asarray(choice).dtype != bool or bool(np.any(choice)))


def column_indices(estimator: Any, parameter: str, names: Sequence[str]) -> set[int]:
    """The indices of the columns that a parameter names, by name, index or mask."""
    choice = getattr(estimator, parameter, None)
    if choice is None or isinstance(choice, str):
        return set()
    n, entries = len(names), np.asarray(choice).tolist()
    if entries and all(isinstance(entry, bool) for entry in entries):
        require(len(entries) == n, parameter, f"a mask of {n} columns", f"one of {len(entries)}")
        return {index for index, chosen in enumerate(entries) if chosen}
    return {column_index(entry, names, parameter) for entry in entries}


def column_index(entry: Any, names: Sequence[str], parameter: str) -> int:
    """The index of one column that a parameter names."""
    if isinstance(entry, str):
        require(entry in names, parameter, f"of the columns {list(names)[:20]}", entry)
        return list(names).index(entry)
    n = len(names)
    inside = isinstance(entry, Integral) and not isinstance(entry, bool) and -n <= int(entry) < n
    require(inside, parameter, f"names or numbers of {n} columns", entry)
    return int(entry) % n


def _in_order(X: Any, names: Any) -> Any:
    """A frame with its columns in the order of `fit`; refuse other columns."""
    _require_different_columns(X)
    have = column_names(X)
    if names is None or have is None or have == list(names):
        return X
    unseen, missing = sorted(set(have) - set(names)), sorted(set(names) - set(have))
    if unseen or missing:
        more = f"\nFeature names unseen at fit time: {unseen}" if unseen else ""
        more += f"\nFeature names seen at fit time, yet now missing: {missing}" if missing else ""
        raise ValueError(f"The feature names should match those that were passed during fit.{more}")
    return X.select(list(names)) if is_arrow(X) else X[list(names)]


def _require_different_columns(X: Any) -> None:
    """Refuse a frame with duplicate names, text or not, on which scikit-learn's readers fail."""
    require_different(map(str, X.columns) if is_frame(X) else X.column_names if is_arrow(X) else ())


def require_different(names: Iterable[str]) -> None:
    """Refuse duplicate names of columns, by which those of another table could not be found."""
    twice = sorted(name for name, times in Counter(names).items() if times > 1)
    require(not twice, "the names of the columns of X", "different from each other", f"{twice} twice")


def _finite(table: Kept, names: Sequence[str] | None = None) -> Kept:
    """A table clipped to ±`LARGEST`; the first infinity is refused with its row and column."""
    if isinstance(table, np.ndarray) and _within(table):
        return table
    columns = raw_columns(table) if isinstance(table, np.ndarray) else table
    for index, column in enumerate(columns):
        far = np.flatnonzero(np.isinf(column.values))
        if len(far):
            name = names[index] if names else column.name
            where = f"row {far[0]}, column {name!r}"
            raise ValueError(f"X must hold finite numbers or none, got {column.values[far[0]]} in {where}: infinity")
    clipped: Any
    if isinstance(table, np.ndarray):
        clipped = table if table.dtype == np.float32 else np.clip(table, -LARGEST, LARGEST)
    else:
        clipped = [
            column if column.kind in CATEGORICAL else replace(column, values=np.clip(column.values, -LARGEST, LARGEST))
            for column in columns
        ]
    return clipped


def _within(X: np.ndarray) -> bool:
    """Whether no number is missing and all lie within ±`LARGEST`."""
    return float(X.min()) >= -LARGEST and float(X.max()) <= LARGEST


def _filled(X: Any, estimator: Any) -> np.ndarray:
    """Numbers for a model that was fitted to complete numbers; missing ones become the median of their column."""
    fill = getattr(estimator, "fill_", None)
    options: dict[str, Any] = {"dtype": [np.float64, np.float32], "ensure_all_finite": fill is None}
    columns = _raw_columns(X)
    if columns is None:
        array = validate_data(estimator, X, reset=False, **options)
    else:
        columns = [parse_numbers(column) if column.text else column for column in columns]
        if is_frame(X):  # names alone: scikit-learn cannot read durations
            validate_data(estimator, X, reset=False, skip_check_array=True)
        _require_as_many(columns, estimator)
        array = check_array(np.column_stack([numbers(column) for column in columns]), input_name="X", **options)
    array = _finite(array, column_names(X))
    if fill is None or not _has_missing(array):
        return array
    return np.where(np.isnan(array), fill.astype(array.dtype), array)


def _complete(X: Any, estimator: Any) -> bool:
    """Whether a table is an array of finite numbers as in `fit`; takes a fifth of the time of all checks."""
    if type(X) is not np.ndarray or X.dtype not in (np.float64, np.float32) or X.ndim != 2 or not X.size:
        return False
    if X.shape[1] != estimator.n_features_in_ or getattr(estimator, "feature_names_in_", None) is not None:
        return False
    return _within(X)


def _holds_dicts(X: Any) -> bool:
    """Whether a table is a dictionary, a list of dictionaries, or an array of records."""
    return (
        isinstance(X, dict)
        or getattr(getattr(X, "dtype", None), "names", None) is not None
        or (isinstance(X, list | tuple) and len(X) > 0 and isinstance(X[0], dict))
    )


def _raw_columns(X: Any) -> list[RawColumn] | None:
    """The columns of a mixed file, an Arrow table, or a frame that holds not only numbers; None for other tables."""
    if isinstance(X, list) and X and all(isinstance(column, RawColumn) for column in X):
        return X
    require(not _holds_dicts(X), "X", "a table, such as pandas.DataFrame(X)", type(X).__name__ + " with named values")
    by_column = is_arrow(X) or (is_frame(X) and not (X.shape[1] and all(map(holds_numbers, X.dtypes))))
    return raw_columns(X) if by_column else None


def _require_as_many(columns: Sequence[RawColumn], estimator: Any) -> None:
    seen, wanted, name = len(columns), estimator.n_features_in_, type(estimator).__name__
    if seen != wanted:
        raise ValueError(f"X has {seen} features, but {name} is expecting {wanted} features as input")


def _has_missing(X: np.ndarray) -> bool:
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isnan(X.sum())) and bool(np.isnan(X).any())


def _objects(X: Any) -> np.ndarray | None:
    """An array of two dimensions of text, dates or objects; None where `X` is something else."""
    if is_frame(X) or hasattr(X, "tocsr"):
        return None
    try:
        array = np.asarray(X)
        array = np.array(X, dtype=object) if isinstance(X, list | tuple) and array.dtype.kind in "US" else array
    except (ValueError, TypeError):
        return None
    return array if array.ndim == 2 and array.dtype.kind in "OUSM" and array.size else None


@dataclass(frozen=True)
class Constants:
    """The indices of the constant columns of a table, and the value of each.

    >>> from mercer.data import ArrayRows
    >>> held = Constants(np.array([1]), np.array([2024.0]))
    >>> held.in_rows(ArrayRows(np.array([[1.0, 2025.0], [3.0, 2026.0]]))).take([0, 1]).tolist()
    [[1.0, 2024.0], [3.0, 2024.0]]
    """

    columns: np.ndarray
    values: np.ndarray

    def in_rows(self, rows: RowSource) -> RowSource:
        """New rows with the constant values in the constant columns."""
        return _held_sparse(rows, self) if isinstance(rows, SparseRows) else HeldRows(rows, self)

    def mask(self, n_columns: int) -> np.ndarray:
        """A mask of the constant columns among `n_columns`."""
        mask = np.zeros(n_columns, dtype=bool)
        mask[self.columns] = True
        return mask


class HeldRows(TransformedRows):
    """Rows of another source with constant values in the constant columns."""

    def __init__(self, rows: RowSource, constants: Constants) -> None:
        super().__init__(rows)
        self.constants = constants

    def transform(self, block: Tensor) -> Tensor:
        block = block.clone()
        columns = torch.as_tensor(self.constants.columns, device=block.device)
        block[:, columns] = torch.as_tensor(self.constants.values).to(block)
        return block


def find_constants(rows: RowSource, weight: np.ndarray) -> Constants | None:
    """Find the columns with one value in all rows of positive weight, on all processes; None where there are none.

    Rows are read until every column has shown a second value, which is in the first block of most tables.
    """
    if isinstance(rows, SparseRows):
        return _in_sparse(rows, weight)
    alive = torch.as_tensor(weight > 0)
    first = rows.fetch(rows.shard.spaced(alive, 1).numpy()).double().cpu()[0]
    columns = torch.arange(rows.n_columns)
    for start, block in rows.blocks(max(NUMBERS // rows.n_columns, 1)):
        here = alive[start : start + len(block)].to(block.device)
        seen, value = block[:, columns.to(block.device)][here].double().cpu(), first[columns]
        columns = columns[((seen - value).abs() <= ROUNDING * value.abs()).all(0)]
        if not len(columns):
            break
    varies = torch.ones(rows.n_columns).index_fill(0, columns, 0.0)
    constant = (rows.shard.group.sum(varies) == 0).nonzero()[:, 0]
    return Constants(constant.numpy(), first[constant].numpy()) if len(constant) else None


def _in_sparse(rows: SparseRows, weight: np.ndarray) -> Constants | None:
    table = rows.entries.table[np.flatnonzero(weight > 0)]
    low, high = table.min(axis=0).toarray().reshape(-1), table.max(axis=0).toarray().reshape(-1)
    columns = np.flatnonzero(high - low <= ROUNDING * np.abs(high))
    return Constants(columns, high[columns]) if len(columns) else None


def _held_sparse(rows: SparseRows, constants: Constants) -> SparseRows:
    table = rows.entries.table.copy()
    table.data *= ~constants.mask(rows.n_columns)[table.indices]
    table.eliminate_zeros()
    filled = constants.values != 0
    if not filled.any():
        return SparseRows(table)
    entries = constants.values[filled], constants.columns[filled], [0, int(filled.sum())]
    row = scipy.sparse.csr_array(entries, shape=(1, rows.n_columns))
    return SparseRows(table + scipy.sparse.csr_array(np.ones((rows.n_rows, 1))) @ row)


class FiniteRows(RowSource):
    """Rows of a source, clipped to ±`LARGEST`; the first NaN or infinity is refused with its row and column.

    A thread reads, decodes and checks the next blocks while the caller works on the current one.
    """

    def __init__(self, rows: RowSource) -> None:
        self.rows = rows
        self.n_rows, self.n_columns, self.shard = rows.n_rows, rows.n_columns, rows.shard
        require(self.n_rows > 0 or self.shard.divided, "the number of rows", "at least 1", self.n_rows)
        require(self.n_columns > 0, "the number of columns", "at least 1", self.n_columns)

    def blocks(self, size: int) -> Iterator[tuple[int, Tensor]]:
        return read_ahead(self._checked(size)) if size < self.n_rows else self._checked(size)

    def _checked(self, size: int) -> Iterator[tuple[int, Tensor]]:
        for start, block in self.rows.blocks(size):
            yield start, self._finite(block, lambda i, start=start: start + i)

    def take(self, index: Any) -> Tensor:
        return self._finite(self.rows.take(index), lambda i: int(np.asarray(torch.as_tensor(index).cpu())[i]))

    def names(self) -> Sequence[str] | None:
        return self.rows.names()

    def _finite(self, block: Tensor, row_of: Any) -> Tensor:
        if not block.numel() or (float(block.min()) >= -LARGEST and float(block.max()) <= LARGEST):
            return block
        if not bool(block.isfinite().all()):
            row, column = (~block.isfinite()).nonzero()[0].tolist()
            names = self.names()
            index = int(self.shard.global_indices(np.array([row_of(row)]))[0])
            where = f"row {index}, column {names[column] if names is not None else column}"
            value = float(block[row, column])
            advice = "; numbers are missing where Parquet holds null, CSV an empty field, or an array in memory NaN"
            seen = f"{value} in {where}: NaN or infinity"
            raise ValueError(f"X must hold finite numbers, got {seen}{advice if np.isnan(value) else ''}")
        return block.clamp(-LARGEST, LARGEST)


def dense_or_sparse(X: Any, estimator: Any) -> Any:
    """A sparse matrix, tensor or LIBSVM file as an array, or as sparse rows where it is wide and the estimator allows.

    Other tables are returned as they are.
    """
    if isinstance(X, LibsvmRows):
        return X.sparse() if _stays_sparse(X.n_columns, estimator) else X
    X = _unpacked(X, estimator)
    matrix = X.entries.table if isinstance(X, SparseRows) else sparse_matrix(X)
    if matrix is None:
        return X
    require(matrix.ndim == 2, "X", "a matrix of two dimensions", matrix.shape)
    if matrix.shape[0] and _stays_sparse(matrix.shape[1], estimator):
        return X if isinstance(X, SparseRows) else SparseRows(matrix)
    n, D = matrix.shape
    limit = make_plan(max(n, 1), "cpu", "float64", getattr(estimator, "memory_limit", None)).memory_limit
    wanted = f"at most {limit / 2**30:.3g} GiB when made dense, which {type(estimator).__name__} needs of it"
    require(8 * n * D <= limit, "X", wanted, f"a sparse matrix of {8 * n * D / 2**30:.3g} GiB")
    return matrix.toarray()


def _unpacked(X: Any, estimator: Any) -> Any:
    """A pandas frame all of whose columns are sparse as a dense frame, or as a matrix where that stays sparse."""
    dtypes = list(X.dtypes) if hasattr(X, "iloc") and is_frame(X) else []
    if not dtypes or not all(hasattr(dtype, "fill_value") and hasattr(dtype, "subtype") for dtype in dtypes):
        return X
    mostly_zeros = all(dtype.fill_value == 0 for dtype in dtypes)
    return X.sparse.to_coo() if mostly_zeros and _stays_sparse(len(dtypes), estimator) else X.sparse.to_dense()


def _stays_sparse(n_columns: int, estimator: Any) -> bool:
    return n_columns > DENSE_COLUMNS and getattr(estimator, "_accepts_wide_sparse", False) and not estimator._pairwise

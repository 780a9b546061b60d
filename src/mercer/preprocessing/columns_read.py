"""Which way a table goes: numbers alone pass as they are, anything else goes column by column.

Numbers without gaps, in an array, tensor or frame, are checked as scikit-learn checks them, and nothing else happens
to them. Text, categories, dates, gaps and columns named in `categorical_features` make a list of columns.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from numbers import Integral
from typing import Any, TypeVar

import numpy as np
from sklearn.utils.validation import _get_feature_names, check_array, validate_data

from mercer.data.frames import column_names, is_arrow, is_frame, only_numbers, raw_columns
from mercer.data.raw import (
    CATEGORICAL,
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
from mercer.parts import require
from mercer.preprocessing.columns import ByLevel, Described, Rank, numbers

Table = np.ndarray | list[RawColumn]
Kept = TypeVar("Kept", bound=Table)
#: Words for the values of columns that have no levels.
KINDS = {"number": "numbers", "bool": "booleans", "date": "days since 1970"}


def names_of(X: Any) -> np.ndarray | None:
    """Names of the columns, all of them text and no two the same, or none."""
    own = column_names(X)
    require_different(own or ())
    names = _get_feature_names(X)  # which refuses names of several types
    return np.asarray(own, dtype=object) if names is None and own is not None else names


def numbers_or_columns(X: Any, estimator: Any) -> Table:
    """The table of `fit`, as an array of finite numbers where it is one, else column by column."""
    if getattr(estimator, "_pairwise", False):
        return check_array(X, dtype=[np.float64, np.float32], estimator=estimator, input_name="X")
    choice = getattr(estimator, "categorical_features", "from_dtype")
    return _finite(_simplest(_read(X, estimator, choice), choice), column_names(X))


def new_numbers_or_columns(X: Any, estimator: Any) -> Table:
    """The table of `predict`, its columns in the order of `fit` wherever they have names."""
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
    both = enumerate(zip(columns, table.described, strict=True))
    new = [_as_in_fit(one, seen, levels.get(place, ())) for place, (one, seen) in both]
    return _finite(_declared(new, choice))


def _as_in_fit(column: RawColumn, seen: Described, levels: Sequence[str]) -> RawColumn:
    """Text as numbers or dates where those were some in `fit`; times of another zone's clock are refused.

    So are numbers, dates and booleans where `fit` saw levels none of which is a number: they are another column,
    not levels that appear for the first time.
    """
    column = dates_as_levels(column, levels) if seen.kind in CATEGORICAL else column
    if (
        seen.kind in CATEGORICAL
        and column.kind not in CATEGORICAL
        and levels
        and not any(map(NUMBER.fullmatch, levels))
    ):
        there = column.values[~column.missing]
        wanted = f"of levels as in fit, such as {levels[0]!r}"
        got = f"{KINDS[column.kind]} such as {there[0]:.6g}" if len(there) else ""
        require(not len(there), f"column {column.name!r} of X", wanted, got)
    column = parse_dates(column) if seen.kind == "date" else column
    if seen.zone and column.zone:
        same = zone_name(column.zone) == zone_name(seen.zone)
        require(same, f"column {column.name!r} of X", f"of the time zone {seen.zone!r} as in fit", column.zone)
    return parse_numbers(column) if column.text and seen.kind == "number" else column


def _read(X: Any, estimator: Any, choice: Any) -> Table:
    options: dict[str, Any] = {"estimator": estimator, "input_name": "X"}
    require(not _holds_dicts(X), "X", "a table, such as pandas.DataFrame(X)", type(X).__name__ + " with named values")
    columns = _whole_columns(X)
    if columns is not None:
        shape = (len(columns[0].values), len(columns)) if columns else tuple(X.shape)
        if 0 in shape:
            kind = "feature(s)" if shape[0] else "sample(s)"
            raise ValueError(f"Found array with 0 {kind} (shape={shape}) while a minimum of 1 is required.")
        return columns
    try:
        array = check_array(X, dtype=[np.float64, np.float32], ensure_all_finite=False, **options)
    except (ValueError, TypeError):
        whole = _objects(X)
        if whole is None:
            raise
        return raw_columns(check_array(whole, dtype=None, ensure_all_finite=False, **options))
    if not _names_some(choice) and not _has_gaps(array):
        return array
    return raw_columns(X if is_frame(X) else array)


def _simplest(table: Table, choice: Any) -> Table:
    """An array again where nothing but complete numbers was found."""
    if isinstance(table, np.ndarray):
        return table
    columns = _declared(table, choice, parse_text)
    plain = all(one.kind in ("number", "bool") and bool(np.isfinite(one.values).all()) for one in columns)
    return np.column_stack([one.values for one in columns]) if plain else columns


def _declared(
    columns: Sequence[RawColumn], choice: Any, others: Callable[[RawColumn], RawColumn] = lambda column: column
) -> list[RawColumn]:
    """Columns as `categorical_features` wants them: levels where it names them, numbers where nothing is one.

    What `others` are in `fit`, such as dates written as text, they are in `predict`, where their codes know it.
    """
    if choice is None:
        return [as_numbers(parse_dates(column)) for column in columns]
    named = _places(choice, [column.name for column in columns])
    return [as_levels(column) if place in named else others(column) for place, column in enumerate(columns)]


def _names_some(choice: Any) -> bool:
    """Whether `categorical_features` names any column."""
    if choice is None or (isinstance(choice, str) and choice == "from_dtype"):
        return False
    return len(choice) > 0 and (np.asarray(choice).dtype != bool or bool(np.any(choice)))


def _places(choice: Any, names: Sequence[str]) -> set[int]:
    """The places of the columns that `categorical_features` names, by name, number or mask."""
    if isinstance(choice, str):
        return set()
    n, given = len(names), np.asarray(choice).tolist()
    if given and all(isinstance(one, bool) for one in given):
        require(len(given) == n, "categorical_features", f"a mask of {n} columns", f"one of {len(given)}")
        return {place for place, chosen in enumerate(given) if chosen}
    found = set()
    for one in given:
        if isinstance(one, str):
            require(one in names, "categorical_features", f"of the columns {list(names)[:20]}", one)
            found.add(list(names).index(one))
        else:
            inside = isinstance(one, Integral) and -n <= int(one) < n
            require(inside, "categorical_features", f"names or numbers of {n} columns", one)
            found.add(int(one) % n)
    return found


def _in_order(X: Any, names: Any) -> Any:
    """A frame with its columns as in `fit`, where it has the same ones in another order."""
    have = column_names(X)
    if names is None or have is None or have == list(names):
        return X
    odd, missing = sorted(set(have) - set(names)), sorted(set(names) - set(have))
    if odd or missing:
        more = f"\nFeature names unseen at fit time: {odd}" if odd else ""
        more += f"\nFeature names seen at fit time, yet now missing: {missing}" if missing else ""
        raise ValueError(f"The feature names should match those that were passed during fit.{more}")
    require_different(have)
    return X.select(list(names)) if is_arrow(X) else X[list(names)]


def require_different(names: Iterable[str]) -> None:
    """Refuse columns of the same name: those of another table could not be told apart."""
    twice = sorted(name for name, times in Counter(names).items() if times > 1)
    require(not twice, "the names of the columns of X", "different from each other", f"{twice} twice")


def _finite(table: Kept, names: Sequence[str] | None = None) -> Kept:
    """A table without infinities, within ±`LARGEST`; the first infinity is refused with its place."""
    if isinstance(table, np.ndarray) and _within(table):
        return table
    columns = raw_columns(table) if isinstance(table, np.ndarray) else table
    for place, column in enumerate(columns):
        far = np.flatnonzero(np.isinf(column.values))
        if len(far):
            name = names[place] if names else column.name
            where = f"row {far[0]}, column {name!r}"
            raise ValueError(f"X must hold finite numbers or none, got {column.values[far[0]]} in {where}: infinity")
    clipped: Any
    if isinstance(table, np.ndarray):
        clipped = table if table.dtype == np.float32 else np.clip(table, -LARGEST, LARGEST)
    else:
        clipped = [one if one.kind in CATEGORICAL else _clipped(one) for one in columns]
    return clipped


def _clipped(column: RawColumn) -> RawColumn:
    return replace(column, values=np.clip(column.values, -LARGEST, LARGEST))


def _within(X: np.ndarray) -> bool:
    """Whether all numbers are there and lie within ±`LARGEST`."""
    return float(X.min()) >= -LARGEST and float(X.max()) <= LARGEST


def _filled(X: Any, estimator: Any) -> np.ndarray:
    """Numbers for a model of complete numbers: where one is missing now, the median of its column stands."""
    fill = getattr(estimator, "fill_", None)
    options: dict[str, Any] = {"dtype": [np.float64, np.float32]}
    options["ensure_all_finite"] = fill is None
    columns = _whole_columns(X)
    if columns is None:
        array = validate_data(estimator, X, reset=False, **options)
    else:
        columns = [parse_numbers(column) if column.text else column for column in columns]
        if is_frame(X):  # its names; scikit-learn cannot read durations
            validate_data(estimator, X, reset=False, skip_check_array=True)
        _require_as_many(columns, estimator)
        array = check_array(np.column_stack([numbers(one) for one in columns]), input_name="X", **options)
    array = _finite(array, column_names(X))
    if fill is None or not _has_gaps(array):
        return array
    return np.where(np.isnan(array), fill.astype(array.dtype), array)


def _complete(X: Any, estimator: Any) -> bool:
    """Whether a table is an array of finite numbers as in `fit`: all checks say yes, at a fifth of a few rows' time."""
    if type(X) is not np.ndarray or X.dtype not in (np.float64, np.float32) or X.ndim != 2 or not X.size:
        return False
    if X.shape[1] != estimator.n_features_in_ or getattr(estimator, "feature_names_in_", None) is not None:
        return False
    return _within(X)


def _holds_dicts(X: Any) -> bool:
    """Whether rows or columns came as a dictionary, as a list of them, or as an array of records."""
    return (
        isinstance(X, dict)
        or getattr(getattr(X, "dtype", None), "names", None) is not None
        or (isinstance(X, list | tuple) and len(X) > 0 and isinstance(X[0], dict))
    )


def _whole_columns(X: Any) -> list[RawColumn] | None:
    """The columns of what is read column by column by its type: files, Arrow, frames that hold not only numbers."""
    if isinstance(X, list) and X and all(isinstance(one, RawColumn) for one in X):
        return X
    by_column = is_arrow(X) or (is_frame(X) and not (X.shape[1] and only_numbers(X)))
    return raw_columns(X) if by_column else None


def _require_as_many(columns: Sequence[RawColumn], estimator: Any) -> None:
    seen, wanted, name = len(columns), estimator.n_features_in_, type(estimator).__name__
    if seen != wanted:
        raise ValueError(f"X has {seen} features, but {name} is expecting {wanted} features as input")


def _has_gaps(X: np.ndarray) -> bool:
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isnan(X.sum())) and bool(np.isnan(X).any())


def _objects(X: Any) -> np.ndarray | None:
    """Text, dates or objects in an array of two dimensions; None where that is not what `X` is."""
    if is_frame(X) or hasattr(X, "tocsr"):
        return None
    try:
        array = np.asarray(X)
        array = np.array(X, dtype=object) if isinstance(X, list | tuple) and array.dtype.kind in "US" else array
    except (ValueError, TypeError):
        return None
    return array if array.ndim == 2 and array.dtype.kind in "OUSM" and array.size else None

"""Tables of the command line: CSV, Parquet and Arrow files, in the forms that estimators and reports take."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mercer.data import CsvRows, ParquetRows, RowSource
from mercer.parts import require

ARROW = (".arrow", ".feather", ".ipc")
TABLE = "a .csv, .parquet (or folder of them), .arrow or .feather file"


def table(path: str, target: str, without: Sequence[str] = (), encoding: str | None = None) -> tuple[Any, Any]:
    """Rows with their targets: a source that knows its column of targets, or an Arrow table and a column."""
    source = _source(path, target, encoding)
    if isinstance(source, RowSource):
        inputs = _inputs(path, source.names() or (), target, without)
        return (source.select(inputs) if without else source), None
    inputs = _inputs(path, source.column_names, target, without)
    return source.select(inputs), source[target].to_numpy(zero_copy_only=False)


def _inputs(path: str, names: Sequence[str], target: str, without: Sequence[str]) -> list[str]:
    """Names of the inputs."""
    for name in without:
        require(name in names, "--without", f"one of the columns of {path}, {list(names)}", name)
    return [name for name in names if name not in (target, *without)]


def _suffix(path: str, encoding: str | None) -> str:
    """The ending of a table's name; CSV files alone have an encoding."""
    require(Path(path).exists(), "TABLE", "a file or folder that exists", path)
    suffix = Path(path).suffix.lower()
    require(encoding is None or suffix == ".csv", "--encoding", f"left out for {path}, which is no CSV file", encoding)
    return suffix


def _csv(path: str, target: int | str | None, encoding: str | None) -> CsvRows:
    return CsvRows(path, target=target, encoding=encoding or "utf-8")


def _source(path: str, target: str, encoding: str | None) -> Any:
    suffix = _suffix(path, encoding)
    if suffix in ARROW:
        table = _arrow(path)
        require(target in table.column_names, f"{path}", f"a table with a column {target!r}", table.column_names)
        return table
    if suffix == ".csv":
        number = target.lstrip("-").isdigit() and _csv(path, None, encoding).names() is None
        return _csv(path, int(target) if number else target, encoding)
    if suffix == ".parquet" or Path(path).is_dir():
        return ParquetRows(path, target=target)
    raise ValueError(f"TABLE must be {TABLE}, got {path}")


def rows(path: str, model: Any, encoding: str | None = None) -> Any:
    """New rows: the columns that the model was fitted on, in their order."""
    suffix = _suffix(path, encoding)
    if encoding is not None:
        return _csv(path, None, encoding)
    if suffix not in ARROW:
        return path
    return _named_columns(path, _arrow(path), getattr(model, "feature_names_in_", None))


def rows_and_targets(path: str, target: str, names: Any, encoding: str | None = None) -> tuple[Any, Any]:
    """The model's columns of a table, and the targets, for a report."""
    X, y = table(path, target, encoding=encoding)
    return (X, X.targets()) if y is None else (_named_columns(path, X, names), y)


def _named_columns(path: str, table: Any, names: Any) -> Any:
    if names is None:
        return table
    missing = [name for name in names if name not in table.column_names]
    require(not missing, path, f"a table with the columns {missing}", table.column_names)
    return table.select(list(names))


def _arrow(path: str) -> Any:
    try:
        import pyarrow.feather
    except ImportError:
        raise ImportError("reading Arrow files needs pyarrow: pip install 'mercer[files]'") from None
    try:
        return pyarrow.feather.read_table(path)
    except pyarrow.ArrowInvalid as fault:
        raise ValueError(f"{path} is no Arrow file: {fault}") from None

"""Tables of the command line: CSV, Parquet and Arrow files, in the forms that estimators and reports take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from mercer.data import CsvRows, ParquetRows, RowSource
from mercer.parts import require

ARROW = (".arrow", ".feather", ".ipc")
CSV = (".csv", ".tsv")
TABLE = "a .csv, .tsv, .parquet (or folder of them), .arrow or .feather file, or - for CSV from standard input"


@dataclass(frozen=True)
class CsvFormat:
    """Encoding and delimiter of a CSV file; None for UTF-8, and for a comma or the tab of .tsv files."""

    encoding: str | None = None
    delimiter: str | None = None


PLAIN = CsvFormat()


def table(path: str, target: str, without: Sequence[str] = (), form: CsvFormat = PLAIN) -> tuple[Any, Any]:
    """Rows with their targets: a source that knows its column of targets, or an Arrow table and a column."""
    source = _source(path, target, form)
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


def _suffix(path: str, form: CsvFormat) -> str:
    """The ending of a table's name; CSV files alone have an encoding and a delimiter."""
    require(Path(path).exists(), "TABLE", "a file or folder that exists", path)
    suffix = Path(path).suffix.lower()
    for name, value in (("--encoding", form.encoding), ("--delimiter", form.delimiter)):
        require(value is None or suffix in CSV, name, f"left out for {path}, which is no CSV file", value)
    return suffix


def _csv(path: str, target: int | str | None, form: CsvFormat, columns: Sequence[str] | None = None) -> CsvRows:
    tab = form.delimiter == "tab" or (form.delimiter is None and Path(path).suffix.lower() == ".tsv")
    delimiter = "\t" if tab else form.delimiter or ","
    return CsvRows(path, target, columns, delimiter, form.encoding or "utf-8")


def _source(path: str, target: str, form: CsvFormat) -> Any:
    suffix = _suffix(path, form)
    if suffix in ARROW:
        table = _arrow(path)
        require(target in table.column_names, f"{path}", f"a table with a column {target!r}", table.column_names)
        return table
    if suffix in CSV:
        number = target.lstrip("-").isdigit() and _csv(path, None, form).names() is None
        return _csv(path, int(target) if number else target, form)
    if suffix == ".parquet" or Path(path).is_dir():
        return ParquetRows(path, target=target)
    raise ValueError(f"TABLE must be {TABLE}, got {path}")


def rows(path: str, model: Any, form: CsvFormat = PLAIN) -> Any:
    """New rows: the columns that the model was fitted on, in their order."""
    suffix = _suffix(path, form)
    if suffix == ".tsv" or form != PLAIN:
        return _csv(path, None, form)
    if suffix not in ARROW:
        return path
    return _named_columns(path, _arrow(path), getattr(model, "feature_names_in_", None))


def kept_columns(path: str, names: Sequence[str], form: CsvFormat = PLAIN) -> dict[str, np.ndarray]:
    """Columns of a table as they stand there, such as identifiers; those of CSV files as text."""
    if not names:
        return {}
    suffix = _suffix(path, form)
    if suffix in CSV:
        _require_columns(path, _csv(path, None, form).names() or (), names)
        return dict(zip(names, _csv(path, None, form, list(names)).texts().T, strict=True))
    if suffix in ARROW:
        found = _arrow(path)
        _require_columns(path, found.column_names, names)
    else:
        _require_columns(path, ParquetRows(path).names() or (), names)
        found = import_module("pyarrow.parquet").read_table(path, columns=list(names))
    return {name: np.array(found[name].to_pylist(), dtype=object) for name in names}


def _require_columns(path: str, known: Sequence[str], names: Sequence[str]) -> None:
    for name in names:
        require(name in known, "--keep", f"one of the columns of {path}, {list(known)}", name)


def rows_and_targets(path: str, target: str, names: Any, form: CsvFormat = PLAIN) -> tuple[Any, Any]:
    """The model's columns of a table, and the targets, for a report."""
    X, y = table(path, target, form=form)
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

"""The command line, ``mercer``: from a table to a fitted model, its predictions, its report and its ONNX graph.

A command is a function of its parsed arguments that returns its result; `main` prints that as words or as JSON, and
turns an error into its sentence and an exit code.
"""

from __future__ import annotations

import argparse
import ast
import csv
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

import mercer
from mercer.atomic_write import require_place, write_atomically
from mercer.data import CsvRows, ParquetRows
from mercer.doctor import checkup
from mercer.files import describe
from mercer.parts import require, visible
from mercer.reporting.section import to_json

#: Exit codes: done; something is broken; the table, the model or the arguments are not what they should be; Ctrl-C.
DONE, BROKEN, REFUSED, INTERRUPTED = 0, 1, 2, 130
#: Most characters of a value on the command line.
MAX_VALUE_LENGTH = 10_000
#: Rows whose predictions are written at a time.
WRITTEN_ROWS = 10_000
ARROW = (".arrow", ".feather", ".ipc")
CSV = (".csv", ".tsv")
TABLE = "a .csv, .tsv, .parquet (or folder of them), .arrow or .feather file, or - for CSV from standard input"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit code says how it ended."""
    options = _parser().parse_args(arguments)
    try:
        with _standard_input(options):
            result = options.command(options)
    except KeyboardInterrupt:
        print("mercer: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # the reader of our output closed it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
    except (ValueError, TypeError, OSError, ImportError, NotImplementedError, MemoryError) as fault:
        sentence = _sentence(fault)
        print(json.dumps({"error": sentence}) if options.json else f"mercer: {visible(sentence)}", file=sys.stderr)
        return REFUSED
    if result and options.json:
        print(json.dumps(to_json(result)))
    elif result:
        print("\n".join(map(visible, _lines(result))))
    return BROKEN if result and result.get("healthy") is False else DONE


@contextmanager
def _standard_input(options: argparse.Namespace) -> Iterator[None]:
    """Let `options.table` name a file with what standard input holds where it is "-"."""
    if getattr(options, "table", None) != "-":
        yield
        return
    with tempfile.TemporaryDirectory() as folder:
        options.table = str(Path(folder, "stdin.csv"))
        with open(options.table, "wb") as file:
            shutil.copyfileobj(sys.stdin.buffer, file)
        yield


def _table(options: argparse.Namespace) -> TableFile:
    return TableFile(options.table, options.encoding, options.delimiter)


def _sentence(fault: Exception) -> str:
    """The message of an error on one line, without the number of a system error."""
    if isinstance(fault, OSError) and fault.strerror:
        return f"{fault.filename}: {fault.strerror}" if fault.filename else fault.strerror
    return " ".join(str(fault).split()) or type(fault).__name__


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="mercer", description="Kernel machines from the command line.")
    parser.add_argument("--version", action="version", version=mercer.__version__)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    def command(function: Any, about: str, *positional: str) -> argparse.ArgumentParser:
        added = commands.add_parser(function.__name__.strip("_"), help=about, description=about)
        for name in positional:
            added.add_argument(name.lower(), metavar=name, help=HELP[name])
        added.add_argument("--json", action="store_true", help="answer in JSON")
        if "TABLE" in positional:
            words = "of a CSV file that is not in UTF-8, such as cp1252"
            added.add_argument("--encoding", metavar="NAME", help=f"the encoding {words}")
            added.add_argument("--delimiter", metavar="CHARACTER", help="between fields of a CSV file (,), or tab")
        added.set_defaults(command=function)
        return added

    fit = command(_fit, "Fit a model to a table and write it to a file.", "TABLE")
    fit.add_argument("--target", required=True, help="the column to predict, by its name (or number, without a header)")
    fit.add_argument("--out", required=True, metavar="MODEL", help="the file to write")
    fit.add_argument(
        "--estimator", default="KernelBoosting", help="a public estimator; Regressor or Classifier is added"
    )
    fit.add_argument("--task", default="auto", choices=["auto", "regression", "classification"],
                     help="auto: text and booleans are classes, numbers are numbers")  # fmt: skip
    fit.add_argument("--without", action="append", default=[], metavar="COLUMN", help="a column that is no input")
    size = fit.add_mutually_exclusive_group()
    size.add_argument("--small", action="store_true", help="a smaller file: leave out what no prediction needs")
    size.add_argument("--stages", action="store_true", help="a larger file: keep the model after each step")
    fit.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a parameter of the estimator")
    fit.add_argument("--time", type=float, metavar="SECONDS", help="the time that fitting may take")
    fit.add_argument("--seed", type=int, default=0, help="of everything random (0)")
    fit.add_argument("--quiet", action="store_true", help="no progress bar")
    predict = command(_predict, "Predict the rows of a table, as CSV.", "MODEL", "TABLE")
    predict.add_argument("--out", metavar="CSV", help="the file to write instead of standard output")
    predict.add_argument("--proba", action="store_true", help="probabilities of all classes too")
    predict.add_argument(
        "--interval", type=float, metavar="COVERAGE", help="ends of intervals, or sets of classes, too"
    )
    predict.add_argument("--keep", action="append", default=[], metavar="COLUMN", help="a column to carry over")
    predict.add_argument("--std", action="store_true", help="standard deviations too")
    report = command(_report, "Write a page about a model and how it does on a table.", "MODEL", "TABLE")
    report.add_argument("--out", required=True, metavar="HTML", help="the file to write")
    report.add_argument("--target", help="the column of targets, where it is not the one of fit")
    report.add_argument("--train", metavar="TABLE", help="the table of fit, for a comparison on equal footing")
    export = command(_export, "Write a model as an ONNX graph.", "MODEL")
    export.add_argument("--onnx", required=True, metavar="ONNX", help="the file to write")
    export.add_argument("--dtype", default="float32", choices=["float32", "float64"], help="of inputs and outputs")
    command(_info, "Describe a model file.", "MODEL")
    command(_doctor, "Check this installation and its speed.")
    return parser


HELP = {"TABLE": TABLE, "MODEL": "a file of `mercer fit`"}


# Commands


def _fit(options: argparse.Namespace) -> dict[str, Any]:
    began = time.perf_counter()
    X, y = _table(options).with_targets(options.target, options.without)
    classes = options.task == "classification"
    if options.task == "auto":
        classes = np.asarray(X.targets() if y is None else y).dtype.kind in "OUSb"
    model = _estimator(options, classes)
    require_place(options.out, "--out")
    model.fit(X, y)
    model.save(options.out, small=options.small, stages=options.stages)
    return {
        "model": options.out,
        "estimator": type(model).__name__,
        "rows": X.n_rows if hasattr(X, "n_rows") else len(X),
        "columns": model.n_features_in_,
        "classes": getattr(model, "classes_", None),
        "stopped": getattr(model, "stop_reason_", None),
        "seconds": round(time.perf_counter() - began, 2),
        "bytes": Path(options.out).stat().st_size,
    }


def _predict(options: argparse.Namespace) -> dict[str, Any] | None:
    model = mercer.load(options.model)
    require(hasattr(model, "predict"), "the model", "one that predicts", type(model).__name__)
    table = _table(options)
    columns = table.columns(options.keep) | _predicted(model, table.rows(model), options)
    if options.out is None:
        _write(sys.stdout, columns, options.json)
        return None
    write_atomically(options.out, lambda file: _write(file, columns, options.json), text=True)
    return {"predictions": options.out, "rows": len(next(iter(columns.values())))}


def _report(options: argparse.Namespace) -> dict[str, Any]:
    model = mercer.load(options.model)
    target = options.target or getattr(model, "target_column_", None)
    require(target is not None, "--target", "the column of targets", target)
    require_place(options.out, "--out")
    fitted = (None, None)
    if options.train is not None:
        fitted = TableFile(options.train, options.encoding, options.delimiter).rows_and_targets(model, str(target))
    X, y = _table(options).rows_and_targets(model, str(target))
    made = mercer.report(model, X, y, path=options.out, X_train=fitted[0], y_train=fitted[1])
    verdict = list(made.sections[0].words)
    result = {"report": options.out, "bytes": Path(options.out).stat().st_size, "verdict": verdict}
    return {**result, "numbers": made.to_dict()} if options.json else result


def _export(options: argparse.Namespace) -> dict[str, Any]:
    graph = mercer.to_onnx(mercer.load(options.model), options.onnx, dtype=options.dtype)
    outputs = [output.name for output in graph.graph.output]
    return {"graph": options.onnx, "outputs": outputs, "bytes": Path(options.onnx).stat().st_size}


def _info(options: argparse.Namespace) -> dict[str, Any]:
    described = describe(options.model)
    return described if options.json else {name: value for name, value in described.items() if name != "arrays"}


def _doctor(options: argparse.Namespace) -> dict[str, Any]:
    return checkup()


# Estimators


def _estimator(options: argparse.Namespace, classes: bool) -> Any:
    """The estimator that was named, with the parameters that were set."""
    public = {name: getattr(mercer, name) for name in mercer.__all__ if isinstance(getattr(mercer, name), type)}
    suffix = "Classifier" if classes else "Regressor"
    name = options.estimator if options.estimator in public else f"{options.estimator}{suffix}"
    require(name in public, "--estimator", f"one of {sorted(public)}", options.estimator)
    model = public[name]()
    known = model.get_params()
    settings = dict(map(_setting, options.set))
    if options.time is not None:
        settings["time_budget"] = options.time
    for key in settings:
        outer, inner, _ = key.partition("__")
        nested = not inner or hasattr(known.get(outer), "set_params")
        require(outer in known and nested, "--set", f"a parameter of {name}: {sorted(known)}", key)
    shown = {"random_state": options.seed, "verbose": sys.stderr.isatty() and not (options.quiet or options.json)}
    return model.set_params(**{key: value for key, value in shown.items() if key in known} | settings)


def _setting(text: str) -> tuple[str, Any]:
    """A name and a value: a Python literal, or the text itself."""
    name, equals, value = text.partition("=")
    require(bool(equals and name), "--set", "NAME=VALUE", text)
    require(len(value) <= MAX_VALUE_LENGTH, "--set", f"a value of at most {MAX_VALUE_LENGTH} characters", len(value))
    try:
        return name, ast.literal_eval(value)
    except (ValueError, SyntaxError, MemoryError, RecursionError):  # the last two of values nested too deep
        return name, value


# Predictions


def _predicted(model: Any, X: Any, options: argparse.Namespace) -> dict[str, np.ndarray]:
    """The columns of predictions by their names."""
    able = {"--proba": hasattr(model, "predict_proba"), "--std": "return_std" in model.predict.__code__.co_varnames}
    require(able["--proba"] or not options.proba, "--proba", "left out: the model has no classes", True)
    require(able["--std"] or not options.std, "--std", "left out: the model knows no standard deviations", True)
    mean, std = model.predict(X, return_std=True) if options.std else (model.predict(X), None)
    columns = _named("prediction", mean) | ({} if std is None else _named("std", std))
    if options.interval is not None:
        columns |= _interval(model, X, options.interval)
    if options.proba:
        p = model.predict_proba(X)
        names = model.classes_ if np.ndim(model.classes_) == 1 else range(p.shape[1])  # several labels per row
        columns |= {f"p_{name}": column for name, column in zip(names, p.T, strict=True)}
    return columns


def _interval(model: Any, X: Any, coverage: float) -> dict[str, np.ndarray]:
    """Ends of intervals; for classes the set of each row, its classes joined by a bar."""
    if hasattr(model, "predict_set"):
        sets = model.predict_set(X, coverage)
        return {"set": np.array(["|".join(map(str, model.classes_[row])) for row in sets], dtype=object)}
    able = hasattr(model, "predict_interval")
    require(able, "--interval", "left out: the model has neither intervals nor sets", coverage)
    low, high = np.moveaxis(model.predict_interval(X, coverage), -1, 0)
    return _named("lower", low) | _named("upper", high)


def _named(name: str, values: np.ndarray) -> dict[str, np.ndarray]:
    return {name: values} if values.ndim == 1 else {f"{name}_{k}": column for k, column in enumerate(values.T)}


def _write(file: Any, columns: dict[str, np.ndarray], as_json: bool) -> None:
    if as_json:
        file.write(json.dumps({name: values.tolist() for name, values in columns.items()}) + "\n")
        return
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(columns)
    n = len(next(iter(columns.values())))
    for start in range(0, n, WRITTEN_ROWS):
        part = [values[start : start + WRITTEN_ROWS].tolist() for values in columns.values()]
        writer.writerows(zip(*part, strict=True))


def _lines(result: dict[str, Any], indent: str = "") -> list[str]:
    """The result of a command, a line for each item."""
    lines = []
    for name, value in result.items():
        if isinstance(value, dict):
            lines += [f"{indent}{name}:", *_lines(value, f"{indent}  ")]
        elif value is not None and name == "verdict":
            lines += [f"{indent}{sentence}" for sentence in value]
        elif value is not None:
            several = isinstance(value, list | tuple | np.ndarray)
            lines.append(f"{indent}{name}: {', '.join(map(str, value)) if several else value}")
    return lines


@dataclass(frozen=True)
class TableFile:
    """A table on the command line; encoding and delimiter are those of a CSV file, or None.

    These are UTF-8, and a comma or the tab of .tsv files, where they are None.
    """

    path: str
    encoding: str | None = None
    delimiter: str | None = None

    def __post_init__(self) -> None:
        require(Path(self.path).exists(), "TABLE", "a file or folder that exists", self.path)
        for name, value in (("--encoding", self.encoding), ("--delimiter", self.delimiter)):
            alone = value is None or self.suffix in CSV
            require(alone, name, f"left out for {self.path}, which is no CSV file", value)

    @property
    def suffix(self) -> str:
        """The ending of the name in small letters, .parquet for a folder."""
        return ".parquet" if Path(self.path).is_dir() else Path(self.path).suffix.lower()

    def with_targets(self, target: str, without: Sequence[str] = ()) -> tuple[Any, Any]:
        """Rows with their targets: a source that knows its column of targets, or an Arrow table and a column."""
        if self.suffix in ARROW:
            table = self._arrow([target])
            inputs = self._inputs(table.column_names, target, without)
            return table.select(inputs), table[target].to_numpy(zero_copy_only=False)
        source: Any
        if self.suffix in CSV:
            number = target.lstrip("-").isdigit() and self._csv().names() is None
            source = self._csv(int(target) if number else target)
        elif self.suffix == ".parquet":
            source = ParquetRows(self.path, target=target)
        else:
            raise ValueError(f"TABLE must be {TABLE}, got {self.path}")
        inputs = self._inputs(source.names() or (), target, without)
        return (source.select(inputs) if without else source), None

    def rows(self, model: Any) -> Any:
        """New rows: the columns that the model was fitted on, in their order."""
        if self.suffix == ".tsv" or self.encoding or self.delimiter:
            return self._csv()
        if self.suffix not in ARROW:
            return self.path
        names = getattr(model, "feature_names_in_", None)
        return self._arrow() if names is None else self._arrow(names).select(list(names))

    def rows_and_targets(self, model: Any, target: str) -> tuple[Any, Any]:
        """The model's columns, and the targets, for a report."""
        X, y = self.with_targets(target)
        return (X, X.targets()) if y is None else (self.rows(model), y)

    def columns(self, names: Sequence[str]) -> dict[str, np.ndarray]:
        """Columns as they stand in the table, such as identifiers; those of CSV files as text."""
        if not names:
            return {}
        if self.suffix in CSV:
            self._require_columns(self._csv().names() or (), names, "--keep")
            return dict(zip(names, self._csv(columns=list(names)).texts().T, strict=True))
        if self.suffix in ARROW:
            found = self._arrow()
            self._require_columns(found.column_names, names, "--keep")
        else:
            self._require_columns(ParquetRows(self.path).names() or (), names, "--keep")
            found = import_module("pyarrow.parquet").read_table(self.path, columns=list(names))
        return {name: np.array(found[name].to_pylist(), dtype=object) for name in names}

    def _inputs(self, names: Sequence[str], target: str, without: Sequence[str]) -> list[str]:
        """Names of the inputs."""
        self._require_columns(names, without, "--without")
        return [name for name in names if name not in (target, *without)]

    def _require_columns(self, known: Sequence[str], names: Sequence[str], option: str) -> None:
        for name in names:
            require(name in known, option, f"one of the columns of {self.path}, {list(known)}", name)

    def _csv(self, target: int | str | None = None, columns: Sequence[str] | None = None) -> CsvRows:
        tab = self.delimiter == "tab" or (self.delimiter is None and self.suffix == ".tsv")
        delimiter = "\t" if tab else self.delimiter or ","
        return CsvRows(self.path, target, columns, delimiter, self.encoding or "utf-8")

    def _arrow(self, wanted: Sequence[str] = ()) -> Any:
        """The Arrow table of the file, which has the columns wanted."""
        try:
            import pyarrow.feather
        except ImportError:
            raise ImportError("reading Arrow files needs pyarrow: pip install 'mercer[files]'") from None
        try:
            table = pyarrow.feather.read_table(self.path)
        except pyarrow.ArrowInvalid as fault:
            raise ValueError(f"{self.path} is no Arrow file: {fault}") from None
        missing = [name for name in wanted if name not in table.column_names]
        require(not missing, self.path, f"a table with the columns {missing}", table.column_names)
        return table

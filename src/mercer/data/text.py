"""Rows of text files, one row a line: CSV and LIBSVM's sparse format.

One pass over a file notes the byte offset of every few thousandth row; afterwards any row is
found by reading a few thousand lines at most. What a line means is left to each format.
"""

from __future__ import annotations

import csv
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from itertools import groupby, islice
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor

from mercer.data.files import Column, FilePath, choose_columns, row_numbers
from mercer.data.source import RowSource
from mercer.parts import require

MARK_EVERY = 2048  # rows between two noted offsets
TARGET_BLOCK = 65_536  # lines held at once while targets are read

Line = tuple[int, str]  # number in the file, from 1, and text


class TextRows(RowSource):
    """Rows of a text file; blank lines and lines that start with # are skipped."""

    def __init__(self, path: FilePath) -> None:
        self.path = Path(path)
        self._n_header = 0
        self._marks: list[tuple[int, int]] = []  # byte offset of a row, lines before it
        self.n_rows = offset = 0
        with open(self.path, "rb") as file:
            for number, raw in enumerate(file):
                if _is_row(raw):
                    if self.n_rows % MARK_EVERY == 0:
                        self._marks.append((offset, number))
                    self.n_rows += 1
                offset += len(raw)
        self._require_rows()

    @abstractmethod
    def _inputs(self, lines: list[Line]) -> np.ndarray:
        """The inputs that these lines hold, one row a line."""

    def blocks(self, size: int) -> Iterator[tuple[int, Tensor]]:
        lines = self._lines()
        for start in range(0, self.n_rows, size):
            yield start, torch.from_numpy(self._inputs(list(islice(lines, size))))

    def take(self, index: Any) -> Tensor:
        rows, back = np.unique(row_numbers(index, self.n_rows), return_inverse=True)
        return torch.from_numpy(self._inputs(self._find(rows))[back])

    def _lines(self) -> Iterator[Line]:
        return islice(self._lines_from(0), self._n_header, None)

    def _lines_from(self, mark: int) -> Iterator[Line]:
        offset, n_before = self._marks[mark]
        with open(self.path, "rb") as file:
            file.seek(offset)
            for number, raw in enumerate(file, n_before + 1):
                if _is_row(raw):
                    # A byte that is not UTF-8 shows up in the sentence about its value.
                    yield number, raw.decode("utf-8-sig", errors="replace").rstrip("\r\n")

    def _find(self, rows: np.ndarray) -> list[Line]:
        """The lines of `rows`, which ascend: each stretch between two marks is read once, if at all."""
        found: list[Line] = []
        for mark, group in groupby(rows + self._n_header, lambda row: row // MARK_EVERY):
            places = [row - mark * MARK_EVERY for row in group]
            stretch = list(islice(self._lines_from(mark), places[-1] + 1))
            found += [stretch[place] for place in places]
        return found

    def _require_rows(self) -> None:
        if not self.n_rows:
            raise ValueError(f"{self.path} has no rows")

    def _refuse(self, number: int, complaint: str) -> NoReturn:
        raise ValueError(f"{self.path}, line {number}: {complaint}")


class CsvRows(TextRows):
    """Rows of a CSV file; its first line is a header if none of its fields is a number.

    A row is a line: quoted fields may hold the delimiter but no line break. Rows are float64.

    Parameters
    ----------
    path : path of the file.
    target : name (if there is a header) or number of the column that holds the targets. If the
        first target is not a number, the targets are class names and stay text.
    columns : names or numbers of the input columns; None takes all but the target.
    delimiter : the character between two fields.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from mercer.data import CsvRows
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "table.csv")
    ...     _ = path.write_text("depth,width,kind\\n1.5,4,a\\n2.5,5,b\\n3.5,6,a\\n")
    ...     rows = CsvRows(path, target="kind")
    ...     print(rows.names(), rows.take([2, 0]), rows.targets())
    ['depth', 'width'] tensor([[3.5000, 6.0000],
            [1.5000, 4.0000]], dtype=torch.float64) ['a' 'b' 'a']
    """

    def __init__(
        self,
        path: FilePath,
        target: Column | None = None,
        columns: Sequence[Column] | None = None,
        delimiter: str = ",",
    ) -> None:
        require(len(delimiter) == 1, "delimiter", "one character", delimiter)
        super().__init__(path)
        self.delimiter = delimiter
        _, first = next(self._lines())
        fields = self._fields(first)
        self._header = None if any(map(_is_number, fields)) else [field.strip() for field in fields]
        if self._header is not None:
            self._n_header = 1
            self.n_rows -= 1
            self._require_rows()
        self._n_stored = len(fields)
        self._kept, self._target = choose_columns(path, self._header, self._n_stored, target, columns)
        self.n_columns = len(self._kept)

    def targets(self) -> np.ndarray | None:
        if self._target is None:
            return None
        _, first = next(self._lines())
        fields = self._fields(first)
        is_text = len(fields) == self._n_stored and not _is_number(fields[self._target])
        read = self._texts if is_text else self._numbers
        lines = self._lines()
        blocks = iter(lambda: list(islice(lines, TARGET_BLOCK)), [])
        return np.concatenate([read(block, [self._target])[:, 0] for block in blocks])

    def names(self) -> Sequence[str] | None:
        return None if self._header is None else [self._header[j] for j in self._kept]

    def _inputs(self, lines: list[Line]) -> np.ndarray:
        return self._numbers(lines, self._kept)

    def _numbers(self, lines: list[Line], columns: list[int]) -> np.ndarray:
        if not lines:  # loadtxt warns
            return np.empty((0, len(columns)))
        if any(text.count(self.delimiter) != self._n_stored - 1 for _, text in lines):
            self._texts(lines, columns)
        texts = [text for _, text in lines]
        try:
            return np.loadtxt(texts, delimiter=self.delimiter, usecols=columns, comments=None, quotechar='"', ndmin=2)
        except ValueError:
            self._find_culprit(lines, columns)
            raise

    def _texts(self, lines: list[Line], columns: list[int]) -> np.ndarray:
        """The fields as text; a line with too many or too few is refused."""
        table = []
        for number, text in lines:
            fields = self._fields(text)
            if len(fields) != self._n_stored:
                self._refuse(number, f"a row must have {self._n_stored} fields, got {len(fields)}")
            table.append([fields[j].strip() for j in columns])
        return np.array(table)

    def _find_culprit(self, lines: list[Line], columns: list[int]) -> None:
        for (number, _), fields in zip(lines, self._texts(lines, columns), strict=True):
            for column, field in zip(columns, fields, strict=True):
                if not _is_number(field):
                    name = column if self._header is None else repr(self._header[column])
                    self._refuse(number, f"column {name} must be a number, got {str(field)!r}")

    def _fields(self, text: str) -> list[str]:
        return next(csv.reader([text], delimiter=self.delimiter))


class LibsvmRows(TextRows):
    """Rows of a LIBSVM text file, ``label index:value ...``: made dense (float64) block by block.

    Indices count from 1 and ascend within a line, as LIBSVM demands; what follows a # is a comment.

    Parameters
    ----------
    path : path of the file.
    n_columns : number of columns; None takes the largest index of the file, so give it for a test
        file, in which the last columns may be zero throughout.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from mercer.data import LibsvmRows
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "table.svm")
    ...     _ = path.write_text("+1 1:0.5 3:2\\n-1 2:1\\n")
    ...     rows = LibsvmRows(path)
    ...     print(rows.take([1, 0]), rows.targets())
    tensor([[0.0000, 1.0000, 0.0000],
            [0.5000, 0.0000, 2.0000]], dtype=torch.float64) [ 1. -1.]
    """

    def __init__(self, path: FilePath, n_columns: int | None = None) -> None:
        super().__init__(path)
        require(n_columns is None or n_columns >= 1, "n_columns", "at least 1", n_columns)
        self.n_columns = n_columns or max(self._last_index(*line) for line in self._lines())
        if not self.n_columns:
            raise ValueError(f"{path} has no index:value pairs")

    def targets(self) -> np.ndarray:
        return np.fromiter((self._label(*line) for line in self._lines()), np.float64, self.n_rows)

    def _inputs(self, lines: list[Line]) -> np.ndarray:
        X = np.zeros((len(lines), self.n_columns))
        for row, (number, text) in enumerate(lines):
            for pair in _words(text)[1:]:
                index, value = self._pair(number, pair)
                if index > self.n_columns:
                    self._refuse(number, f"an index must be at most n_columns={self.n_columns}, got {index}")
                X[row, index - 1] = value
        return X

    def _last_index(self, number: int, text: str) -> int:
        pairs = _words(text)[1:]
        return self._pair(number, pairs[-1])[0] if pairs else 0

    def _label(self, number: int, text: str) -> float:
        label = _words(text)[0]
        if not _is_number(label):
            self._refuse(number, f"the label must be a number, got {label!r}")
        return float(label)

    def _pair(self, number: int, pair: str) -> tuple[int, float]:
        index, _, value = pair.partition(":")
        try:
            parsed = int(index), float(value)
        except ValueError:
            self._refuse(number, f"a word after the label must be index:number, got {pair!r}")
        if parsed[0] < 1:
            self._refuse(number, f"indices must count from 1, got {pair!r}")
        return parsed


def _is_row(raw: bytes) -> bool:
    content = raw.lstrip()
    return bool(content) and not content.startswith(b"#")


def _is_number(field: str) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return "_" not in field  # 1_000 is a number to Python alone


def _words(text: str) -> list[str]:
    return text.partition("#")[0].split()

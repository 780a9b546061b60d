"""Rows of text files, one row a line; subclasses parse the lines of their format.

One pass over a file records the byte offset of every 2048th row; afterwards any row is found by reading at most as
many lines.
"""

from __future__ import annotations

import codecs
from abc import abstractmethod
from collections.abc import Iterator
from itertools import groupby, islice
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor

from mercer.data.columns import FilePath, row_indices
from mercer.data.source import RowSource
from mercer.parts import require

MARK_EVERY = 2048  # rows between two recorded offsets
FIRST_BYTES = 1 << 16  # of a file that are checked before it is read by lines

#: First bytes of files that are not plain text in spite of their name.
_FOREIGN = {
    b"\x1f\x8b": "compressed by gzip",
    b"PK\x03\x04": "a zip archive",
    b"BZh": "compressed by bzip2",
    b"\xfd7zXZ": "compressed by xz",
    b"\x28\xb5\x2f\xfd": "compressed by zstd",
    b"PAR1": "a Parquet file",
    b"\x93NUMPY": "a .npy file",
    b"\xff\xfe": "text in UTF-16",
    b"\xfe\xff": "text in UTF-16",
}

Line = tuple[int, str]  # number in the file, from 1, and text


class TextRows(RowSource):
    """Rows of a text file; blank lines are skipped, and lines that start with # above the first row.

    Below it, lines that start with # are skipped unless they may be rows.
    """

    #: Whether a row may start with #, such as the "#N/A" of a spreadsheet.
    hash_rows = False

    def __init__(self, path: FilePath, encoding: str = "utf-8") -> None:
        self._encoding = _line_encoding(encoding)
        self.path = Path(path)
        self._n_header = 0
        self._marks: list[tuple[int, int]] = []  # byte offset of a row, lines before it
        self.n_rows = offset = 0
        with open(self.path, "rb") as file:
            self._require_text(file.read(FIRST_BYTES))
            file.seek(0)
            for number, raw in enumerate(file):
                if _is_row(raw, self.hash_rows and self.n_rows > 0):
                    if self.n_rows % MARK_EVERY == 0:
                        self._marks.append((offset, number))
                    self.n_rows += 1
                offset += len(raw)
        self._require_rows()

    @abstractmethod
    def _inputs(self, lines: list[Line]) -> np.ndarray:
        """Parse the inputs of these lines, one row a line."""

    def blocks(self, size: int) -> Iterator[tuple[int, Tensor]]:
        lines = self._lines()
        for start in range(0, self.n_rows, size):
            block = list(islice(lines, size))
            if len(block) < min(size, self.n_rows - start):
                self._refuse_change()
            yield start, torch.from_numpy(self._inputs(block))

    def take(self, index: Any) -> Tensor:
        rows, back = np.unique(row_indices(index, self.n_rows), return_inverse=True)
        return torch.from_numpy(self._inputs(self._find(rows))[back])

    def _lines(self) -> Iterator[Line]:
        return islice(self._lines_from(0), self._n_header, None)

    def _lines_from(self, mark: int) -> Iterator[Line]:
        offset, n_before = self._marks[mark]
        with open(self.path, "rb") as file:
            file.seek(offset)  # the beginning of a row
            for number, raw in enumerate(file, n_before + 1):
                if _is_row(raw, self.hash_rows):
                    raw = raw.rstrip(b"\r\n")
                    if b"\r" in raw or b"\0" in raw:
                        seen = "a NUL byte" if b"\0" in raw else "a carriage return alone"
                        self._refuse(number, f"lines must be text that ends in a line feed, got {seen}")
                    try:
                        text = raw.decode(self._encoding)
                    except UnicodeDecodeError as fault:
                        self._refuse_bytes(number, raw, fault)
                    yield number, text

    def _find(self, rows: np.ndarray) -> list[Line]:
        """Return the lines of `rows`, which ascend; each section between two offsets is read at most once."""
        found: list[Line] = []
        for mark, group in groupby(rows + self._n_header, lambda row: row // MARK_EVERY):
            places = [row - mark * MARK_EVERY for row in group]
            section = list(islice(self._lines_from(mark), places[-1] + 1))
            if len(section) <= places[-1]:
                self._refuse_change()
            found += [section[place] for place in places]
        return found

    def _require_text(self, beginning: bytes) -> None:
        for mark, kind in _FOREIGN.items():
            if beginning.startswith(mark):
                wanted = self._encoding.removesuffix("-sig").upper()
                raise ValueError(f"{self.path} must be plain text in {wanted}, got a file that is {kind}")
        if b"\r" in beginning.rstrip(b"\r") and b"\n" not in beginning:  # else the whole file would be one line
            raise ValueError(f"{self.path} must have lines that end in a line feed, got carriage returns alone")

    def _require_rows(self) -> None:
        if not self.n_rows:
            raise ValueError(f"{self.path} has no rows")

    def _refuse_change(self) -> NoReturn:
        raise ValueError(f"{self.path} must stay as it was when it was opened, got fewer than its {self.n_rows} rows")

    def _refuse_bytes(self, number: int, raw: bytes, fault: UnicodeDecodeError) -> NoReturn:
        """Refuse a line that is not in the encoding: replaced bytes could merge two levels."""
        before = raw[: fault.start].decode(self._encoding, errors="replace")
        wanted, seen = self._encoding.removesuffix("-sig").upper(), raw[fault.start : fault.end]
        advice = "; encoding='cp1252' or 'latin-1' reads the usual files that are not in UTF-8"
        advice = advice if wanted == "UTF-8" else ""
        self._refuse(number, f"{self._field_after(before)} must be text in {wanted}, got the bytes {seen!r}{advice}")

    def _field_after(self, before: str) -> str:
        """Name the field at the end of this part of a line."""
        return f"character {len(before) + 1}"

    def _refuse(self, number: int, complaint: str) -> NoReturn:
        raise ValueError(f"{self.path}, line {number}: {complaint}")


def _line_encoding(encoding: str) -> str:
    """Return the canonical name of an encoding that extends ASCII, so that lines can be split by bytes.

    >>> _line_encoding("UTF8"), _line_encoding("Latin-1")
    ('utf-8-sig', 'iso8859-1')
    """
    marks = b'\r\n#,;\t" 0'
    try:
        name = codecs.lookup(encoding).name
        plain = marks.decode(name) == marks.decode("ascii")
    except (LookupError, TypeError, ValueError, AttributeError):  # unknown, no text, or no encoding of text
        plain = False
    require(plain, "encoding", "the name of a text encoding that extends ASCII, such as 'utf-8' or 'cp1252'", encoding)
    return "utf-8-sig" if name == "utf-8" else name


def _is_row(raw: bytes, hash_rows: bool) -> bool:
    content = raw.lstrip()
    return bool(content) and (hash_rows or not content.startswith(b"#"))

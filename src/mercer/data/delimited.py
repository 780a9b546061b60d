"""Rows of CSV files, with or without a header."""

from __future__ import annotations

import copy
import csv
import re
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Self

import numpy as np

from mercer.data.columns import Column, FilePath, choose_columns
from mercer.data.raw import MISSING_FIELDS, RawColumn, comma_advice, is_number, text_column
from mercer.data.text import MARK_EVERY, Line, TextRows
from mercer.parts import require

TARGET_BLOCK = 65_536  # lines held at once while targets are read
#: Text of nothing but digits, signs and commas.
NUMERIC = re.compile(r"[-+.,0-9eE]*")
#: Characters that divide fields where no comma does.
OTHER_DELIMITERS = ";\t|"
#: Words, in small letters, that are numbers to Python and missing values to a table.
NAN = ("nan", "+nan", "-nan")


class CsvRows(TextRows):
    """Rows of a CSV file; its first line is a header if none of its fields is a number.

    A row is a line: quoted fields may hold the delimiter but no line break. Lines that start with # are comments above
    the header and the first row, and rows below. Rows are float64. A file that holds
    inputs that are not numbers is `mixed`: estimators then read entire columns (`columns`), as numbers, dates
    (2020-01-31, with or without a time) or levels.

    Parameters
    ----------
    path : str or Path
        Path of the file.
    target : str, int or None, default None
        Name (if there is a header) or number of the column that holds the targets. If the first target that is not
        missing is no number, the targets are class names and stay text.
    columns : sequence of str or int, or None, default None
        Names or numbers of the input columns; None takes all but the target.
    delimiter : str, default ","
        The character between two fields.
    encoding : str, default "utf-8"
        The encoding of the text, such as "cp1252"; one that extends ASCII. A line that is not in this encoding is
        refused with its place.

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

    hash_rows = True

    def __init__(
        self,
        path: FilePath,
        target: Column | None = None,
        columns: Iterable[Column] | None = None,
        delimiter: str = ",",
        encoding: str = "utf-8",
    ) -> None:
        good = isinstance(delimiter, str) and len(delimiter) == 1 and delimiter not in '"\r\n\0'
        require(good, "delimiter", "one character, no quote and no line break", delimiter)
        super().__init__(path, encoding)
        self.delimiter = delimiter
        self._header: list[str] | None = None
        self._mixed: bool | None = None
        lines = self._lines()
        first = next(lines)
        fields = self._fields(*first)
        if not any(map(is_number, fields)):
            self._header = [field.strip() for field in fields]
            self._n_header = 1
            self.n_rows -= 1
            self._require_rows()
        self._n_stored = len(fields)
        self._require_delimiter(first[1], *(text for _, text in islice(lines, 1)))
        self._choose(target, columns)

    def _require_delimiter(self, *lines: str) -> None:
        """Refuse lines that another character divides into equally many fields, and this one not, or into digits."""
        for other in OTHER_DELIMITERS:
            times = {line.count(other) for line in lines}
            digits = all(NUMERIC.fullmatch(line.replace(other, "")) for line in lines)
            divided = len(lines) > 1 and len(times) == 1 and times != {0} and other != self.delimiter
            if divided and (digits or self.delimiter not in lines[0]):
                comma = comma_advice(lines[-1].split(other)[0])
                wanted = f"fields with {self.delimiter!r} between them"
                advice = f": pass CsvRows(path, delimiter={other!r}){comma}"
                raise ValueError(f"{self.path} must have {wanted}, got lines such as {lines[-1][:100]!r}{advice}")

    @property
    def mixed(self) -> bool:
        if self._mixed is None:
            lines = enumerate(self._lines())
            self._mixed = any(self._holds_text(line, exactly=row < MARK_EVERY) for row, line in lines)
        return self._mixed

    def _holds_text(self, line: Line, exactly: bool) -> bool:
        """Whether a chosen column of a line holds anything but a number.

        Unless `exactly`, a line of digits and signs without an empty field is taken for numbers, which saves most of
        the time.
        """
        text = f",{line[1].replace(self.delimiter, ',')},"
        if not exactly and ",," not in text and NUMERIC.fullmatch(text):
            return False
        return not all(is_number(field) and field.lower() not in NAN for field in self._texts([line], self._kept)[0])

    def columns(self) -> list[RawColumn]:
        """Read the inputs of all rows into memory."""
        lines = list(self._lines())
        table = self._texts(lines, self._kept)
        for place, fields in zip(self._kept, table.T, strict=True):
            if (bad := first_invalid_field(fields)) is not None:
                seen = (
                    f"column {self._named(place)} must hold numbers, as most of its rows do, got {str(fields[bad])!r}"
                )
                advice = comma_advice(fields[bad]) or "; leave the field empty where a number is missing"
                self._refuse(lines[bad][0], seen + advice)
        names = self.names() or [f"x{j}" for j in range(self.n_columns)]
        return [text_column(name, fields) for name, fields in zip(names, table.T, strict=True)]

    def texts(self) -> np.ndarray:
        """The fields of the chosen columns of all rows as text, n × columns."""
        return np.asarray(self._texts(list(self._lines()), self._kept))

    def targets(self) -> np.ndarray | None:
        if self._target is None:
            return None
        first = self._texts(list(islice(self._lines(), MARK_EVERY)), [self._target])[:, 0]
        known = first[~np.isin(first, MISSING_FIELDS)]
        is_text = not is_number((known if len(known) else first)[0])
        read = self._class_names if is_text else self._numbers
        lines = self._lines()
        blocks = iter(lambda: list(islice(lines, TARGET_BLOCK)), [])
        return np.concatenate([read(block, [self._target])[:, 0] for block in blocks])

    def names(self) -> Sequence[str] | None:
        return None if self._header is None else [self._header[j] for j in self._kept]

    @property
    def target_name(self) -> str | None:
        return None if self._header is None or self._target is None else self._header[self._target]

    def target_label(self) -> str:
        return f"{self.path}, column {self._named(self._target)}," if self._target is not None else ""

    def select(self, names: Sequence[str], target: str | None = None) -> Self:
        chosen = copy.copy(self)
        kept = self.target_name if target is None and self.target_name not in names else target
        chosen._choose(kept if kept in (self._header or ()) else None, names)
        return chosen

    def _choose(self, target: Column | None, columns: Iterable[Column] | None) -> None:
        self._mixed = None
        self._kept, self._target = choose_columns(self.path, self._header, self._n_stored, target, columns)
        self.n_columns = len(self._kept)

    def _inputs(self, lines: list[Line]) -> np.ndarray:
        return self._numbers(lines, self._kept)

    def _numbers(self, lines: list[Line], columns: list[int]) -> np.ndarray:
        if not lines:  # loadtxt warns
            return np.empty((0, len(columns)))
        if any(text.count(self.delimiter) != self._n_stored - 1 or text.count('"') % 2 for _, text in lines):
            self._texts(lines, columns)
        texts = [text for _, text in lines]
        try:
            return np.loadtxt(texts, delimiter=self.delimiter, usecols=columns, comments=None, quotechar='"', ndmin=2)
        except ValueError:
            self._refuse_text(lines, columns)
            raise

    def _class_names(self, lines: list[Line], columns: list[int]) -> np.ndarray:
        names = self._texts(lines, columns)
        for (number, _), fields in zip(lines, names, strict=True):
            if not fields[0]:
                self._refuse(number, f"column {self._named(columns[0])} must name a class, got ''")
        return names

    def _texts(self, lines: list[Line], columns: list[int]) -> np.ndarray:
        """Return the fields as text; a line with too many or too few is refused."""
        table = []
        for number, text in lines:
            fields = self._fields(number, text)
            if len(fields) != self._n_stored:
                comment = "; comments stand above the first row" if text.lstrip().startswith("#") else ""
                self._refuse(number, f"a row must have {self._n_stored} fields, got {len(fields)}{comment}")
            table.append([fields[j].strip() for j in columns])
        return np.array(table)

    def _refuse_text(self, lines: list[Line], columns: list[int]) -> None:
        for (number, _), fields in zip(lines, self._texts(lines, columns), strict=True):
            for column, field in zip(columns, fields, strict=True):
                if not is_number(field):
                    seen = f"{str(field)!r}{comma_advice(field)}"
                    self._refuse(number, f"column {self._named(column)} must be a number, got {seen}")

    def _fields(self, number: int, text: str) -> list[str]:
        reader = csv.reader([text, ""], delimiter=self.delimiter)
        try:
            fields = next(reader)
        except csv.Error as error:  # a field of more than 131 072 characters
            self._refuse(number, f"fields must be readable, got a line of {len(text)} characters ({error})")
        if reader.line_num > 1:  # loadtxt would join two lines to one row
            self._refuse(number, "a quote must be closed on its line, got one that is not")
        return fields

    def _field_after(self, before: str) -> str:
        column = len(next(csv.reader([before], delimiter=self.delimiter), [""])) - 1
        return f"column {self._named(column)}"

    def _named(self, column: int) -> str:
        named = self._header is not None and column < len(self._header)
        return repr(self._header[column]) if named and self._header else str(column)


def first_invalid_field(fields: np.ndarray) -> int | None:
    """Find the first field that is neither a number nor missing, if most fields of the column are numbers.

    >>> first_invalid_field(np.array(["1", "five", "", "8"])), first_invalid_field(np.array(["oak", "7", "elm"]))
    (1, None)
    """
    words, place = np.unique(fields, return_inverse=True)
    numbers = np.array([is_number(word) for word in words])
    strange = ~numbers & ~np.isin(words, MISSING_FIELDS)
    share = numbers[place].sum() / max(int((numbers | strange)[place].sum()), 1)
    bad = np.flatnonzero(strange[place])
    return int(bad[0]) if len(bad) and share > 0.5 else None

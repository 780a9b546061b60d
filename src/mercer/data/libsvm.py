"""Rows of LIBSVM's sparse text format, converted to dense blocks or kept sparse."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from itertools import pairwise

import numpy as np
import scipy.sparse

from mercer.data.columns import FilePath
from mercer.data.raw import is_number
from mercer.data.source import SparseRows
from mercer.data.text import Line, TextRows
from mercer.parts import is_integer, require

#: Columns accepted without `n_columns`: a mistyped index would make every dense row gigabytes long.
LARGEST_INDEX = 1 << 20


class LibsvmRows(TextRows):
    """Rows of a LIBSVM text file, ``label index:value ...``, converted to dense float64 blocks.

    Models that need only inner products of rows read a file of many columns as a sparse matrix (`sparse`).

    Indices count from 1 and ascend within a line, as LIBSVM demands; what follows a # is a comment.

    Parameters
    ----------
    path : str or Path
        Path of the file.
    n_columns : int or None, default None
        Number of columns; None takes the largest index of the file (at most 1 048 576, since rows become dense), so
        give it for a test file, in which the last columns may be zero throughout.

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
        require(n_columns is None or is_integer(n_columns), "n_columns", "None or an integer of at least 1", n_columns)
        super().__init__(path)
        self.n_columns = n_columns or max(self._last_index(*line) for line in self._lines())
        if not self.n_columns:
            raise ValueError(f"{path} has no index:value pairs")

    def targets(self) -> np.ndarray:
        labels = (self._label(*line) for line in self._lines())
        return np.fromiter(labels, np.float64)

    def target_label(self) -> str:
        return f"{self.path}, the label,"

    def _inputs(self, lines: list[Line]) -> np.ndarray:
        return self._table(lines).toarray()

    def sparse(self) -> SparseRows:
        """Read the file as a sparse matrix, in one pass."""
        return SparseRows(self._table(self._lines()), self.targets(), self.target_label())

    def _table(self, lines: Iterable[Line]) -> scipy.sparse.csr_array:
        """Parse the inputs of these lines."""
        values, indices, ends = array("d"), array("q"), array("q", [0])
        for line in lines:
            for index, value in self._pairs(*line):
                indices.append(index - 1)
                values.append(value)
            ends.append(len(values))
        parts = (np.asarray(part) for part in (values, indices, ends))
        return scipy.sparse.csr_array(tuple(parts), shape=(len(ends) - 1, self.n_columns))

    def _pairs(self, number: int, text: str) -> list[tuple[int, float]]:
        """Parse the entries of a line."""
        pairs = [self._pair(number, pair) for pair in _words(text)[1:]]
        for (before, _), (after, _) in pairwise(pairs):
            if after <= before:
                self._refuse(number, f"indices must ascend, got {after} after {before}")
        if pairs and pairs[-1][0] > self.n_columns:
            self._refuse(number, f"an index must be at most n_columns={self.n_columns}, got {pairs[-1][0]}")
        return pairs

    def _last_index(self, number: int, text: str) -> int:
        pairs = _words(text)[1:]
        last = max((self._pair(number, pair)[0] for pair in (pairs[:1] + pairs[-1:])), default=0)
        if last > LARGEST_INDEX:
            size = f"{8 * last / 2**30:.3g} GiB" if last < 1 << 60 else "more than any memory"
            advice = f"an index must be at most {LARGEST_INDEX}, or n_columns be given"
            self._refuse(number, f"{advice}, got {last}: a dense row would take {size}")
        return last

    def _label(self, number: int, text: str) -> float:
        label = _words(text)[0]
        if not is_number(label):
            self._refuse(number, f"the label must be a number, got {label!r}")
        return float(label)

    def _pair(self, number: int, pair: str) -> tuple[int, float]:
        index, _, value = pair.partition(":")
        try:
            parsed = int(index), float(value)
        except ValueError:
            parsed = None
        if parsed is None or "_" in pair:
            self._refuse(number, f"a word after the label must be index:number, got {pair[:60]!r}")
        if parsed[0] < 1:
            self._refuse(number, f"indices must count from 1, got {pair!r}")
        return parsed


def _words(text: str) -> list[str]:
    return text.partition("#")[0].split()

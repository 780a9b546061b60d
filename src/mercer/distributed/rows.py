"""Tables of which every process has its own part."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mercer.data import RowSource, Runs, as_source, current_group
from mercer.parts import require


class OwnRows(RowSource):
    """Several sources as the part of a table that this process holds.

    `order` gives the position of each among those of all processes. Sources are read on demand and never concatenated.
    """

    def __init__(
        self, sources: Sequence[RowSource], order: Sequence[int], n_columns: int, names: Sequence[str] | None = None
    ) -> None:
        group = current_group()
        self.sources = list(sources)
        self.n_columns = n_columns
        self._names = names
        lengths = [source.n_rows for source in self.sources]
        everyone = sorted(chain.from_iterable(group.gather(list(zip(order, lengths, strict=True)))))
        ends = np.cumsum([length for _, length in everyone], dtype=np.int64).tolist()
        starts = {position: end - length for (position, length), end in zip(everyone, ends, strict=True)}
        self.n_rows = sum(lengths)
        self._ends = np.cumsum(lengths, dtype=np.int64)
        self.shard = Runs(group, [starts[position] for position in order], lengths)

    def blocks(self, size: int) -> Iterator[tuple[int, Tensor]]:
        for end, source in zip(self._ends, self.sources, strict=True):
            for start, block in source.blocks(size):
                yield int(end) - source.n_rows + start, block

    def take(self, index: Any) -> Tensor:
        places = np.asarray(torch.as_tensor(index).cpu())
        which = np.searchsorted(self._ends, places, side="right")
        out = torch.empty(len(places), self.n_columns, dtype=torch.float64)
        for k in np.unique(which):
            here = np.flatnonzero(which == k)
            source = self.sources[k]
            out[here] = source.take(places[here] - (self._ends[k] - source.n_rows)).to(out)
        return out

    def names(self) -> Sequence[str] | None:
        return self._names


def own_rows(X: Any) -> OwnRows:
    """Mark `X` as the rows of this process alone; targets and weights then belong to these rows, too.

    If every process reads its own file, `fit(own_rows("part-3.parquet"), y)` learns from all of them. The order of the
    rows is that of the ranks. A process may have none: ``own_rows(np.empty((0, D)))``.

    >>> import numpy as np
    >>> from mercer.distributed import own_rows
    >>> own_rows(np.zeros((3, 2))).n_rows
    3
    """
    source = as_source(X)
    require(not source.shard.divided, "X", "the rows of this process, as an array, frame or file", type(X).__name__)
    return OwnRows([source], [current_group().rank], source.n_columns, source.names())

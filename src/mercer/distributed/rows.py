"""Rows that this process alone has: a table of which every process brings its own part."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mercer.data import RowSource, Runs, as_source, current_group
from mercer.parts import require


class OwnRows(RowSource):
    """Sources one after the other, as the part of a table that this process holds.

    `order` says where each stands among those of all processes; none is read before it is asked for, and they are
    never put together.
    """

    def __init__(
        self, sources: Sequence[RowSource], order: Sequence[int], n_columns: int, names: Sequence[str] | None = None
    ) -> None:
        group = current_group()
        self.sources, self.n_columns, self._names = list(sources), n_columns, names
        lengths = [source.n_rows for source in self.sources]
        everyone = sorted(one for each in group.gather(list(zip(order, lengths, strict=True))) for one in each)
        ends = np.cumsum([n for _, n in everyone], dtype=np.int64).tolist()
        starts = {place: end - n for (place, n), end in zip(everyone, ends, strict=True)}
        self.n_rows = sum(lengths)
        self._ends = np.cumsum(lengths, dtype=np.int64)
        self.shard = Runs(group, [starts[place] for place in order], lengths)

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
    """The rows of `X` as the part of the table that this process brings; targets and weights are then its own, too.

    Where every process reads its own file, `fit(own_rows("part-3.parquet"), y)` learns from all of them. The order of
    the rows is that of the ranks. A process may bring none: ``own_rows(np.empty((0, D)))``.

    >>> import numpy as np
    >>> from mercer.distributed import own_rows
    >>> own_rows(np.zeros((3, 2))).n_rows
    3
    """
    source = as_source(X)
    require(not source.shard.divided, "X", "the rows of this process, as an array, frame or file", type(X).__name__)
    return OwnRows([source], [current_group().rank], source.n_columns, source.names())

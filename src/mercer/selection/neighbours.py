"""Nearest neighbours among all rows, and their error: a score of a metric at the density of the whole table.

Candidates fitted to ten thousand rows out of half a million are compared at larger distances than a model of all rows
resolves. Nearest neighbours among all rows cost one pass, and rank metrics as the models fitted with them do.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from mercer.engine import each_block
from mercer.engine.sample import Sample

#: Neighbours that predict a query row.
NEIGHBOURS = 8
#: Query rows at least, at least without a time limit (on a CPU, on a GPU), and at most. Few query rows rank metrics by
#: chance.
FEWEST_QUERIES, UNLIMITED_QUERIES, MOST_QUERIES = 200, (1000, 2000), 20_000
#: Pairs of rows compared in a second on a slow machine (a CPU, a GPU), and rows of a block.
PAIRS_PER_SECOND, BLOCK = (1e8, 1e10), 4096


def query_rows(sample: Sample, rng: np.random.Generator, seconds: float | None = None) -> np.ndarray:
    """Draw the indices of query rows: as many as `seconds` allow, or none."""
    on_gpu = sample.plan.device.type == "cuda"
    per_second = int(PAIRS_PER_SECOND[on_gpu] / max(sample.n_rows, 1))
    n = min(max(per_second, UNLIMITED_QUERIES[on_gpu]), MOST_QUERIES)
    if seconds is not None:
        n = min(n, int(per_second * seconds))
    n = int(sample.rows.shard.group.min(n))
    return sample.draw(n if n >= FEWEST_QUERIES else 0, rng)


def neighbours_error(sample: Sample, queries: np.ndarray) -> float:
    """The mean squared error of query rows, each predicted by the mean of its nearest other rows.

    >>> from mercer.data import TensorRows
    >>> from mercer.engine import Sample, make_plan
    >>> X = torch.arange(100.0, dtype=torch.float64)[:, None]
    >>> sample = Sample(TensorRows(X), X, torch.ones(100), make_plan(100, device="cpu", dtype="float64"))
    >>> neighbours_error(sample, np.array([50, 60]))  # four on either side
    0.0
    """
    distance, local = nearest(sample, queries, NEIGHBOURS + 1)
    shard, flat = sample.rows.shard, local.reshape(-1)
    if sample.n_rows:  # a process may hold none
        index, Y = torch.as_tensor(shard.global_indices(flat.cpu().numpy())), sample.Y[flat]
    else:
        index, Y = flat, sample.Y.new_zeros(len(flat), sample.Y.shape[1])
    shape = distance.shape
    of_process = distance.double().cpu(), index.reshape(shape).cpu(), Y.double().cpu().reshape(*shape, -1)
    distance, index, Y = (torch.cat(parts, 1) for parts in zip(*shard.group.gather(of_process), strict=True))
    distance = distance.masked_fill(index == torch.as_tensor(queries)[:, None], torch.inf)  # the query row itself
    neighbours = distance.topk(NEIGHBOURS, largest=False, sorted=False).indices
    mean = Y.gather(1, neighbours[:, :, None].expand(-1, -1, Y.shape[2])).mean(1)
    return float((mean - sample.part(queries).Y.double().cpu()).square().sum(1).mean())


def nearest(sample: Sample, centres: np.ndarray, n: int) -> tuple[Tensor, Tensor]:
    """Distances and local indices of this process's `n` rows nearest to each centre, from one pass over its rows."""
    Z = sample.part(centres).rows.take(np.arange(len(centres)))
    distance = Z.new_full((len(Z), n), torch.inf)
    index = torch.zeros(len(Z), n, dtype=torch.int64, device=Z.device)
    alive = sample.weight > 0

    def visit(where: slice, block: Tensor) -> None:
        nonlocal distance, index
        new = torch.cdist(Z, block.to(Z)).masked_fill_(~alive[where], torch.inf)
        new, in_block = new.topk(min(n, len(block)), largest=False)
        least = torch.cat([distance, new], 1).topk(n, largest=False)
        index = torch.cat([index, in_block + where.start], 1).gather(1, least.indices)
        distance = least.values

    size = max(sample.plan.tile_rows(4 * len(Z)), min(BLOCK, sample.plan.memory_limit // (64 * len(Z))))
    each_block(sample.rows, sample.plan, size, visit)
    return distance, index

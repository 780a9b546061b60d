"""Nearest rows among all of them, and how well they predict: what a metric is worth at the density of a whole table.

Candidates fitted to ten thousand rows out of half a million are compared at distances that no model of all rows has.
The nearest of all rows cost one pass: on COVTYPE the mean of their targets tells metrics apart as the models do that
are grown with them.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from mercer.engine import each_block
from mercer.engine.sample import Sample

#: Neighbours that predict a row; rows that are predicted at least; rows that are predicted, whatever it takes, on a CPU
#: and on a GPU where nobody counts the time; and at most. With 2000 rows of COVTYPE the order of five looks was chance,
#: with 20 000 it was that of the models grown with them.
NEIGHBOURS, FEWEST, ASKED, MOST = 8, 200, (1000, 2000), 20_000
#: Pairs of rows that are compared in a second on a slow machine, and rows of a block.
PAIRS, BLOCK = (1e8, 1e10), 4096


def query_rows(sample: Sample, rng: np.random.Generator, seconds: float | None = None) -> np.ndarray:
    """The numbers of rows at random whose neighbours are asked: as many as `seconds` allow, or none."""
    on_gpu = sample.plan.device.type == "cuda"
    quick = int(PAIRS[on_gpu] / max(sample.n_rows, 1))  # of a second
    n = min(max(quick, ASKED[on_gpu]), MOST)
    if seconds is not None:
        n = min(n, int(quick * seconds))
    n = int(sample.rows.shard.group.min(n))
    return sample.draw(n if n >= FEWEST else 0, rng)


def neighbours_error(sample: Sample, asked: np.ndarray) -> float:
    """The mean squared error of rows of these numbers, each predicted by the mean of its nearest others.

    >>> from mercer.data import TensorRows
    >>> from mercer.engine import Sample, make_plan
    >>> X = torch.arange(100.0, dtype=torch.float64)[:, None]
    >>> sample = Sample(TensorRows(X), X, torch.ones(100), make_plan(100, device="cpu", dtype="float64"))
    >>> neighbours_error(sample, np.array([50, 60]))  # four on either side
    0.0
    """
    far, places = nearest(sample, asked, NEIGHBOURS + 1)
    shard, flat = sample.rows.shard, places.reshape(-1)
    if sample.n_rows:  # a process may hold none
        number, Y = torch.as_tensor(shard.global_indices(flat.cpu().numpy())), sample.Y[flat]
    else:
        number, Y = flat, sample.Y.new_zeros(len(flat), sample.Y.shape[1])
    own = far.double().cpu(), number.reshape(far.shape).cpu(), Y.double().cpu().reshape(*far.shape, -1)
    away, number, Y = (torch.cat(each, 1) for each in zip(*shard.group.gather(own), strict=True))
    away = away.masked_fill(number == torch.as_tensor(asked)[:, None], torch.inf)  # nobody is asked about himself
    at = away.topk(NEIGHBOURS, largest=False, sorted=False).indices
    mean = Y.gather(1, at[:, :, None].expand(-1, -1, Y.shape[2])).mean(1)
    return float((mean - sample.part(asked).Y.double().cpu()).square().sum(1).mean())


def nearest(sample: Sample, centres: np.ndarray, n: int) -> tuple[Tensor, Tensor]:
    """Distances and places of the `n` rows of this process that are nearest to each centre, from one pass over them."""
    Z = sample.part(centres).rows.take(np.arange(len(centres)))
    far, places = Z.new_full((len(Z), n), torch.inf), torch.zeros(len(Z), n, dtype=torch.int64, device=Z.device)
    alive = sample.weight > 0

    def visit(where: slice, block: Tensor) -> None:
        nonlocal far, places
        new = torch.cdist(Z, block.to(Z)).masked_fill_(~alive[where], torch.inf)
        new, own = new.topk(min(n, len(block)), largest=False)
        least = torch.cat([far, new], 1).topk(n, largest=False)
        far, places = least.values, torch.cat([places, own + where.start], 1).gather(1, least.indices)

    size = max(sample.plan.tile_rows(4 * len(Z)), min(BLOCK, sample.plan.memory_limit // (64 * len(Z))))
    each_block(sample.rows, sample.plan, size, visit)
    return far, places

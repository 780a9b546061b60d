"""Which rows inducing inputs start from: random ones, rows far apart, rows by a selection criterion, or rows given."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from mercer.engine import each_block
from mercer.engine.sample import Sample
from mercer.forward.nystroem import select_rows
from mercer.kernels import Kernel
from mercer.linalg.kmeans import spread_out
from mercer.parts import require

#: Rows per inducing input among which random ones and those far apart are looked for.
POOL = 20


def choose_rows(
    choice: Any, data: Sample, kernel: Kernel, noise: float, m: int, rng: np.random.Generator
) -> np.ndarray:
    """At most `m` rows of positive weight by "random", "k-means++" (in units of the length-scales) or a criterion."""
    shard, alive, n = data.rows.shard, data.weight > 0, data.n_alive
    m = min(m, n)
    if m == n:
        return shard.nth(alive, np.arange(n)).cpu().numpy()
    some = np.arange(n) if n <= POOL * m else rng.choice(n, POOL * m, replace=False)
    pool = shard.nth(alive, some).cpu().numpy()
    if isinstance(choice, str) and choice == "random":
        return rng.choice(pool, m, replace=False)
    if isinstance(choice, str) and choice == "k-means++":
        scale = torch.as_tensor(relevance_of(kernel, data.rows.n_columns), device=data.plan.device)
        return pool[spread_out(data.rows.fetch(pool).double() * scale, m, rng)]
    chosen = select_rows(data, kernel, max(noise, 1e-4), choice, m, rng)
    alive[shard.local(torch.as_tensor(chosen, device=alive.device))[1]] = False
    drawn = rng.choice(shard.count(alive), m - len(chosen), replace=False)
    return np.concatenate([chosen, shard.nth(alive, drawn).cpu().numpy()])


def find_rows(Z: Tensor, data: Sample) -> np.ndarray:
    """The rows of positive weight that `Z` (m × D, in the units of the sample) are; others are refused."""
    Z = Z.to(data.plan.device, data.plan.dtype)
    nearest = torch.full((len(Z),), torch.inf, dtype=Z.dtype, device=Z.device)
    index = torch.zeros(len(Z), dtype=torch.long, device=Z.device)
    exact = "donot_use_mm_for_euclid_dist"  # zero between equal rows

    def visit(where: slice, block: Tensor) -> None:
        apart = torch.cdist(Z, block, compute_mode=exact).masked_fill_(data.weight[where] <= 0, torch.inf)
        distance, at = apart.min(1)
        closer = distance < nearest
        nearest[closer] = distance[closer]
        index[closer] = at[closer] + where.start

    each_block(data.rows, data.plan, data.plan.tile_rows(len(Z)), visit)
    room = 100 * torch.finfo(Z.dtype).eps * (1 + Z.norm(dim=1))  # standardising them rounds as often
    lost = int((nearest > room).sum())
    require(lost == 0, "inducing", "rows of X where the model sees those alone", f"{lost} of {len(Z)} that are none")
    return np.unique(index.cpu().numpy())


def relevance_of(kernel: Kernel, n_inputs: int) -> np.ndarray:
    """Inverse length-scales of standardised inputs; ones for kernels without them."""
    scales = [v for name, v in kernel.tunable().items() if name.endswith("length_scale")]
    return np.broadcast_to(1 / np.asarray(scales[0], dtype=float), (n_inputs,)).copy() if scales else np.ones(n_inputs)

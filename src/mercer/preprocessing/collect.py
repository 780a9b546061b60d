"""Tables so small that processes do not share them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from mercer.data import ArrayRows, Pieces
from mercer.engine import Plan, make_plan
from mercer.preprocessing.read import MERGED_ROWS, Given


def gathered(given: Given, n_rows: int) -> Given:
    """A table of at most `n_rows` rows that several processes share, as one that each of them has to itself.

    So few rows are learnt sooner than sums can travel, and then every process does the same.
    """
    shard = given.shard
    if not isinstance(shard, Pieces) or shard.n_total > n_rows:
        return given
    own = np.arange(given.rows.n_rows)
    parts = shard.group.gather((shard.numbers(own), given.rows.take(own).cpu().numpy(), given.y, given.weight))
    full = [part for part in parts if len(part[0])]  # a process without rows does not know the type of targets
    numbers, X, y, weight = (np.concatenate([part[k] for part in full]) for k in range(4))
    order = np.argsort(numbers)
    return replace(given, rows=ArrayRows(X[order]), y=y[order], weight=weight[order])


def planned(given: Given, settings: Any) -> tuple[Given, Plan]:
    """A table and a plan for it that all processes agree upon; as few rows as are solved exactly are not shared."""
    n_rows = given.shard.length(given.rows.n_rows)
    plan = make_plan(n_rows, settings.device, settings.dtype, settings.memory_limit)
    plan = replace(plan, memory_limit=int(given.shard.group.least(plan.memory_limit)))
    given = gathered(given, max(MERGED_ROWS, plan.exact_rows()))
    return given, exact_sums(plan, given, settings.dtype)


def exact_sums(plan: Plan, given: Given, dtype: Any) -> Plan:
    """The plan, in float64 where processes of CPUs share the rows and the precision was left open.

    Products of float32 tiles are rounded block by block, and blocks follow who holds which rows. That rounding is
    large enough to change which basis vectors are chosen, so the model would depend on the placement of rows.
    """
    left_open = isinstance(dtype, str) and dtype == "auto"
    if not (given.shard.divided and left_open and plan.device.type == "cpu"):
        return plan
    return replace(plan, dtype=torch.float64)

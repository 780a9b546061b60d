"""Tables so small that processes do not share them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from mercer.data import WHOLE, ArrayRows, Group, Runs
from mercer.data.group import ALONE
from mercer.engine import Plan, make_plan
from mercer.preprocessing.duplicates import MERGED_ROWS
from mercer.preprocessing.read import TableData


def collect_small_table(data: TableData, n_rows: int) -> TableData:
    """A table of at most `n_rows` rows that several processes share, as one that each of them has to itself.

    So few rows are learnt sooner than sums can travel, and then every process does the same.
    """
    shard = data.shard
    if not isinstance(shard, Runs) or shard.n_total > n_rows:
        return data
    own = np.arange(data.rows.n_rows)
    parts = shard.group.gather((shard.global_indices(own), data.rows.take(own).cpu().numpy(), data.y, data.weight))
    full = [part for part in parts if len(part[0])]  # a process without rows does not know the type of targets
    numbers, X, y, weight = (np.concatenate([part[k] for part in full]) for k in range(4))
    order = np.argsort(numbers)
    return replace(data, rows=ArrayRows(X[order]), y=y[order], weight=weight[order])


def fitting_group(data: TableData, group: Group) -> Group:
    """The processes whose first one fits: all of them if each holds the whole table, otherwise each by itself.

    Estimators call ``fitting_group(data, group).first(fit)`` after `collect_small_table`.
    """
    return group if data.shard is WHOLE else ALONE


def agreed_plan(data: TableData, settings: Any, dtype: Any) -> Plan:
    """Plan the work on all rows of the table, within the least memory limit of the processes."""
    plan = make_plan(data.shard.length(data.rows.n_rows), settings.device, dtype, settings.memory_limit)
    return replace(plan, memory_limit=int(data.shard.group.min(plan.memory_limit)))


def plan_for(data: TableData, settings: Any) -> tuple[TableData, Plan]:
    """A table and a plan for it that all processes agree upon; as few rows as are solved exactly are not shared."""
    plan = agreed_plan(data, settings, settings.dtype)
    data = collect_small_table(data, max(MERGED_ROWS, plan.exact_rows()))
    return data, exact_sums(plan, data, settings.dtype)


def exact_sums(plan: Plan, data: TableData, dtype: Any) -> Plan:
    """The plan, in float64 where processes of CPUs share the rows and the precision was left open.

    Products of float32 tiles are rounded block by block, and blocks follow who holds which rows. That rounding is
    large enough to change which basis vectors are chosen, so the model would depend on the placement of rows.
    """
    left_open = isinstance(dtype, str) and dtype == "auto"
    if not (data.shard.divided and left_open and plan.device.type == "cpu"):
        return plan
    return replace(plan, dtype=torch.float64)

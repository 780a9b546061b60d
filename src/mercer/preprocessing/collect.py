"""Plans that processes agree upon, and tables so small that every process gets all rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from mercer.data import UNDIVIDED, ArrayRows, Group, Runs
from mercer.data.group import ONE_PROCESS
from mercer.engine import Plan, make_plan
from mercer.preprocessing.duplicates import MERGED_ROWS
from mercer.preprocessing.read import TableData


def collect_small_table(data: TableData, n_rows: int) -> TableData:
    """Give every process all rows of a shared table, where these are at most `n_rows`.

    So few rows are fitted faster than sums are exchanged; every process then does the same work.
    """
    shard = data.shard
    if not isinstance(shard, Runs) or shard.n_total > n_rows:
        return data
    index = np.arange(data.rows.n_rows)
    local = shard.global_indices(index), data.rows.take(index).cpu().numpy(), data.y, data.weight
    parts = [part for part in shard.group.gather(local) if len(part[0])]  # without rows, the type of y is unknown
    indices, X, y, weight = (np.concatenate([part[k] for part in parts]) for k in range(4))
    order = np.argsort(indices)
    return replace(data, rows=ArrayRows(X[order]), y=y[order], weight=weight[order])


def fitting_group(data: TableData, group: Group) -> Group:
    """The processes whose first one fits: all of them if each holds the whole table, otherwise each by itself.

    Estimators call ``fitting_group(data, group).first(fit)`` after `collect_small_table`.
    """
    return group if data.shard is UNDIVIDED else ONE_PROCESS


def agreed_plan(data: TableData, settings: Any, dtype: Any) -> Plan:
    """Plan the work on all rows of the table, within the least memory limit of the processes."""
    plan = make_plan(data.shard.length(data.rows.n_rows), settings.device, dtype, settings.memory_limit)
    return replace(plan, memory_limit=int(data.shard.group.min(plan.memory_limit)))


def plan_for(data: TableData, settings: Any) -> tuple[TableData, Plan]:
    """The table and its plan, the same on all processes; rows that are solved exactly are not shared."""
    plan = agreed_plan(data, settings, settings.dtype)
    data = collect_small_table(data, max(MERGED_ROWS, plan.exact_rows()))
    return data, exact_sums(plan, data, settings.dtype)


def exact_sums(plan: Plan, data: TableData, dtype: Any) -> Plan:
    """The plan, in float64 where CPU processes share the rows and `dtype` is "auto".

    Products of float32 tiles are rounded block by block, and blocks depend on which process holds which rows. That
    rounding is large enough to change the choice of basis vectors, so the model would depend on the placement of rows.
    """
    automatic = isinstance(dtype, str) and dtype == "auto"
    if data.shard.divided and automatic and plan.device.type == "cpu":
        return replace(plan, dtype=torch.float64)
    return plan

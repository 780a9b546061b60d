"""Merge duplicate rows of a table that has been read.

Copies (equal inputs and equal targets) are merged into one row of their total weight, which is exact for every loss.
Large tables of few distinct inputs are made smaller as well. Under squared loss, rows of equal inputs are one row of
their total weight and mean target: :math:`\\sum_i w_i (f - y_i)^2 = W (f - \\bar y)^2 + c`. Held-out rows then need
company: without all rows of an input, nothing is known there. So the rows of an input are merged at random into
several, each with the weight and mean target of its part. For other losses and for classes, only rows of equal
targets are merged.

Tables so small that sums take longer to exchange than to make are collected first: every process gets all rows.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from mercer.data import UNDIVIDED, ArrayRows, Group, Runs
from mercer.data.hashes import has_copies, hash_ranks, hash_rows, hash_targets
from mercer.data.shard import ONE_PROCESS
from mercer.engine import Plan, make_plan
from mercer.parts import is_auto
from mercer.preprocessing.read import TableData

#: Tables of at most this many rows are sorted and their copies merged: a weight of 2 then equals the row twice.
MERGED_ROWS = 10_000
#: Rows from which equal inputs are looked for, and the share of the rows that may be left after merging.
FEWEST_ROWS, SHARE = 5000, 0.5
#: Rows that are compared first, and the share of them that may be distinct: with 25 000 inputs, 0.9 are.
FIRST_ROWS, DISTINCT_SHARE = 5000, 0.9
#: Rows to merge into at most, and the fewest rows for each input that has as many.
ENOUGH, LEAST = 4000, 4


def merge_duplicate_inputs(
    data: TableData, Y: np.ndarray, rng: np.random.Generator, *, by_targets: bool
) -> tuple[TableData, np.ndarray, float]:
    """The table with duplicates merged, its coded targets, and the mean weight that its rows are to have.

    Rows merged `by_targets` keep the noise of single rows, so each counts as often as it has rows. Otherwise the mean
    weight is one.
    """
    fewer = fewer_rows(data, Y, rng, by_targets=by_targets)
    if fewer is None:
        return *merged(data, Y, any_columns=True), 1.0
    return *fewer, data.n_alive / fewer[0].n_alive if by_targets else 1.0


def merged(data: TableData, Y: np.ndarray, *, any_columns: bool = False) -> tuple[TableData, np.ndarray]:
    """The rows of positive weight, sorted, with copies merged; `Y` are the coded targets (n × p).

    `read` merges copies too, except where processes share the table or a column that is left out tells them apart.
    Rows are sorted by their columns, or by a key that does not depend on the order of columns (`any_columns`).
    """
    if not isinstance(data.rows, ArrayRows) or data.shard.divided or data.rows.n_rows > MERGED_ROWS:
        return data, Y
    alive = data.alive
    X = data.rows.X[alive]
    keys = [] if data.row_groups is None else [data.row_groups.key[alive]]
    table = np.column_stack([X, Y[alive], *keys]).astype(np.float64)
    _, first, group = np.unique(table, axis=0, return_index=True, return_inverse=True)
    group = group.reshape(-1)
    if has_copies(hash_rows([*X.T, *keys], len(X)), hash_targets(Y[alive])):
        index, weight = alive[first], np.bincount(group, weights=data.weight[alive])
    else:
        index = alive[np.argsort(group, kind="stable")]
        weight = data.weight[index]
    if any_columns:
        order = np.argsort(hash_ranks(data.rows.X[index]), kind="stable")
        index, weight = index[order], weight[order]
    return data.rows_at(index, weight), Y[index]


def fewer_rows(
    data: TableData, Y: np.ndarray, rng: np.random.Generator, *, by_targets: bool
) -> tuple[TableData, np.ndarray] | None:
    """The table with rows of equal inputs merged and their coded targets `Y` (n × p) averaged.

    None where too few inputs are equal. Each merged row keeps the `y` of one of its rows, since noise is that of
    single rows. With `by_targets`, only rows of equal targets are merged and nothing is averaged.
    """
    alive = data.alive
    if not isinstance(data.rows, ArrayRows) or data.shard.divided or len(alive) < FEWEST_ROWS:
        return None
    keys = [*data.rows.X.T, *(Y.T if by_targets else ()), *(() if data.means is None else [data.means.folds])]
    keys += [] if data.row_groups is None else [data.row_groups.key]
    sample = alive[np.linspace(0, len(alive) - 1, FIRST_ROWS).astype(int)]
    if len(np.unique(_hashed_at(keys, sample))) > DISTINCT_SHARE * len(sample):
        return None
    _, group, counts = np.unique(_hashed_at(keys, alive), return_inverse=True, return_counts=True)
    parts = _parts(counts, LEAST if data.means is None else 1)  # with target means, each fold has its own rows
    total = int(parts.sum())
    if total > SHARE * len(alive):
        return None
    order = rng.permutation(len(alive))
    order = order[np.argsort(group[order], kind="stable")]  # rows of an input are consecutive, in random order
    to = _merged_row(order, counts, parts)
    first = np.empty(total, dtype=np.int64)
    first[to[order]] = alive[order]  # a random row: the first of a sorted table would have the least target
    weight = np.bincount(to, data.weight[alive], total)

    def averaged(values: np.ndarray) -> np.ndarray:
        sums = [np.bincount(to, data.weight[alive] * column[alive], total) for column in values.T]
        return np.column_stack(sums) / weight[:, None]

    fewer = data.rows_at(first, weight)
    if data.means is not None and fewer.means is not None:
        fewer = replace(fewer, means=replace(fewer.means, targets=averaged(data.means.targets)))
    return fewer, Y[first] if by_targets else averaged(Y)


def _hashed_at(keys: list[np.ndarray], index: np.ndarray) -> np.ndarray:
    return hash_rows([key[index] for key in keys], len(index))


def _merged_row(order: np.ndarray, counts: np.ndarray, parts: np.ndarray) -> np.ndarray:
    """The merged row of each row: rows of an input, consecutive in `order`, go to its parts in turn."""
    turn = np.arange(len(order)) - np.repeat(counts.cumsum() - counts, counts)
    first = parts.cumsum() - parts
    to = np.empty(len(order), dtype=np.int64)
    to[order] = np.repeat(first, counts) + turn % np.repeat(parts, counts)
    return to


def _parts(counts: np.ndarray, most: int) -> np.ndarray:
    """The number of merged rows of each input: parts of about equal weight, `most` if that makes too many."""
    least, size = np.minimum(counts, most), 1
    while (parts := np.maximum(-(-counts // size), least)).sum() > ENOUGH and size < counts.max():
        size += max(size // 8, 1)
    return parts


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
    automatic = is_auto(dtype)
    if data.shard.divided and automatic and plan.device.type == "cpu":
        return replace(plan, dtype=torch.float64)
    return plan

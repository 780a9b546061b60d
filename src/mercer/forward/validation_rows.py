"""Validation rows: a share of the training rows, or rows that the user gives."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from mercer.data import ArrayRows, Runs, Shard
from mercer.data.shard import even_run
from mercer.parts import require
from mercer.preprocessing.read import TableData

#: The most validation rows by default, or the share of a very large table, and the most for any table.
HELD_OUT_ROWS, HELD_OUT_SHARE, HELD_OUT_MOST = 2000, 0.02, 20_000


def append_validation_rows(
    data: TableData, Y: np.ndarray, X_val: np.ndarray, Y_val: np.ndarray
) -> tuple[TableData, np.ndarray, Tensor]:
    """Append the user's validation rows with weight zero.

    Each counts in the validation loss as much as a training row on average. Returns the table, its targets and the
    places of these rows.
    """
    assert isinstance(data.rows, ArrayRows)
    n, shard = data.rows.n_rows, data.shard
    if isinstance(shard, Runs):  # processes divide these rows, too
        start, stop = even_run(shard.group, len(X_val))
        X_val, Y_val, shard = X_val[start:stop], Y_val[start:stop], shard.append(len(X_val))
    rows = ArrayRows(np.concatenate([data.rows.X, X_val]), shard)
    mean = data.shard.total(data.weight.sum()) / data.n_alive
    weight = np.append(data.weight, np.zeros(len(X_val)))
    validation_weight = np.append(data.weight, np.full(len(X_val), mean))
    together = None if data.row_groups is None else data.row_groups.appended(len(X_val))
    data = replace(data, rows=rows, weight=weight, validation_weight=validation_weight, row_groups=together)
    return data, np.concatenate([Y, Y_val]), torch.arange(n, n + len(X_val))


def hold_out(
    data: TableData, Y: np.ndarray, share: float | str, rng: np.random.Generator, *, classes: bool
) -> tuple[TableData, Tensor]:
    """Hold out a share of the rows by setting their weights to zero; each class loses the same share.

    Whole groups, or the latest rows, are held out where rows stay together. Returns the table and the places of the
    held-out rows on this process.
    """
    alive, shard = torch.as_tensor(data.weight > 0), data.shard
    total = shard.count(alive)
    require(total >= 4, "the number of rows", "at least 4 to hold some out for validation", total)
    most = min(max(HELD_OUT_ROWS, HELD_OUT_SHARE * total), HELD_OUT_MOST)
    wanted = min(total / 10, most) if isinstance(share, str) else share * total
    n = min(max(round(wanted), 1), total - 2)
    weight = data.weight.copy()
    if data.row_groups is not None:
        left_out, scored = _whole_groups(data, Y, n, rng, classes=classes)
        weight[left_out] = 0.0
        return replace(data.with_weights(weight), validation_weight=data.weight), torch.as_tensor(scored)
    held_out = torch.cat(_stratified(shard, _by_class(alive, Y), n, rng)) if classes else shard.draw(alive, n, rng)
    places = np.sort(np.asarray(shard.local(held_out)[1]))
    weight[places] = 0.0
    return replace(data.with_weights(weight), validation_weight=data.weight), torch.as_tensor(places)


def _whole_groups(
    data: TableData, Y: np.ndarray, n: int, rng: np.random.Generator, *, classes: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Rows to leave out and those of them that validate: about `n` rows of whole groups, or the latest `n` rows.

    Groups with all rows of a class stay.
    """
    assert data.row_groups is not None
    alive = data.alive
    groups = data.row_groups.take(alive)
    left_out, scored = groups.splits(1, most=n, seed=int(rng.integers(2**31)))[0]
    if classes and not groups.ordered:
        masks = [mask.numpy()[alive] for mask in _by_class(torch.as_tensor(data.weight > 0), Y)]
        lost = [mask for mask in masks if mask.sum() == mask[left_out].sum()]
        kept = np.any([groups.beside(groups.key[mask]) for mask in lost if mask.any()], axis=0)
        left_out = scored = left_out[~np.broadcast_to(kept, len(alive))[left_out]]
        wanted = "such that some rows can be held out and each class is in a group that stays"
        require(len(scored) > 0, "groups", wanted, f"{len(np.unique(groups.key))} groups")
    return alive[left_out], alive[scored]


def _by_class(alive: Tensor, Y: np.ndarray) -> list[Tensor]:
    """A mask of the rows of each class."""
    label = torch.as_tensor((Y[:, 0] > 0).astype(int) if Y.shape[1] == 1 else Y.argmax(1))
    return [alive & (label == c) for c in range(max(Y.shape[1], 2))]


def _stratified(shard: Shard, classes: list[Tensor], n: int, rng: np.random.Generator) -> list[Tensor]:
    """About `n` random rows, in proportion to the classes; at least one row of every class stays."""
    sizes = np.array([shard.count(mask) for mask in classes])
    ends = np.cumsum(sizes)
    evenly = np.searchsorted(ends, np.linspace(0, ends[-1], n, endpoint=False).astype(int), side="right")
    wanted = np.minimum(np.bincount(evenly, minlength=len(sizes)), np.maximum(sizes - 1, 0))
    if not wanted.any():
        wanted[sizes.argmax()] = 1
    return [shard.draw(mask, int(k), rng) for mask, k in zip(classes, wanted, strict=True)]

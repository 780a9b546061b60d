"""What is decided before the first step: the table and its codings, the rows to watch, the problem to solve."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mercer.border.inputs import InputMap
from mercer.border.kernel import Chosen
from mercer.border.read import Given
from mercer.data import ArrayRows
from mercer.forward.problem import Problem
from mercer.forward.stages import ExpansionPath
from mercer.kernels import Kernel
from mercer.losses import Logistic, Loss, Softmax
from mercer.parts import require

#: Rows held out where nothing is said: a tenth, and no more than this.
HELD_OUT_ROWS = 2000


@dataclass(frozen=True)
class Task:
    """The table given, how targets and inputs are coded, the problem, how its kernel was found, rows to watch."""

    given: Given
    targets: Any
    inputs: InputMap
    problem: Problem
    chosen: Chosen
    held_out: Tensor | None


@dataclass(frozen=True)
class Final:
    """A finished model: rows and basis vectors, weights, kernel, penalty, and further attributes to keep."""

    index: Tensor
    basis: Tensor
    weights: Tensor
    kernel: Kernel
    lam: float
    moved: bool = False  # whether the basis vectors left their rows
    kept: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def at(cls, path: ExpansionPath, n_steps: int, problem: Problem) -> Final:
        """The model after `n_steps` steps; basis vectors that came later are left out."""
        W, device = path.weights(n_steps), problem.plan.device
        alive = np.flatnonzero((W != 0).any(1)) if n_steps < path.n_steps else np.arange(len(W))
        index = torch.as_tensor(path.rows[alive], device=device)
        return cls(index, problem.basis(index), torch.as_tensor(W[alive], device=device), problem.kernel, problem.lam)


def resolved_loss(choice: Any, n_outputs: int, *, classes: bool) -> Loss:
    """The loss as a part; the logistic one in its form for two classes or for more."""
    loss = Loss.resolve(choice, "loss")
    require(classes or loss.quadratic, "loss", "'squared' for regression: the others are for classes", choice)
    if isinstance(loss, Logistic | Softmax):
        return Softmax() if n_outputs > 1 else Logistic()
    return loss


def watch_given(given: Given, Y: np.ndarray, X_val: np.ndarray, Y_val: np.ndarray) -> tuple[Given, np.ndarray, Tensor]:
    """Rows given for watching stand at the end, with weight zero."""
    assert isinstance(given.rows, ArrayRows)
    n = given.rows.n_rows
    rows = ArrayRows(np.concatenate([given.rows.X, X_val]))
    weight = np.append(given.weight, np.zeros(len(X_val)))
    return replace(given, rows=rows, weight=weight), np.concatenate([Y, Y_val]), torch.arange(n, n + len(X_val))


def hold_out(
    given: Given, Y: np.ndarray, share: float | str, rng: np.random.Generator, *, classes: bool
) -> tuple[Given, Tensor]:
    """A share of the rows gets weight zero, to be watched; of classes, an equal share of each."""
    alive = given.alive
    require(len(alive) >= 4, "the number of rows", "at least 4 to hold some out for validation", len(alive))
    wanted = min(len(alive) / 10, HELD_OUT_ROWS) if isinstance(share, str) else share * len(alive)
    n = min(max(round(wanted), 1), len(alive) - 2)
    held = _of_each_class(alive, Y[alive], n, rng) if classes else rng.choice(alive, n, replace=False)
    weight = given.weight.copy()
    weight[held] = 0.0
    return replace(given, weight=weight), torch.as_tensor(np.sort(held))


def _of_each_class(rows: np.ndarray, Y: np.ndarray, n: int, rng: np.random.Generator) -> np.ndarray:
    """About `n` of these rows, each class in its share; one row of every class stays."""
    label = (Y[:, 0] > 0).astype(int) if Y.shape[1] == 1 else Y.argmax(1)
    order = rng.permutation(len(rows))
    order = order[np.argsort(label[order], kind="stable")]
    chosen = order[np.linspace(0, len(order), n, endpoint=False).astype(int)]
    first = order[np.unique(label[order], return_index=True)[1]]
    chosen = np.setdiff1d(chosen, first)
    return rows[chosen] if len(chosen) else rows[order[-1:]]

"""MAX-RES one vector a step at the speed of the device: the whole step as one captured CUDA graph.

A step is some sixty small operations, and launching them from Python takes ten times as long as running them. Here
every array has a fixed shape and the number of functions is a number on the device, so the step is captured once
and replayed. It writes into the block it serves: whoever looks at the block afterwards sees what
`SingleVector(MaxResidual())` would have left, step by step.
"""

from __future__ import annotations

import torch
from torch import Tensor

from mercer.data import TensorRows
from mercer.engine import may_record, record
from mercer.forward.absorb import Block, LearnerTerm
from mercer.forward.span import REAL


def can_replay(block: Block) -> bool:
    """Whether a step is recorded: where it is the same few operations every time, least squares on rows on a GPU."""
    problem, rows = block.problem, block.problem.rows
    if not isinstance(rows, TensorRows) or rows.X.device.type != "cuda" or not rows.n_rows or rows.shard.divided:
        return False
    fused = problem.kernel.columns(rows.X[:1]).fused_form() is not None  # then its tiles are made of torch's operations
    return may_record() and block.replayable and problem.loss.quadratic and fused


class ReplayedPursuit:
    """Steps of MAX-RES with full weights on one block; with ``capture=False`` the same operations one by one."""

    def __init__(self, block: Block, shrinkage: float = 1.0, capture: bool = True) -> None:
        assert isinstance(block.problem.rows, TensorRows)
        self.block, self.shrinkage, self.capture = block, shrinkage, capture
        self.X = block.problem.rows.X.to(block.problem.plan.dtype)
        self.columns = block.problem.kernel.columns(self.X)
        self.wide = block.problem.kernel.columns(self.X.mean(0, keepdim=True).double())
        self.n_open = int(block._open.sum())
        self.one = torch.ones(1, 1, dtype=torch.float64, device=self.X.device)
        self._fix()

    def _fix(self) -> None:
        """Hold on to the span's arrays as they are now; functions not yet there are zero and take part."""
        span, f = self.block.span, self.block.f
        span.values[span.size :].zero_()
        capacity = span.values.shape[0]
        self.arrays = span.values, span.R, span.H, span.W, span.T, span.prior, span.coef, span.alive
        self.size = torch.tensor([span.size], device=f.device)
        self.chosen = torch.zeros(capacity, dtype=torch.long, device=f.device)
        self.novelty = torch.zeros(capacity, dtype=torch.float64, device=f.device)
        self.points = torch.zeros(capacity, self.X.shape[1], dtype=torch.float64, device=f.device)
        if span.points is not None:
            self.points[: span.size] = span.points
        self.graph: torch.cuda.CUDAGraph | None = None
        self.n_eager = 2  # libraries set themselves up on first use, which a capture must not see

    def step(self) -> int | None:
        """Choose a row, take its column into the span, refit; the number of basis vectors added."""
        span = self.block.span
        if self.n_open == 0:
            return None
        span._reserve(span.size + 1)
        if span.values is not self.arrays[0]:
            self._fix()
        if not self.capture or self.n_eager:
            self.n_eager -= 1
            self._operate()
        else:
            if self.graph is None:
                self.graph, _ = record(self._operate)
            self.graph.replay()
        self._enter()
        return 1

    def __getstate__(self) -> dict[str, object]:
        """Everything but the graph, which belongs to this process: it is captured anew."""
        return {**vars(self), "graph": None, "n_eager": 2}

    def _enter(self) -> None:
        block, m = self.block, self.block.span.size
        index = self.chosen[m : m + 1]
        block.terms.append(LearnerTerm(index if block.pool is None else block.pool[index], self.one, slice(m, m + 1)))
        block.members = torch.cat([block.members, index])
        block.span.novelty = self.novelty[m : m + 1]
        block.span.size, self.n_open = m + 1, self.n_open - 1
        if block.span.lam:
            block.span.points, block.span._sizes = self.points[: m + 1], self.novelty.new_ones(m + 1)
        else:
            block.span.points = None

    def _operate(self) -> None:
        """`SingleVector.next`, `FunctionSpan.extend` and `Block.absorb` for one vector, in arrays of fixed shape."""
        block, lam, m = self.block, self.block.span.lam, self.size
        values, R, H, W, T, prior, coef, alive = self.arrays
        problem, eps = block.problem, torch.finfo(values.dtype).eps

        residual = problem.loss.residual(problem.y, block.f)
        j = torch.where(block._open, residual.square().sum(1), -1.0).argmax()[None]
        z = self.X.index_select(0, j)
        F = self.columns(z)[0]
        F.index_add_(0, j, F.new_full((1,), block.gram_noise))
        own, products = self._penalties(z.double())
        norm = (self._data(F) + own).clamp(min=0).sqrt()

        cross, left, rkhs, rest, F = self._project(F, own, products)
        novelty = left / norm.clamp(min=1e-300)
        floor = (max(10 * eps, block.min_novelty) * norm).square() + 10 * eps * own.clamp(min=0)
        fresh = left.square() > floor
        scale = torch.where(fresh, left, 1.0)
        inverse = torch.where(fresh, 1 / scale, 0.0)
        again, left, rkhs, rest, F = self._project(F * inverse.to(F.dtype), inverse * rkhs * inverse, rest * inverse)
        fresh = fresh & (left > REAL)
        last = torch.where(fresh, 1 / torch.where(fresh, left, 1.0), 0.0)
        cross, scale = cross + again * scale, scale * torch.where(fresh, left, 1.0)
        self.novelty.index_copy_(0, m, torch.where(fresh, novelty, 0.0)[None])

        phi = F * last.to(F.dtype)
        values.index_copy_(0, m, phi[None])
        R.index_copy_(1, m, cross.index_copy(0, m, scale[None])[:, None])
        _border(W, products, own, m)
        T.index_copy_(1, m, (-(T @ cross) / scale).index_copy(0, m, 1 / scale[None])[:, None])
        across = _border(H, last * self._seen(rest), last * rkhs * last, m)
        alive.index_copy_(0, m, fresh[None])
        outside = lam * block.span.before.index_select(0, j).double() - cross[None] @ prior
        prior.index_copy_(0, m, torch.where(fresh, outside / scale, 0.0))

        slope = (phi[None] @ (problem.weight[:, None] * residual)).double()
        change = (slope - prior.index_select(0, m) - across[None] @ coef) * self.shrinkage
        coef.index_add_(0, m, change)
        block.f.add_(phi[:, None] @ change.to(F.dtype))
        block._open.index_fill_(0, j, False)
        self.chosen.index_copy_(0, m, j)
        self.points.index_copy_(0, m, z.double())
        self.size.add_(1)

    def _data(self, F: Tensor) -> Tensor:
        return (F * self.block.metric).dot(F).double()

    def _penalties(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """λ⟨f, f⟩_H of the new column and λ⟨·, f⟩_H of those before it (zero for those not yet there)."""
        kernel, lam = self.wide.rebound(z), self.block.span.lam
        there = torch.arange(len(self.points), device=z.device) < self.size
        return lam * kernel(z)[0, 0], torch.where(there, lam * kernel(self.points)[:, 0], 0.0)

    def _seen(self, products: Tensor) -> Tensor:
        *_, T, _, _, alive = self.arrays
        return torch.where(alive, T.T @ products, 0.0)

    def _project(self, F: Tensor, own: Tensor, products: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """`FunctionSpan._project` for one column: coordinates, length, penalties and what is left of it."""
        values, _, _, W, T, *_ = self.arrays
        step = ((values @ (F * self.block.metric)).double() + self._seen(products)).to(F.dtype)
        F, cross = F - step @ values, step.double()
        weights = T @ cross
        rest = products - W @ weights
        rkhs = own - products.dot(weights) - weights.dot(rest)
        return cross, (self._data(F) + rkhs).clamp(min=0).sqrt(), rkhs, rest, F


def _border(square: Tensor, across: Tensor, corner: Tensor, m: Tensor) -> Tensor:
    """Write row and column m of a symmetric matrix; returns the row."""
    across = across.index_copy(0, m, corner[None])
    square.index_copy_(0, m, across[None])
    square.index_copy_(1, m, across[:, None])
    return across

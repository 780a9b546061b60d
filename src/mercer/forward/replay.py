"""MAX-RES one vector a step at the speed of the device: the whole step as one captured CUDA graph.

A step is some forty small operations, and launching them from Python takes ten times as long as running them. Here
every array has a fixed shape and the number of functions is a number on the device, so the step is captured once
and replayed. It writes into the block it serves: whoever looks at the block afterwards sees what
`SingleVector(MaxResidual())` would have left, step by step.
"""

from __future__ import annotations

import torch

from mercer.data import TensorRows
from mercer.engine import may_record, record
from mercer.forward.absorb import Block, Term


def can_replay(block: Block) -> bool:
    """Whether a step is recorded: where it is the same few operations every time, least squares on rows on a GPU."""
    problem, rows = block.problem, block.problem.rows
    if not isinstance(rows, TensorRows) or rows.X.device.type != "cuda":
        return False
    return may_record() and block.replayable and problem.loss.quadratic and problem.kernel.form(rows.X) is not None


class ReplayedPursuit:
    """Steps of MAX-RES with full weights on one block; with ``capture=False`` the same operations one by one."""

    def __init__(self, block: Block, shrinkage: float = 1.0, capture: bool = True) -> None:
        assert isinstance(block.problem.rows, TensorRows)
        self.block, self.shrinkage, self.capture = block, shrinkage, capture
        self.X = block.problem.rows.X.to(block.problem.plan.dtype)
        self.columns = block.problem.kernel.columns(self.X)
        self.n_open = int(block._open.sum())
        self.one = torch.ones(1, 1, dtype=torch.float64, device=self.X.device)
        self._fix()

    def _fix(self) -> None:
        """Hold on to the span's arrays as they are now; functions not yet there are zero and take part."""
        span, f = self.block.span, self.block.f
        span.values[span.size :].zero_()
        self.arrays = span.values, span.R, span.H, span.prior, span.coef
        self.size = torch.tensor([span.size], device=f.device)
        self.chosen = torch.zeros(span.values.shape[0], dtype=torch.long, device=f.device)
        self.novelty = torch.zeros(span.values.shape[0], dtype=torch.float64, device=f.device)
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
        block.terms.append(Term(index if block.pool is None else block.pool[index], self.one, slice(m, m + 1)))
        block.members = torch.cat([block.members, index])
        block.span.novelty = self.novelty[m]
        block.span.size, self.n_open = m + 1, self.n_open - 1

    def _operate(self) -> None:
        """`SingleVector.next`, `FunctionSpan.extend` and `Block.absorb` for one vector, in arrays of fixed shape."""
        block, lam = self.block, self.block.span.lam
        values, R, H, prior, coef = self.arrays
        problem, metric, m = block.problem, block.metric, self.size
        eps = torch.finfo(values.dtype).eps

        residual = problem.loss.residual(problem.y, block.f)
        j = torch.where(block._open, residual.square().sum(1), -1.0).argmax()[None]
        F = self.columns(self.X.index_select(0, j))[0]
        F.index_add_(0, j, F.new_full((1,), block.gram_noise))

        own = lam * F.index_select(0, j).double()
        h = lam * values.index_select(1, j)[:, 0].double()
        norm = ((F * metric).dot(F).double() + own).clamp(min=0).sqrt()
        cross, within = torch.zeros_like(h), h
        for _ in range(2):
            step = (values @ (F * metric)).double() + within
            F = F - step.to(F.dtype) @ values
            cross = cross + step
            within = h - H @ cross
        rkhs = own - h.dot(cross) - cross.dot(within)
        left = ((F * metric).dot(F).double() + rkhs).clamp(min=0).sqrt()
        fresh = left.square() > (10 * eps * norm).square() + 10 * eps * own.clamp(min=0)
        scale = torch.where(fresh, left, 1.0)
        inverse = torch.where(fresh, 1 / scale, 0.0)

        phi = F * inverse.to(F.dtype)
        values.index_copy_(0, m, phi[None])
        R.index_copy_(1, m, cross.index_copy(0, m, scale)[:, None])
        across = (inverse * within).index_copy(0, m, inverse * rkhs * inverse)
        H.index_copy_(0, m, across[None])
        H.index_copy_(1, m, across[:, None])
        outside = lam * block.span.before.index_select(0, j).double() - cross[None] @ prior
        prior.index_copy_(0, m, inverse * outside)

        slope = (phi[None] @ (problem.weight[:, None] * residual)).double()
        change = (slope - prior.index_select(0, m) - across[None] @ coef) * self.shrinkage
        coef.index_add_(0, m, change)
        block.f.add_(phi[:, None] @ change.to(F.dtype))
        block._open.index_fill_(0, j, False)
        self.chosen.index_copy_(0, m, j)
        self.novelty.index_copy_(0, m, torch.where(norm > 0, left / norm.clamp(min=1e-300), 0.0))
        self.size.add_(1)

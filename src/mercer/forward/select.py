"""Rows for others: the selection of this family as a function of a sample, without an estimator around it."""

from __future__ import annotations

from functools import partial

import numpy as np

from mercer.engine.sample import Sample
from mercer.forward.absorb import Block
from mercer.forward.combine import Separate
from mercer.forward.criteria import Criterion
from mercer.forward.learners import Ensemble, Learner, SingleVector
from mercer.forward.loop import ForwardFit
from mercer.forward.problem import Problem
from mercer.forward.stopping import Dependence, MaxSteps, Stopping
from mercer.kernels import Kernel

#: Rows above which passes over the columns are what costs, so that several vectors enter a pass.
SINGLE_ROWS, TOGETHER = 5000, 32
#: The share of its norm up to which a vector that lies in the span of those before it counts as none.
MIN_NOVELTY = 1e-6


def select_rows(
    data: Sample, kernel: Kernel, lam: float, criterion: Criterion | str, m: int, rng: np.random.Generator
) -> np.ndarray:
    """Indices of at most `m` rows that serve best as basis vectors for the targets, in the order they entered.

    The weights of all vectors follow each step, with penalty `lam` in the RKHS (Boost10 eq. 12). Fewer than `m` come
    back where no further row is worth adding.

    >>> import numpy as np, torch
    >>> from mercer.data import TensorRows
    >>> from mercer.engine import make_plan
    >>> from mercer.kernels import Gaussian
    >>> X = torch.linspace(0, 6, 50, dtype=torch.float64)[:, None]
    >>> data = Sample(TensorRows(X), X.sin(), torch.ones(50, dtype=torch.float64), make_plan(50, device="cpu"))
    >>> len(select_rows(data, Gaussian(), 1e-3, "max-res", 4, np.random.default_rng(0)))
    4
    """
    criterion = Criterion.resolve(criterion, "criterion")
    problem = Problem(data.in_tiles(data.plan), kernel, lam)
    n = problem.n_candidates
    alone = n <= SINGLE_ROWS or criterion.short_name == "ormp"
    draw = "largest" if criterion.n_candidates is None else "random"
    learner: Learner = (
        SingleVector(criterion) if alone else Ensemble(criterion, Separate(), TOGETHER, 16 * TOGETHER, draw)
    )
    rules: list[Stopping] = [MaxSteps(min(m, n) if alone else -(-min(m, n) // TOGETHER), "steps")]
    if alone:
        rules.append(Dependence(MIN_NOVELTY))
    block = partial(Block, min_novelty=MIN_NOVELTY)
    fit = ForwardFit(problem, learner, rng, capacity=min(m, n), make_block=block)
    fit.run(rules)
    return fit.path().rows[:m]

"""How long a polish would take, from small parts of its work: rates differ tenfold from machine to machine."""

from __future__ import annotations

from torch import Tensor

from mercer.forward.problem import Problem
from mercer.forward.solve.exact_time import seconds_of

#: Rows of the pass that is timed, and basis vectors of the square that is.
ROWS, SIDE = 256, 1024
#: Multiplications of two Cholesky factors, two squares and a triangular solution, in units of the cube of their side.
CUBES = 4.0
#: Passes over all rows before the first step and after the last one, and for each step, with the rows that are watched.
AROUND, STEP = 5.0, 1.5


def affordable_steps(problem: Problem, index: Tensor, seconds: float) -> int:
    """Steps of a polish of the basis vectors `index` that so many seconds allow, as the first process measures it."""
    basis, m = problem.basis(index).double(), len(index)
    some = problem.basis(index[:ROWS]).double()
    v = some.new_ones(m, 1)
    square = some.new_ones(min(m, SIDE), min(m, SIDE))
    a_pass = seconds_of(lambda: problem.kernel(some, basis) @ v) * problem.n_candidates / len(some)
    algebra = seconds_of(lambda: square @ square) * CUBES * (m / len(square)) ** 3
    a_pass, algebra = problem.rows.shard.group.first(lambda: (a_pass, algebra))
    return int(max((seconds - algebra - AROUND * a_pass) / max(STEP * a_pass, 1e-9), 0))

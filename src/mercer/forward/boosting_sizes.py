"""Sizes of a boosted fit: basis vectors and candidate rows of a learner, every "auto" resolved."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from mercer.forward.learners import Size

#: Rows above which a learner chooses among more candidate rows.
VERY_MANY_ROWS = 1_000_000


class LearnerSizes(NamedTuple):
    """The most basis vectors of a learner, and the candidate rows for each of them."""

    most_vectors: int
    candidates_per_vector: int

    @classmethod
    def default(cls, n_rows: int, many_rows: int, device: str) -> LearnerSizes:
        """Sizes for a table.

        Above `VERY_MANY_ROWS`, twice as many vectors take twice as long for 2 % less error.
        """
        on_gpu = device == "cuda"
        if n_rows < many_rows:
            return cls(1000, 10) if on_gpu else cls(300, 10)
        if n_rows <= VERY_MANY_ROWS:
            return cls(4000, 10) if on_gpu else cls(500, 5)
        return cls(2000, 20) if on_gpu else cls(500, 5)


@dataclass(frozen=True)
class BoostingSettings:
    """Sizes of a fit, every "auto" resolved.

    `block_length` None refits all weights with every learner; `gram_rows` None takes the curvature from all rows;
    `penalty` None leaves the penalty to model selection.
    """

    n_learners: int
    learner_size: Size
    subset_size: int
    gram_rows: int | None
    block_length: int | None
    penalty: float | None

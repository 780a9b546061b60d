"""One small cell per table of Boost06, on a generated table, for the test that fails when they drift (`cells.json`)."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
from papers.boost06 import method as boost06
from papers.regression import Curve, Table, curve, with_kernel
from sklearn.datasets import make_friedman1

from mercer.kernels import Gaussian


@cache
def curves() -> tuple[Curve, Curve]:
    """The single model of 60 vectors and six boosted ones of 20, from subsets of 60, on 450 / 50 rows of friedman1."""
    X, y = make_friedman1(500, n_features=5, noise=1.0, random_state=0)
    table = Table.made(np.asarray(X), y, 450)
    given = with_kernel(table, 1.5 * Gaussian(1.0) + 1.0, 0.05)
    return curve(given, table.test, boost06.single(), 60), curve(given, table.test, boost06.boosted(20, 60), 6)


CELLS: dict[str, Callable[[], float]] = {
    "table 3, single": lambda: float(curves()[0].nmse[-1]),
    "table 3, boosted": lambda: float(curves()[1].nmse[-1]),
    "table 4, vectors of the single model at 12 %": lambda: float(curves()[0].reaching(12.0)[1]),
    "table 4, vectors of boosted models at 12 %": lambda: float(curves()[1].reaching(12.0)[1]),
}

"""One small cell per table and figure of Boost10, on generated tables, for the test that fails when they drift."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial

import numpy as np
import torch
from papers.boost10 import covtype_paper
from papers.boost10.cvm import CoreVectorMachine
from papers.boost10.kin40k import AS_PRINTED
from papers.regression import Curve, Table, curve, with_kernel
from sklearn.datasets import make_friedman1

from mercer.datasets import make_ripley
from mercer.forward.combine import Rayleigh
from mercer.forward.criteria import MaxResidual
from mercer.forward.loop import Ensemble
from mercer.forward.problem import Problem
from mercer.kernels import Gaussian


@cache
def friedman() -> tuple[Problem, torch.Tensor]:
    X, y = make_friedman1(500, n_features=5, noise=1.0, random_state=0)
    table = Table.made(np.asarray(X), y, 450)
    return with_kernel(table, 4.0 * Gaussian(2.0) + 1.0, 0.05), table.test


@cache
def grown(method: str) -> Curve:
    """40 steps of a method as printed; the ensemble 10 of 8 vectors out of 80."""
    if method == "ensemble":
        return curve(*friedman(), Ensemble(MaxResidual(), Rayleigh(), 8, 80, "all"), 10)
    return curve(*friedman(), AS_PRINTED[method][0], 40)


@cache
def ripley() -> tuple[torch.Tensor, torch.Tensor]:
    """2000 rows, lengthened to the scale of COVTYPE's inputs, so that β = 10⁴ suits them."""
    X, y = make_ripley(2000, random_state=0)
    return torch.as_tensor(200 * X, dtype=torch.float32), torch.as_tensor(np.where(y == y.max(), 1.0, -1.0))


def boosted() -> float:
    """Test error of one ensemble of three learners by the protocol of section IV-B, in percent."""
    X, y = ripley()
    return covtype_paper.boosting(X, y, 1000, "cpu", 1, 60.0, 3, 200)[-1]["error"]


def core_vectors() -> float:
    X, y = ripley()
    machine = CoreVectorMachine(Gaussian((covtype_paper.BETA / 2) ** 0.5), C=1.0).fit(X[:1000], y[:1000])
    return 100 * float((machine.decision(X[1000:]).double() * y[1000:] <= 0).double().mean())


CELLS: dict[str, Callable[[], float]] = {
    **{f"table IV, {name}": partial(lambda name: float(grown(name).nmse[-1]), name) for name in AS_PRINTED},
    **{
        f"table V, vectors of {name} at 10 %": partial(lambda name: float(grown(name).reaching(10.0)[1]), name)
        for name in ("random", "mp", "max-res", "ran")
    },
    "figure 6, one ensemble": boosted,
    "figure 6, core vector machine": core_vectors,
}

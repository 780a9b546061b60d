"""What Boost06 and Boost10 have in common: a table split 90/10, the kernel of Boost10 eq. 33 tuned by evidence, and the
test error along a forward fit against CPU seconds and basis vectors.

Test rows ride along with weight zero, so that the curve costs no pass of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from papers.measure import clock

from mercer import tune_kernel
from mercer.data import TensorRows
from mercer.datasets import load, split
from mercer.engine import Sample, make_plan
from mercer.forward.loop import ForwardFit, Learner
from mercer.forward.problem import Problem
from mercer.forward.stopping import MaxSteps


@dataclass(frozen=True)
class Table:
    """Rows standardised by the training part; targets of mean zero and variance one there."""

    X: np.ndarray
    y: np.ndarray
    n: int  # training rows, which come first

    @classmethod
    def of(cls, name: str, seed: int) -> Table:
        X, X_test, y, y_test = split(load(name), test_size=0.1, seed=seed)
        return cls.made(np.concatenate([X, X_test]), np.concatenate([y, y_test]), len(X))

    @classmethod
    def made(cls, X: np.ndarray, y: np.ndarray, n: int) -> Table:
        scale = np.where(X[:n].std(0) > 0, X[:n].std(0), 1.0)
        return cls((X - X[:n].mean(0)) / scale, (y - y[:n].mean()) / y[:n].std(), n)

    @property
    def test(self) -> torch.Tensor:
        return torch.arange(self.n, len(self.y))


def problem(table: Table, seed: int, device: str = "cpu", n_rows: int = 1000) -> Problem:
    """Regularised least squares with variance · Gaussian + bias, all by the evidence of `n_rows` training rows."""
    n = table.n
    how = {"ard": True, "n_rows": n_rows, "device": device, "random_state": seed}
    tuned = tune_kernel(table.X[:n], table.y[:n], "gaussian", **how)
    return with_kernel(table, tuned.kernel, tuned.noise, device)


def with_kernel(table: Table, kernel: object, noise: float, device: str = "cpu") -> Problem:
    plan = make_plan(len(table.y), device)
    as_tensor = {"device": plan.device, "dtype": plan.dtype}
    weight = torch.ones(len(table.y), **as_tensor)
    weight[table.n :] = 0
    rows = TensorRows(torch.as_tensor(table.X, **as_tensor))
    return Problem(Sample(rows, torch.as_tensor(table.y, **as_tensor)[:, None], weight, plan), kernel, noise)


@dataclass(frozen=True)
class Curve:
    """CPU seconds, basis vectors and test NMSE in percent after each step."""

    seconds: np.ndarray
    vectors: np.ndarray
    nmse: np.ndarray

    def at(self, seconds: float) -> tuple[float, float]:
        """NMSE and vectors after a time, between the two steps around it, on logarithmic scales; at last the end."""
        if seconds < self.seconds[0]:
            return np.nan, np.nan
        x, xs = np.log(seconds), np.log(np.maximum(self.seconds, 1e-9))
        nmse, vectors = (np.exp(np.interp(x, xs, np.log(values))) for values in (self.nmse, self.vectors))
        return float(nmse), float(vectors)

    def with_vectors(self, m: float) -> float:
        """NMSE with `m` vectors, likewise."""
        inside = self.vectors[0] <= m <= self.vectors[-1]
        return float(np.exp(np.interp(np.log(m), np.log(self.vectors), np.log(self.nmse)))) if inside else np.nan

    def seconds_to(self, m: float) -> float:
        """Seconds until the model has `m` vectors."""
        return float(np.interp(m, self.vectors, self.seconds)) if m <= self.vectors[-1] else np.nan

    def reaching(self, nmse: float) -> tuple[float, float]:
        """Seconds and vectors of the first model that is as good."""
        step = np.flatnonzero(self.nmse <= nmse)
        return (self.seconds[step[0]], self.vectors[step[0]]) if len(step) else (np.nan, np.nan)

    def thinned(self, n_points: int = 40) -> dict[str, list[float]]:
        """What is kept in a file: points evenly spaced on a logarithmic scale, the last one among them."""
        last = len(self.nmse) - 1
        steps = np.unique(np.geomspace(1, last + 1, n_points).astype(int)) - 1
        columns = {"seconds": (self.seconds, 3), "vectors": (self.vectors, 0), "nmse": (self.nmse, 4)}
        return {name: [round(float(v), digits) for v in values[steps]] for name, (values, digits) in columns.items()}


def kept(points: dict[str, list[float]]) -> Curve:
    """A curve from a file."""
    return Curve(*(np.asarray(points[name]) for name in ("seconds", "vectors", "nmse")))


def curve(given: Problem, test: torch.Tensor, learner: Learner, n_steps: int, length: int | None = None,
          seed: int = 0, limit: float = 900.0) -> Curve:  # fmt: skip
    """Grow `n_steps` learners. CPU seconds of this process with one thread do not mind others; a GPU has the wall's."""
    rng = np.random.default_rng(seed)
    held = test.to(given.plan.device)
    fit = ForwardFit(given, learner, rng, block_length=length, validation=held, capacity=max(1024, n_steps))
    seconds: list[float] = []
    device = given.plan.device.type
    began = clock(device)

    def note(_: ForwardFit) -> bool:
        seconds.append(clock(device) - began)
        return seconds[-1] > limit

    fit.run([MaxSteps(n_steps)], callbacks=[note])
    history = fit.history
    return Curve(np.array(seconds), np.array(history.n_basis, dtype=float), 200 * np.array(history.validation))

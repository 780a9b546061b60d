"""What sparse Gaussian processes share at the border: where they start, how they climb, what they keep."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from tqdm.auto import tqdm

from mercer.border.estimator import RowEstimator, require_number, require_whole
from mercer.data import RowSource
from mercer.engine import make_plan
from mercer.engine.sample import Sample
from mercer.evidence.approximations import Approximation
from mercer.evidence.clock import Clock
from mercer.evidence.coordinates import Evidence, Point
from mercer.evidence.optimise import optimise
from mercer.evidence.posterior import Posterior
from mercer.forward.criteria import Criterion
from mercer.forward.greedy import GreedyKernelRegressor
from mercer.kernels import Kernel
from mercer.linalg.kmeans import spread_out
from mercer.parts import require

#: How much longer or shorter the length-scales of a further start may be.
RESTART_FACTOR = 3.0


@dataclass(frozen=True)
class Fitted:
    """One Gaussian process after fitting."""

    kernel: Kernel
    noise: float
    posterior: Posterior
    log_evidence: float
    index: np.ndarray  # of the rows that the inducing inputs are or started from
    why: str
    n_iter: int = 1
    predictive_noise: float = 0.0  # of new targets


class SparseGP(RowEstimator):
    """How sparse Gaussian processes are started, climbed and asked; the faces add what their targets need."""

    def __init__(
        self,
        n_inducing: int = 500,
        *,
        approximation: Any = "spgp",
        inducing: Any = "k-means++",
        optimize_inducing: bool | str = "auto",
        optimize_kernel: bool | str = "auto",
        kernel: Any = "auto",
        ard: bool | str = "auto",
        tuning_rows: int = 1000,
        max_iter: int = 100,
        tol: float = 1e-6,
        n_restarts: int = 0,
        time_budget: float | None = None,
        scale_inputs: bool | str = True,
        device: Any = "auto",
        dtype: Any = "auto",
        memory_limit: Any = None,
        random_state: Any = None,
        verbose: bool = False,
        callbacks: Any = None,
    ) -> None:
        self.n_inducing = n_inducing
        self.approximation = approximation
        self.inducing = inducing
        self.optimize_inducing = optimize_inducing
        self.optimize_kernel = optimize_kernel
        self.kernel = kernel
        self.ard = ard
        self.tuning_rows = tuning_rows
        self.max_iter = max_iter
        self.tol = tol
        self.n_restarts = n_restarts
        self.time_budget = time_budget
        self.scale_inputs = scale_inputs
        self.device = device
        self.dtype = dtype
        self.memory_limit = memory_limit
        self.random_state = random_state
        self.verbose = verbose
        self.callbacks = callbacks

    # --- before any data --------------------------------------------------------------------------------

    def _require_parameters(self) -> Approximation:
        require_whole("n_inducing", self.n_inducing)
        require_whole("tuning_rows", self.tuning_rows, 2)
        require_whole("max_iter", self.max_iter, 0)
        require_whole("n_restarts", self.n_restarts, 0)
        self._require_scaling()
        require_number("tol", self.tol, "a number of at least 0", 0.0)
        for name in ("optimize_inducing", "optimize_kernel", "ard"):
            value = getattr(self, name)
            require(value in (True, False, "auto"), name, "True, False or 'auto'", value)
        if self.time_budget is not None:
            wanted = "None or a positive number of seconds"
            require_number("time_budget", self.time_budget, wanted, np.nextafter(0, 1))
        several = self.callbacks is None or isinstance(self.callbacks, Iterable)
        good = several and all(callable(callback) for callback in self.callbacks or ())
        require(good, "callbacks", "None or several functions of a point of the search", self.callbacks)
        if isinstance(self.inducing, str):
            names = ["random", "k-means++", *sorted(set(Criterion.choices()) - {"random"})]
            require(self.inducing in names, "inducing", f"one of {names}, a Criterion or an array", self.inducing)
        approximation = Approximation.resolve(self.approximation, "approximation")
        if approximation.dense:
            require(self.optimize_inducing is not True, "optimize_inducing", "False where inputs are rows", True)
        return approximation

    def _moves(self, approximation: Approximation) -> bool:
        """Whether the inducing inputs leave the rows: by default where the evidence asks for it."""
        if isinstance(self.optimize_inducing, str):
            return not approximation.dense and (approximation.alpha > 0 or approximation.bound)
        return bool(self.optimize_inducing)

    def _tunes(self) -> bool:
        if isinstance(self.optimize_kernel, str):
            return isinstance(self.kernel, str)
        return bool(self.optimize_kernel)

    # --- rows, start and search -------------------------------------------------------------------------

    def _data(self, source: RowSource, Y: np.ndarray, weight: np.ndarray, approximation: Approximation) -> Sample:
        dtype = "float64" if approximation.dense and self.dtype == "auto" else self.dtype
        plan = make_plan(source.n_rows, self.device, dtype, self.memory_limit)
        self._scale_columns(source, weight, plan, bool(self.scale_inputs), self._bend(source, Y, weight, plan))
        self.dtype_ = str(plan.dtype).removeprefix("torch.")
        on_device: dict[str, Any] = {"device": plan.device, "dtype": torch.float64}
        return Sample(
            self._prepared(source, plan), torch.as_tensor(Y, **on_device), torch.as_tensor(weight, **on_device), plan
        )

    def _inducing_rows(self, data: Sample, kernel: Kernel, noise: float, m: int, rng: Any) -> np.ndarray:
        """Sample at which the inducing inputs start."""
        alive = np.flatnonzero(data.weight.cpu().numpy() > 0)
        m = min(m, len(alive))
        if m == len(alive):
            return alive
        choice = self.inducing
        if isinstance(choice, str) and choice in ("random", "k-means++"):
            pool = alive if len(alive) <= 20 * m else rng.choice(alive, 20 * m, replace=False)
            if choice == "random":
                return rng.choice(pool, m, replace=False)
            scale = relevance_of(kernel, data.rows.n_columns)
            return pool[
                spread_out(data.rows.take(pool).double() * torch.as_tensor(scale, device=data.plan.device), m, rng)
            ]
        greedy = GreedyKernelRegressor(
            m, criterion=choice, kernel=kernel, regularization=max(noise, 1e-4), scale_inputs=False,
            device=data.plan.device, dtype=self.dtype_, memory_limit=self.memory_limit, random_state=rng,
        )  # fmt: skip
        found = greedy.fit(data.rows, data.Y.cpu().numpy(), data.weight.cpu().numpy()).basis_indices_
        rest = np.setdiff1d(alive, found)
        return np.concatenate([found, rng.choice(rest, m - len(found), replace=False)])

    def _start(self, data: Sample, kernel: Kernel, noise: float, m: int, rng: Any) -> tuple[np.ndarray, Tensor]:
        """Sample and inducing inputs (in scaled units) at which the search starts."""
        if isinstance(self.inducing, str | Criterion):
            index = self._inducing_rows(data, kernel, noise, m, rng)
            return index, data.rows.take(index).to(data.plan.device, data.plan.dtype)
        given = np.atleast_2d(np.asarray(self.inducing, dtype=np.float64))
        require(given.shape[1] == data.rows.n_columns, "inducing", f"of {data.rows.n_columns} columns", given.shape)
        return np.arange(0), self._standardised(given).to(data.plan.device, data.plan.dtype)

    def _search(
        self,
        evidence: Callable[[Sample], Evidence],
        kernel: Kernel,
        noise: float,
        place: Callable[[], tuple[np.ndarray, Tensor]],
        data: Sample,
        free: set[str],
        rng: Any,
    ) -> tuple[np.ndarray, Point]:
        """Uphill on the evidence from one start or several, with a bar and the user's callbacks.

        `place` draws the rows and inducing inputs of a start. Returns the rows of the best one and where it led.
        """
        began, found = time.perf_counter(), []
        starts = 1 + (self.n_restarts if free else 0)
        with tqdm(disable=not self.verbose, desc="evidence", unit=" steps") as bar:

            def seen(point: Point) -> None:
                bar.update()
                for callback in self.callbacks or ():
                    callback(point)

            options: dict[str, Any] = {"max_iter": self.max_iter, "tol": self.tol, "rng": rng, "free": free}
            for left in range(starts, 0, -1):
                index, Z = place()
                data.plan.require_square(len(Z) * data.Y.shape[1])
                if self.time_budget is not None:
                    spent = time.perf_counter() - began
                    options["clock"] = Clock(max((self.time_budget - spent) / left, 1e-9))
                first = kernel if left == starts or "kernel" not in free else elsewhere(kernel, rng)
                found.append((index, optimise(evidence, Point(first, noise, Z), data, callback=seen, **options)))
        return max(found, key=lambda one: one[1].value)

    # --- new rows ---------------------------------------------------------------------------------------

    def _moments(self, X: Any, model: Fitted, spread: bool = True) -> tuple[np.ndarray, np.ndarray]:
        source = self._new_rows(X)
        plan = make_plan(source.n_rows, self.device, self.dtype_, self.memory_limit)
        mean, cov = model.posterior.moments(model.kernel, self._prepared(source, plan), plan, spread)
        return mean.cpu().numpy(), cov.cpu().numpy()

    def _store(self, models: list[Fitted]) -> None:
        """What all faces show: inducing inputs in the inputs' own units, weights, kernel, evidence, reason."""
        self._models = models
        one = len(models) == 1
        bases = [self._in_own_units(m.posterior.basis) for m in models]
        relevances = [relevance_of(m.kernel, self.n_features_in_) for m in models]
        self.basis_ = bases[0] if one else bases
        self.dual_coef_ = models[0].posterior.weights.numpy() if one else [m.posterior.weights.numpy() for m in models]
        self.kernel_ = models[0].kernel if one else [m.kernel for m in models]
        self.relevance_ = relevances[0] if one else np.stack(relevances)
        self.log_marginal_likelihood_ = float(sum(m.log_evidence for m in models))
        self.n_iter_ = max(max(m.n_iter for m in models), 1)
        self.stop_reason_ = models[0].why if one else "; ".join(dict.fromkeys(m.why for m in models))


def relevance_of(kernel: Kernel, n_inputs: int) -> np.ndarray:
    """Inverse length-scales of standardised inputs; ones for kernels without them."""
    scales = [v for name, v in kernel.tunable().items() if name.endswith("length_scale")]
    return np.broadcast_to(1 / np.asarray(scales[0], dtype=float), (n_inputs,)).copy() if scales else np.ones(n_inputs)


def elsewhere(kernel: Kernel, rng: Any) -> Kernel:
    """Another start: all length-scales times one factor within `RESTART_FACTOR`."""
    factor = RESTART_FACTOR ** rng.uniform(-1, 1)
    scales = {name: value for name, value in kernel.tunable().items() if name.endswith("length_scale")}
    return kernel.replaced({name: (np.asarray(value) * factor).tolist() for name, value in scales.items()})


def on_host(posterior: Posterior) -> Posterior:
    explained, scatter = (None if t is None else t.cpu() for t in (posterior.explained, posterior.scatter))
    return Posterior(posterior.basis.cpu(), posterior.weights.cpu(), explained, scatter)

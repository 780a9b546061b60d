"""How greedy sparse kernel models grow, stop, are pruned and refined: what `mercer.forward.greedy` has in common."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from torch import Tensor

from mercer.border.estimator import require_number, require_whole
from mercer.data import RowSource, TensorRows
from mercer.engine import Plan
from mercer.engine.sample import Sample
from mercer.evidence.optimise import PLAIN_NOISE, plain_kernel, refine_basis
from mercer.forward.absorb import Block
from mercer.forward.combine import Separate
from mercer.forward.criteria import Criterion, Random
from mercer.forward.estimator import ForwardEstimator
from mercer.forward.exchange import ExchangeBlock, MinimalResidualBlock, PlainMinimalResidualBlock
from mercer.forward.learners import Ensemble, Learner, SingleVector
from mercer.forward.loop import ForwardFit
from mercer.forward.problem import Problem
from mercer.forward.prune import prune
from mercer.forward.solve.exact import RandomRows
from mercer.forward.solve.ridge import whitened_ridge
from mercer.forward.stopping import Dependence, MaxSteps, Stopping, Tolerance
from mercer.kernels import Kernel
from mercer.parts import require

UPDATES = ("full", "qr", "mrx", "one")
PENALTIES = ("auto", "rkhs", "gram")


class Greedy(ForwardEstimator):
    """How greedy models grow; the faces below add only what their targets need."""

    def __init__(
        self,
        n_basis: int = 500,
        *,
        criterion: Any = "max-res",
        update: str = "full",
        step_size: int | str = "auto",
        exchange: bool = False,
        stopping: Any = None,
        tol: float = 0.0,
        min_novelty: float = 1e-6,
        prune: bool = False,
        refine: bool = False,
        refine_iter: int = 200,
        penalty: str = "auto",
        loss: Any = "squared",
        validation_fraction: float | None = None,
        patience: int = 20,
        time_budget: float | None = None,
        warm_start: bool = False,
        kernel: Any = "auto",
        regularization: Any = "auto",
        tuning_rows: int = 1000,
        scale_inputs: bool | str = True,
        device: Any = "auto",
        dtype: Any = "auto",
        memory_limit: Any = None,
        random_state: Any = None,
        verbose: bool = False,
        callbacks: Any = None,
    ) -> None:
        self.n_basis = n_basis
        self.criterion = criterion
        self.update = update
        self.step_size = step_size
        self.exchange = exchange
        self.stopping = stopping
        self.tol = tol
        self.min_novelty = min_novelty
        self.prune = prune
        self.refine = refine
        self.refine_iter = refine_iter
        self.penalty = penalty
        self.loss = loss
        self.validation_fraction = validation_fraction
        self.patience = patience
        self.time_budget = time_budget
        self.warm_start = warm_start
        self.kernel = kernel
        self.regularization = regularization
        self.tuning_rows = tuning_rows
        self.scale_inputs = scale_inputs
        self.device = device
        self.dtype = dtype
        self.memory_limit = memory_limit
        self.random_state = random_state
        self.verbose = verbose
        self.callbacks = callbacks

    def _require_parameters(self) -> None:
        super()._require_parameters()
        require_whole("n_basis", self.n_basis)
        if isinstance(self.step_size, str):
            require(self.step_size == "auto", "step_size", "'auto' or a number", self.step_size)
        else:
            require_whole("step_size", self.step_size)
        require_number("tol", self.tol, "a number of at least 0", 0.0)
        require_number("min_novelty", self.min_novelty, "a number of at least 0 and below 1", 0.0, 1.0)
        require(self.update in UPDATES, "update", f"one of {list(UPDATES)}", self.update)
        require(self.penalty in PENALTIES, "penalty", f"one of {list(PENALTIES)}", self.penalty)

    def _start(self, problem: Problem, validation: Tensor | None, rng: np.random.Generator) -> ForwardFit:
        criterion = Criterion.resolve(self.criterion, "criterion")
        self._n_rows = int((problem.weight > 0).sum())
        self._step = self._vectors_a_step(criterion)
        self._refuse_nonsense(problem)
        problem = self._steadied(problem)
        learner: Learner = SingleVector(criterion)
        if self._step == self.n_basis > 1 and isinstance(criterion, Random):
            learner = RandomRows(self.n_basis)
        elif self._step > 1:
            draw = "largest" if criterion.n_candidates is None else "random"
            learner = Ensemble(criterion, Separate(), self._step, 16 * self._step, draw)
        return ForwardFit(
            problem,
            learner,
            rng,
            block_length=1 if self.update == "one" else None,
            validation=validation,
            capacity=min(self.n_basis, self._n_rows),
            make_block=self._block_type(problem),
        )

    def _vectors_a_step(self, criterion: Criterion) -> int:
        """Several vectors a pass where that is asked for, or where passes over the columns are what costs."""
        if isinstance(self.step_size, str):
            alone = self.exchange or self.update != "full" or self._n_rows <= 5000 or criterion.short_name == "ormp"
            plain = self.penalty != "gram" and self.loss == "squared" and not self.prune
            at_once = plain and self.validation_fraction is None and not self._size_rules() and self.tol == 0
            return 1 if alone else self.n_basis if isinstance(criterion, Random) and at_once else 32
        return self.step_size

    def _refuse_nonsense(self, problem: Problem) -> None:
        exact = problem.loss.quadratic
        if self.exchange:
            require(
                self.update != "one", "exchange", "False with update='one', whose weights are never revisited", True
            )
            require(self._step == 1, "step_size", "1 with exchange=True", self.step_size)
            require(exact, "exchange", "False unless the loss is squared", True)
        if self.update == "mrx":
            require(exact, "update", "other than 'mrx' unless the loss is squared", self.update)
        if self.refine:
            plain = bool((problem.weight[problem.weight > 0] == 1).all()) and exact and bool(problem.kernel.tunable())
            require(plain, "refine", "False unless loss is squared, weights are equal and the kernel tunable", True)
        if self.prune:
            kind = self.update in ("full", "qr") and exact and not self.exchange
            require(kind, "prune", "False unless update is 'full' or 'qr', without exchange, with squared loss", True)

    def _block_type(self, problem: Problem) -> Callable[..., Block]:
        gram = self.penalty == "gram" or (self.penalty == "auto" and self.update in ("qr", "mrx"))
        # On columns of K + σ²I every row can reach its own target, so no size rule would ever stop.
        sized = self.stopping is not None and self.regularization == "auto"
        options: dict[str, Any] = {"lam": 0.0, "gram_noise": 0.0 if sized else problem.lam} if gram else {}
        options["min_novelty"] = self.min_novelty
        if self.update == "mrx":
            kind: type[Block] = MinimalResidualBlock if self.exchange else PlainMinimalResidualBlock
        else:
            kind = ExchangeBlock if self.exchange else Block
        return partial(kind, **options)

    def _rules(self) -> list[Stopping]:
        wanted = min(self.n_basis, self._n_rows)
        rules: list[Stopping] = [MaxSteps(-(-wanted // self._step), "steps")]
        if self.tol > 0:
            rules.append(Tolerance(self.tol, float(self._target_norm)))
        if self._step == 1 and self.update in ("full", "qr"):
            rules.append(Dependence(self.min_novelty))
        return rules + self._size_rules()

    def _size_rules(self) -> list[Stopping]:
        choice = self.stopping
        several = choice if isinstance(choice, Iterable) and not isinstance(choice, str) else [choice]
        return [Stopping.resolve(rule, "stopping") for rule in several if rule is not None]

    def _begin(self, X: Any, y: Any, sample_weight: Any, X_val: Any, y_val: Any) -> ForwardFit:
        fit = super()._begin(X, y, sample_weight, X_val, y_val)
        problem = fit.problem
        self._target_norm = (problem.weight[:, None] * problem.y.square()).sum().sqrt()
        return fit

    def _tune(self, rows: RowSource, Y: np.ndarray, weight: np.ndarray, plan: Plan, rng: Any) -> None:
        """Where `refine` will move the kernel anyway, tuning is asked at most for its family."""
        tune = partial(super()._tune, rows, Y, weight, plan, rng)

        def tuned() -> Kernel:
            tune()
            return self.kernel_

        kernel = plain_kernel(self.kernel, rows, weight, tuned) if self.refine else None
        if kernel is None:
            return tune()
        self.kernel_ = kernel
        self.regularization_ = PLAIN_NOISE if self.regularization == "auto" else float(self.regularization)

    def _finish(self, fit: ForwardFit, index: Tensor, weights: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        block = fit.current
        if self.prune and block is not None and len(index):
            m = len(index)
            rules = [rule.short_name for rule in self._size_rules()]
            rule = "aic" if "aic" in rules and "mdl" not in rules else "mdl"
            r2 = fit.history.residual_norm[self.n_steps_ - 1] ** 2
            kept, weights = prune(block.span.R[:m, :m], weights, r2, fit.history.n_rows, rule)
            index = index[kept]
        self._moved = self.refine and len(index) > 0
        return self._refined(fit.problem, index) if self._moved else super()._finish(fit, index, weights)

    def _refined(self, problem: Problem, index: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Basis vectors, kernel and noise moved uphill on the sparse evidence; then all weights anew."""
        alive = problem.candidates()
        data = Sample(TensorRows(problem.basis(alive)), problem.y[alive], problem.weight[alive], problem.plan)
        kernel, noise, basis, self.log_evidence_bound_ = refine_basis(
            problem.kernel,
            max(problem.lam, 1e-6),
            problem.basis(index),
            data,
            max_iter=self.refine_iter,
            rng=np.random.default_rng(0),
        )
        self.kernel_, self.regularization_ = kernel, noise
        return index, basis, whitened_ridge(replace(problem, kernel=kernel, lam=noise), basis)

    def path_predict(self, X: Any, sizes: Sequence[int]) -> list[np.ndarray]:
        """Predictions of the models of the given numbers of basis vectors, in one pass over `X`."""
        n_basis = self.history_["n_basis"]
        steps = [int(np.searchsorted(n_basis, size)) + 1 for size in sizes]
        largest = int(n_basis[-1])
        for size, step in zip(sizes, steps, strict=True):
            require(size >= 1 and step <= len(n_basis), "sizes", f"between 1 and {largest}", size)
        return [self._coding.decode(values) for values in self._staged_values(X, steps)]

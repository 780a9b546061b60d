"""How greedy sparse kernel models grow, stop, are pruned and refined: what `mercer.forward.greedy` has in common."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from mercer.base.parameters import AUTO, NOTHING, SWITCH, literal, number, part_of, several_of, whole
from mercer.clock import Clock
from mercer.data import TensorRows
from mercer.engine import Plan
from mercer.engine.sample import Sample
from mercer.evidence.optimise import refine_basis
from mercer.evidence.starts import PLAIN_NOISE, plain_kernel
from mercer.forward.absorb import Block
from mercer.forward.criteria import Criterion, Random
from mercer.forward.estimator import ForwardEstimator
from mercer.forward.exchange import ExchangeBlock, MinimalResidualBlock, PlainMinimalResidualBlock, prune
from mercer.forward.learners import vector_learner, vectors_a_pass
from mercer.forward.loop import ForwardFit
from mercer.forward.members import Choice, tuned_member
from mercer.forward.problem import Problem
from mercer.forward.solve.exact import RandomRows
from mercer.forward.solve.polish import whitened_ridge
from mercer.forward.stages import Final
from mercer.forward.stopping import (
    AkaikeInformation,
    Dependence,
    MaxSteps,
    MinimumDescriptionLength,
    Stopping,
    Tolerance,
    Validation,
)
from mercer.forward.task import Task
from mercer.losses import Loss
from mercer.parts import require
from mercer.preprocessing.read import Given
from mercer.selection.kernel_choice import ChosenKernel, choose_kernel

#: Rules that read the size off the residual.
BY_RESIDUAL = (MinimumDescriptionLength, AkaikeInformation)


@dataclass(eq=False, repr=False)
class Greedy(ForwardEstimator):
    """How greedy models grow; the faces add only what their targets need.

    Parameters
    ----------
    n_basis : int, default 500
        Basis vectors at most.
    criterion : str or Criterion, default "max-res"
        Which row enters next: "max-res", "mp", "boost", "one-dimensional", "info-gain", "ald", "ran", "ormp", "random"
        or a part of `mercer.forward.criteria`.
    update : "full", "qr", "mrx" or "one", default "full"
        Which weights follow: all of them with the penalty in the RKHS, all of them by thin QR of the columns of
        K + σ²I (Nair et al. 2002), one minimal residual iteration, or only the newest weight.
    step_size : int or "auto", default "auto"
        Basis vectors per pass over the rows. Several are chosen by their kernel matrix with 16 rows for each of them:
        those of largest residual, or random ones where `criterion` looks at random candidates. "auto" takes 32 above
        5000 rows for "max-res" and "largest-residuals", unless `stopping` or `tol` look for a size, and all at once
        where they are random anyway (then none is passed over); otherwise one. Criteria with a threshold ("ald",
        "ran") always take one at a time, since each vector has to exceed it.
    exchange : bool, default False
        After each step try to replace the least useful vector (QR downdate and update).
    stopping : None, "mdl", "aic", "validation", a rule or several, default None
        The size of smallest description length, Akaike information or error on rows held out (a tenth of them, unless
        `validation_fraction` or `X_val` say otherwise); the model is cut back to it.
    tol : float, default 0.0
        Stop when the residual norm falls to this share of the targets' norm.
    min_novelty : float, default 1e-6
        A basis vector that lies in the span of those before it, up to this share of its norm, gets no weight; after
        twenty of them in turn the fit ends.
    prune : bool, default False
        Afterwards drop, one at a time, vectors whose leaving lowers MDL (or AIC, if that is the stopping rule).
    refine : bool, default False
        At the end move the basis vectors off their rows, together with kernel and noise, uphill on the evidence of
        the sparse model, by about `refine_iter` steps: far fewer vectors reach the same error. `path_predict` and
        `history_` keep to the rows chosen. Squared loss and equal weights.
    refine_iter : int, default 200
        Steps of that climb, about.
    penalty : "rkhs", "gram" or "auto", default "auto"
        λ‖f‖² or σ² on the diagonal of the Gram matrix; "auto" is what `update` is used with in its paper, where
        MDL and AIC go without σ² (so they do here, unless `regularization` is a number). "mrx" has no λ‖f‖².

    Attributes
    ----------
    log_evidence_bound_ : float
        Of the refined model.
    """

    n_basis: Annotated[int, whole()] = 500
    _: KW_ONLY
    criterion: Annotated[Any, part_of(Criterion)] = "max-res"
    update: Annotated[str, literal("full", "qr", "mrx", "one")] = "full"
    step_size: Annotated[int | str, AUTO | whole()] = "auto"
    exchange: Annotated[bool, SWITCH] = False
    stopping: Annotated[Any, NOTHING | part_of(Stopping) | several_of(part_of(Stopping))] = None
    tol: Annotated[float, number(0.0)] = 0.0
    min_novelty: Annotated[float, number(0.0, 1.0, open_high=True)] = 1e-6
    prune: Annotated[bool, SWITCH] = False
    refine: Annotated[bool, SWITCH] = False
    refine_iter: Annotated[int, whole()] = 200
    penalty: Annotated[str, literal("auto", "rkhs", "gram")] = "auto"
    patience: Annotated[int, whole()] = 20

    _growing: ClassVar[tuple[str, ...]] = (*ForwardEstimator._growing, "n_basis")

    def _watches(self, given: Given, n_outputs: int, plan: Plan, loss: Loss) -> bool:
        return self._by_validation()  # otherwise the number of basis vectors is asked for

    def _growth(self, problem: Problem, held_out: Tensor | None, rng: np.random.Generator) -> ForwardFit:
        criterion = Criterion.resolve(self.criterion, "criterion")
        n_rows = problem.n_candidates
        step = self._vectors_a_step(criterion, n_rows)
        self._refuse_nonsense(problem, step)
        at_once = step == self.n_basis > 1 and isinstance(criterion, Random)
        learner = RandomRows(self.n_basis) if at_once else vector_learner(criterion, step, self.n_basis)
        return ForwardFit(
            problem,
            learner,
            rng,
            block_length=1 if self.update == "one" else None,
            validation=None if held_out is None else held_out.to(problem.plan.device),
            capacity=min(self.n_basis, n_rows),
            make_block=self._block_type(problem),
        )

    def _vectors_a_step(self, criterion: Criterion, n_rows: int) -> int:
        """Several vectors a pass where that is asked for, or where passes over the columns are what costs."""
        if criterion.threshold > 0:
            return 1
        if not isinstance(self.step_size, str):
            return self.step_size
        if self.exchange or self.update != "full" or self.tol > 0 or self._size_rules():
            return 1
        together = min(vectors_a_pass(criterion, n_rows), self.n_basis)
        plain = self.penalty != "gram" and self.loss == "squared" and not self.prune
        watched = self.validation_fraction not in (None, "auto")
        return self.n_basis if together > 1 and isinstance(criterion, Random) and plain and not watched else together

    def _refuse_nonsense(self, problem: Problem, step: int) -> None:
        exact = problem.loss.quadratic
        if self.exchange:
            wanted = "False with update='one', whose weights are never revisited"
            require(self.update != "one", "exchange", wanted, True)
            require(step == 1, "step_size", "1 with exchange=True", self.step_size)
            require(exact, "exchange", "False unless the loss is squared", True)
        if self.update == "mrx":
            require(exact, "update", "other than 'mrx' unless the loss is squared", self.update)
            wanted = "'gram' or 'auto' with update='mrx', whose steps know no penalty in the RKHS"
            require(self.penalty != "rkhs", "penalty", wanted, self.penalty)
        if self.refine:
            weight, group = problem.weight[problem.weight > 0].cpu().numpy(), problem.rows.shard.group
            equal = group.least(weight.min(initial=np.inf)) == group.largest(weight.max(initial=0.0))
            plain = equal and exact and bool(problem.kernel.tunable())
            require(plain, "refine", "False unless loss is squared, weights are equal and the kernel tunable", True)
        if self.prune:
            kind = self.update in ("full", "qr") and exact and not self.exchange
            require(kind, "prune", "False unless update is 'full' or 'qr', without exchange, with squared loss", True)

    def _block_type(self, problem: Problem) -> Callable[..., Block]:
        gram = self.penalty == "gram" or (self.penalty == "auto" and self.update in ("qr", "mrx"))
        # On columns of K + σ²I every row can reach its own target, so no size rule would ever stop.
        sized = any(isinstance(rule, BY_RESIDUAL) for rule in self._size_rules()) and self.regularization == "auto"
        options: dict[str, Any] = {"lam": 0.0, "gram_noise": 0.0 if sized else problem.lam} if gram else {}
        options["min_novelty"] = self.min_novelty
        if self.update == "mrx":
            kind: type[Block] = MinimalResidualBlock if self.exchange else PlainMinimalResidualBlock
        else:
            kind = ExchangeBlock if self.exchange else Block
        return partial(kind, **options)

    def _rules(self, fit: ForwardFit) -> list[Stopping]:
        problem = fit.problem
        n_rows = problem.n_candidates
        step = self._vectors_a_step(Criterion.resolve(self.criterion, "criterion"), n_rows)
        n_steps = -(-min(self.n_basis, n_rows) // step)
        require(n_steps >= fit.n_steps, "n_basis", f"at least the {fit.n_steps * step} of the warm model", self.n_basis)
        rules: list[Stopping] = [MaxSteps(n_steps, "steps")]
        if self.tol > 0:
            start = problem.rows.total((problem.weight[:, None] * problem.y.square()).sum()).sqrt()
            rules.append(Tolerance(self.tol, float(start)))
        if self.update in ("full", "qr"):
            rules.append(Dependence(self.min_novelty))
        if self._by_validation():
            wanted = "'auto' or a share where stopping is 'validation' and no X_val is given"
            require(fit.validation is not None, "validation_fraction", wanted, self.validation_fraction)
        return rules + self._size_rules()

    def _size_rules(self) -> list[Stopping]:
        """The rules given; a rule by name has the estimator's patience, where rows held out are watched."""
        choice = self.stopping
        several = choice if isinstance(choice, Iterable) and not isinstance(choice, str) else [choice]
        named = [Validation(self.patience) if rule == Validation.short_name else rule for rule in several]
        return [Stopping.resolve(rule, "stopping") for rule in named if rule is not None]

    def _by_validation(self) -> bool:
        return any(isinstance(rule, Validation) for rule in self._size_rules())

    def _choose(self, task: Task, Y: np.ndarray, rng: np.random.Generator, budget: Clock) -> Choice:
        """One kernel by its evidence; where `refine` will move it anyway, tuning is asked at most for its family."""
        return tuned_member(task.given, Y, task.plan, self, rng, _plainly if self.refine else choose_kernel)

    def _finish(self, fit: ForwardFit, final: Final, budget: Clock) -> Final:
        """Vectors that do not pay dropped, or all of them moved, where that is asked for."""
        m, block = len(final.index), fit.current
        if self.prune and block is not None and m:
            rules = [rule.short_name for rule in self._size_rules()]
            rule = "aic" if "aic" in rules and "mdl" not in rules else "mdl"
            entered = torch.isin(block.members, final.index).nonzero()[:, 0]
            step = int(np.searchsorted(fit.history.n_basis, int(entered[-1]) + 1))  # after which all of them were there
            r2 = fit.history.residual_norm[step] ** 2
            kept, weights = prune(block.span.R[entered[:, None], entered], final.weights, r2, fit.history.n_rows, rule)
            final = replace(final, index=final.index[kept], basis=final.basis[kept], weights=weights)
        return self._refined(fit.problem, final) if self.refine and m else final

    def _refined(self, problem: Problem, final: Final) -> Final:
        """Basis vectors, kernel and noise moved uphill on the sparse evidence; then all weights anew."""
        alive, shard, rng = problem.candidates(), problem.rows.shard, self._generator(problem.rows.shard.group)
        rows, y, weight = problem.rows, problem.y, problem.weight
        if not shard.divided:
            rows, y, weight = TensorRows(problem.basis(alive)), y[alive], weight[alive]
        data = Sample(rows, y, weight, problem.plan)
        start: dict[str, Any] = {"max_iter": self.refine_iter, "rng": rng}
        kernel, noise, basis, bound = refine_basis(problem.kernel, max(problem.lam, 1e-6), final.basis, data, **start)
        weights: Tensor = whitened_ridge(replace(problem, kernel=kernel, lam=noise), basis)
        return Final(final.index, basis, weights, kernel, noise, moved=True, kept={"log_evidence_bound_": bound})

    def path_predict(self, X: Any, sizes: Sequence[int]) -> list[np.ndarray]:
        """Predictions of the models of the given numbers of basis vectors, in one pass over `X`."""
        check_is_fitted(self)
        n_basis = self.history_["n_basis"]
        steps = [int(np.searchsorted(n_basis, size)) + 1 for size in sizes]
        largest = int(n_basis[-1])
        for size, step in zip(sizes, steps, strict=True):
            require(size >= 1 and step <= len(n_basis), "sizes", f"between 1 and {largest}", size)
        return [self.targets_.decode(values) for values in self._staged_values(X, steps)]


def _plainly(
    sample: Sample,
    kernel: Any,
    regularization: Any,
    n_rows: int,
    rng: np.random.Generator,
    seconds: float | None = None,
) -> ChosenKernel:
    """A plain kernel of the family that suits, where the search that follows will tune it."""
    tune = partial(choose_kernel, sample, kernel, regularization, n_rows, rng, seconds)
    plain = plain_kernel(kernel, sample.rows, sample.weight, lambda: tune().kernel)
    if plain is None:
        return tune()
    return ChosenKernel(plain, PLAIN_NOISE if isinstance(regularization, str) else float(regularization))

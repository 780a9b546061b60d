"""Greedy sparse kernel models (Greedy02, Boost10)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from mercer.base.estimator import estimator_dataclass
from mercer.base.parameters import AUTO, BOOL, NONE, integer, literal, number, part_of, sequence_of
from mercer.clock import Clock
from mercer.data import TensorRows
from mercer.engine import Plan
from mercer.engine.plan import Sample, generator
from mercer.evidence.optimise import refine_basis
from mercer.evidence.starts import PLAIN_NOISE, family_of, named_family, plain_start, spread_rows
from mercer.forward.absorb import Block
from mercer.forward.criteria import Criterion, Random
from mercer.forward.estimator import ForwardEstimator
from mercer.forward.exchange import ExchangeBlock, MinimalResidualBlock, PlainMinimalResidualBlock, prune
from mercer.forward.loop import ForwardFit, vector_learner, vectors_per_pass
from mercer.forward.model_selection import Selection, single_kernel
from mercer.forward.path import FittedExpansion
from mercer.forward.problem import Problem
from mercer.forward.solve.exact import RandomRows
from mercer.forward.solve.polish import whitened_ridge
from mercer.forward.span import Functions
from mercer.forward.stopping import (
    MIN_NOVELTY,
    PATIENCE,
    AkaikeInformation,
    Dependence,
    MaxSteps,
    MinimumDescriptionLength,
    Stopping,
    Tolerance,
    Validation,
)
from mercer.forward.task import Task
from mercer.forward.uncertainty import UncertainDecisions, UncertainExpansions
from mercer.losses import Loss
from mercer.parts import is_auto, require
from mercer.preprocessing.inputs import RealTargets, Targets
from mercer.preprocessing.read import TableData
from mercer.selection.kernel_choice import ChosenKernel, choose_kernel

#: Rules that choose the size by the residual.
BY_RESIDUAL = (MinimumDescriptionLength, AkaikeInformation)


@dataclass(eq=False, repr=False)
class BaseGreedyKernel(ForwardEstimator):
    """Greedy selection of basis vectors, shared by regressor and classifier.

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
        Basis vectors per pass over the rows. Several are chosen from a subset of 16 rows for each of them: the rows
        of largest residual, or random rows where `criterion` scores random candidates. "auto" takes 32 above 5000
        rows for "max-res" and "largest-residuals", unless `stopping` or `tol` choose the size. With "random" it takes
        all vectors at once, and none is skipped. Otherwise it takes one. Criteria with a threshold ("ald", "ran")
        always take one at a time, since each vector has to exceed it.
    recompute : bool, default False
        With `update="mrx"`: at the end replace the weights by those of least squares on the chosen columns.
    fit_intercept : bool, default True
        Centre and scale the targets. Without it the model is a bare sum of kernels, as in the paper.
    exchange : bool, default False
        After each step try to replace the least useful vector (QR downdate and update).
    stopping : None, "mdl", "aic", "validation", a rule or several, default None
        The size of smallest description length, Akaike information or error on held-out rows (a tenth of the rows,
        unless `validation_fraction` or `X_val` is given); the model is cut back to it.
    tol : float, default 0.0
        Stop when the residual norm falls to this share of the targets' norm.
    min_novelty : float, default 1e-6
        A basis vector that lies in the span of the earlier ones, up to this share of its norm, gets no weight; after
        twenty such vectors in succession the fit ends.
    prune : bool, default False
        Afterwards drop, one at a time, vectors whose removal lowers MDL (or AIC, if that is the stopping rule).
    refine : bool, default False
        At the end optimise the basis vectors, the kernel and the noise together by the evidence of the sparse model,
        in about `refine_iter` steps: far fewer vectors reach the same error. `path_predict` and `history_` refer to
        the chosen rows. Squared loss and equal weights only.
    refine_iter : int, default 200
        Approximate number of steps of that optimisation.
    penalty : "rkhs", "gram" or "auto", default "auto"
        λ‖f‖² or σ² on the diagonal of the Gram matrix; "auto" is the penalty of the paper that introduced `update`.
        There MDL and AIC are used without σ², as they are here unless `regularization` is a number. "mrx" has no
        λ‖f‖².

    Attributes
    ----------
    log_evidence_bound_ : float
        Lower bound of the log evidence of the refined model.
    """

    n_basis: Annotated[int, integer()] = 500
    _: KW_ONLY
    criterion: Annotated[Any, part_of(Criterion)] = "max-res"
    update: Annotated[str, literal("full", "qr", "mrx", "one")] = "full"
    step_size: Annotated[int | str, AUTO | integer()] = "auto"
    exchange: Annotated[bool, BOOL] = False
    recompute: Annotated[bool, BOOL] = False
    fit_intercept: Annotated[bool, BOOL] = True
    stopping: Annotated[Any, NONE | part_of(Stopping) | sequence_of(part_of(Stopping))] = None
    tol: Annotated[float, number(0.0)] = 0.0
    min_novelty: Annotated[float, number(0.0, 1.0, open_high=True)] = MIN_NOVELTY
    prune: Annotated[bool, BOOL] = False
    refine: Annotated[bool, BOOL] = False
    refine_iter: Annotated[int, integer()] = 200
    penalty: Annotated[str, literal("auto", "rkhs", "gram")] = "auto"
    patience: Annotated[int, integer()] = PATIENCE

    _resumable_params: ClassVar[tuple[str, ...]] = (*ForwardEstimator._resumable_params, "n_basis")

    def _needs_validation(self, data: TableData, n_outputs: int, plan: Plan, loss: Loss) -> bool:
        return self._by_validation()  # otherwise `n_basis` is the size

    def _begin_fit(self, problem: Problem, validation_rows: Tensor | None, rng: np.random.Generator) -> ForwardFit:
        criterion = Criterion.resolve(self.criterion, "criterion")
        n_rows = problem.n_candidates
        step = self._vectors_per_step(criterion, n_rows)
        self._check_combination(problem, step)
        at_once = step == self.n_basis > 1 and isinstance(criterion, Random)
        learner = RandomRows(self.n_basis) if at_once else vector_learner(criterion, step, self.n_basis)
        return ForwardFit(
            problem,
            learner,
            rng,
            block_length=1 if self.update == "one" else None,
            validation=None if validation_rows is None else validation_rows.to(problem.plan.device),
            capacity=min(self.n_basis, n_rows),
            make_block=self._block_type(problem),
        )

    def _vectors_per_step(self, criterion: Criterion, n_rows: int) -> int:
        """Basis vectors of a step: `step_size`, or by the cost of passes."""
        if criterion.threshold > 0:
            return 1
        if not isinstance(self.step_size, str):
            return self.step_size
        if self.exchange or self.update != "full" or self.tol > 0 or self._size_rules():
            return 1
        step = min(vectors_per_pass(criterion, n_rows), self.n_basis)
        ridge = self.penalty != "gram" and self.loss == "squared" and not self.prune
        watched = self.validation_fraction not in (None, "auto")
        all_at_once = step > 1 and isinstance(criterion, Random) and ridge and not watched
        return self.n_basis if all_at_once else step

    def _check_combination(self, problem: Problem, step: int) -> None:
        """Refuse parameters that exclude each other."""
        exact = problem.loss.quadratic
        if self.exchange:
            wanted = "False with update='one', whose weights are never revisited"
            require(self.update != "one", "exchange", wanted, True)
            require(step == 1, "step_size", "1 with exchange=True", self.step_size)
            require(exact, "exchange", "False unless the loss is squared", True)
        require(not self.recompute or self.update == "mrx", "recompute", "False unless update is 'mrx'", True)
        if self.update == "mrx":
            require(exact, "update", "other than 'mrx' unless the loss is squared", self.update)
            wanted = "'gram' or 'auto' with update='mrx', whose steps know no penalty in the RKHS"
            require(self.penalty != "rkhs", "penalty", wanted, self.penalty)
        if self.refine:
            weight, group = problem.weight[problem.weight > 0].cpu().numpy(), problem.rows.shard.group
            equal = group.min(weight.min(initial=np.inf)) == group.max(weight.max(initial=0.0))
            refinable = equal and exact and bool(problem.kernel.tunable())
            require(refinable, "refine", "False unless loss is squared, weights are equal and the kernel tunable", True)
        if self.prune:
            prunable = self.update in ("full", "qr") and exact and not self.exchange
            wanted = "False unless update is 'full' or 'qr', without exchange, with squared loss"
            require(prunable, "prune", wanted, True)

    def _block_type(self, problem: Problem) -> Callable[..., Block]:
        """The class of blocks for `update`, `exchange` and `penalty`, with its options."""
        gram = self.penalty == "gram" or (self.penalty == "auto" and self.update in ("qr", "mrx"))
        # With the columns of K + σ²I every row can meet its target, so no size rule would ever stop the fit.
        sized = any(isinstance(rule, BY_RESIDUAL) for rule in self._size_rules()) and self.regularization == "auto"
        options: dict[str, Any] = {"lam": 0.0, "gram_noise": 0.0 if sized else problem.lam} if gram else {}
        require(not (gram and self.updatable), "updatable", "False unless the penalty is λ‖f‖²", True)
        options["min_novelty"] = self.min_novelty
        if self.update == "mrx":
            kind: type[Block] = MinimalResidualBlock if self.exchange else PlainMinimalResidualBlock
        else:
            kind = ExchangeBlock if self.exchange else Block
        return partial(kind, **options)

    def _stopping_rules(self, fit: ForwardFit) -> list[Stopping]:
        problem = fit.problem
        n_rows = problem.n_candidates
        step = self._vectors_per_step(Criterion.resolve(self.criterion, "criterion"), n_rows)
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
        """The rules of `stopping`; "validation" by name has the estimator's patience."""
        choice = self.stopping
        several = choice if isinstance(choice, Iterable) and not isinstance(choice, str) else [choice]
        named = [Validation(self.patience) if rule == Validation.short_name else rule for rule in several]
        return [Stopping.resolve(rule, "stopping") for rule in named if rule is not None]

    def _by_validation(self) -> bool:
        return any(isinstance(rule, Validation) for rule in self._size_rules())

    def _coded(self, data: TableData, loss: Loss) -> Targets:
        targets = super()._coded(data, loss)
        if self.fit_intercept:
            return targets
        if isinstance(targets, RealTargets):
            return replace(targets, mean=np.zeros_like(targets.mean), scale=1.0)
        return replace(targets, offset=0.0)

    def _select(self, task: Task, Y: np.ndarray, rng: np.random.Generator, budget: Clock) -> Selection:
        """One kernel by its evidence.

        With `refine`, which tunes the kernel later, at most its family is chosen.
        """
        return single_kernel(task.data, Y, task.plan, self, rng, _choose_family if self.refine else choose_kernel)

    def _finish(self, fit: ForwardFit, final: FittedExpansion, budget: Clock) -> FittedExpansion:
        """Prune and refine the basis according to `prune` and `refine`."""
        if not len(final.index):
            return final
        if self.recompute and fit.current is not None:
            final = self._recomputed(fit, final)
        if self.prune and fit.current is not None:
            final = self._pruned(fit, fit.current, final)
        return self._refined(fit.problem, final) if self.refine else final

    def _recomputed(self, fit: ForwardFit, final: FittedExpansion) -> FittedExpansion:
        """Weights of least squares on the chosen columns (Greedy02 section 4.1)."""
        problem, m, grown = fit.problem, len(final.index), fit.current
        assert grown is not None
        block = Block(problem, torch.zeros_like(problem.y), m, lam=0.0, gram_noise=grown.gram_noise)
        identity = torch.eye(m, dtype=torch.float64, device=problem.y.device)
        columns = problem.matrix(final.basis).product(identity).T.contiguous()
        block.absorb(Functions(final.index, identity, columns))
        return replace(final, weights=block.span.weights())

    def _pruned(self, fit: ForwardFit, block: Block, final: FittedExpansion) -> FittedExpansion:
        """Drop basis vectors while MDL or AIC falls."""
        rules = [rule.short_name for rule in self._size_rules()]
        rule = "aic" if "aic" in rules and "mdl" not in rules else "mdl"
        entered = torch.isin(block.basis_index, final.index).nonzero()[:, 0]
        last_step = int(np.searchsorted(fit.history.n_basis, int(entered[-1]) + 1))
        r2 = fit.history.residual_norm[last_step] ** 2
        kept, weights = prune(block.span.R[entered[:, None], entered], final.weights, r2, fit.history.n_rows, rule)
        return replace(final, index=final.index[kept], basis=final.basis[kept], weights=weights)

    def _refined(self, problem: Problem, final: FittedExpansion) -> FittedExpansion:
        """Optimise basis vectors, kernel and noise by the sparse evidence, then solve for the weights."""
        alive, shard = problem.candidates(), problem.rows.shard
        rng = generator(self.random_state, shard.group)
        rows, y, weight = problem.rows, problem.y, problem.weight
        if not shard.divided:
            rows, y, weight = TensorRows(problem.basis(alive)), y[alive], weight[alive]
        data = Sample(rows, y, weight, problem.plan)
        start: dict[str, Any] = {"max_iter": self.refine_iter, "rng": rng}
        kernel, noise, basis, bound = refine_basis(problem.kernel, max(problem.lam, 1e-6), final.basis, data, **start)
        weights: Tensor = whitened_ridge(replace(problem, kernel=kernel, lam=noise), basis)
        kept = {"log_evidence_bound_": bound}
        return FittedExpansion(final.index, basis, weights, kernel, noise, moved=True, kept=kept)

    def path_predict(self, X: Any, sizes: Sequence[int]) -> list[np.ndarray]:
        """Predict by the models of the given sizes, in one pass over `X`."""
        check_is_fitted(self)
        n_basis = self.history_["n_basis"]
        steps = [int(np.searchsorted(n_basis, size)) + 1 for size in sizes]
        largest = int(n_basis[-1])
        for size, step in zip(sizes, steps, strict=True):
            require(size >= 1 and step <= len(n_basis), "sizes", f"between 1 and {largest}", size)
        return [self.targets_.decode(values) for values in self._staged_values(X, steps)]


def _choose_family(
    sample: Sample,
    kernel: Any,
    regularization: Any,
    n_rows: int,
    rng: np.random.Generator,
    seconds: float | None = None,
) -> ChosenKernel:
    """A kernel of the best family with default length-scales, which the search that follows will tune."""
    family = named_family(kernel)
    if family is None:
        chosen = choose_kernel(sample, kernel, regularization, n_rows, rng, seconds)
        if not is_auto(kernel):
            return chosen
        family = family_of(chosen.kernel)
    plain = plain_start(family, spread_rows(sample))
    return ChosenKernel(plain, PLAIN_NOISE if isinstance(regularization, str) else float(regularization))


@estimator_dataclass
class GreedyKernelRegressor(UncertainExpansions, BaseGreedyKernel):
    r"""A sparse kernel model with greedily chosen basis vectors.

    Minimises over the chosen set I and its weights

    .. math:: \tfrac12 \sum_n w_n (y_n - f(x_n))^2 + \tfrac\lambda2 \|f\|^2_{\mathcal H},
        \qquad f(x) = b + \sum_{i \in I} a_i k(x_i, x).

    References
    ----------
    P. B. Nair, A. Choudhury and A. J. Keane, "Some greedy learning algorithms for sparse regression and
    classification with Mercer kernels", Journal of Machine Learning Research 3 (2002).

    Examples
    --------
    >>> from mercer import GreedyKernelRegressor
    >>> from mercer.datasets import make_sinc
    >>> X, y = make_sinc(random_state=0)
    >>> model = GreedyKernelRegressor(stopping="mdl", random_state=0).fit(X, y)
    >>> len(model.basis_) < 20, model.score(X, y) > 0.8
    (True, True)
    """


@estimator_dataclass
class GreedyKernelClassifier(UncertainDecisions, BaseGreedyKernel):
    r"""A sparse kernel classifier with greedily chosen basis vectors.

    Classes are coded ±1 and fitted by the loss; several classes share their basis vectors. For one basis per class
    use ``OneVsRestClassifier(GreedyKernelClassifier())``.

    References
    ----------
    P. B. Nair, A. Choudhury and A. J. Keane, "Some greedy learning algorithms for sparse regression and
    classification with Mercer kernels", Journal of Machine Learning Research 3 (2002).

    Examples
    --------
    >>> from mercer import GreedyKernelClassifier
    >>> from mercer.datasets import make_ripley
    >>> X, y = make_ripley(250, random_state=0)
    >>> X_test, y_test = make_ripley(1000, random_state=1)
    >>> model = GreedyKernelClassifier(stopping="mdl", random_state=0).fit(X, y)
    >>> print(f"accuracy {model.score(X_test, y_test):.1f}")
    accuracy 0.9
    >>> len(model.basis_) < 40
    True
    """

    _is_classifier: ClassVar[bool] = True

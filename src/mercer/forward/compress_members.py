"""Compress the ensemble members of a fit: which have few basis vectors, and what becomes of their predictions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy as np
import torch

from mercer.base.parameters import AUTO, NONE, integer, number
from mercer.clock import Clock, StopReason
from mercer.data import spaced_rows
from mercer.forward import time_shares
from mercer.forward.compress import CompressionPath, JointSizes, Judges, Sizes, compression_path, likelihood_path
from mercer.forward.held_out import held_out_predictions, with_targets
from mercer.forward.path import ExpansionPath, FittedExpansion
from mercer.forward.problem import Problem
from mercer.forward.solve.exact import AllRows
from mercer.forward.solve.iterative_ridge import iterative_folds
from mercer.forward.task import FittedMember, Task
from mercer.progress import report_step

#: Rows below which a model keeps all of them: predictions are fast, and too few rows would judge.
FEWEST_ROWS = 500
#: The largest compressed size: a share of the rows, and at most so many basis vectors on a CPU and on a GPU. A larger
#: one would take longer than a quarter of the fit (12 000 rows, one core: 40 s, and 2 s for each kernel).
LARGEST_SHARE, MOST_VECTORS = 1 / 3, {"cpu": 1200, "cuda": 8000}
#: The largest share of all basis vectors that a compression may leave to be worth its change of predictions.
WORTHWHILE = 0.5
#: Rows that judge a size, as a share of all rows; at most `FEWEST_ROWS` of them.
JUDGING_SHARE = 0.2
#: Part of the memory that the functions of a compression may take.
MEMORY_SHARE = 0.25


@dataclass(frozen=True)
class Compressed:
    """Ensemble members after a compression, the result as a sentence, and the error at other sizes."""

    parts: list[FittedMember]
    reason: str | None = None
    curve: Sequence[Sizes] = ()

    def attributes(self) -> dict[str, Any]:
        """The fitted attributes `compression_reason_` and `compression_path_`, if a compression was considered."""
        if self.reason is None:
            return {}
        curve = self.curve[::-1]
        path = {"n_basis": np.array([at.n_basis for at in curve]), "rise": np.array([at.rise for at in curve])}
        return {"compression_reason_": self.reason, "compression_path_": path}


def compress_members(
    parts: list[FittedMember], n_basis: int | str | None, tol: float, task: Task, budget: Clock
) -> Compressed:
    """Keep few basis vectors of exact solutions, if asked for and if time allows it.

    `n_basis` is their number for each member, "auto" for as few as `tol` allows, or None for all rows.
    """
    if n_basis is None:
        return Compressed(parts, "not asked for")
    if budget.expired(until=time_shares.COMPRESSION) or budget.interrupted:
        return Compressed(parts, "left out: the time budget does not allow it")
    try:
        return _compressed(parts, None if isinstance(n_basis, str) else int(n_basis), tol, task)
    except KeyboardInterrupt:
        budget.interrupt()
        return Compressed(parts, "left out: the fit was interrupted")


def _compressed(parts: list[FittedMember], n_basis: int | None, tol: float, task: Task) -> Compressed:
    """The members with `n_basis` basis vectors each, or with as few as `tol` allows."""
    reason = _refusal(parts, n_basis)
    if reason is not None:
        return Compressed(parts, reason)
    classes, row_targets = task.has_classes, task.row_targets
    paths = _paths(parts, n_basis, tol, classes)
    if not all(path.sizes for path in paths):
        return Compressed(parts, "left out: a fitted function is zero")
    n_rows, most = parts[0].fit.problem.n_candidates, WORTHWHILE * sum(len(part.final.index) for part in parts)
    if len(paths) < len(parts):
        return Compressed(parts, _all_kept(parts, paths, tol))
    joint = JointSizes(paths, [part.member.share for part in parts])
    curve = joint.curve(tol if n_basis is None else math.inf)
    at = curve[0] if n_basis is not None else [at for at in curve if at.rise <= tol][-1]
    if n_basis is None and sum(size or n_rows for size in at.sizes) > most:
        return Compressed(parts, _all_kept(parts, paths, tol))
    members = zip(parts, paths, at.sizes, strict=True)
    parts = [_member(part, path, size, at.rise <= tol, row_targets) for part, path, size in members]
    return Compressed(parts, _summary(parts, paths, at), curve)


def _refusal(parts: list[FittedMember], n_basis: int | None) -> str | None:
    """Why there is no compression; None if there may be one."""
    if not all(_is_exact(part) for part in parts):
        return "left out: the model is not an exact solution of all rows"
    problem = parts[0].fit.problem
    n = problem.n_candidates
    if n_basis is None and n < FEWEST_ROWS:
        return f"left out: {n} rows are few"
    if n_basis is not None and n_basis >= n:
        return f"left out: there are {n} rows, and {n_basis} basis vectors were asked for"
    return None if largest_size(problem, n_basis) >= 1 else "left out: it would take too much memory"


def _paths(parts: list[FittedMember], n_basis: int | None, tol: float, classes: bool) -> list[CompressionPath]:
    """The compressed models of every member, to `n_basis` vectors or until `tol` is met.

    They end with the member after which so many keep all rows that no compression is worthwhile.
    """
    paths: list[CompressionPath] = []
    n_failed = 0
    for place, part in enumerate(parts):
        report_step("compression", len(parts), step=place + 1)
        problem, share = part.fit.problem, part.member.share
        most, wanted = largest_size(problem, n_basis), 0.0 if n_basis is not None else tol
        rows = problem.candidates()
        find = compression_path if problem.loss.quadratic else likelihood_path
        path = find(problem, rows, part.fit.f[rows], _judges(part, classes), most, wanted, share)
        paths.append(path)
        if not path.sizes:
            break
        n_failed += n_basis is None and path.rise(path.sizes[-1], share) > tol
        if n_failed > WORTHWHILE * len(parts):
            break
    return paths


def _is_exact(part: FittedMember) -> bool:
    """Whether a member is the exact solution for a squared loss or a likelihood, with rows that were left out."""
    fit = part.fit
    exact = isinstance(fit.learner, AllRows) and fit.learner.left_out is not None and fit.shrinkage == 1.0
    loss = fit.problem.loss
    solvable = loss.quadratic or loss.likelihood or loss.link == "log"  # gross errors would hide what is lost
    return exact and solvable and not (fit.problem.rows.shard.divided or fit.interrupted)


def largest_size(problem: Problem, n_basis: int | None) -> int:
    """The largest size by memory, and `n_basis`, or what rows and time allow."""
    n = problem.n_candidates
    most = min(LARGEST_SHARE * n, MOST_VECTORS[problem.plan.device.type]) if n_basis is None else n_basis
    return int(min(most, MEMORY_SHARE * problem.plan.memory_limit / (8 * n)))


def _judges(part: FittedMember, classes: bool) -> Judges:
    """Rows with left-out predictions that judge: folds of them, or rows that were left out one by one."""
    problem, learner = part.fit.problem, part.fit.learner
    assert isinstance(learner, AllRows)
    assert learner.left_out is not None
    rows = problem.candidates()
    left_out = learner.left_out[rows]
    known = left_out.isfinite().all(1).nonzero()[:, 0]
    least_squares, on_cpu = problem.loss.quadratic, problem.plan.device.type == "cpu"
    n_folds = iterative_folds(len(rows), problem.n_outputs) if least_squares and on_cpu else None
    if learner.last_fold is not None:
        known = torch.isin(rows, learner.last_fold).nonzero()[:, 0]
        n_folds = 1
    elif n_folds:
        fold = torch.arange(len(known), device=known.device) % n_folds
        n_folds = max(1, min(n_folds, int(JUDGING_SHARE * len(rows) * n_folds / len(known))))  # of few enough rows
        known = known[fold < n_folds]
    else:
        most = min(FEWEST_ROWS, int(JUDGING_SHARE * len(rows)))
        known = known[torch.as_tensor(spaced_rows(torch.ones(len(known)), most), device=known.device)]
    y, weight = problem.y[rows][known].double(), problem.weight[rows][known].double()
    values = left_out[known] if least_squares else part.fit.f[rows][known].double()
    folds = None
    if least_squares and learner.n_folds:
        folds = torch.arange(len(known), device=known.device) % (n_folds or 1)
    root = not classes and problem.loss.link == "identity"
    return Judges(known, values, left_out[known], y, weight, folds, problem.loss, root)


def _member(
    part: FittedMember,
    path: CompressionPath,
    size: int | None,
    valid: bool,
    row_targets: np.ndarray | None,
) -> FittedMember:
    """A member with few basis vectors.

    Its held-out predictions stay those of the full model while they are `valid`, which the tolerance bounds; otherwise
    they are those of the judging rows. Validation rows are predicted again.
    """
    fit, problem = part.fit, part.fit.problem
    if size is None:
        return part
    rows = problem.candidates()
    index, W = rows[path.rows[:size]], path.weights(size)
    final = FittedExpansion(index, problem.basis(index), W, problem.kernel, problem.lam, kept=part.final.kept)
    held_out = part.held_out
    if fit.validation is not None:
        held_out = held_out_predictions(fit, final, row_targets)
    elif not valid:
        values = path.judges.left_out + path.change(size)
        judging = rows[path.judges.places]
        held_out = with_targets(fit, row_targets, judging, values, problem.basis(judging))
    new_path = ExpansionPath.of_weights(index.cpu().numpy(), W.cpu().numpy())
    why = StopReason(
        f"the solution of all {len(rows)} rows is exact, and {size} of them are kept", *part.stop_reason.kinds
    )
    return replace(part, path=new_path, final=final, stop_reason=why, held_out=held_out)


def _summary(parts: list[FittedMember], paths: list[CompressionPath], at: Sizes) -> str:
    n, sizes = parts[0].fit.problem.n_candidates, [len(part.final.index) for part in parts]
    if len(sizes) == 1:
        kept = f"{sizes[0]} of {n} rows are kept"
    else:
        kept = f"{' + '.join(map(str, sizes))} of {n} rows are kept for {len(sizes)} kernels"
    return f"{kept}: the {_error(paths[0].judges)} rises by at most about {100 * at.rise:.2g} %"


def _all_kept(parts: list[FittedMember], paths: list[CompressionPath], tol: float) -> str:
    n_rows, loss = parts[0].fit.problem.n_candidates, _error(paths[0].judges)
    size = max(path.sizes[-1] for path in paths)
    return f"all {n_rows} rows are kept: with {size} of them the {loss} may rise by more than {100 * tol:g} %"


def _error(judges: Judges) -> str:
    return "error" if judges.root else "deviance" if judges.loss.link == "log" else "log loss"


@dataclass(eq=False, repr=False, kw_only=True)
class Compressible:
    """Mixin of models that keep few basis vectors of their exact solutions.

    Parameters
    ----------
    n_basis : int, None or "auto", default "auto"
        Number of basis vectors that each kernel of an exact solution keeps. "auto" takes the fewest within
        `compression_tol`, or all rows if these are not clearly more; None keeps all rows. Learners of a boosted model
        have `learner_size` basis vectors instead.
    compression_tol : float, default 0.01
        The share by which the error of held-out rows may rise by the compression: the root mean squared error, the log
        loss for classes, or the deviance for losses with a log link. It is bounded by the change of left-out
        predictions (`mercer.forward.compress`).

    Attributes
    ----------
    compression_reason_ : str
        How many basis vectors were kept and what that changed, or why all rows were kept, as a sentence.
    compression_path_ : dict of arrays
        Numbers of basis vectors ("n_basis"), and the share by which the error rises at most with each of them
        ("rise").
    """

    n_basis: Annotated[int | str | None, NONE | AUTO | integer()] = "auto"
    compression_tol: Annotated[float, number(0.0, open_low=True)] = 0.01

    def _compressed(self, task: Task, parts: list[FittedMember], budget: Clock) -> Compressed:
        return compress_members(parts, self.n_basis, self.compression_tol, task, budget)

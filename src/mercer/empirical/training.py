"""Training of all members: in parallel, small ones side by side, and within a time budget what it allows.

With a budget a first round takes few rows and few basis vectors of every problem; each further round takes as many as
the time left should allow by what the last one took, until all are taken. So there is a model from early on, and where
time is no matter the last round is the fit without a budget.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from joblib import effective_n_jobs  # type: ignore[import-untyped]
from sklearn.utils.parallel import Parallel, delayed
from torch import Tensor

from mercer.clock import Clock
from mercer.data import Group
from mercer.data.group import ALONE
from mercer.empirical.batch import Stack, groups
from mercer.empirical.coordinates import MappedRows
from mercer.empirical.ensemble import EnsembleMember
from mercer.empirical.hokashyap import Solution
from mercer.empirical.learners import MemberLearner
from mercer.empirical.mapping import EmpiricalMap
from mercer.empirical.problem import MemberProblem
from mercer.progress import current
from mercer.stop_reason import StopKind, StopReason

#: Rows and basis vectors of a problem in the first round of a fit with a time budget.
FIRST_ROWS, FIRST_BASIS = 1000, 50
#: Share of the time left that a further round may be expected to take, and the least growth that is worth one.
PRUDENCE, WORTH = 0.5, 1.3


@dataclass
class Trained:
    """The members of one problem, and their values (n × P) at the rows of `problem`, which may be a part of it."""

    problem: MemberProblem
    members: list[EnsembleMember] = field(default_factory=list)
    values: list[np.ndarray] = field(default_factory=list)


@dataclass(frozen=True)
class Training:
    """Everything but the problems that training depends on; `seeds` has a row a problem and a column a member."""

    learner: MemberLearner
    size: Any
    c: float
    lam: float
    seeds: np.ndarray
    n_jobs: int | None = None
    clock: Clock = field(default_factory=Clock)
    group: Group = ALONE  # whose processes train some members each, on rows that all of them have

    def run(self, problems: Sequence[MemberProblem]) -> tuple[list[Trained], StopReason | None]:
        """All members of all problems, and what the time budget left undone, if anything."""
        if self.clock.seconds is None:
            return self._round(problems), None
        sizes = [problem.size(self.size) for problem in problems]
        most = max(problem.sample.n_alive for problem in problems), max(sizes)
        reach = max(most[0] / FIRST_ROWS, most[1] / FIRST_BASIS)  # from which on a round takes everything
        made = [Trained(problem) for problem in problems]
        grown, whole = 1.0, False
        while not whole and (not any(one.members for one in made) or not self.clock.expired()):
            rows, basis, whole = int(FIRST_ROWS * grown), int(FIRST_BASIS * grown), grown >= reach
            began = self.clock.elapsed()
            both = zip(problems, self.seeds.tolist(), strict=True)
            parts = problems if whole else [one.part(rows, np.random.default_rng([*own, 1])) for one, own in both]
            first = not any(one.members for one in made)
            for at, new in enumerate(self._round(parts, None if whole else basis, first)):
                made[at] = new if new.members else made[at]
            last = max(self.clock.elapsed() - began, 1e-6)
            # work grows as the cube of rows and basis vectors together
            further = (PRUDENCE * self.clock.remaining() / last) ** (1 / 3) if self.clock.remaining() > 0 else 0.0
            if not whole and further < WORTH:
                break
            grown *= further
        idle = [one for one in made if not one.members]
        for one in idle:
            _leave_constant(one)
        undone = [] if whole else [f"allowed at most {rows} rows and {basis} basis vectors for each machine"]
        undone += [f"left {len(idle)} of {len(made)} machines untrained"] if idle else []
        if not undone:
            return made, None
        sentence = f"the time budget of {self.clock.seconds:g} s {' and '.join(undone)}"
        return made, StopReason(sentence, StopKind.TIME_BUDGET)

    def _round(self, problems: Sequence[MemberProblem], basis: int | None = None, first: bool = True) -> list[Trained]:
        """Members of every problem on at most `basis` vectors; problems whose turn never came have none.

        Time does not stop the `first` job: there is a model in any case.
        """
        H = self.seeds.shape[1]
        # members trained at once share the memory
        plan = problems[0].sample.plan
        shared = plan.memory_limit // min(effective_n_jobs(self.n_jobs), len(problems) * H)
        plan = replace(plan, memory_limit=max(shared, 2**20))
        problems = [replace(problem, sample=replace(problem.sample, plan=plan)) for problem in problems]
        sizes = [problem.size(self.size) for problem in problems]
        sizes = sizes if basis is None else [min(size, basis) for size in sizes]
        jobs = make_jobs(problems, self.learner, sizes, self.seeds)
        heard = current()
        before = 0 if heard is None else heard.steps["members"]

        def train(job: Job, must: bool) -> list[tuple[EnsembleMember, np.ndarray]]:
            trained = [] if self.clock.expired() and not must else fit_job(job, self.learner, self.c, self.lam)
            if heard is not None:
                done = heard.steps["members"] + len(job.places)
                heard.report_step("members", before + len(problems) * H, step=done)
            return trained

        # threads: torch works outside Python's lock, and rows and factors need no copies
        def trained(places: Sequence[int]) -> list[list[tuple[EnsembleMember, np.ndarray]]]:
            return Parallel(self.n_jobs, prefer="threads")(delayed(train)(jobs[k], first and k == 0) for k in places)

        made = self.group.share_work(len(jobs), trained)
        found = [Trained(problem) for problem in problems]
        placed = (zip(job.places, trained, strict=False) for job, trained in zip(jobs, made, strict=True))
        for place, (member, f) in sorted((one for several in placed for one in several), key=lambda one: one[0]):
            found[place // H].members.append(member)
            found[place // H].values.append(f)
        return found


@dataclass(frozen=True)
class Job:
    """Members that are trained in one go: one, or small ones side by side."""

    problems: list[MemberProblem]
    #: The rows of the maps of each problem, maps × basis vectors.
    chosen: list[np.ndarray]
    #: Where each is among the members of all problems.
    places: list[int]


def make_jobs(
    problems: Sequence[MemberProblem], learner: MemberLearner, sizes: Sequence[int], seeds: np.ndarray
) -> list[Job]:
    """Draw so many rows for every member; `seeds` has a row for every problem and a column for every member of it."""
    chosen = [
        np.stack([problem.choose(size, np.random.default_rng(seed)) for seed in own])
        for problem, size, own in zip(problems, sizes, seeds, strict=True)
    ]
    H, jobs = seeds.shape[1], []
    small, rest = (
        groups(problems, [rows.shape[1] for rows in chosen], H) if learner.stacks else ([], range(len(chosen)))
    )
    for group in small:
        places = [q * H + h for q in group for h in range(H)]
        jobs.append(Job([problems[q] for q in group], [chosen[q] for q in group], places))
    for h in range(H):  # every problem has its first member before any has a second
        jobs += [Job([problems[q]], [chosen[q][h : h + 1]], [q * H + h]) for q in rest]
    return jobs


def fit_job(job: Job, learner: MemberLearner, c: float, lam: float) -> list[tuple[EnsembleMember, np.ndarray]]:
    """Steps 2 to 7 of table 1 for each member: map all rows, train the kernels together.

    Returns members and their values at the training rows, n × P.
    """
    parts: Iterable[Any]
    if len(job.places) > 1:
        stack = Stack(job.problems, job.chosen)
        found = learner.fit(stack, stack.targets, stack.weight, c, lam)
        f = stack.values(found.weights, found.bias)
        parts = zip(found.apart(), stack.maps, f.unbind(1), stack.weight, strict=True)
    else:
        problem = job.problems[0]
        maps = problem.maps(job.chosen[0][0])
        coordinates = MappedRows(problem.sample.rows, maps, problem.sample.plan, learner.passes)
        found = learner.fit(coordinates, problem.sample.Y, problem.sample.weight, c, lam)
        parts = [(found, maps, coordinates.values(found.weights, found.bias), problem.sample.weight)]
    drawn = [(problem, own) for problem, rows in zip(job.problems, job.chosen, strict=True) for own in rows]
    return [_member(*one, *part) for one, part in zip(drawn, parts, strict=True)]


def _member(
    problem: MemberProblem, chosen: np.ndarray, found: Solution, maps: list[EmpiricalMap], f: Tensor, weight: Tensor
) -> tuple[EnsembleMember, np.ndarray]:
    """`f` are the values of the kernels' functions at all rows, M × n × P; rows beyond the problem's weigh nothing."""
    mean = f.mean(0)
    agreement = ((_decided(f) == _decided(mean[None])).all(-1) * (weight / weight.sum())).sum(1)
    weights = [w[: one.rank].double() for w, one in zip(found.weights, maps, strict=True)]
    member = EnsembleMember(
        problem.kernels,
        maps[0].basis.cpu(),
        problem.original[chosen],
        torch.stack([one.coefficients @ w for one, w in zip(maps, weights, strict=True)]).cpu(),
        found.bias.cpu(),
        torch.stack([w.square().sum(0).sqrt() for w in weights]).cpu().numpy(),
        found.path.cpu().numpy(),
        found.reason,
        agreement.double().cpu().numpy(),
    )
    return member, mean[: problem.sample.n_rows].cpu().numpy()


def _leave_constant(one: Trained) -> None:
    """Give a problem whose turn never came a member that says the weighted mean of its targets everywhere."""
    problem, M = one.problem, len(one.problem.kernels)
    first = problem.choose(1, np.random.default_rng(0))
    mean = (problem.sample.weight.double() @ problem.sample.Y.double() / problem.sample.weight.sum()).cpu()
    P = len(mean)
    nothing = torch.zeros(M, 1, P, dtype=torch.float64)
    path = np.zeros((1, P))
    why = StopReason("no time was left to train it", StopKind.TIME_BUDGET)
    basis = problem.sample.rows.take(first).cpu()
    norms, agreement = np.zeros((M, P)), np.ones(M)
    index = problem.original[first]
    one.members = [
        EnsembleMember(problem.kernels, basis, index, nothing, mean.expand(M, P), norms, path, why, agreement)
    ]
    one.values = [mean.expand(problem.sample.n_rows, P).numpy()]


def _decided(f: Tensor) -> Tensor:
    """Which side or class values (… × P) stand for."""
    return f > 0 if f.shape[-1] == 1 else f.argmax(-1, keepdim=True)

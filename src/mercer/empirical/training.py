"""Training of all members: in threads, and within a time budget in rounds.

With a budget the first round takes few rows and few basis vectors of every problem. Each further round takes as many
as the remaining time should allow, until all are taken. So a model exists early, and a large budget ends with the fit
that has no budget.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from joblib import effective_n_jobs  # type: ignore[import-untyped]
from sklearn.utils.parallel import Parallel, delayed
from torch import Tensor

from mercer.clock import Clock, StopKind, StopReason
from mercer.data import Group
from mercer.empirical.coordinates import MappedRows
from mercer.empirical.ensemble import EnsembleMember
from mercer.empirical.kernel_map import affordable_growth
from mercer.empirical.learners import MemberLearner
from mercer.empirical.problem import MemberProblem
from mercer.progress import current

#: Rows and basis vectors of a problem in the first round of a fit with a time budget.
FIRST_ROWS, FIRST_BASIS = 1000, 50


@dataclass
class Trained:
    """The members of one problem, and their values (n × P) at the rows of `problem`, which may be a part of it."""

    problem: MemberProblem
    members: list[EnsembleMember] = field(default_factory=list)
    values: list[np.ndarray] = field(default_factory=list)


@dataclass(frozen=True)
class Training:
    """Everything but the problems that training depends on; `seeds` has a row per problem and a column per member."""

    learner: MemberLearner
    size: Any
    c: float
    lam: float
    seeds: np.ndarray
    n_jobs: int | None
    clock: Clock
    group: Group  # each of its processes trains a share of the members, on rows that all of them have

    def run(self, problems: Sequence[MemberProblem]) -> tuple[list[Trained], StopReason | None]:
        """Train all members of all problems; the reason names what the time budget left undone, if anything."""
        if self.clock.seconds is None:
            return self._round(problems), None
        most_rows = max(problem.sample.n_alive for problem in problems)
        most_basis = max(problem.size(self.size) for problem in problems)
        complete = max(most_rows / FIRST_ROWS, most_basis / FIRST_BASIS)  # growth at which a round takes everything
        trained = [Trained(problem) for problem in problems]
        growth = 1.0
        while True:
            began = self.clock.elapsed()
            rows, basis, whole = int(FIRST_ROWS * growth), int(FIRST_BASIS * growth), growth >= complete
            first = not any(machine.members for machine in trained)
            parts = problems if whole else self._parts(problems, rows)
            for place, machine in enumerate(self._round(parts, None if whole else basis, first)):
                trained[place] = machine if machine.members else trained[place]
            further = affordable_growth(self.clock, self.clock.elapsed() - began)
            if whole or further == 0:
                break
            growth *= further
        n_idle = sum(not machine.members for machine in trained)
        trained = [machine if machine.members else _constant(machine.problem) for machine in trained]
        undone = [] if whole else [f"allowed at most {rows} rows and {basis} basis vectors for each machine"]
        undone += [f"left {n_idle} of {len(trained)} machines untrained"] if n_idle else []
        if not undone:
            return trained, None
        sentence = f"the time budget of {self.clock.seconds:g} s {' and '.join(undone)}"
        return trained, StopReason(sentence, StopKind.TIME_BUDGET)

    def _parts(self, problems: Sequence[MemberProblem], n_rows: int) -> list[MemberProblem]:
        seeded = zip(problems, self.seeds.tolist(), strict=True)
        return [problem.part(n_rows, np.random.default_rng([*seeds, 1])) for problem, seeds in seeded]

    def _round(self, problems: Sequence[MemberProblem], basis: int | None = None, first: bool = True) -> list[Trained]:
        """Train members of every problem on at most `basis` vectors; problems that time did not reach have none.

        Time does not stop the first member of the `first` round: there is a model in any case.
        """
        H = self.seeds.shape[1]
        plan = problems[0].sample.plan
        shared = plan.memory_limit // min(effective_n_jobs(self.n_jobs), len(problems) * H)  # by members at once
        plan = replace(plan, memory_limit=max(shared, 2**20))
        problems = [replace(problem, sample=replace(problem.sample, plan=plan)) for problem in problems]
        sizes = [problem.size(self.size) for problem in problems]
        sizes = sizes if basis is None else [min(size, basis) for size in sizes]
        progress = current()
        before = 0 if progress is None else progress.steps["members"]
        jobs = [(q, h) for h in range(H) for q in range(len(problems))]  # each problem's first member before any second

        def train(k: int) -> tuple[EnsembleMember, np.ndarray] | None:
            q, h = jobs[k]
            trained = None
            if (first and k == 0) or not self.clock.expired():
                chosen = problems[q].choose(sizes[q], np.random.default_rng(self.seeds[q, h]))
                trained = fit_member(problems[q], chosen, self.learner, self.c, self.lam)
            if progress is not None:
                done = progress.steps["members"] + 1
                progress.report_step("members", before + len(jobs), step=done)
            return trained

        # threads: torch works outside Python's lock, and rows and factors need no copies
        def train_jobs(places: Sequence[int]) -> list[tuple[EnsembleMember, np.ndarray] | None]:
            return Parallel(self.n_jobs, prefer="threads")(delayed(train)(k) for k in places)

        found = [Trained(problem) for problem in problems]
        for (q, _), made in zip(jobs, self.group.share_work(len(jobs), train_jobs), strict=True):
            if made is not None:
                found[q].members.append(made[0])
                found[q].values.append(made[1])
        return found


def fit_member(
    problem: MemberProblem, chosen: np.ndarray, learner: MemberLearner, c: float, lam: float
) -> tuple[EnsembleMember, np.ndarray]:
    """Steps 2 to 7 of table 1: map all rows by the `chosen` ones, train the kernels together.

    Returns the member and its values at the training rows, n × P.
    """
    maps, sample = problem.maps(chosen), problem.sample
    coordinates = MappedRows(sample.rows, maps, sample.plan, learner.passes)
    found = learner.fit(coordinates, sample.Y, sample.weight, c, lam)
    f = coordinates.values(found.weights, found.bias)  # of each kernel, M × n × P
    mean, share = f.mean(0), sample.weight / sample.weight.sum()
    agreement = ((_decided(f) == _decided(mean[None])).all(-1) * share).sum(1)
    member = EnsembleMember(
        kernels=problem.kernels,
        basis=maps[0].basis.cpu(),
        basis_indices=problem.original[chosen],
        dual_coef=torch.stack([made.coefficients @ w for made, w in zip(maps, found.weights, strict=True)]).cpu(),
        bias=found.bias.cpu(),
        kernel_norms=torch.stack([w.square().sum(0).sqrt() for w in found.weights]).cpu().numpy(),
        objective_path=found.path.cpu().numpy(),
        stop_reason=found.reason,
        agreement=agreement.double().cpu().numpy(),
    )
    return member, mean.cpu().numpy()


def _decided(f: Tensor) -> Tensor:
    """The side or class that values (… × P) decide for."""
    return f > 0 if f.shape[-1] == 1 else f.argmax(-1, keepdim=True)


def _constant(problem: MemberProblem) -> Trained:
    """A problem that time did not reach, with one member: the weighted mean of its targets everywhere."""
    sample, M = problem.sample, len(problem.kernels)
    first = problem.choose(1, np.random.default_rng(0))
    mean = (sample.weight.double() @ sample.Y.double() / sample.weight.sum()).cpu()
    P = len(mean)
    member = EnsembleMember(
        kernels=problem.kernels,
        basis=sample.rows.take(first).cpu(),
        basis_indices=problem.original[first],
        dual_coef=torch.zeros(M, 1, P, dtype=torch.float64),
        bias=mean.expand(M, P),
        kernel_norms=np.zeros((M, P)),
        objective_path=np.zeros((1, P)),
        stop_reason=StopReason("no time was left to train it", StopKind.TIME_BUDGET),
        agreement=np.ones(M),
    )
    return Trained(problem, [member], [mean.expand(sample.n_rows, P).numpy()])

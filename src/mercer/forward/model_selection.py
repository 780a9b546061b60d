"""Model selection of a table: input map, kernel and penalty of every ensemble member.

A kernel object is taken as it is, a named family is tuned by the evidence, and where everything is left open
`mercer.selection.halving` selects an ensemble by successive halving. Large tables keep one kernel, which later stages
choose again on more rows (`docs/architecture.md` has the table of stages).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mercer.clock import Clock
from mercer.data import SparseRows
from mercer.engine import Plan
from mercer.engine.plan import Sample
from mercer.forward import time_shares
from mercer.forward.expansion import sparse_row_kernel, with_row_index
from mercer.kernels import Kernel
from mercer.preprocessing.inputs import InputMap, find_inputs
from mercer.preprocessing.read import TableData
from mercer.selection.halving import select
from mercer.selection.kernel_choice import choose_kernel, is_precomputed, is_tuned
from mercer.selection.more_rows import MoreRows
from mercer.selection.settings import DEFAULT_SETTINGS, SelectionSettings
from mercer.selection.view import SelectedEnsemble, SelectedKernel

#: Share of the selection's time that successive halving takes where more rows follow.
HALVING_SHARE = 0.5
#: Values of a column map for columns that a member does not see.
NEUTRAL = {"centre": 0.0, "width": 1.0, "mean": 0.0, "spread": 1.0, "knots": 0.0, "levels": 0.0}


@dataclass(frozen=True)
class KernelMember:
    """A kernel model inside an average: its input map, kernel, penalty and share."""

    inputs: InputMap
    kernel: Kernel
    lam: float
    share: float = 1.0
    name: str = ""
    place: int = 0


@dataclass(frozen=True)
class Selection:
    """Ensemble members, seconds of the selection, its report, and runners-up that were nearly as good.

    `started_fit` is the fit of the first member where trial fits chose it (`mercer.forward.large_tables`). Penalties
    are those of kernel logistic regression if classes are fitted `by_likelihood`. `targets` are coded targets without
    gross errors, if the selection has replaced these.
    """

    members: list[KernelMember]
    seconds: float = 0.0
    report: list[dict[str, Any]] = field(default_factory=list)
    runners_up: list[KernelMember] = field(default_factory=list)
    started_fit: Any = None
    by_likelihood: bool = False
    targets: np.ndarray | None = None

    def largest(self, n: int) -> Selection:
        """The `n` members of largest share, with shares that sum to one."""
        kept = sorted(self.members, key=lambda member: -member.share)[:n]
        total = sum(member.share for member in kept)
        return replace(self, members=[replace(member, share=member.share / total) for member in kept])


def single_kernel(
    data: TableData, Y: np.ndarray, plan: Plan, estimator: Any, rng: np.random.Generator, choose: Any = choose_kernel
) -> Selection:
    """One member: standardised inputs, and the kernel and penalty given or tuned by the evidence (`choose`).

    Within a time budget tuning ends after a share of it, and heavy-tailed columns are not transformed, which would take
    as long.
    """
    began = time.perf_counter()
    seconds = None if estimator.time_budget is None else time_shares.TUNING * estimator.time_budget
    if isinstance(data.rows, SparseRows):
        member = KernelMember(*sparse_row_kernel(data, Y, plan, estimator, rng, seconds))
    else:
        pairwise = is_precomputed(estimator.kernel)
        scaling = False if pairwise else estimator.scale_inputs
        inputs = find_inputs(data, Y, plan, scaling, may_bend=is_tuned(estimator.kernel) and seconds is None)
        sample = sample_of(data, Y, inputs, plan, pairwise=pairwise)
        chosen = choose(sample, estimator.kernel, estimator.regularization, estimator.tuning_rows, rng, seconds)
        member = KernelMember(inputs, chosen.kernel, chosen.lam)
    return Selection([member], data.shard.group.first(lambda: time.perf_counter() - began))


@dataclass
class EnsembleSearch:
    """The search for a table's ensemble on rows drawn from it, when the search is made.

    A penalty that the user gave (`penalty`) replaces the selected ones. `seconds` are what the search may take. With
    `likelihood` kernel logistic regression is compared with least squares on class codes.
    """

    data: TableData
    Y: np.ndarray
    plan: Plan
    rng: np.random.Generator
    classes: bool
    metric: str | None = "auto"
    penalty: float | None = None
    seconds: float | None = None
    likelihood: bool = False
    settings: SelectionSettings = DEFAULT_SETTINGS

    def __post_init__(self) -> None:
        self.began, self.clock = time.perf_counter(), Clock(self.seconds)
        rows = self.data.draw(self.plan.selection_rows(), self.rng)
        self.X = self.data.rows.fetch(rows).double().cpu()
        self.targets = torch.as_tensor(self.data.pick(self.Y, rows))
        self.weight = torch.as_tensor(self.data.pick(self.data.weight, rows))
        self.row_groups = None if self.data.row_groups is None else self.data.row_groups.take(rows)

    @cached_property
    def column_sets(self) -> list[Tensor]:
        """Masks of the columns that members see: all, or two sets where categories have two encodings."""
        layout = self.data.layout
        if layout is None or not layout.views:
            return [torch.ones(self.X.shape[1], dtype=torch.bool)]
        return [torch.as_tensor(view) for view in layout.views]

    def ensemble(self, n_selections: int = 1) -> Selection:
        """An ensemble by successive halving, or the average of several, each with the rows in another order."""
        found: list[tuple[Tensor, SelectedEnsemble]] = []
        seconds = 0.0
        for columns in self.column_sets * n_selections:
            if found and self.clock.expired(needing=seconds):
                break
            began = time.perf_counter()
            found.append((columns, self._selected(columns, self.clock.remaining())))
            seconds = time.perf_counter() - began
        report = [line for _, ensemble in found for line in ensemble.report]
        if len(self.column_sets) > 1:  # an encoding far behind the other is left out
            least = min(ensemble.loss for _, ensemble in found)
            found = [pair for pair in found if pair[1].loss <= self.settings.near_ratio * least]
        use_likelihood = self._likelihood_is_better([ensemble for _, ensemble in found])
        members = [
            replace(in_all_columns(member, columns), share=member.share / len(found))
            for columns, ensemble in found
            for member in (ensemble.by_likelihood if use_likelihood and ensemble.by_likelihood else ensemble).members
        ]
        return replace(self._selection(members, report), by_likelihood=use_likelihood)

    def _likelihood_is_better(self, ensembles: list[SelectedEnsemble]) -> bool:
        """Whether the log likelihood has clearly less held-out log loss than least squares, over all selections."""
        tried = [ensemble.by_likelihood for ensemble in ensembles if ensemble.by_likelihood is not None]
        if len(tried) < len(ensembles):
            return False
        gain, error, loss = (np.mean([getattr(found, name) for found in tried]) for name in ("gain", "error", "loss"))
        return bool(gain > max(self.settings.min_gain * loss, error))

    def ensemble_for_group(self, n_selections: int) -> Selection:
        """The same ensemble for all processes of a group: the first one selects it."""
        group = self.data.shard.group
        selection, state = group.first(lambda: (self.ensemble(n_selections), self.rng.bit_generator.state))
        self.rng.bit_generator.state = state
        return selection

    def single(self) -> Selection:
        """One kernel for a large table, and its runners-up: scored again on more rows, beside the evidence's kernels.

        Processes of a group divide that work.
        """
        seed, group = int(self.rng.integers(2**31)), self.data.shard.group
        columns = self.column_sets[0]
        more = MoreRows(
            self.X[:, columns],
            self.targets,
            self.weight,
            self.plan,
            seed,
            self.clock,
            self.settings,
            self.row_groups,
        )
        seconds = self.clock.remaining(until=HALVING_SHARE)
        tasks: list[Callable[[], Any]] = [
            lambda: (self._selected(columns, seconds), self.rng.bit_generator.state),
            lambda: more.evidence_candidates(**self._encoding(columns)),
        ]
        halved, evident = group.share_work(2, lambda places: [tasks[k]() for k in places])
        ensemble, state = halved
        self.rng.bit_generator.state = state
        ranked, more_report = more.rescored([*ensemble.members, *evident], group)
        ranked = [in_all_columns(candidate, columns) for candidate in ranked]
        selection = self._selection(ranked[:1], ensemble.report + more_report, ranked[1:])
        return replace(selection, seconds=group.first(lambda: selection.seconds))

    def _selected(self, columns: Tensor, seconds: float) -> SelectedEnsemble:
        """The ensemble of one selection on some columns."""
        return select(
            self.X[:, columns],
            self.targets,
            self.weight,
            classes=self.classes,
            rng=self.rng,
            device=self.plan.device,
            seconds=None if np.isinf(seconds) else seconds,
            metric=self.metric,
            likelihood=self.likelihood,
            settings=self.settings,
            row_groups=self.row_groups,
            **self._encoding(columns),
        )

    def _encoding(self, columns: Tensor) -> dict[str, Tensor]:
        """Which of some columns keep their unit, and which share a length-scale."""
        layout = self.data.layout
        if layout is None:
            return {}
        keeps_unit = torch.as_tensor(layout.keeps_unit)[columns]
        return {"keeps_unit": keeps_unit, "column_groups": torch.as_tensor(layout.group)[columns]}

    def _selection(
        self, members: list[SelectedKernel], report: list[dict[str, Any]], runners_up: Sequence[SelectedKernel] = ()
    ) -> Selection:
        self.clock.raise_interrupt()  # there is no model yet that could be kept
        ranked = sorted(members, key=lambda member: -member.share)
        seconds = time.perf_counter() - self.began
        others = [self._member(kernel) for kernel in runners_up]
        return Selection([self._member(kernel) for kernel in ranked], seconds, report, others)

    def _member(self, selected: SelectedKernel) -> KernelMember:
        D = len(selected.columns.mean)
        inputs = InputMap(np.zeros(D), np.ones(D), selected.columns, selected.transform.double().cpu().numpy())
        penalty = selected.penalty if self.penalty is None else self.penalty
        return KernelMember(inputs, selected.kernel, penalty, selected.share, selected.name)


def in_all_columns(selected: SelectedKernel, seen: Tensor) -> SelectedKernel:
    """A kernel of some columns as one of all columns; the others have no weight in its metric."""
    if bool(seen.all()):
        return selected

    def widened(values: Tensor | None, fill: float) -> Tensor | None:
        if values is None:
            return None
        out = values.new_full((len(seen), *values.shape[1:]), fill)
        out[seen] = values
        return out

    maps, T = selected.columns, selected.transform
    parts: dict[str, Any] = {name: widened(getattr(maps, name), fill) for name, fill in NEUTRAL.items()}
    columns: Any = replace(maps, **parts)
    if maps.knots is not None:
        row = torch.arange(maps.knots.shape[1]).to(maps.knots)
        columns.knots[~seen], columns.levels[~seen] = row, row
    transform = T.new_zeros((len(seen),) * T.ndim)
    if T.ndim == 1:
        transform[seen] = T
    else:
        transform[seen.nonzero(), seen.nonzero().T] = T
    return replace(selected, columns=columns, transform=transform)


def sample_of(data: TableData, Y: np.ndarray, inputs: InputMap, plan: Plan, *, pairwise: bool) -> Sample:
    """The rows in the coordinates of a member's kernel, with targets and weights."""
    rows = with_row_index(data.rows, plan) if pairwise else inputs.rows(data.rows, plan)
    on_device: dict[str, Any] = {"device": plan.device, "dtype": torch.float64}
    column_groups = None if pairwise or data.layout is None else data.layout.group
    validation_weight = None if data.validation_weight is None else torch.as_tensor(data.validation_weight, **on_device)
    targets, weight = torch.as_tensor(Y, **on_device), torch.as_tensor(data.weight, **on_device)
    return Sample(rows, targets, weight, plan, column_groups, validation_weight, data.row_groups)

"""Smooth kernels of largest evidence, as finalists of the model selection.

A function without noise that has many derivatives is learned at a rate that few rows do not show: with every doubling
of the rows the error of the right kernel falls by a power of ten. It needs a smooth family, length-scales to several
digits, and a penalty next to rounding. With noise a smooth family still needs fewer rows. The evidence finds family,
length-scales and penalty at once, in double precision (`mercer.selection.evidence_search`); the grid of the other
candidates has none of them. Rows that did not take part score the kernels, so rough targets keep the candidates that
they had.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mercer.evidence.coordinates import Point
from mercer.kernels import Gaussian, Matern52, Stationary
from mercer.selection.evidence_search import GAIN, LENGTH, ROUGH, ROUGHER, EvidenceSearch
from mercer.selection.score import dual_coefficients
from mercer.selection.search import Search, run_on_one_core, run_parallel
from mercer.selection.view import EvidenceCandidate, SelectedKernel

#: Families, smoothest first.
FAMILIES: tuple[type[Stationary], ...] = (Gaussian, Matern52)
#: Name of the kernel's variance in ``variance · radial + bias``.
VARIANCE = "left__variance"


@dataclass(frozen=True)
class EvidenceKernel:
    """A radial kernel of unit variance, its factors on the columns (1/ℓ), and its penalty."""

    family: type[Stationary]
    transform: Tensor
    penalty: float

    @classmethod
    def of(cls, point: Point, family: type[Stationary], n_inputs: int) -> EvidenceKernel:
        """The kernel of a point: its bias is left out, since targets are centred."""
        tunable = point.kernel.tunable()
        lengths = np.broadcast_to(np.asarray(tunable[LENGTH], dtype=float), n_inputs)
        return cls(family, torch.as_tensor(1 / lengths), point.noise / float(tunable[VARIANCE]))

    def values(self, X: Tensor, Y: Tensor, weight: Tensor, X_score: Tensor) -> Tensor:
        """Values of kernel ridge at other rows; NaN where rounding leaves no positive definite matrix."""
        kernel, factor = self.family(), self.transform.to(X)
        alpha = dual_coefficients(kernel(X * factor, X * factor), Y, weight, self.penalty)
        if alpha is None:
            return Y.new_full((len(X_score), Y.shape[1]), torch.nan)
        return kernel(X_score * factor, X * factor) @ alpha


class EvidenceFinalists:
    """Kernels of largest evidence on the rows of a selection's last stage."""

    def __init__(self, search: Search) -> None:
        self.search, self.rows, self.began = search, search.rows, time.perf_counter()
        self.column_map = search.settings.column_maps[0]
        self.Z, self.parts = self.rows.mapped[self.column_map], self.rows.parts(search.stage)
        self.in_folds = len(self.parts) > 1

    def within(self, loss: float) -> list[EvidenceCandidate]:
        """The kernels with their scores, if few rows show a Gaussian kernel of at most this loss.

        All rows are searched where they score in folds, else those that fit. Each fold that scores has a search of its
        own, which starts at the kernel of all rows.
        """
        settings, first = self.search.settings, FAMILIES[0]
        everything = torch.arange(self.rows.n, device=self.rows.X.device) if self.in_folds else self.parts[0][0]
        near = run_on_one_core(partial(self._search(everything, settings.grid_rows).radial, [first]))
        if self._candidate(first, near[first.__name__], False).loss > loss:
            return []
        # a search of few rows costs little, and a start from some of them may lead to a lesser maximum
        start = None if settings.grid_rows < len(everything) <= settings.fit_rows else near
        return self._candidates(self._search(everything).radial(FAMILIES, start), self.in_folds)

    def _candidates(self, points: dict[str, Point], again: bool) -> list[EvidenceCandidate]:
        return [self._candidate(family, points[n], again) for family in FAMILIES if (n := family.__name__) in points]

    def _search(self, index: Tensor, most: int | None = None) -> EvidenceSearch:
        """The search on at most so many of these rows."""
        index = index[: most or 2 * self.search.settings.fit_rows]
        X, Y, weight = self.Z[index].cpu(), self.rows.Y[index].cpu(), self.rows.weight[index].cpu()
        weight = weight / weight.mean()
        Y = Y - (weight[:, None] * Y).sum(0) / weight.sum()
        Y = Y / (weight[:, None] * Y.square()).mean().sqrt().clamp(min=1e-150)
        groups = None if self.rows.column_groups is None else self.rows.column_groups.cpu().numpy()
        ard: Any = False if self.search.metric is None else "auto"
        return EvidenceSearch(X, Y, weight, ard, 50, ROUGH, clock=self.search.clock, groups=groups)

    def _values(self, family: type[Stationary], point: Point, again: bool, fit: Tensor, score: Tensor) -> Tensor:
        """Values at the scoring rows of a fold; the search for its kernel is continued on its fit rows (`again`)."""
        if again:
            point = self._search(fit).maximise(point.kernel, point.noise, ROUGHER, GAIN)
        kernel = EvidenceKernel.of(point, family, self.Z.shape[1])
        return kernel.values(self.Z[fit], self.rows.Y[fit], self.rows.weight[fit], self.Z[score])

    def _candidate(self, family: type[Stationary], point: Point, again: bool) -> EvidenceCandidate:
        """The kernel of a point with its score."""
        tasks = [partial(self._values, family, point, again, *part) for part in self.parts]
        values = torch.cat(run_parallel(tasks, self.rows.device))
        loss = float(self.rows.score(self.search.stage)(values[None]).nan_to_num(torch.inf)[0])
        kernel, columns = EvidenceKernel.of(point, family, self.Z.shape[1]), self.rows.maps[self.column_map]
        name = f"{self.column_map}, evidence kernel, {family.short_name}"
        selected = SelectedKernel(columns, kernel.transform, family(), kernel.penalty, 1.0, loss, name)
        n_fit, seconds = sum(len(fit) for fit, _ in self.parts), time.perf_counter() - self.began
        return EvidenceCandidate(selected, values, n_fit, seconds)

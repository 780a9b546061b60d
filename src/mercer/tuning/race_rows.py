"""The rows of a race: mapped columns made once, and which rows fit and which judge at each stage."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from mercer.data.column_maps import KINDS, fit_column_map
from mercer.tuning import constants as c
from mercer.tuning.closed_form import Judge
from mercer.tuning.link import codes_of
from mercer.tuning.track import Fold, Step, Track, relevances


class Rows:
    """The rows of a race in random order, on its device, with column maps and folds made once."""

    def __init__(self, X: Tensor, Y: Tensor, weight: Tensor, kept: Tensor | None, rng: np.random.Generator,
                 device: Any, classes: bool, groups: Tensor | None = None) -> None:  # fmt: skip
        self.groups = None if groups is None else groups.to(device)
        used = (weight > 0).nonzero()[:, 0]
        order = used[torch.from_numpy(rng.permutation(len(used))).to(used.device)]
        self.maps = {kind: fit_column_map(kind, X, weight, kept) for kind in KINDS}
        self.X, self.Y = X[order].double().to(device), Y[order].double().to(device)
        self.w = weight[order].double().to(device)
        self.w = self.w / self.w.mean()
        self.n = len(order)
        self.codes = codes_of(self.Y) if classes else None
        self._mapped: dict[str, Tensor] = {}
        self._evidence: dict[str, Step] = {}

    def mapped(self, kind: str) -> Tensor:
        if kind not in self._mapped:
            most = max(max(c.LAST_ROWS, self.evident) + c.LAST_JUDGING_ROWS, c.METRIC_ROWS)
            self._mapped[kind] = self.maps[kind](self.X[:most])
        return self._mapped[kind]

    @property
    def evident(self) -> int:
        """Rows of which the evidence is taken: many inputs need more, or it settles on some of those that matter."""
        wanted = min(max(c.ARD_ROWS, c.ARD_ROWS_PER_INPUT * self.X.shape[1]), c.ARD_MOST_ROWS)
        return min(wanted, self.n // 2)

    def evidence(self, kind: str) -> Step:
        """The step to length-scales by evidence, for each column map; of many inputs, which cost more, for all maps."""
        key = kind if self.X.shape[1] <= c.ARD_BY_MAP else ""
        if key not in self._evidence:
            Z, fits = self.mapped(kind), [a[: self.evident] for a, _ in self.parts(last=True)]
            folds = [Fold(Z[a], self.Y[a], self.w[a], Z[:0]) for a in fits]
            self._evidence[key] = Step(None, relevances=tuple(relevances(fold, self.groups) for fold in folds))
        return self._evidence[key]

    @property
    def folded(self) -> bool:
        return self.n < c.FOLDED

    def parts(self, last: bool) -> list[tuple[Tensor, Tensor]]:
        """Indices of rows to fit by and to judge by."""
        index = torch.arange(self.n, device=self.X.device)
        if self.folded:
            pieces = index.tensor_split(c.FOLDS)
            return [(torch.cat([q for q in pieces if q is not p])[: c.ROWS], p) for p in pieces]
        fit, judge = (c.LAST_ROWS, c.LAST_JUDGING_ROWS) if last else (c.ROWS, c.JUDGING_ROWS)
        fit = min(fit, self.n // 2)
        seen = max(fit, self.evident)  # no row judges a transform that it has had a say in
        return [(index[:fit], index[seen : seen + judge])]

    def track(self, kind: str, last: bool = False) -> Track:
        Z, parts = self.mapped(kind), self.parts(last)
        judged = torch.cat([b for _, b in parts])
        folds = [Fold(Z[a], self.Y[a], self.w[a], Z[b]) for a, b in parts]
        judge = Judge(self.Y[judged], self.w[judged], self.codes)
        return Track(folds, judge, [torch.ones_like(folds[0].X[0]) for _ in parts], groups=self.groups)

"""The rows of a race: mapped columns made once, and which rows fit and which judge at each stage."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mercer.data.column_maps import KINDS, fit_column_map
from mercer.selection import constants as c
from mercer.selection.closed_form import Judge
from mercer.selection.evidence_metric import relevances
from mercer.selection.link import codes_of
from mercer.selection.parallel import side_by_side
from mercer.selection.track import Fold, Step, Track


class Rows:
    """The rows of a race in random order, on its device, with column maps and folds made once.

    Columns of one of the `groups` (an index for each column), such as the levels of a category, share a length-scale.
    """

    def __init__(self, X: Tensor, Y: Tensor, weight: Tensor, kept: Tensor | None, rng: np.random.Generator,
                 device: Any, classes: bool, groups: Tensor | None = None) -> None:  # fmt: skip
        used = (weight > 0).nonzero()[:, 0]
        order = used[torch.from_numpy(rng.permutation(len(used))).to(used.device)]
        maps = side_by_side([partial(fit_column_map, kind, X, weight, kept) for kind in KINDS], X.device)
        self.maps = dict(zip(KINDS, maps, strict=True))
        self.X, self.Y = X[order].double().to(device), Y[order].double().to(device)
        self.w = weight[order].double().to(device)
        self.w = self.w / self.w.mean()
        self.n, self.device = len(order), device
        self.hurried = False  # set after the first stage, when its time tells how long all of them take
        self.groups = None if groups is None else groups.to(device)
        self.codes = codes_of(self.Y) if classes else None
        most = max(max(self.last, self.evident) + max(self.last, c.LAST_JUDGING_ROWS), self.metric)
        self.mapped = {kind: self.maps[kind](self.X[:most]) for kind in KINDS}
        self._evidence: dict[tuple[str, bool], Step] = {}
        self._climbs: dict[tuple[bool, int], np.ndarray] = {}

    @property
    def evident(self) -> int:
        """Rows of which the evidence is taken: many inputs need more, or it settles on some of those that matter."""
        wanted = min(max(c.ARD_ROWS, c.ARD_ROWS_PER_INPUT * self.X.shape[1]), c.ARD_MOST_ROWS)
        return min(wanted, self.n // 2)

    def evidence(self, kind: str, last: bool = False) -> Step:
        """The step to length-scales by evidence, for each column map; of many inputs, which cost more, for all maps.

        A climb starts where the first one on the same rows ended: of one table, maps differ little.
        """
        again = last and self.folded
        key = kind if self.X.shape[1] <= c.ARD_BY_MAP else "", again
        if key not in self._evidence:
            Z = self.mapped[kind]

            def climb(k: int, a: Tensor) -> tuple[Tensor, np.ndarray]:
                start = self._climbs.get((again, k))
                rounds = c.ARD_ROUNDS if start is None else c.ARD_ROUNDS_ON
                return relevances(Z[a], self.Y[a], self.w[a], self.groups, start, rounds)

            parts = self.parts(last or not self.folded)
            found = side_by_side([partial(climb, k, fit[: self.evident]) for k, (fit, _) in enumerate(parts)])
            for k, (_, theta) in enumerate(found):
                self._climbs.setdefault((again, k), theta)
            self._evidence[key] = Step(None, relevances=tuple(scale for scale, _ in found))
        return self._evidence[key]

    @property
    def last(self) -> int:
        """Rows that the last round fits by, and as many judge: a part of very many, where there is time for it."""
        return c.LAST_ROWS if self.hurried else max(c.LAST_ROWS, min(self.n // c.LAST_PART, c.LAST_MOST_ROWS))

    @property
    def metric(self) -> int:
        """Rows by which members take the last step to their transform."""
        return max(c.METRIC_ROWS, int(c.METRIC_TIMES * self.last) if self.last > c.LAST_ROWS else 0)

    @property
    def small(self) -> bool:
        """So few rows that all of them judge from the beginning, in folds: there is one round."""
        return self.n < min(c.SMALL, c.FOLDED)

    @property
    def folded(self) -> bool:
        """Few enough rows that all of them judge in the last round, in folds."""
        return self.n < c.FOLDED

    def parts(self, last: bool) -> list[tuple[Tensor, Tensor]]:
        """Indices of rows to fit by and to judge by."""
        index = torch.arange(self.n, device=self.X.device)
        if self.small or (self.folded and last):
            pieces = index.tensor_split(c.FOLDS if self.small else c.LAST_FOLDS)
            return [(torch.cat([q for q in pieces if q is not p])[: self.last], p) for p in pieces]
        fit, judge = (self.last, max(self.last, c.LAST_JUDGING_ROWS)) if last else (c.ROWS, c.JUDGING_ROWS)
        fit = min(fit, self.n // 2)
        seen = max(fit, self.evident)  # no row judges a transform that it has had a say in
        return [(index[:fit], index[seen : seen + judge])]

    def track(self, kind: str, last: bool = False) -> Track:
        Z, parts = self.mapped[kind], self.parts(last)
        judged = torch.cat([b for _, b in parts])
        folds = [Fold(Z[a], self.Y[a], self.w[a], Z[b]) for a, b in parts]
        judge = Judge(self.Y[judged], self.w[judged], self.codes)
        return Track(folds, judge, [torch.ones_like(folds[0].X[0]) for _ in parts], groups=self.groups)

    def walked(self, kind: str, steps: tuple[Step, ...]) -> Track:
        """The track of these steps on the rows of the last round."""
        track = self.track(kind, last=True)
        for step in steps:
            track = track.stepped(self.evidence(kind, last=True) if step.base is None else step)
        return track

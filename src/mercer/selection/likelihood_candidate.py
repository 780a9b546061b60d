"""Candidates fitted by kernel logistic or softmax regression instead of least squares on class codes."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from mercer.losses import class_likelihood
from mercer.selection.candidate import Candidate
from mercer.selection.likelihood import KernelLikelihood
from mercer.selection.view import Trial

if TYPE_CHECKING:
    from mercer.selection.search import Search

#: The first penalty as a share of that of least squares, the factor between two penalties, and steps at most.
FIRST_SHARE, FACTOR, MOST_STEPS = 0.1, 10**0.5, 6
#: Rows that fit at most.
MOST_ROWS = 1500


class LikelihoodCandidate:
    """A candidate's kernel with a penalty for the log likelihood: `lam`, held-out `logits` and their `loss`."""

    def __init__(self, search: Search, candidate: Candidate) -> None:
        self.search, self.candidate = search, candidate
        self.score = replace(candidate.view.score, logits=True)
        self.lam = FIRST_SHARE * candidate.point.lam
        self.logits, self.loss = torch.zeros_like(self.score.Y), math.inf
        self._tiles: list[tuple[Tensor, Tensor]] = []
        self._duals: list[Tensor | None] = [None for _ in candidate.view.folds]

    def tuned(self) -> list[Candidate]:
        """Find the penalty of least held-out loss, and return the candidate with its new score."""
        began, view = time.perf_counter(), self.candidate.view
        for K, K_score in view.kernels(self.candidate.point):
            self._tiles.append((K[:MOST_ROWS, :MOST_ROWS].double() + 1.0, K_score[:, :MOST_ROWS].double() + 1.0))
        view.release()
        first = self.lam
        self._walk(first, 1 / FACTOR)
        if self.lam == first:
            self._walk(FACTOR * first, FACTOR)
        self._tiles, self._duals = [], []
        trial = Trial(self.candidate.point, self.loss, self.logits)
        return [Candidate(view, trial, time.perf_counter() - began)]

    def _walk(self, lam: float, factor: float) -> None:
        """Multiply the penalty by a factor as long as the held-out loss falls."""
        for _ in range(MOST_STEPS):
            if math.isfinite(self.loss) and self.search.expired():
                return
            logits = self._fit(lam)
            loss = float(self.score(logits[None])[0])
            if not loss < self.loss:
                return
            self.lam, self.logits, self.loss = lam, logits, loss
            lam *= factor

    def _fit(self, lam: float) -> Tensor:
        """Held-out logits with one penalty, from the coefficients of the penalty before."""
        codes, values = self.score.codes, []
        assert codes is not None
        for k, (fold, (K, K_score)) in enumerate(zip(self.candidate.view.folds, self._tiles, strict=True)):
            n, p = len(K), fold.Y.shape[1]
            Y = 2 * codes.shares(fold.Y[:n])[:, -p:] - 1
            problem = KernelLikelihood(K, Y, fold.weight[:n, None], lam, class_likelihood(p))
            alpha = self._duals[k] = problem.fit(self._duals[k]).alpha
            values.append(K_score @ alpha[:, :, 0])
        return torch.cat(values).to(self.score.Y)

"""One way of seeing the inputs (a column map and a transform) and the kernels tried on it, judged on unseen rows.

A track shares its distances among families and length-scales. Its transform is learned from training rows alone, so
that the rows it is judged by have had no say in it; which tracks are run is `mercer.selection.race`'s business.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from mercer.kernels import Gaussian, Kernel, Laplacian, Linear, Matern12, Matern32
from mercer.linalg import solve_factored
from mercer.selection.closed_form import Judge
from mercer.selection.constants import DEARER, LENGTHS, OUTPUTS, PENALTIES, SLOPE_ROWS, SLOPE_SIZE
from mercer.selection.metric import TYPICAL, distances, moved, outer, power_of, shared, slopes, tile, typical

FAMILIES: dict[str, Kernel] = {
    "gaussian": Gaussian(), "matern32": Matern32(), "matern12": Matern12(), "cityblock": Laplacian(),
    "linear": Linear(),
}  # fmt: skip


#: Down to these penalties kernel matrices of rough and of smooth families, whose least eigenvalues are smaller, are
#: made and factored in single precision; below the third the solution is refined once. Of 1500 rows of pol, cal_housing
#: and spambase losses change by less than 1e-3 there, in half the time; unrefined by up to 1e-2.
SINGLE, SINGLE_SMOOTH, REFINED = 2e-5, 0.9e-4, 1e-3
SMOOTH = ("gaussian", "linear")
#: Rungs up and down from the middle of a ladder of length-scales; leaps along the penalties.
RUNGS, LEAPS = 3, (-4, 4, -4, 2, -2)
#: The least penalty of a model whose gradients are asked for.
LEAST = 1e-5


class Rung(NamedTuple):
    """A family with a length-scale and a penalty, by their places on the two ladders."""

    family: str
    length: int
    penalty: int

    @classmethod
    def near(cls, family: str, factor: float, lam: float) -> Rung:
        """The rung next to a length-scale, in typical distances, and a penalty."""
        length = round(math.log2(factor / LENGTHS[family]))
        penalty = min(range(len(PENALTIES)), key=lambda k: abs(math.log(PENALTIES[k] / lam)))
        return cls(family, min(max(length, -RUNGS), RUNGS), penalty)

    @property
    def factor(self) -> float:
        """The length-scale in typical distances."""
        return LENGTHS[self.family] * 2.0**self.length

    @property
    def lam(self) -> float:
        return PENALTIES[self.penalty]

    def moved(self, by_penalty: int) -> Rung:
        """The same length-scale under another penalty, as far as the ladder goes."""
        return self._replace(penalty=min(max(self.penalty + by_penalty, 0), len(PENALTIES) - 1))

    @property
    def dtype(self) -> torch.dtype:
        """The precision of kernel matrices."""
        least = SINGLE_SMOOTH if self.family in SMOOTH else SINGLE
        return torch.float32 if self.lam >= least else torch.float64

    @property
    def price(self) -> float:
        """By what a loss is multiplied where penalties are compared: a smaller one must gain something."""
        return (1 + DEARER) ** -self.penalty


@dataclass(frozen=True)
class Step:
    """A step to a better transform: by evidence, by the gradients of the model at a rung, or a descent from there."""

    base: Rung | None
    full: bool = False
    power: float = 1.0
    relevances: tuple[Tensor, ...] = field(default=(), repr=False, compare=False)
    descent: bool = False

    def __str__(self) -> str:
        if self.base is None:
            return "evidence"
        if self.descent:
            return f"descent of {self.base.family}"
        return f"{'full' if self.full else 'diagonal'} {self.power:g} of {self.base.family}"


@dataclass(frozen=True)
class Fold:
    """Rows to fit by and rows to judge by, with mapped inputs, coded targets and weights of mean one."""

    X: Tensor
    Y: Tensor
    weight: Tensor
    X_judge: Tensor


@dataclass
class Trial:
    """A rung that was tried: its loss on the judging rows, its values there, and each fold's dual coefficients."""

    rung: Rung
    loss: float
    values: Tensor = field(repr=False)
    duals: list[Tensor | None] = field(default_factory=list, repr=False)

    @property
    def cost(self) -> float:
        return self.loss * self.rung.price


@dataclass
class Track:
    """A column map's inputs under a transform (one for each fold), and what has been tried on them.

    Columns of one of the `groups` (an index for each column) share a factor of every diagonal transform. `units` are
    distances by which length-scales are measured, city-block (True) and Euclidean: typical ones where none are given.
    """

    folds: Sequence[Fold]
    judge: Judge
    transforms: Sequence[Tensor]
    steps: tuple[Step, ...] = ()
    before: Sequence[Tensor] = ()
    groups: Tensor | None = None
    tried: dict[Rung, Trial] = field(default_factory=dict)
    units: dict[bool, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._seen: dict[tuple[bool, bool], list[Tensor]] = {}
        self._tiles: tuple[tuple[str, int, torch.dtype], list[tuple[Tensor, Tensor]]] | None = None

    @property
    def path(self) -> str:
        """The steps in words."""
        return " + ".join(map(str, self.steps)) or "none"

    def unit(self, family: str) -> float:
        """The distance by which this family's length-scales are measured."""
        key = family == "cityblock"
        if key not in self.units:
            A = moved(self.folds[0].X[:TYPICAL], self.transforms[0])
            seen = self._seen.get((key, False))
            self.units[key] = typical(distances(FAMILIES[family], A, A) if seen is None else seen[0])
        return self.units[key]

    def trial(self, rung: Rung) -> Trial:
        """Fit at this rung on every fold and judge it."""
        if rung not in self.tried:
            values, duals = [], []
            for fold, (K, K_judge) in zip(self.folds, self._kernel(rung), strict=True):
                duals.append(alpha := solved(K, fold, rung.lam))
                values.append(self.judge.Y.new_full((len(K_judge), fold.Y.shape[1]), math.nan) if alpha is None
                              else K_judge.to(alpha) @ alpha)  # fmt: skip
            F = torch.cat(values).to(self.judge.Y)
            loss = float(self.judge(F[None])[0])
            self.tried[rung] = Trial(rung, loss if math.isfinite(loss) else math.inf, F, duals)
        return self.tried[rung]

    def tuned(self, start: Rung, most: int = 8, far: float = math.inf, wide: bool = False) -> Trial:
        """Downhill from a rung to its neighbours on the ladders, until none is better or `most` were tried.

        A `wide` search leaps along the penalties first: a better metric may call for one a thousand times smaller.
        What is still above a loss of `far` then is left there.
        """
        best = self.trial(start)
        for by_penalty in LEAPS if wide else ():
            best = self._better(best, 0, by_penalty)
        if best.loss > far:
            return best
        before = self._n_tried(start.family)
        moves = [(0, -1), (0, 1)] if start.family == "linear" else [(0, -1), (0, 1), (-1, 0), (1, 0), (1, -2), (-1, 2)]
        improved = True
        while improved:
            here, improved = best, False
            for by_length, by_penalty in moves:
                if self._n_tried(start.family) - before < most:
                    found = self._better(here, by_length, by_penalty)
                    if found.cost < best.cost:
                        best, improved = found, True
        return best

    def _n_tried(self, family: str) -> int:
        """Trials of one family: others may be tried on this track at the same time."""
        return sum(rung.family == family for rung in list(self.tried))

    def _better(self, here: Trial, by_length: int, by_penalty: int) -> Trial:
        """The neighbour where it is better, else the trial itself."""
        length, penalty = here.rung.length + by_length, here.rung.penalty + by_penalty
        if not 0 <= penalty < len(PENALTIES) or abs(length) > RUNGS:
            return here
        found = self.trial(Rung(here.rung.family, length, penalty))
        return found if found.cost < here.cost else here

    def stepped(self, step: Step) -> Track:
        """The track after one more step."""
        if step.base is None:
            found, mean = step.relevances, torch.stack(step.relevances).square().mean(0).sqrt()
            new = list(found) if len(found) == len(self.folds) else [mean for _ in self.folds]
        else:
            new = [self._gradient(k, step) for k in range(len(self.folds))]
        return Track(self.folds, self.judge, new, (*self.steps, step), self.transforms, self.groups)

    def _gradient(self, k: int, step: Step) -> Tensor:
        assert step.base is not None
        fold, T, kernel = self.folds[k], self.transforms[k], FAMILIES[step.base.family]
        A, distance = moved(fold.X, T), self._distances(step.base.family)[k]
        length = step.base.factor * self.unit(step.base.family)
        lam = max(step.base.lam, LEAST)
        distance = distance.to(step.base.dtype)
        A = A.to(distance)
        known = self.tried.get(step.base) if lam == step.base.lam else None
        alpha = solved(tile(kernel, distance, length), fold, lam) if known is None else known.duals[k]
        if alpha is None:  # rounding: the model says nothing new
            return T
        some = slice(0, min(SLOPE_ROWS, max(SLOPE_SIZE // A.shape[1], 1)))
        gradient = slopes(kernel, distance[some], length, A[some], A, leading(alpha).to(A))
        M = outer(gradient.double(), fold.weight[some], T)
        return power_of(M if step.full else shared(M, self.groups), step.power, step.full)

    def _distances(self, family: str, judging: bool = False) -> list[Tensor]:
        """Of each fold, between rows to fit by, or from these of rows to judge by."""
        kernel = FAMILIES[family]
        key = family == "cityblock", judging
        found = self._seen.get(key)  # another thread may forget them
        if found is None:
            found = []
            for fold, T in zip(self.folds, self.transforms, strict=True):
                A = moved(fold.X, T)
                found.append(distances(kernel, moved(fold.X_judge, T) if judging else A, A))
            self._seen[key] = found
        return found

    def _kernel(self, rung: Rung) -> list[tuple[Tensor, Tensor]]:
        key, known = (rung.family, rung.length, rung.dtype), self._tiles
        if known is not None and known[0] == key:
            return known[1]
        if rung.family == "linear":
            moves = [(moved(f.X, T), moved(f.X_judge, T)) for f, T in zip(self.folds, self.transforms, strict=True)]
            tiles = [(A @ A.T / A.shape[1], B @ A.T / A.shape[1]) for A, B in moves]
        else:
            pairs = zip(self._distances(rung.family), self._distances(rung.family, judging=True), strict=True)
            kernel, length = FAMILIES[rung.family], rung.factor * self.unit(rung.family)
            tiles = [(tile(kernel, a.to(rung.dtype), length), tile(kernel, b.to(rung.dtype), length)) for a, b in pairs]
        self._tiles = key, tiles
        return tiles

    def forget(self) -> None:
        """Free distances and tiles: they are made again where they are needed again."""
        self._seen, self._tiles = {}, None


def solved(K: Tensor, fold: Fold, lam: float) -> Tensor | None:
    """Dual coefficients of kernel ridge; None where rounding leaves no positive definite matrix."""
    diagonal, ridge = K.diagonal().clone(), lam / fold.weight
    K.diagonal().add_(ridge)  # until it is factored: a copy of K would take a tenth of the time of its factor
    factor, info = torch.linalg.cholesky_ex(K)
    if int(info) and K.dtype == torch.float32:
        factor, info = torch.linalg.cholesky_ex(K.double())
    K.diagonal().copy_(diagonal)
    if int(info):
        return None
    alpha = solve_factored(factor, fold.Y.to(factor))
    if lam >= REFINED or factor.dtype == torch.float64:
        return alpha
    left = torch.addcmul(fold.Y - K.double() @ alpha.double(), ridge[:, None], alpha.double(), value=-1)
    return alpha.double() + solve_factored(factor, left.to(factor)).double()


def leading(alpha: Tensor) -> Tensor:
    """The few combinations of outputs in which the coefficients are largest: many classes need no more gradients."""
    if alpha.shape[1] <= OUTPUTS:
        return alpha
    _, vectors = torch.linalg.eigh((alpha.T @ alpha).double())
    return alpha @ vectors[:, -OUTPUTS:].to(alpha)

"""`tune_kernel`: kernel, length-scales and noise by maximising the evidence on a random subset of rows.

The one place where kernel parameters are chosen from data; every estimator calls it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from sklearn.utils import check_random_state
from torch import Tensor

from mercer.engine import make_plan
from mercer.kernels import Gaussian, Kernel, Matern12, Matern32, Matern52, Scaled, Stationary, as_kernel
from mercer.parts import require
from mercer.tuning.families import NOISE_BOUNDS, Search

#: Families tried by ``kernel="auto"``, smoothest first.
FAMILIES: tuple[type[Stationary], ...] = (Gaussian, Matern52, Matern32, Matern12)
#: Least noise variance, of unit variance, where the targets are class codes.
CODE_NOISE = 1e-2


@dataclass(frozen=True)
class Tuned:
    """A tuned kernel, the noise variance that serves as regularisation, and how they were found."""

    kernel: Kernel
    noise: float
    log_marginal_likelihood: float
    n_evaluations: int
    families: dict[str, float]

    @property
    def relevance(self) -> np.ndarray | None:
        """Inverse length-scales: how much each input matters (None for kernels without them)."""
        scales = [v for name, v in self.kernel.tunable().items() if name.endswith("length_scale")]
        return 1 / np.atleast_1d(np.asarray(scales[0])) if scales else None


def tune_kernel(
    X: Any,
    y: Any,
    kernel: Any = "auto",
    *,
    sample_weight: Any = None,
    n_rows: int = 1000,
    ard: bool | str = "auto",
    restarts: int = 0,
    max_iter: int = 100,
    tol: float = 1e-10,
    device: Any = "auto",
    random_state: Any = None,
) -> Tuned:
    """Choose a kernel and a noise level for `X` and `y` by maximising the GP marginal likelihood.

    Parameters
    ----------
    X : array or tensor of shape (n, D)
    y : array or tensor of shape (n,) or (n, p)
        Targets are centred and scaled inside; several outputs share the kernel. For two classes pass ±1; where
        every column holds two values only, the noise is kept at 1 % of the variance or more.
    kernel : "auto", a short name, or a kernel
        The name of a stationary kernel, or ``"auto"`` (the best of Gaussian, Matérn 5/2, Matérn 3/2 and
        Matérn 1/2 by evidence), gives ``variance · kernel + bias``. A kernel object keeps its form, times a
        variance; its parameters are where the search starts.
    sample_weight : array of shape (n,), optional
        A row of weight 2 counts as that row twice; rows of weight zero are left out.
    n_rows : int
        Rows drawn at random for the evidence, whose cost grows as their cube.
    ard : bool or "auto"
        One length-scale per input (True), one for all (False), or one per input if that raises the
        log evidence by more than ½ log n for each further length-scale ("auto").
    restarts : int
        Further searches from random starting points; the best of all is returned.
    max_iter : int
        Steps of each climb.
    tol : float
        The best family is climbed once more, until a step gains less than this share of the evidence. From 1e-6 on
        that climb is left out: a third of the time, for digits that no prediction shows.
    device : "auto" or a torch device
    random_state : seed of the rows drawn and of the restarts

    Returns
    -------
    Tuned
        With `kernel`, `noise` (a variance: the λ of kernel ridge), `log_marginal_likelihood` of the
        centred targets and `families` (the log evidence of each family tried).

    Examples
    --------
    >>> import numpy as np
    >>> from mercer import tune_kernel
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-3, 3, (200, 2))
    >>> y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=200)          # the second input does not matter
    >>> tuned = tune_kernel(X, y, "gaussian", ard=True, random_state=0)
    >>> round(tuned.noise ** 0.5, 1), bool(tuned.relevance[0] > 10 * tuned.relevance[1])
    (0.1, True)
    """
    require(n_rows >= 2, "n_rows", "at least 2", n_rows)
    require(ard in (True, False, "auto"), "ard", "True, False or 'auto'", ard)
    X, y = (a if isinstance(a, Tensor) else np.asarray(a) for a in (X, y))
    require(X.ndim == 2, "X", "two-dimensional", X.shape)
    require(len(y) == len(X), "y", f"of the length of X, {len(X)}", len(y))
    rng = check_random_state(random_state)
    rows, targets, weight = _subset(X, y, sample_weight, n_rows, rng, make_plan(n_rows, device=device).device)
    targets = targets - (weight[:, None] * targets).sum(0) / weight.sum()
    scale = float((weight[:, None] * targets.square()).sum() / weight.sum() / targets.shape[1]) ** 0.5 or 1.0
    search = Search(rows, targets / scale, weight, ard, max_iter, tol, least_noise=_least_noise(targets))
    if isinstance(kernel, str) and kernel in {"auto", *Stationary.choices()}:
        found = search.radial(FAMILIES if kernel == "auto" else [Stationary.choices()[kernel]])
    else:
        given = as_kernel(kernel)
        found = {type(given).__name__: search.climb(Scaled(given), 0.1)}
    best = max(found.values(), key=lambda point: point.value)
    for _ in range(restarts):
        best = max(best, search.perturbed(best, rng), key=lambda point: point.value)
    shift = -float(weight.sum()) * targets.shape[1] * math.log(scale)
    return Tuned(
        kernel=_in_target_units(best.kernel, scale),
        noise=best.noise * scale**2,
        log_marginal_likelihood=best.value + shift,
        n_evaluations=search.n_evaluations,
        families={name: point.value + shift for name, point in found.items()},
    )


def _subset(
    X: Any, y: Any, sample_weight: Any, n_rows: int, rng: Any, device: torch.device
) -> tuple[Tensor, Tensor, Tensor]:
    """Random rows of positive weight, their targets (n × p) and weights, in float64."""
    weight = np.ones(X.shape[0]) if sample_weight is None else np.asarray(sample_weight, dtype=float)
    require(weight.shape == (len(X),), "sample_weight", f"of shape {(len(X),)}", weight.shape)
    require(bool((weight >= 0).all()) and weight.sum() > 0, "sample_weight", "non-negative, some positive", weight)
    index = np.flatnonzero(weight > 0)
    index = rng.choice(index, n_rows, replace=False) if len(index) > n_rows else index
    rows, targets, copies = (
        torch.as_tensor(a[index] if isinstance(a, Tensor) else np.asarray(a)[index]).to(device, torch.float64)
        for a in (X, y, weight)
    )
    if not (rows.isfinite().all() and targets.isfinite().all()):
        raise ValueError("X and y must be finite numbers, got NaN or infinity")
    return rows, targets[:, None] if targets.ndim == 1 else targets, copies


def _least_noise(targets: Tensor) -> float:
    """Class codes (two values a column) are not Gaussian: interpolating them has unbounded evidence."""
    codes = all(len(column.unique()) <= 2 for column in targets.T)
    return CODE_NOISE if codes and len(targets) > 2 else NOISE_BOUNDS[0]


def _in_target_units(kernel: Kernel, scale: float) -> Kernel:
    """The kernel for targets as they came: outer variances times scale², parameters as plain numbers."""
    outer = {"variance", "left__variance", "right__variance"}  # of Scaled, or of Sum(Scaled, Bias)
    values = {
        name: np.asarray(value * (scale**2 if name in outer else 1.0)).tolist()
        for name, value in kernel.tunable().items()
    }
    return kernel.replaced(values)

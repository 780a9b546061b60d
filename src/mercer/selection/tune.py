"""`tune_kernel`: kernel, length-scales and noise of largest evidence on a random subset of rows."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from mercer.clock import Clock
from mercer.engine import make_plan
from mercer.engine.sample import generator
from mercer.kernels import Gaussian, Kernel, Matern12, Matern32, Matern52, Scaled, Stationary, as_kernel
from mercer.parts import require, require_integer, require_number
from mercer.selection.class_codes import LEAST_NOISE, refine_by_log_loss
from mercer.selection.evidence_search import NOISE_BOUNDS, OUTER, EvidenceSearch
from mercer.selection.sample import are_class_codes, draw

#: Seconds of a search on a thousand rows on a slow machine; other searches take time as the cube of their rows.
THOUSAND_ROWS_SECONDS = 20.0
#: Families tried by ``kernel="auto"``, smoothest first.
FAMILIES: tuple[type[Stationary], ...] = (Gaussian, Matern52, Matern32, Matern12)


@dataclass(frozen=True)
class Tuned:
    """A tuned kernel, the noise variance that serves as regularisation, and how they were found."""

    kernel: Kernel
    noise: float
    log_marginal_likelihood: float
    n_evaluations: int
    families: dict[str, float]

    @property
    def length_scale(self) -> np.ndarray | None:
        """The length-scale of all inputs, or one per input; None for kernels without length-scales."""
        scales = [v for name, v in self.kernel.tunable().items() if name.endswith("length_scale")]
        return np.atleast_1d(np.asarray(scales[0])) if scales else None

    @property
    def relevance(self) -> np.ndarray | None:
        """Inverse length-scales: how much each input matters."""
        return None if self.length_scale is None else 1 / self.length_scale


def tune_kernel(
    X: Any,
    y: Any,
    kernel: Any = "auto",
    *,
    sample_weight: Any = None,
    n_rows: int = 1000,
    ard: bool | str = "auto",
    groups: Any = None,
    restarts: int = 0,
    max_iter: int = 100,
    tol: float = 1e-10,
    time_budget: float | None = None,
    device: Any = "auto",
    random_state: Any = None,
) -> Tuned:
    """Choose a kernel and a noise level for `X` and `y` by maximising the GP marginal likelihood.

    Parameters
    ----------
    X : array or tensor of shape (n, D)
    y : array or tensor of shape (n,) or (n, p)
        Targets are centred and scaled inside; several outputs share the kernel. For two classes pass ±1. If every
        column holds two values only, targets are class codes. Their noise is at least 1 % of the variance. The
        family, the noise and a factor on all length-scales of a radial kernel are chosen near the proposal of the
        evidence by the leave-one-out log loss.
    kernel : "auto", a short name, or a kernel
        The name of a stationary kernel, or ``"auto"`` (the best of Gaussian, Matérn 5/2, Matérn 3/2 and
        Matérn 1/2 by evidence), gives ``variance · kernel + bias``. A kernel object keeps its form, times a
        variance; its parameters are where the search starts.
    sample_weight : array of shape (n,), optional
        A row of weight 2 counts as two duplicates; rows of weight zero are ignored. The scale of the weights does not
        matter: duplicates are merged and weights are scaled to mean one for the evidence (class codes: all one). The
        returned noise is multiplied by the mean weight, so it is the penalty of kernel ridge with the given weights.
    n_rows : int
        Rows drawn at random for the evidence, whose cost grows as their cube.
    ard : bool or "auto"
        One length-scale per input (True), one for all (False), or one per input if that raises the
        log evidence of every output by more than ½ log n for each further length-scale ("auto").
    groups : sequence of D integers, optional
        Inputs with the same integer, such as the one-hot columns of a category, share a length-scale.
    restarts : int
        Further searches from random starting points; the best of all is returned.
    max_iter : int
        Steps of each search.
    tol : float
        The search of the best family continues until a step gains less than this share of the evidence. A tolerance
        of 1e-6 or more skips this last search: it takes a third of the time and changes no visible digit of
        predictions.
    time_budget : float or None
        Seconds that the search may take: fewer rows are drawn if time is short, and the search ends in time.
    device : "auto", "cpu", "cuda" or a torch device
    random_state : int, RandomState or None
        Seed of the rows drawn and of the restarts.

    Returns
    -------
    Tuned
        Record with `kernel`, `noise` (a variance: the λ of kernel ridge), `log_marginal_likelihood` of the centred
        targets and `families` (the log evidence of each family tried).

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
    _require_numbers(n_rows, ard, restarts, max_iter, tol)
    if time_budget is not None:
        require_number("time_budget", time_budget, "None or a positive number of seconds", np.nextafter(0, 1))
        n_rows = max(min(n_rows, int(1000 * (time_budget / THOUSAND_ROWS_SECONDS) ** (1 / 3))), 50)
    rng = generator(random_state)
    given = None if isinstance(kernel, str) and kernel in {"auto", *Stationary.choices()} else as_kernel(kernel)
    drawn = draw(X, y, sample_weight, n_rows, rng, make_plan(n_rows, device=device).device)
    weight = drawn.precision()
    targets = drawn.centred(weight)
    scale = _root_mean_square(targets, weight)
    codes = are_class_codes(drawn.Y)
    search = EvidenceSearch(
        drawn.X, targets / scale, weight, ard, max_iter, tol, LEAST_NOISE if codes else NOISE_BOUNDS[0],
        Clock(time_budget), _groups(groups, drawn.X.shape[1]),
    )  # fmt: skip
    if given is None:
        found = search.radial(FAMILIES if kernel == "auto" else [Stationary.choices()[kernel]])
    else:
        found = {type(given).__name__: search.maximise(Scaled(given), 0.1)}
    best = max(found.values(), key=lambda point: point.value)
    for _ in range(restarts):
        best = max(best, search.perturbed(best, rng), key=lambda point: point.value)
    if codes and given is None:
        search.Y, search.weight = drawn.centred(drawn.weight) / scale, drawn.weight  # the loss counts weights
        best = refine_by_log_loss(search, [best, *found.values()])
    noise = best.noise * scale**2 * drawn.mean_weight
    require(math.isfinite(noise), "the penalty for these targets and weights", "within float64: scale them",
            f"targets of size {scale:.3g} and weights of mean {drawn.mean_weight:.3g}")  # fmt: skip
    shift = -float(weight.sum()) * targets.shape[1] * math.log(scale)
    return Tuned(
        kernel=_in_target_units(best.kernel, scale),
        noise=noise,
        log_marginal_likelihood=best.value + shift,
        n_evaluations=search.n_evaluations,
        families={name: point.value + shift for name, point in found.items()},
    )


def _require_numbers(n_rows: Any, ard: Any, restarts: Any, max_iter: Any, tol: Any) -> None:
    for name, value, least in (("n_rows", n_rows, 2), ("restarts", restarts, 0), ("max_iter", max_iter, 1)):
        require_integer(name, value, least)
    known = isinstance(ard, bool | np.bool_) or (isinstance(ard, str) and ard == "auto")
    require(known, "ard", "True, False or 'auto'", ard)
    require_number("tol", tol, "a finite number of at least 0", 0.0)


def _root_mean_square(targets: Tensor, weight: Tensor) -> float:
    """Weighted root mean square of centred targets; 1 if all are zero."""
    largest = float(targets.abs().max()) or 1.0  # squares of unscaled targets may overflow
    mean = (weight[:, None] * (targets / largest).square()).sum() / weight.sum() / targets.shape[1]
    return largest * float(mean) ** 0.5 or 1.0


def _groups(groups: Any, n_inputs: int) -> np.ndarray | None:
    """The group of each input as an integer code from 0."""
    if groups is None:
        return None
    given = np.asarray(groups)
    require(given.shape == (n_inputs,), "groups", f"one number for each of {n_inputs} inputs", given.shape)
    return np.unique(given, return_inverse=True)[1].reshape(-1)


def _in_target_units(kernel: Kernel, scale: float) -> Kernel:
    """The kernel for unscaled targets: outer variances times scale², parameters as plain numbers."""
    values = {
        name: (np.asarray(value) * (scale**2 if name in OUTER else 1.0)).tolist()
        for name, value in kernel.tunable().items()
    }
    return kernel.replaced(values)

"""Scipy's L-BFGS beside torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import OptimizeResult, minimize
from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]


def minimize_lbfgs(
    objective: Callable[[np.ndarray], tuple[float, np.ndarray]],
    start: np.ndarray,
    bounds: Sequence[tuple[float | None, float | None]] | None = None,
    callback: Callable[[np.ndarray, float], object] | None = None,
    short: bool = True,
    **options: Any,
) -> OptimizeResult:
    """Minimise `objective`, which returns a value and its slope, by scipy's L-BFGS-B under its `options`.

    `callback` is called with the point and the value that each step has reached.

    OpenBLAS gets one thread: scipy's vector algebra wakes its threads, which spin for a while after each call and
    compete with torch's: on two cores an evidence evaluation took four times as long. Torch keeps its threads.

    If every variable has two bounds, scipy's first step goes all the way to them, and four or five evaluations are
    lost. One more variable, without bounds or slope, makes it a step of length one, unless `short` is False.
    """

    def sloped(x: np.ndarray) -> tuple[float, np.ndarray]:
        value, slope = objective(x[:-1])
        return value, np.append(slope, 0.0)

    def stepped(intermediate_result: OptimizeResult) -> None:
        if callback is not None:
            callback(intermediate_result.x[:-1].copy(), float(intermediate_result.fun))

    given: dict[str, Any] = {"callback": stepped}
    if bounds is not None:
        given["bounds"] = [*bounds, (None, None) if short else (0.0, 0.0)]
    with _not_of_torch().limit(limits=1, user_api="blas"):
        found = minimize(sloped, np.append(start, 0.0), jac=True, method="L-BFGS-B", options=options, **given)
    found.x, found.jac = found.x[:-1], found.jac[:-1]
    return found


@cache
def libraries() -> Any:
    """The controller of threaded libraries, made once, since finding them reads the memory map of the process."""
    return ThreadpoolController()


@cache
def _not_of_torch() -> Any:
    """The libraries of numpy and scipy, without those of torch."""
    found = libraries()
    return found.select(
        filepath=[lib.filepath for lib in found.lib_controllers if "torch" not in Path(lib.filepath).parts]
    )

"""Kernel and penalty of a fit: given by the user, or tuned on a sample of rows."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from mercer.engine.sample import Sample
from mercer.kernels import Function, Kernel, Precomputed, as_kernel
from mercer.parts import warn
from mercer.selection import tune_kernel, tune_noise


@dataclass(frozen=True)
class ChosenKernel:
    """A kernel, the penalty λ, and the seconds that tuning took."""

    kernel: Kernel
    lam: float
    seconds: float = 0.0


def is_precomputed(kernel: Any) -> bool:
    """Whether columns of `X` are kernel values."""
    return isinstance(kernel, Precomputed) or (isinstance(kernel, str) and kernel == "precomputed")


def sees_any_column(estimator: Any) -> bool:
    """Whether a user's function or matrix compares rows, so that columns must stay as they are."""
    kernels: list[Any] = []
    for name in ("kernel", "kernels"):
        given = getattr(estimator, name, None)
        kernels += given if isinstance(given, list | tuple) else [given]
    return any(map(_is_user_defined, kernels))


def _is_user_defined(kernel: Any) -> bool:
    if isinstance(kernel, Kernel):
        return isinstance(kernel, Function | Precomputed) or any(map(_is_user_defined, kernel.parts().values()))
    return callable(kernel) or is_precomputed(kernel)


def is_tuned(kernel: Any) -> bool:
    """Whether a kernel is given by name, so that its parameters are tuned."""
    return isinstance(kernel, str) and kernel != "precomputed"


def choose_kernel(
    sample: Sample,
    kernel: Any,
    regularization: Any,
    n_rows: int,
    rng: np.random.Generator,
    seconds: float | None = None,
    ard: bool | str = "auto",
) -> ChosenKernel:
    """Tune kernel and penalty on at most `n_rows` rows; a kernel object and a number are kept."""
    began = time.perf_counter()
    automatic = isinstance(regularization, str)
    fixed = None if is_tuned(kernel) else as_kernel(kernel)
    if fixed is not None and not automatic:
        _warn_of_large_penalty(sample, fixed, float(regularization))
        return ChosenKernel(fixed, float(regularization))
    drawn = sample.part(sample.draw(n_rows, rng))
    table = drawn.rows.take(np.arange(drawn.n_rows)), drawn.Y
    options: dict[str, Any] = {"sample_weight": drawn.weight.cpu().numpy(), "device": sample.plan.device}
    first = sample.rows.shard.group.first
    if fixed is None:
        options |= {"n_rows": n_rows, "max_iter": 50, "tol": 1e-6, "random_state": int(rng.integers(2**31))}
        options |= {"time_budget": seconds, "ard": ard, "groups": sample.groups}
        tuned = first(lambda: tune_kernel(*table, kernel, **options))
        fixed, noise = tuned.kernel, tuned.noise
    else:
        given = fixed
        noise = first(lambda: tune_noise(given, *table, **options))
    return ChosenKernel(fixed, float(noise if automatic else regularization), time.perf_counter() - began)


def _warn_of_large_penalty(sample: Sample, kernel: Kernel, lam: float) -> None:
    """Warn if the penalty is far above the trace of the weighted kernel matrix, a bound of its eigenvalues."""
    rows = sample.rows.fetch(sample.spaced(100)).double()
    largest = sample.total_weight * float(kernel(rows, rows).diagonal().abs().mean())
    if lam > 100 * largest:
        warn(
            f"regularization={lam:g} leaves nothing to learn from: all rows with their weights together reach "
            f"{largest:.3g}. Take a smaller penalty, larger weights, or regularization='auto'."
        )

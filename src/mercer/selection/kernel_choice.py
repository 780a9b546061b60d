"""Kernel and penalty of a fit: as the user gave them, or tuned on some of the rows."""

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
    """A kernel, the penalty λ, and the seconds it took to find them."""

    kernel: Kernel
    lam: float
    seconds: float = 0.0


def is_precomputed(kernel: Any) -> bool:
    """Whether the columns of `X` are kernel values."""
    return isinstance(kernel, Precomputed) or (isinstance(kernel, str) and kernel == "precomputed")


def sees_any_column(estimator: Any) -> bool:
    """Whether rows are compared by a user's function or matrix, which alone knows what values of a column mean."""
    kernels = getattr(estimator, "kernel", None), getattr(estimator, "kernels", None)
    several = [one for each in kernels for one in (each if isinstance(each, list | tuple) else [each])]
    return any(_is_users_own(one) for one in several)


def _is_users_own(kernel: Any) -> bool:
    if isinstance(kernel, Kernel):
        return isinstance(kernel, Function | Precomputed) or any(map(_is_users_own, kernel.parts().values()))
    return callable(kernel) or is_precomputed(kernel)


def is_tuned(kernel: Any) -> bool:
    """Whether a kernel is only named, so that its parameters are to be found."""
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
    """Tune on at most `n_rows` rows what was left open; a kernel object and a number stay as they are."""
    began = time.perf_counter()
    automatic = isinstance(regularization, str)
    fixed = None if is_tuned(kernel) else as_kernel(kernel)
    if fixed is not None and not automatic:
        _warn_if_nothing_is_left(sample, fixed, float(regularization))
        return ChosenKernel(fixed, float(regularization))
    chosen = sample.draw(n_rows, rng)
    some = sample.part(chosen)
    table = some.rows.take(np.arange(some.n_rows)), some.Y
    options: dict[str, Any] = {"sample_weight": some.weight.cpu().numpy(), "device": sample.plan.device}
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


def _warn_if_nothing_is_left(sample: Sample, kernel: Kernel, lam: float) -> None:
    """Say it where the penalty outweighs all rows together: the weighted kernel matrix has no larger eigenvalue."""
    some = sample.rows.fetch(sample.spaced(100)).double()
    largest = sample.total_weight * float(kernel(some, some).diagonal().abs().mean())
    if lam > 100 * largest:
        warn(
            f"regularization={lam:g} leaves nothing to learn from: all rows with their weights together reach "
            f"{largest:.3g}. Take a smaller penalty, larger weights, or regularization='auto'."
        )

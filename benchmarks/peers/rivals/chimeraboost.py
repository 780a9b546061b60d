"""ChimeraBoost: gradient-boosted symmetric trees, compiled by Numba."""

from __future__ import annotations

from typing import Any


def default(task: str, seed: int, *, threads: int | None = None, device: str = "auto") -> Any:
    from chimeraboost import ChimeraBoostClassifier, ChimeraBoostRegressor

    kind = ChimeraBoostRegressor if task == "regression" else ChimeraBoostClassifier
    return kind(random_state=seed, thread_count=threads)

"""CatBoost: gradient-boosted symmetric trees."""

from __future__ import annotations

from typing import Any


def default(task: str, seed: int, *, threads: int | None = None, device: str = "auto") -> Any:
    from catboost import CatBoostClassifier, CatBoostRegressor

    kind = CatBoostRegressor if task == "regression" else CatBoostClassifier
    return kind(random_state=seed, thread_count=threads or -1, verbose=False, allow_writing_files=False)

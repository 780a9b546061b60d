"""LightGBM: gradient-boosted trees."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rivals import Given, Setting


def default(task: str, seed: int, *, threads: int | None = None, device: str = "auto") -> Any:
    return _model(task, random_state=seed, n_jobs=threads)


def sweep(given: Given) -> Iterator[Setting]:
    for trees, leaves in ((30, 31), (100, 31), (300, 63), (1000, 63), (3000, 63), (5000, 127)):
        model = _model(given.task, n_estimators=trees, num_leaves=leaves, random_state=given.seed)
        yield Setting(f"{trees} trees of {leaves} leaves", model)


def _model(task: str, **options: Any) -> Any:
    from lightgbm import LGBMClassifier, LGBMRegressor

    return (LGBMRegressor if task == "regression" else LGBMClassifier)(verbose=-1, **options)

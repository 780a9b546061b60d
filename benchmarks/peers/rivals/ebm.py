"""Explainable boosting machines of interpret: an additive model of columns and pairs, by boosted trees."""

from __future__ import annotations

from typing import Any


def default(task: str, seed: int, *, threads: int | None = None, device: str = "auto") -> Any:
    from interpret.glassbox import ExplainableBoostingClassifier, ExplainableBoostingRegressor

    kind = ExplainableBoostingRegressor if task == "regression" else ExplainableBoostingClassifier
    return kind(random_state=seed, n_jobs=threads or -1)

"""scikit-learn's histogram-based gradient-boosted trees."""

from __future__ import annotations

from typing import Any

from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor


def default(task: str, seed: int, *, threads: int | None = None, device: str = "auto") -> Any:
    face = HistGradientBoostingRegressor if task == "regression" else HistGradientBoostingClassifier
    return face(random_state=seed)  # its threads are those of the process

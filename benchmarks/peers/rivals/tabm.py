"""TabM with the defaults of pytabkit: many networks that share most weights, averaged."""

from __future__ import annotations

from typing import Any


def default(task: str, seed: int, *, threads: int | None = None, device: str = "auto") -> Any:
    from pytabkit import TabM_D_Classifier, TabM_D_Regressor

    kind = TabM_D_Regressor if task == "regression" else TabM_D_Classifier
    return kind(random_state=seed, n_threads=threads, device=None if device == "auto" else device)

"""RealMLP with the tuned defaults of pytabkit: a network for tables."""

from __future__ import annotations

from typing import Any


def default(task: str, seed: int, *, threads: int | None = None, device: str = "auto") -> Any:
    from pytabkit import RealMLP_TD_Classifier, RealMLP_TD_Regressor

    kind = RealMLP_TD_Regressor if task == "regression" else RealMLP_TD_Classifier
    return kind(random_state=seed, n_threads=threads, device=None if device == "auto" else device)

"""xRFM: trees of recursive feature machines. It wants float32 rows, scaled, and validation rows of its own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

from rivals import Given, Setting


def default(task: str, seed: int, *, threads: int | None = None, device: str = "auto") -> Any:
    return _Rows(task, seed, device=("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device)


def sweep(given: Given) -> Iterator[Setting]:
    for iters in (0, 1, 3, 5):
        yield Setting(f"{iters} rounds", _Rows(given.task, given.seed, iters, given.device))


class _Rows:
    def __init__(self, task: str, seed: int, iters: int | None = None, device: str = "cpu") -> None:
        from xrfm import xRFM

        own: dict[str, Any] = {} if iters is None else {"rfm_params": _parameters(iters)}
        metric = "mse" if task == "regression" else "accuracy"
        self.model, self.seed, self.task = xRFM(tuning_metric=metric, device=device, **own), seed, task

    def fit(self, X: np.ndarray, y: np.ndarray) -> _Rows:
        self.scaler = StandardScaler().fit(X)
        real = self.task == "regression"
        self.mean, self.scale = (y.mean(), y.std()) if real else (0.0, 1.0)
        target = ((y - self.mean) / self.scale)[:, None].astype(np.float32) if real else y.astype(np.int64)
        rows = self.scaler.transform(X).astype(np.float32)
        A, A_val, b, b_val = train_test_split(rows, target, test_size=0.2, random_state=self.seed)
        self.model.fit(A, b, A_val, b_val)
        return self

    def predict(self, X: np.ndarray) -> np.ndarray:
        out = np.asarray(self.model.predict(self.scaler.transform(X).astype(np.float32)))
        return out.reshape(len(X), -1)[:, 0] * self.scale + self.mean if self.task == "regression" else out.reshape(-1)

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        return np.asarray(self.model.predict_proba(self.scaler.transform(X).astype(np.float32)))


def _parameters(iters: int) -> dict[str, Any]:
    model = {"kernel": "l2_high_dim", "exponent": 1.0, "bandwidth": 10.0, "diag": False, "bandwidth_mode": "constant"}
    return {"model": model, "fit": {"reg": 1e-3, "iters": iters, "verbose": False, "early_stop_rfm": True}}

"""Falkon: Nyström kernel ridge by preconditioned conjugate gradients on random centres."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from rivals import Given, Setting


def sweep(given: Given) -> Iterator[Setting]:
    for m in (500, 1000, 2000, 5000, 10_000):
        yield Setting(f"{m} centres", _Centres(given, m), tuned=True)
    for m in (2000, 5000, 10_000):
        yield Setting(f"{m} centres, kernel kept", _Centres(given, m, keep=True), tuned=True)


class _Centres:
    def __init__(self, given: Given, m: int, keep: bool = False) -> None:
        import falkon

        self.falkon, self.given, self.m, self.keep = falkon, given, m, keep

    def fit(self, X: np.ndarray, y: np.ndarray) -> _Centres:
        kept = {"store_kernel_d_threshold": 0} if self.keep else {}
        options = self.falkon.FalkonOptions(keops_active="no", use_cpu=self.given.device == "cpu", **kept)
        sigma = torch.as_tensor(self.given.length_scale, dtype=torch.float32)
        self.model = self.falkon.Falkon(
            kernel=self.falkon.kernels.GaussianKernel(sigma=sigma, opt=options), penalty=self.given.penalty / len(X),
            M=self.m, seed=self.given.seed, options=options,
        )  # fmt: skip
        self.model.fit(_tensor(X), _tensor(self.given.codes(y))[:, None])
        return self

    def predict(self, X: np.ndarray) -> np.ndarray:
        return self.given.answer(self.model.predict(_tensor(X))[:, 0].cpu().numpy())


def _tensor(a: np.ndarray) -> torch.Tensor:
    return torch.as_tensor(np.ascontiguousarray(a), dtype=torch.float32)

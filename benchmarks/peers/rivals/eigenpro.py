"""EigenPro 2: stochastic gradient descent on all rows as centres, preconditioned by leading eigenvectors."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator

import numpy as np
import torch

from rivals import Given, Setting


def sweep(given: Given) -> Iterator[Setting]:
    """Its own choice, the Laplacian kernel: on the Gaussian its eigensolver takes half a minute."""
    for epochs in (1, 3, 10, 30) if given.task == "regression" else (1, 2):
        yield Setting(f"Laplacian, {epochs} epochs", _Descent(given, epochs), tuned=True)


class _Descent:
    def __init__(self, given: Given, epochs: int, bandwidth: float = 3.0) -> None:
        from eigenpro2 import kernels, models

        # in units of the Gaussian's length-scales: a Laplacian wants longer ones
        self.kernel = lambda x, z: kernels.laplacian(x, z, bandwidth=bandwidth)
        self.models, self.given, self.epochs = models, given, epochs

    def fit(self, X: np.ndarray, y: np.ndarray) -> _Descent:
        rows, codes = self._rows(X), np.asarray(self.given.codes(y))
        target = torch.as_tensor(codes, dtype=torch.float32, device=rows.device)[:, None]
        with contextlib.redirect_stdout(io.StringIO()):
            self.model = self.models.KernelModel(self.kernel, rows, 1, device=rows.device)
            self.model.fit(rows, target, epochs=self.epochs, mem_gb=20, run_epoch_eval=False)
        return self

    def predict(self, X: np.ndarray) -> np.ndarray:
        pieces = [self.model.forward(rows)[:, 0] for rows in self._rows(X).split(5000)]
        return self.given.answer(torch.cat(pieces).cpu().numpy())

    def _rows(self, X: np.ndarray) -> torch.Tensor:
        scaled = np.ascontiguousarray(X) / self.given.length_scale
        return torch.as_tensor(scaled, dtype=torch.float32, device=self.given.device)

"""GPyTorch: SGPR (Titsias' bound) with 512 inducing points moved by Adam, and its exact GP where a GPU is at hand."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from rivals import Given, Setting


def sweep(given: Given) -> Iterator[Setting]:
    for steps in (10, 25, 50, 100):
        yield Setting(f"SGPR, 512 inducing points, {steps} steps", _Sparse(given, steps))


class _Sparse:
    def __init__(self, given: Given, steps: int, m: int = 512, rate: float = 0.1) -> None:
        import gpytorch

        self.g, self.given, self.steps, self.m, self.rate = gpytorch, given, steps, m, rate

    def fit(self, X: np.ndarray, y: np.ndarray) -> _Sparse:
        g, codes = self.g, y if self.given.task == "regression" else 2.0 * y - 1
        rows, target = self._tensor(X), self._tensor(codes)
        centres = rows[torch.randperm(len(rows), generator=torch.Generator().manual_seed(self.given.seed))[: self.m]]
        likelihood = g.likelihoods.GaussianLikelihood().to(rows.device)

        class Model(g.models.ExactGP):
            def __init__(model) -> None:
                super().__init__(rows, target, likelihood)
                model.mean = g.means.ConstantMean()
                base = g.kernels.ScaleKernel(g.kernels.RBFKernel(ard_num_dims=rows.shape[1]))
                model.kernel = g.kernels.InducingPointKernel(base, centres.clone(), likelihood)

            def forward(model, x: torch.Tensor):
                return g.distributions.MultivariateNormal(model.mean(x), model.kernel(x))

        self.model = Model().to(rows.device)
        bound = g.mlls.ExactMarginalLogLikelihood(likelihood, self.model)
        optimiser = torch.optim.Adam(self.model.parameters(), lr=self.rate)
        for _ in range(self.steps):
            optimiser.zero_grad()
            (-bound(self.model(rows), target)).backward()
            optimiser.step()
        self.model.eval()
        return self

    def predict(self, X: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            f = torch.cat([self.model(part).mean for part in self._tensor(X).split(20_000)]).cpu().numpy()
        return f if self.given.task == "regression" else (f > 0).astype(int)

    def _tensor(self, a: np.ndarray) -> torch.Tensor:
        return torch.as_tensor(np.ascontiguousarray(a), dtype=torch.float32, device=self.given.device)

"""GPyTorch's sparse GP regression (Titsias' bound): 512 inducing points from random rows, moved by Adam (step 0.1)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch

from rivals import Given, Setting

Predict = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]


def sgpr(
    X: np.ndarray, y: np.ndarray, steps: Sequence[int], m: int = 512, seed: int = 0, device: str = "cpu"
) -> Iterator[tuple[int, float, Predict]]:
    """After each of `steps`: steps, seconds of training, and what gives means and standard deviations."""
    import gpytorch as g

    torch.manual_seed(seed)
    as_tensor = lambda a: torch.as_tensor(np.ascontiguousarray(a), dtype=torch.float32, device=device)  # noqa: E731
    rows, target, likelihood = as_tensor(X), as_tensor(y), g.likelihoods.GaussianLikelihood().to(device)

    class Model(g.models.ExactGP):
        def __init__(self) -> None:
            super().__init__(rows, target, likelihood)
            base = g.kernels.ScaleKernel(g.kernels.RBFKernel(ard_num_dims=rows.shape[1]))
            start = rows[torch.randperm(len(rows))[:m]].clone()
            self.mean, self.kernel = g.means.ConstantMean(), g.kernels.InducingPointKernel(base, start, likelihood)

        def forward(self, x: torch.Tensor):
            return g.distributions.MultivariateNormal(self.mean(x), self.kernel(x))

    model = Model().to(device)
    bound, adam = g.mlls.ExactMarginalLogLikelihood(likelihood, model), torch.optim.Adam(model.parameters(), lr=0.1)

    def predict(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        model.eval(), likelihood.eval()
        with torch.no_grad():
            found = [likelihood(model(part)) for part in as_tensor(rows).split(20_000)]
        return tuple(torch.cat(parts).cpu().numpy() for parts in zip(*((f.mean, f.stddev) for f in found), strict=True))

    seconds = 0.0
    for step in range(1, max(steps) + 1):
        began = time.perf_counter()
        model.train(), likelihood.train(), adam.zero_grad()
        (-bound(model(rows), target)).backward()
        adam.step()
        seconds += time.perf_counter() - began
        if step in steps:
            yield step, seconds, predict


class _Sparse:
    def __init__(self, given: Given, steps: int) -> None:
        self.given, self.steps = given, steps

    def fit(self, X: np.ndarray, y: np.ndarray) -> _Sparse:
        codes = y if self.given.task == "regression" else 2.0 * y - 1
        found = sgpr(X, codes, [self.steps], seed=self.given.seed, device=self.given.device)
        self.means = next(found)[2]
        return self

    def predict(self, X: np.ndarray) -> np.ndarray:
        f = self.means(X)[0]
        return f if self.given.task == "regression" else (f > 0).astype(int)


def sweep(given: Given) -> Iterator[Setting]:
    for steps in (10, 25, 50, 100):
        yield Setting(f"SGPR, 512 inducing points, {steps} steps", _Sparse(given, steps))

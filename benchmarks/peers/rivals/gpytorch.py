"""GPyTorch's sparse GP regression (Titsias' bound): 512 inducing points from random rows, moved by Adam (step 0.1).

`svgp` is its stochastic variational model as in its documentation: natural gradients (step 0.1) for the variational
distribution, Adam (step 0.01) for the rest, batches of 1024 rows.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np
import torch

from rivals import Given, Setting


def wait(device: str) -> None:
    """Until a GPU has done what it was asked: its calls return before."""
    if device != "cpu":
        torch.cuda.synchronize()


def sgpr(X, y, steps: list[int], m: int = 512, seed: int = 0, device: str = "cpu") -> Iterator[tuple]:
    """After each of `steps`: steps, seconds of training, and what gives means and standard deviations."""
    import gpytorch as g

    torch.manual_seed(seed)
    rows, target = (torch.as_tensor(np.ascontiguousarray(a), dtype=torch.float32, device=device) for a in (X, y))
    likelihood = g.likelihoods.GaussianLikelihood().to(device)
    base = g.kernels.ScaleKernel(g.kernels.RBFKernel(ard_num_dims=rows.shape[1]))
    model = g.models.ExactGP(rows, target, likelihood)
    start = rows[torch.randperm(len(rows))[:m]].clone()
    model.mean, model.kernel = g.means.ConstantMean(), g.kernels.InducingPointKernel(base, start, likelihood)
    model.forward = lambda x: g.distributions.MultivariateNormal(model.mean(x), model.kernel(x))
    model.to(device)
    bound, adam = g.mlls.ExactMarginalLogLikelihood(likelihood, model), torch.optim.Adam(model.parameters(), lr=0.1)

    def predict(X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        model.eval(), likelihood.eval()
        with torch.no_grad():
            found = [likelihood(model(part)) for part in torch.as_tensor(X).to(rows).split(20_000)]
        return tuple(torch.cat(parts).cpu().numpy() for parts in zip(*((f.mean, f.stddev) for f in found), strict=True))

    seconds, clock = 0.0, time.process_time if device == "cpu" else time.perf_counter
    for step in range(1, max(steps) + 1):
        began = clock()
        model.train(), likelihood.train(), adam.zero_grad()
        (-bound(model(rows), target)).backward()
        adam.step()
        wait(device)
        seconds += clock() - began
        if step in steps:
            yield step, seconds, predict


def svgp(
    X, y, steps: list[int], m: int = 512, seed: int = 0, batch: int = 1024, device: str = "cpu"
) -> Iterator[tuple]:
    """After each of `steps` on batches: steps, seconds of training, and what gives means and deviations."""
    import gpytorch as g

    torch.manual_seed(seed)
    rows, target = (torch.as_tensor(np.ascontiguousarray(a), dtype=torch.float32, device=device) for a in (X, y))
    start = rows[torch.randperm(len(rows))[:m]].clone()

    class Model(g.models.ApproximateGP):
        def __init__(self) -> None:
            q = g.variational.NaturalVariationalDistribution(m)
            super().__init__(g.variational.VariationalStrategy(self, start, q, learn_inducing_locations=True))
            self.mean = g.means.ConstantMean()
            self.kernel = g.kernels.ScaleKernel(g.kernels.RBFKernel(ard_num_dims=rows.shape[1]))

        def forward(self, x):
            return g.distributions.MultivariateNormal(self.mean(x), self.kernel(x))

    model, likelihood = Model().to(device), g.likelihoods.GaussianLikelihood().to(device)
    bound = g.mlls.VariationalELBO(likelihood, model, num_data=len(rows))
    natural = g.optim.NGD(model.variational_parameters(), num_data=len(rows), lr=0.1)
    adam = torch.optim.Adam([*model.hyperparameters(), *likelihood.parameters()], lr=0.01)

    def predict(X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        model.eval(), likelihood.eval()
        with torch.no_grad():
            found = [likelihood(model(part)) for part in torch.as_tensor(X).to(rows).split(5000)]
        return tuple(torch.cat(parts).cpu().numpy() for parts in zip(*((f.mean, f.stddev) for f in found), strict=True))

    seconds, clock = 0.0, time.process_time if device == "cpu" else time.perf_counter
    for step in range(1, max(steps) + 1):
        began = clock()
        model.train(), likelihood.train(), natural.zero_grad(), adam.zero_grad()
        part = torch.randperm(len(rows), device=device)[:batch]
        (-bound(model(rows[part]), target[part])).backward()
        natural.step(), adam.step()
        wait(device)
        seconds += clock() - began
        if step in steps:
            yield step, seconds, predict


class _Sparse:
    def __init__(self, given: Given, steps: int) -> None:
        self.given, self.steps = given, steps

    def fit(self, X: np.ndarray, y: np.ndarray) -> _Sparse:
        given = self.given
        self.means = next(sgpr(X, given.codes(y), [self.steps], seed=given.seed, device=given.device))[2]
        return self

    def predict(self, X: np.ndarray) -> np.ndarray:
        return self.given.answer(self.means(X)[0])


def sweep(given: Given) -> Iterator[Setting]:
    for steps in (10, 25, 50, 100):
        yield Setting(f"SGPR, 512 inducing points, {steps} steps", _Sparse(given, steps))

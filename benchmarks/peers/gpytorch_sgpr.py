"""GPyTorch's sparse Gaussian process regression (Titsias' bound) by Adam, watched after some numbers of steps.

The rival's own choices: random training rows as inducing inputs, all parameters by Adam with a step of 0.1.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import numpy as np


def available() -> bool:
    try:
        import gpytorch  # noqa: F401
    except ImportError:
        return False
    return True


def sgpr(
    X: np.ndarray, y: np.ndarray, X_test: np.ndarray, n_inducing: int = 512, steps: Sequence[int] = (25, 50, 100),
    seed: int = 0, device: str = "cpu", kernel: str = "gaussian",
) -> Iterator[tuple[int, float, np.ndarray, np.ndarray]]:  # fmt: skip
    """After each of `steps`: steps, seconds of training, means and standard deviations at `X_test`."""
    import gpytorch
    import torch

    torch.manual_seed(seed)
    train_x, train_y, test_x = (torch.as_tensor(a, dtype=torch.float32, device=device) for a in (X, y, X_test))
    likelihood = gpytorch.likelihoods.GaussianLikelihood().to(device)

    class Model(gpytorch.models.ExactGP):
        def __init__(self) -> None:
            super().__init__(train_x, train_y, likelihood)
            D, ard = X.shape[1], {"ard_num_dims": X.shape[1]}
            base = (
                gpytorch.kernels.RBFKernel(**ard) if kernel == "gaussian" else gpytorch.kernels.MaternKernel(1.5, **ard)
            )
            scaled = gpytorch.kernels.ScaleKernel(base)
            start = train_x[torch.randperm(len(train_x))[:n_inducing]].clone().reshape(n_inducing, D)
            self.mean_module = gpytorch.means.ConstantMean()
            self.covar_module = gpytorch.kernels.InducingPointKernel(scaled, start, likelihood)

        def forward(self, x):
            return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))

    model = Model().to(device)
    objective = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    seconds = 0.0
    for step in range(1, max(steps) + 1):
        began = time.perf_counter()
        model.train(), likelihood.train(), optimizer.zero_grad()
        (-objective(model(train_x), train_y)).backward()
        optimizer.step()
        seconds += time.perf_counter() - began
        if step in steps:
            model.eval(), likelihood.eval()
            with torch.no_grad():
                found = likelihood(model(test_x))
                yield step, seconds, found.mean.cpu().numpy(), found.stddev.cpu().numpy()

"""Simulation functions: the fit without arguments beside Gaussian processes.

    python benchmarks/peers/simulations.py --part develop [--rows 100 300 1000] [--noise 0 0.01 0.1] [--out s.json]

Inputs are uniform in the box that is usual for each function, targets have noise of 0, 1 or 10 % of their standard
deviation, and the error is the variance not explained of the noise-free function at 2000 further points. `DEVELOP`
names the functions that may be looked at to improve the defaults, `JUDGE` those that are looked at only as a whole.

Rivals: scikit-learn's `GaussianProcessRegressor` (Gaussian and Matérn 5/2, one length-scale per input, constant and
white noise, up to 1000 rows), GPyTorch's exact GP and SMT's kriging where they are installed (up to 1000 rows), and the
package's own named kernels. Printed are our error over that of the best rival, which the test points choose, and CPU
seconds. Results of rivals are kept in `--out`, so that another run costs our own fits only; `--methods` runs some of
them alone.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

#: Test points, and the rows up to which rivals of cubic cost run.
TEST, MOST_ROWS = 2000, 1000
#: Errors below this share of the variance count as equal: the last digits of float64.
LEAST = 1e-14


@dataclass(frozen=True)
class Simulation:
    """A function on a box: the lower and upper end of each input."""

    value: Callable[[np.ndarray], np.ndarray]
    box: tuple[tuple[float, float], ...]

    def draw(self, n: int, noise: float, seed: int) -> tuple[np.ndarray, ...]:
        """Inputs and targets of n rows, and inputs and noise-free values of the test points."""
        rng = np.random.default_rng([seed, n])
        low, high = np.array(self.box).T
        X, X_test = (low + (high - low) * rng.random((size, len(low))) for size in (n, TEST))
        truth = self.value(X_test)
        return X, self.value(X) + noise * truth.std() * rng.standard_normal(n), X_test, truth


def friedman1(x: np.ndarray) -> np.ndarray:
    return 10 * np.sin(np.pi * x[:, 0] * x[:, 1]) + 20 * (x[:, 2] - 0.5) ** 2 + 10 * x[:, 3] + 5 * x[:, 4]


def friedman2(x: np.ndarray) -> np.ndarray:
    a, b, c, d = x.T
    return np.sqrt(a**2 + (b * c - 1 / (b * d)) ** 2)


def friedman3(x: np.ndarray) -> np.ndarray:
    a, b, c, d = x.T
    return np.arctan((b * c - 1 / (b * d)) / a)


def borehole(x: np.ndarray) -> np.ndarray:
    rw, r, Tu, Hu, Tl, Hl, L, Kw = x.T
    log_ratio = np.log(r / rw)
    return 2 * np.pi * Tu * (Hu - Hl) / (log_ratio * (1 + 2 * L * Tu / (log_ratio * rw**2 * Kw) + Tu / Tl))


def piston(x: np.ndarray) -> np.ndarray:
    M, S, V, k, P, Ta, T = x.T
    A = P * S + 19.62 * M - k * V / S
    volume = S / (2 * k) * (np.sqrt(A**2 + 4 * k * P * V * Ta / T) - A)
    return 2 * np.pi * np.sqrt(M / (k + S**2 * P * V * Ta / (T * volume**2)))


def wing_weight(x: np.ndarray) -> np.ndarray:
    Sw, Wf, A, sweep, q, taper, tc, Nz, Wd, Wp = x.T
    cosine = np.cos(np.deg2rad(sweep))
    weight = 0.036 * Sw**0.758 * Wf**0.0035 * (A / cosine**2) ** 0.6 * q**0.006 * taper**0.04
    return weight * (100 * tc / cosine) ** -0.3 * (Nz * Wd) ** 0.49 + Sw * Wp


def otl_circuit(x: np.ndarray) -> np.ndarray:
    Rb1, Rb2, Rf, Rc1, Rc2, beta = x.T
    Vb, B = 12 * Rb2 / (Rb1 + Rb2), beta * (Rc2 + 9)
    return ((Vb + 0.74) * B + 11.35 * Rf + 0.74 * Rf * B / Rc1) / (B + Rf)


def robot_arm(x: np.ndarray) -> np.ndarray:
    angle, length = np.cumsum(x[:, :4], 1), x[:, 4:]
    return np.hypot((length * np.cos(angle)).sum(1), (length * np.sin(angle)).sum(1))


def ackley(x: np.ndarray) -> np.ndarray:
    root, cosine = np.sqrt((x**2).mean(1)), np.cos(2 * np.pi * x).mean(1)
    return 20 * (1 - np.exp(-0.2 * root)) + np.e - np.exp(cosine)


def sobol_g(x: np.ndarray) -> np.ndarray:
    a = np.array([0.0, 1.0, 4.5, 9.0, 99.0, 99.0])
    return np.prod((np.abs(4 * x - 2) + a) / (1 + a), axis=1)


def morris(x: np.ndarray) -> np.ndarray:
    """Morris (1991) with coefficients (−1)^i and (−1)^(i+j) for the inputs of no given ones."""
    w = 2 * (x - 0.5)
    for i in (2, 4, 6):
        w[:, i] = 2 * (1.1 * x[:, i] / (x[:, i] + 0.1) - 0.5)
    index = np.arange(1, 21)
    first = np.where(index <= 10, 20.0, (-1.0) ** index)
    second = np.triu((-1.0) ** (index[:, None] + index), 1)
    second[:6, :6] = np.triu(np.full((6, 6), -15.0), 1)
    y = w @ first + np.einsum("ni,ij,nj->n", w, second, w)
    for i in range(5):
        for j in range(i + 1, 5):
            y += -10 * w[:, i] * w[:, j] * w[:, j + 1 : 5].sum(1)
    return y + 5 * w[:, :4].prod(1)


def ishigami(x: np.ndarray) -> np.ndarray:
    return np.sin(x[:, 0]) + 7 * np.sin(x[:, 1]) ** 2 + 0.1 * x[:, 2] ** 4 * np.sin(x[:, 0])


def environmental(x: np.ndarray) -> np.ndarray:
    """Concentration of a pollutant after two spills (Bliznyuk et al. 2008) at place 1.5 and time 40."""
    M, D, L, tau = x.T
    s, t = 1.5, 40.0
    first = M / np.sqrt(D * t) * np.exp(-(s**2) / (4 * D * t))
    return first + M / np.sqrt(D * (t - tau)) * np.exp(-((s - L) ** 2) / (4 * D * (t - tau)))


UNIT = ((0.0, 1.0),)
FRIEDMAN = ((0.0, 100.0), (40 * np.pi, 560 * np.pi), (0.0, 1.0), (1.0, 11.0))
BOREHOLE = (
    (0.05, 0.15), (100, 50_000), (63_070, 115_600), (990, 1110), (63.1, 116), (700, 820), (1120, 1680), (9855, 12_045),
)  # fmt: skip
PISTON = ((30, 60), (0.005, 0.02), (0.002, 0.01), (1000, 5000), (90_000, 110_000), (290, 296), (340, 360))
WING = (
    (150, 200), (220, 300), (6, 10), (-10, 10), (16, 45), (0.5, 1), (0.08, 0.18), (2.5, 6), (1700, 2500),
    (0.025, 0.08),
)  # fmt: skip
OTL = ((50, 150), (25, 70), (0.5, 3), (1.2, 2.5), (0.25, 1.2), (50, 300))
SPILL = ((7, 13), (0.02, 0.12), (0.01, 3), (30.01, 30.295))

#: Functions that may be looked at: those that showed the faults of earlier defaults, and two more.
DEVELOP = {
    "friedman1": Simulation(friedman1, UNIT * 10),
    "otl_circuit": Simulation(otl_circuit, OTL),
    "borehole": Simulation(borehole, BOREHOLE),
    "piston": Simulation(piston, PISTON),
    "ackley": Simulation(ackley, ((-2.0, 2.0),) * 4),
    "ishigami": Simulation(ishigami, ((-np.pi, np.pi),) * 3),
}
#: Functions that judge.
JUDGE = {
    "wing_weight": Simulation(wing_weight, WING),
    "robot_arm": Simulation(robot_arm, ((0.0, 2 * np.pi),) * 4 + UNIT * 4),
    "friedman2": Simulation(friedman2, FRIEDMAN),
    "friedman3": Simulation(friedman3, FRIEDMAN),
    "sobol_g": Simulation(sobol_g, UNIT * 6),
    "morris": Simulation(morris, UNIT * 20),
    "environmental": Simulation(environmental, SPILL),
}
PARTS = {"develop": DEVELOP, "judge": JUDGE}


def ours(kernel: str, seed: int = 0) -> Any:
    from mercer import KernelBoostingRegressor

    return KernelBoostingRegressor(kernel=kernel, random_state=seed)


class Standardised:
    """A rival that gets inputs and targets of mean zero and variance one."""

    def __init__(self, rival: Any) -> None:
        self.rival = rival

    def fit(self, X: np.ndarray, y: np.ndarray) -> Standardised:
        self.mean, self.spread = X.mean(0), X.std(0)
        self.y_mean, self.y_spread = y.mean(), y.std()
        self.rival.fit((X - self.mean) / self.spread, (y - self.y_mean) / self.y_spread)
        return self

    def predict(self, X: np.ndarray) -> np.ndarray:
        return self.y_mean + self.y_spread * np.ravel(self.rival.predict((X - self.mean) / self.spread))


def sklearn_gp(smoothness: str) -> Any:
    """`GaussianProcessRegressor` with bounds that suit targets without noise."""
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern, WhiteKernel

    class OnInputs:
        """The length-scales' number is known with the inputs."""

        def fit(self, X: np.ndarray, y: np.ndarray) -> None:
            lengths, bounds = np.full(X.shape[1], 2.0), (1e-2, 1e3)
            radial = RBF(lengths, bounds) if smoothness == "gaussian" else Matern(lengths, bounds, nu=2.5)
            kernel = ConstantKernel(1.0, (1e-3, 1e6)) * radial + WhiteKernel(1e-2, (1e-12, 10.0))
            self.model = GaussianProcessRegressor(kernel, alpha=1e-12).fit(X, y)

        def predict(self, X: np.ndarray) -> np.ndarray:
            return self.model.predict(X)

    return Standardised(OnInputs())


class ExactGPyTorch:
    """GPyTorch's exact GP with a Gaussian kernel, in float64, by 200 steps of Adam."""

    def fit(self, X: np.ndarray, y: np.ndarray) -> None:
        import gpytorch
        import torch

        inputs, targets = torch.as_tensor(X), torch.as_tensor(y)
        likelihood = gpytorch.likelihoods.GaussianLikelihood(
            noise_constraint=gpytorch.constraints.GreaterThan(1e-8)
        ).double()

        class Process(gpytorch.models.ExactGP):
            def __init__(self) -> None:
                super().__init__(inputs, targets, likelihood)
                self.mean = gpytorch.means.ConstantMean()
                radial = gpytorch.kernels.RBFKernel(ard_num_dims=X.shape[1])
                self.covariance = gpytorch.kernels.ScaleKernel(radial)

            def forward(self, x: torch.Tensor) -> Any:
                return gpytorch.distributions.MultivariateNormal(self.mean(x), self.covariance(x))

        model = Process().double().train()
        likelihood.train()
        evidence = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
        optimiser = torch.optim.Adam(model.parameters(), lr=0.1)
        for _ in range(200):
            optimiser.zero_grad()
            loss = -evidence(model(inputs), targets)
            loss.backward()
            optimiser.step()
        self.model = model.eval()

    def predict(self, X: np.ndarray) -> np.ndarray:
        import torch

        with torch.no_grad():
            return self.model(torch.as_tensor(X)).mean.numpy()


class Kriging:
    """SMT's kriging with its defaults, and noise estimated where there may be any."""

    def fit(self, X: np.ndarray, y: np.ndarray) -> None:
        from smt.surrogate_models import KRG

        self.model = KRG(theta0=[1e-2] * X.shape[1], eval_noise=True, noise0=[1e-6], print_global=False)
        self.model.set_training_values(X, y[:, None])
        self.model.train()

    def predict(self, X: np.ndarray) -> np.ndarray:
        return self.model.predict_values(X)


RIVALS: dict[str, Callable[[], Any]] = {
    "sklearn gaussian": lambda: sklearn_gp("gaussian"),
    "sklearn matern52": lambda: sklearn_gp("matern52"),
    "gpytorch": lambda: Standardised(ExactGPyTorch()),
    "smt": lambda: Standardised(Kriging()),
    "gaussian": lambda: ours("gaussian"),
    "matern52": lambda: ours("matern52"),
    "matern32": lambda: ours("matern32"),
}
#: Rivals that run on few rows only.
CUBIC = ("sklearn gaussian", "sklearn matern52", "gpytorch", "smt")


def measure(model: Any, X: np.ndarray, y: np.ndarray, X_test: np.ndarray, truth: np.ndarray) -> dict[str, Any]:
    """The variance not explained and the CPU seconds of a fit; a fault is a result."""
    began = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            model.fit(X, y)
            seconds = time.process_time() - began
            error = float(np.mean((np.ravel(model.predict(X_test)) - truth) ** 2) / truth.var())
        except ImportError:
            return {}
        except Exception as problem:
            return {"fault": f"{type(problem).__name__}: {problem}"[:200]}
    return {"error": error, "seconds": seconds}


def ratio(ours: dict[str, Any], rivals: dict[str, dict[str, Any]]) -> tuple[float, str]:
    """Our error over that of the best rival, and its name."""
    errors = {name: found["error"] for name, found in rivals.items() if "error" in found}
    if "error" not in ours or not errors:
        return float("nan"), "nothing"
    best = min(errors, key=lambda name: errors[name])
    return (ours["error"] + LEAST) / (errors[best] + LEAST), best


def report(ratios: dict[str, float]) -> None:
    """Geometric mean and maximum of the ratios."""
    known = {case: value for case, value in ratios.items() if np.isfinite(value)}
    if known:
        worst = max(known, key=lambda case: known[case])
        mean = np.exp(np.mean(np.log(list(known.values()))))
        above = sum(value > 2 for value in known.values())
        print(f"{len(known)} cases: geometric mean {mean:.3f}, largest {known[worst]:.2f} ({worst}), above 2: {above}")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--part", choices=list(PARTS), default="develop")
    options.add_argument("--functions", nargs="+", default=None)
    options.add_argument("--rows", type=int, nargs="+", default=[100, 300, 1000])
    options.add_argument("--noise", type=float, nargs="+", default=[0.0, 0.01, 0.1])
    options.add_argument("--seeds", type=int, default=1)
    options.add_argument("--methods", nargs="*", choices=list(RIVALS), default=list(RIVALS))
    options.add_argument("--without-ours", action="store_true", help="run rivals only")
    options.add_argument("--out", type=Path, default=None, help="keep the rivals' results here")
    given = options.parse_args()
    kept: dict[str, dict[str, Any]] = {}
    if given.out is not None and given.out.exists():
        kept = json.loads(given.out.read_text())
    functions, ratios = PARTS[given.part], {}
    cases = [
        (name, n, noise, seed)
        for n in given.rows
        for noise in given.noise
        for name in given.functions or functions
        for seed in range(given.seeds)
    ]
    for name, n, noise, seed in cases:
        case = f"{name} n={n} noise={noise:g} seed={seed}"
        table = functions[name].draw(n, noise, seed)
        known = kept.setdefault(case, {})
        missing = [m for m in given.methods if m not in known and (n <= MOST_ROWS or m not in CUBIC)]
        for method in missing:
            known[method] = measure(RIVALS[method](), *table)
        if given.out is not None and missing:
            given.out.write_text(json.dumps(kept, indent=1))
        if given.without_ours:
            continue
        found = measure(ours("auto"), *table)
        ratios[case], best = ratio(found, known)
        line = f"{case:44s} ratio {ratios[case]:8.3f}  error {found.get('error', np.nan):.2e}"
        line += f" in {found.get('seconds', np.nan):5.1f} s, {best} {known.get(best, {}).get('error', np.nan):.2e}"
        print(line + f" in {known.get(best, {}).get('seconds', np.nan):.1f} s {found.get('fault', '')}", flush=True)
    report(ratios)


if __name__ == "__main__":
    main()

"""The paper's three methods and two stopping rules, in this package's words.

| paper | here |
|---|---|
| thin incremental QR | `update="qr", penalty="gram"` |
| MRX | `update="mrx", exchange=True, penalty="gram"`, `recompute=True` (section 4.1) |
| ORMP | criterion `ormp` on the columns of K + σ²I |
| QR + MDL, QR + AIC | `update="qr", stopping="mdl"` or `"aic"`, no regularisation |

No intercept is `fit_intercept=False`; the paper's stop at the first dependent column is `Dependence(min_novelty, 1)`.
exp(-d²/c) is `Gaussian(length_scale=sqrt(c / 2))`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from papers.greedy02.protocol import PATIENCE, Setting, Split

from mercer import GreedyKernelRegressor
from mercer.forward.criteria import OrderRecursive
from mercer.forward.stopping import AkaikeInformation, Dependence, MinimumDescriptionLength
from mercer.kernels import Gaussian


def gaussian(c: float) -> Gaussian:
    return Gaussian((c / 2) ** 0.5)


def greedy(n_basis: int, c: float, noise: float = 0.0, **options: Any) -> GreedyKernelRegressor:
    """A model of ours as the paper has it: fixed kernel, no scaling, σ² = `noise` on the Gram matrix."""
    fixed = {
        "kernel": gaussian(c),
        "regularization": noise,
        "penalty": "gram",
        "scale_inputs": False,
        "fit_intercept": False,
    }
    return GreedyKernelRegressor(
        n_basis, **fixed | {"update": "qr", "dtype": "float64", "random_state": 0, "device": "cpu"} | options
    )


# Tables 1 to 3: one method at several sizes


@dataclass(frozen=True)
class Path:
    """Normalised residuals after every step, and those and test predictions of the models of the sizes asked for."""

    residuals: np.ndarray
    final_residuals: list[float]
    predictions: list[np.ndarray]


def qr(split: Split, setting: Setting) -> Path:
    model = greedy(max(setting.sizes), setting.c, setting.noise).fit(split.X, split.y)
    residuals = model.history_["residual_norm"] / np.linalg.norm(split.y)
    sizes = [min(n, len(residuals)) for n in setting.sizes]
    return Path(residuals, [residuals[n - 1] for n in sizes], model.path_predict(split.X_test, sizes))


def mrx(split: Split, setting: Setting) -> Path:
    """Predictions with weights recomputed on the basis of each size; residuals as Algorithm 2 leaves them.

    The paper calls recomputing "a cheaper alternative" to a preconditioner and does not say that it did so. An exchange
    may move any member, hence a fit per size.
    """
    finals, predictions = [], []
    for n in setting.sizes:
        how = {"update": "mrx", "exchange": True, "recompute": True}
        model = greedy(n, setting.c, setting.noise, **how).fit(split.X, split.y)
        residuals = model.history_["residual_norm"] / np.linalg.norm(split.y)
        final, _ = _least_squares(split, setting, model.basis_indices_)
        finals.append(final)
        predictions.append(model.predict(split.X_test))
    return Path(residuals, finals, predictions)


def ormp(split: Split, setting: Setting) -> Path:
    """The criterion on the Gram matrix held whole, which is how the paper ran it."""
    K = gram(split.X, split.X, setting.c)
    K.diagonal().add_(setting.noise)
    y = torch.as_tensor(split.y)[:, None]
    chosen = OrderRecursive().select(lambda *_: K.clone(), K, y, 0.0, max(setting.sizes), np.random.default_rng(0))
    Q = torch.linalg.qr(K[:, chosen])[0]
    captured = (Q.T @ y)[:, 0].square().cumsum(0)
    residuals = (1 - captured / y.square().sum()).clamp(min=0).sqrt().numpy()
    solved = [_least_squares(split, setting, chosen.numpy()[:n]) for n in setting.sizes]
    return Path(residuals, [final for final, _ in solved], [prediction for _, prediction in solved])


METHODS = {"mrx": mrx, "qr": qr, "ormp": ormp}


def gram(A: np.ndarray, B: np.ndarray, c: float) -> torch.Tensor:
    return gaussian(c)(torch.as_tensor(A), torch.as_tensor(B))


def _least_squares(split: Split, setting: Setting, basis: np.ndarray) -> tuple[float, np.ndarray]:
    """Normalised residual and test predictions of the best weights on these columns of K + σ²I."""
    K = gram(split.X, split.X[basis], setting.c).numpy()
    K[basis, np.arange(len(basis))] += setting.noise
    weights = np.linalg.lstsq(K, split.y, rcond=None)[0]
    residual = np.linalg.norm(split.y - K @ weights) / np.linalg.norm(split.y)
    return float(residual), gram(split.X_test, split.X[basis], setting.c).numpy() @ weights


def squared_errors(path: Path, split: Split) -> list[float]:
    return [float(np.mean((f - split.y_test) ** 2)) for f in path.predictions]


# Tables 4 to 6: QR stopped by MDL or AIC

RULES = {"mdl": MinimumDescriptionLength(PATIENCE), "aic": AkaikeInformation(PATIENCE)}


def stopped(split: Split, c: float, rule: str, n_basis: int = 400, **options: Any) -> GreedyKernelRegressor:
    """QR without regularisation, cut back to the first minimum of the rule that lasts.

    It ends at the first column that lies in the span of those before (section 4.2).
    """
    rules = [RULES[rule], Dependence(options.get("min_novelty", 1e-6), 1)]
    return greedy(min(n_basis, len(split.X) - 3), c, stopping=rules, **options).fit(split.X, split.y)


def percent_wrong(model: GreedyKernelRegressor, X: np.ndarray, y: np.ndarray) -> float:
    """Rows on the wrong side of zero; labels are ±1."""
    return 100 * float(np.mean(np.where(model.predict(X) > 0, 1.0, -1.0) != y))


def minima(split: Split, c: float, n_basis: int, patience: int | None) -> dict[str, tuple[int, np.ndarray]]:
    """The whole path, read where each rule has its minimum: vectors, and values at the test rows."""
    return read(grown(split, c, n_basis), split, patience)


def grown(split: Split, c: float, n_basis: int) -> GreedyKernelRegressor:
    """A path that ends at `n_basis` vectors or at the first dependent column."""
    return greedy(min(n_basis, len(split.X) - 3), c, stopping=Dependence(1e-6, 1)).fit(split.X, split.y)


def read(model: GreedyKernelRegressor, split: Split, patience: int | None) -> dict[str, tuple[int, np.ndarray]]:
    sizes = {rule: 1 + minimum(model.history_[rule], patience) for rule in ("mdl", "aic")}
    values = model.path_predict(split.X_test, list(sizes.values()))
    return {rule: (sizes[rule], f) for rule, f in zip(sizes, values, strict=True)}


def both_readings(split: Split, c: float, n_basis: int) -> dict[str, tuple[int, np.ndarray]]:
    """One path, read at the first minimum that lasts, and at the smallest value of all ("whole")."""
    model = grown(split, c, n_basis)
    whole = {f"whole {rule}": found for rule, found in read(model, split, None).items()}
    return read(model, split, PATIENCE) | whole


def minimum(curve: np.ndarray, patience: int | None) -> int:
    """Where a curve is smallest, or has the first minimum that lasts for `patience` steps."""
    best = 0
    for i, value in enumerate(curve):
        if value < curve[best]:
            best = i
        elif patience is not None and i - best >= patience:
            break
    return best


def wrong_side(values: np.ndarray, y: np.ndarray) -> int:
    return int(np.sum((values > 0) != (y > 0)))


def choose_widths(split: Split, widths: list[float], n_basis: int, n_folds: int = 5) -> dict[str, float]:
    """For each rule and reading the width of least error in five-fold cross-validation on training rows (section 6)."""
    fold = np.random.default_rng(0).permutation(len(split.X)) % n_folds
    wrong: dict[str, list[int]] = {}
    for c in widths:
        ins = [(fold != k, fold == k) for k in range(n_folds)]
        parts = [Split(split.X[a], split.y[a], split.X[b], split.y[b]) for a, b in ins]
        found = [(both_readings(part, c, n_basis), part.y_test) for part in parts]
        for key in found[0][0]:
            wrong.setdefault(key, []).append(sum(wrong_side(one[key][1], y) for one, y in found))
    return {key: widths[int(np.argmin(errors))] for key, errors in wrong.items()}


@dataclass(frozen=True)
class DigitPath:
    """One digit against the rest: where each rule has its minimum, and the wrong test rows there."""

    sizes: dict[str, int]
    wrong: dict[str, int]


def digit_width_errors(split: Split, widths: list[float], n_rows: int = 2000, n_basis: int = 150) -> list[float]:
    """Wrong rows of all ten digits by width, in five-fold cross-validation on some rows with smaller models (ours)."""
    rows = np.random.default_rng(0).permutation(len(split.X))[:n_rows]
    fold = np.arange(n_rows) % 5
    wrong = np.zeros(len(widths))
    for i, c in enumerate(widths):
        for k in range(5):
            a, b = rows[fold != k], rows[fold == k]
            part = Split(split.X[a], split.y[a], split.X[b], split.y[b])
            wrong[i] += sum(digit(part, which, c, n_basis).wrong["aic"] for which in range(10))
    return wrong.tolist()


def digit(split: Split, which: int, c: float, n_basis: int) -> DigitPath:
    """The whole path to `n_basis`, read at the minima of both rules (section 6.2)."""
    y, y_test = (np.where(labels == which, 1.0, -1.0) for labels in (split.y, split.y_test))
    found = minima(Split(split.X, y, split.X_test, y_test), c, n_basis, None)
    wrong = {rule: wrong_side(f, y_test) for rule, (_, f) in found.items()}
    return DigitPath({rule: size for rule, (size, _) in found.items()}, wrong)

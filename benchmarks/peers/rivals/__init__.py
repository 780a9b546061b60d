"""The rivals, one file each. A rival offers `default(task, seed, threads=, device=)`, a model as it comes, or
`sweep(given)`, several settings from quick to accurate; a model has `fit(X, y)` and `predict(X)`, and where its
defaults give probabilities `predict_proba(X)`. Packages that are missing raise ImportError
and are left out. Rows come standardised; targets standardised (regression) or integers from 0 (classes).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np

NAMES = (
    "ours",
    "lightgbm",
    "catboost",
    "histgb",
    "svm",
    "xrfm",
    "nystroem",
    "falkon",
    "eigenpro",
    "gpytorch",
    "torchkm",
)


@dataclass(frozen=True)
class Given:
    """What a sweep may use: the task and, for kernel methods, one Gaussian kernel tuned for all of them."""

    task: str
    seed: int
    device: str
    length_scale: np.ndarray
    variance: float
    noise: float

    @property
    def penalty(self) -> float:
        """λ of kernel ridge with a kernel of unit variance."""
        return max(self.noise / self.variance, 1e-7)

    def codes(self, y: np.ndarray) -> np.ndarray:
        """Targets for a method that regresses: ±1 for two classes."""
        return y if self.task == "regression" else 2.0 * y - 1

    def answer(self, f: np.ndarray) -> np.ndarray:
        """What such a method predicts from its values."""
        return f if self.task == "regression" else (f > 0).astype(int)


@dataclass(frozen=True)
class Setting:
    """A labelled model; `tuned` says that the shared kernel's tuning time counts as its own."""

    label: str
    model: Any
    tuned: bool = False


class OverLengths:
    """A model whose inputs are divided by the tuned length-scales: with γ = ½ its kernel is the shared one."""

    def __init__(self, model: Any, given: Given, n_rows: int | None = None) -> None:
        self.model, self.length, self.n_rows = model, given.length_scale, n_rows

    def fit(self, X: np.ndarray, y: np.ndarray) -> OverLengths:
        self.model.fit(X[: self.n_rows] / self.length, y[: self.n_rows])
        return self

    def predict(self, X: np.ndarray) -> np.ndarray:
        return self.model.predict(X / self.length)


def rival(name: str) -> Any:
    return import_module(f"rivals.{name}")


def settings(name: str, given: Given) -> Iterable[Setting]:
    """The rival's sweep; nothing where it has none."""
    found = rival(name)
    return found.sweep(given) if hasattr(found, "sweep") else ()

"""This package: boosting with its own tuning, from quick to accurate."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from mercer import KernelBoostingClassifier, KernelBoostingRegressor, tune_kernel
from mercer.kernels import Gaussian
from rivals import Given, Setting


def default(task: str, seed: int, *, threads: int | None = None, device: str = "auto") -> Any:
    kind = KernelBoostingRegressor if task == "regression" else KernelBoostingClassifier
    return kind(random_state=seed, device=device)


#: Tuning rows, learners and their size: what a budget of less than a second to minutes is best spent on.
REGRESSION = [
    (200, 2, 400), (400, 4, 500), (600, 6, 500), (1000, 8, 500), (1000, 16, 800), (2000, 20, 800),
]  # fmt: skip
#: Learners and their size where not even tuning fits: length-scales of half the typical distance.
UNTUNED = [(1, 200), (1, 400), (1, 800), (2, 800)]
#: Learners and their size with Falkon's own kernel and penalty, for its errors with 5000 and with 10 000 centres.
BESIDE_FALKON = [(5, 540), (8, 500)]
#: Tuning rows, learners in the search for a factor on the length-scales, learners of 1000 vectors in the fit.
CLASSIFICATION = [(1500, 0, 5), (2000, 0, 20), (2000, 0, 60), (4000, 60, 140), (4000, 100, 300)]
FACTORS = (0.35, 0.25, 0.18, 0.13)


def sweep(given: Given) -> Iterator[Setting]:
    if given.task == "regression":
        if given.device == "cuda":
            for rows in (500, 1000, 2000, 4000):  # every row is a basis vector
                model = KernelBoostingRegressor(kernel="matern32", tuning_rows=rows, random_state=given.seed)
                yield Setting(f"exact, {rows} tuning rows", model)
        for learners, size in UNTUNED:
            fixed = {"kernel": Gaussian((len(given.length_scale) / 2) ** 0.5), "regularization": 1e-2}
            model = KernelBoostingRegressor(learners, learner_size=size, polish=learners > 1, random_state=0, **fixed)
            yield Setting(f"{learners} × {size}, not tuned", model)
        for learners, size in (
            ((5, 540), (8, 500)) if given.device == "cpu" else ()
        ):  # beside Falkon: its kernel and penalty
            shared = {"kernel": Gaussian(given.length_scale.tolist()), "regularization": given.penalty}
            shared |= {"learner_size": size, "subset_size": 5 * size, "polish": True, "random_state": given.seed}
            yield Setting(
                f"{learners} × {size}, shared kernel", KernelBoostingRegressor(learners, **shared), tuned=True
            )
        for rows, learners, size in REGRESSION:
            options = {"kernel": "gaussian", "tuning_rows": rows, "random_state": given.seed}
            model = KernelBoostingRegressor(learners, learner_size=size, polish=True, **options)
            yield Setting(f"{learners} × {size}, tuned on {rows} rows", model)
        return
    for rows, search, learners in CLASSIFICATION:
        yield Setting(f"{learners} × 1000, {rows} tuning rows", _Sharpened(rows, search, learners, given.seed))


class _Sharpened:
    """Length-scales by evidence on few rows are too long for many: one factor on all, by the error on held-out rows."""

    def __init__(self, rows: int, search: int, learners: int, seed: int) -> None:
        self.rows, self.search, self.learners, self.seed = rows, search, learners, seed

    def fit(self, X: np.ndarray, y: np.ndarray) -> _Sharpened:
        options = {"ard": True, "n_rows": self.rows, "max_iter": 60, "random_state": self.seed}
        lengths = tune_kernel(X, 2.0 * y - 1, "matern32", **options).kernel.tunable()["left__kernel__length_scale"]
        self.kernels = {f: Gaussian((np.minimum(lengths, 50.0) * f).tolist()) for f in FACTORS}
        held = len(X) // 20
        score = lambda f: self._model(f, self.search).fit(X[held:], y[held:]).score(X[:held], y[:held])  # noqa: E731
        self.model = self._model(max(FACTORS, key=score) if self.search else 0.18, self.learners).fit(X, y)
        return self

    def _model(self, factor: float, learners: int) -> KernelBoostingClassifier:
        return KernelBoostingClassifier(
            learners, learner_size=1000, subset_size=20_000, focus="hinge", polish=False, scale_inputs=False,
            kernel=self.kernels[factor], regularization=1e-2, dtype="float32", random_state=self.seed,
        )  # fmt: skip

    def predict(self, X: np.ndarray) -> np.ndarray:
        return self.model.predict(X)

"""scikit-learn: Nystroem features and ridge regression, exact kernel ridge on a subset."""

from __future__ import annotations

from collections.abc import Iterator

from sklearn.kernel_approximation import Nystroem
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline

from rivals import Given, OverLengths, Setting


def sweep(given: Given) -> Iterator[Setting]:
    if given.task == "regression":
        for m in (300, 1000, 3000):
            features = Nystroem(gamma=0.5, n_components=m, random_state=given.seed)
            yield Setting(
                f"Nystroem({m}) + Ridge", OverLengths(make_pipeline(features, Ridge(given.penalty)), given), tuned=True
            )
        for n in (2000, 6000):
            model = OverLengths(KernelRidge(given.penalty, kernel="rbf", gamma=0.5), given, n)
            yield Setting(f"KernelRidge on {n} rows", model, tuned=True)

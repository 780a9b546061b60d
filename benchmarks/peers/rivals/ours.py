"""This package: boosting with its own tuning, from quick to accurate."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mercer import KernelBoostingClassifier, KernelBoostingRegressor
from rivals import Given, Setting


def default(task: str, seed: int) -> Any:
    return (KernelBoostingRegressor if task == "regression" else KernelBoostingClassifier)(random_state=seed)


#: Tuning rows, kernel, learners and their size: what a budget of less than a second to minutes is best spent on.
REGRESSION = [
    (150, "gaussian", 2, 200), (200, "gaussian", 2, 400), (400, "gaussian", 4, 500), (1000, "gaussian", 8, 500),
    (1000, "gaussian", 16, 800), (2000, "matern32", 16, 500), (3000, "matern32", 20, 800),
]  # fmt: skip
CLASSIFICATION = [(500, 5), (1000, 20), (2000, 60), (4000, 150)]


def sweep(given: Given) -> Iterator[Setting]:
    if given.task == "regression":
        if given.device == "cuda":
            for rows in (500, 1000, 2000, 4000):  # every row is a basis vector
                model = KernelBoostingRegressor(kernel="matern32", tuning_rows=rows, random_state=given.seed)
                yield Setting(f"exact, {rows} tuning rows", model)
        for rows, kernel, learners, size in REGRESSION:
            options = {"kernel": kernel, "tuning_rows": rows, "random_state": given.seed}
            model = KernelBoostingRegressor(learners, learner_size=size, polish=True, **options)
            yield Setting(f"{learners} × {size}, {kernel} on {rows} rows", model)
        return
    for rows, learners in CLASSIFICATION:
        model = KernelBoostingClassifier(
            learners, learner_size=1000, subset_size=20_000, focus="hinge", polish=False, kernel="matern32",
            tuning_rows=rows, random_state=given.seed,
        )  # fmt: skip
        yield Setting(f"{learners} × 1000, {rows} tuning rows", model)

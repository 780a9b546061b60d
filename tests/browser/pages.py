"""Report pages to look at: numbers, several outputs, classes, a Gaussian process, a mixture; long names."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.datasets import load_iris, make_friedman1

import mercer
from mercer.kernels import Gaussian


def report_pages(folder: Path) -> list[Path]:
    """Write one page for each kind of model."""
    folder.mkdir(parents=True, exist_ok=True)
    X, y = make_friedman1(700, 6, noise=0.5, random_state=0)
    frame = pd.DataFrame(X, columns=["temperature", "a column with a really long name", "p", "q", "x<y & z", "last"])
    rows, kind = load_iris(return_X_y=True)
    species = np.array(["setosa", "versicolor", "virginica"])[kind]
    both = pd.DataFrame({"first": y, "second": X[:, 0] + y})
    cases = {
        "boosting": (mercer.KernelBoostingRegressor(time_budget=4, random_state=0), frame, pd.Series(y, name="yield")),
        "greedy": (mercer.GreedyKernelRegressor(60, kernel=Gaussian(2.0), random_state=0), frame, both),
        "gp": (mercer.SparseGPRegressor(20, kernel="gaussian", max_iter=15, random_state=0), frame, pd.Series(y)),
        "mixture": (mercer.ENRBFRegressor(4, random_state=0), frame, pd.Series(y)),
        "classes": (mercer.KernelBoostingClassifier(time_budget=3, random_state=0), rows, species),
    }
    made = []
    for name, (model, table, targets) in cases.items():
        learn, judge = np.arange(len(table)) % 3 > 0, np.arange(len(table)) % 3 == 0
        model.fit(table[learn], targets[learn])
        page = mercer.report(
            model, table[judge], targets[judge], folder / f"{name}.html", X_train=table[learn], y_train=targets[learn]
        )
        assert page.path is not None
        made.append(page.path)
    return made

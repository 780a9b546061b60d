"""Optuna over parameters that the default does not try: the number of basis vectors and the loss.

Kernel and penalty are selected inside every fit, so Optuna need not search them.
"""

from __future__ import annotations

from typing import Any

import optuna
from sklearn.model_selection import cross_val_score

import mercer


def search(X: Any, y: Any, n_trials: int = 20, seed: int = 0, **fixed: Any) -> tuple[Any, optuna.Study]:
    """The best regressor by cross-validated R², fitted to all rows, and the study; `fixed` are set parameters."""

    def model(trial: Any) -> Any:
        options = {
            "n_basis": trial.suggest_int("n_basis", 10, 200, log=True),
            "loss": trial.suggest_categorical("loss", ["squared", "huber"]),
        }
        return mercer.KernelBoostingRegressor(**options, **fixed, random_state=seed)

    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=seed))
    study.optimize(lambda trial: cross_val_score(model(trial), X, y, cv=3).mean(), n_trials=n_trials)
    return model(study.best_trial).fit(X, y), study

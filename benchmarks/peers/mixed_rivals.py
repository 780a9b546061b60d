"""The rivals of `mixed.py` on any split, as `anchors.json` has them on the first: native categories, one thread.

On that split these are the anchors to all digits. Dates are numbers; CatBoost has missing categories as a level of
their own; categories of more levels than HistGradientBoosting takes go through scikit-learn's TargetEncoder.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.preprocessing import TargetEncoder

#: Levels that HistGradientBoosting takes.
MOST_LEVELS = 254


def fitted(rival: str, X: pd.DataFrame, y: np.ndarray, X_test: pd.DataFrame, *, classes: bool) -> tuple[Any, Any]:
    """A rival fitted to a table, and the test rows as it reads them."""
    both = pd.concat([X, X_test], ignore_index=True)
    for name in both:
        if pd.api.types.is_datetime64_any_dtype(both[name]):
            both[name] = both[name].astype("int64").astype(float)
        elif both[name].dtype == bool:
            both[name] = both[name].astype(int)
    levelled = [name for name in both if isinstance(both[name].dtype, pd.CategoricalDtype)]
    text = {name: both[name].astype(object).where(both[name].notna(), "nan").astype(str) for name in levelled}
    n, model = len(X), _model(rival, classes, levelled)
    if rival == "catboost":
        both = both.assign(**text)
    elif rival == "sklearn_hgb":
        for name in (one for one in levelled if both[one].cat.categories.size > MOST_LEVELS):
            encoder, column = TargetEncoder(random_state=0), text[name].to_frame()
            means = np.vstack([encoder.fit_transform(column[:n], y), encoder.transform(column[n:])])
            both = both.drop(columns=name).assign(**{f"{name}{k}": means[:, k] for k in range(means.shape[1])})
    return model.fit(both[:n], y), both[n:]


def _model(rival: str, classes: bool, levelled: list[str]) -> Any:
    if rival == "lightgbm":
        from lightgbm import LGBMClassifier, LGBMRegressor

        return (LGBMClassifier if classes else LGBMRegressor)(n_jobs=1, random_state=0, verbose=-1)
    if rival == "sklearn_hgb":
        face = HistGradientBoostingClassifier if classes else HistGradientBoostingRegressor
        return face(categorical_features="from_dtype", random_state=0)
    from catboost import CatBoostClassifier, CatBoostRegressor

    options = {"random_seed": 0, "verbose": 0, "thread_count": 1, "allow_writing_files": False}
    return (CatBoostClassifier if classes else CatBoostRegressor)(cat_features=levelled, **options)

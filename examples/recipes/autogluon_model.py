"""A model class for AutoGluon, and so for TabArena: ``TabularPredictor.fit(hyperparameters={MercerModel: {}})``."""

from __future__ import annotations

from typing import Any

from autogluon.core.constants import BINARY, MULTICLASS, REGRESSION
from autogluon.core.models import AbstractModel

import mercer


class MercerModel(AbstractModel):
    """Default boosting of mercer; hyperparameters are its parameters. Columns are encoded by mercer itself."""

    ag_key = "MERCER"
    ag_name = "Mercer"

    def _fit(
        self,
        X: Any,
        y: Any,
        X_val: Any = None,
        y_val: Any = None,
        time_limit: float | None = None,
        sample_weight: Any = None,
        **kwargs: Any,
    ) -> None:
        of = mercer.KernelBoostingRegressor if self.problem_type == REGRESSION else mercer.KernelBoostingClassifier
        options = {"random_state": 0, "time_budget": time_limit, **self._get_model_params()}
        self.model = of(**options).fit(self.preprocess(X), y.to_numpy(), sample_weight=sample_weight)

    def _get_default_auxiliary_params(self) -> dict[str, Any]:
        kinds = {"valid_raw_types": ["int", "float", "category", "bool", "datetime"]}
        return super()._get_default_auxiliary_params() | kinds

    @classmethod
    def supported_problem_types(cls) -> list[str]:
        return [BINARY, MULTICLASS, REGRESSION]

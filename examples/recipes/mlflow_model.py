"""MLflow: a model file of mercer as an artifact, and a `pyfunc` model that reads it."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import mlflow
import mlflow.pyfunc
from mlflow.models import ModelSignature
from mlflow.types import ParamSchema, ParamSpec

import mercer

#: Parameters of `predict` must be declared, with a default: 0 asks for predictions without intervals.
SIGNATURE = ModelSignature(params=ParamSchema([ParamSpec("coverage", "double", 0.0)]))


class MercerModel(mlflow.pyfunc.PythonModel):
    """A model file; `params={"coverage": 0.9}` of `predict` asks a regressor for intervals."""

    def load_context(self, context: Any) -> None:
        self.model = mercer.load(context.artifacts["model"])

    def predict(self, context, model_input, params=None):  # type: ignore[no-untyped-def]
        # MLflow reads type hints as a schema of the inputs, so there are none.
        coverage = (params or {}).get("coverage")
        return self.model.predict_interval(model_input, coverage) if coverage else self.model.predict(model_input)


def save(model: Any, folder: str) -> None:
    """Write a fitted model as an MLflow model, which `mlflow.pyfunc.load_model(folder)` reads."""
    with tempfile.TemporaryDirectory() as place:
        file = str(Path(place, "model.mercer"))
        mercer.save(model, file)
        requirements = [f"mercer=={mercer.__version__}"]
        mlflow.pyfunc.save_model(
            folder,
            python_model=MercerModel(),
            artifacts={"model": file},
            pip_requirements=requirements,
            signature=SIGNATURE,
        )


def log(model: Any, X_test: Any, y_test: Any) -> None:
    """Log parameters, the test score and the model to the run that is active."""
    mlflow.log_params({name: str(value) for name, value in model.get_params(deep=False).items()})
    mlflow.log_metric("test_score", model.score(X_test, y_test))
    with tempfile.TemporaryDirectory() as place:
        file = Path(place, "model.mercer")
        mercer.save(model, file)
        mlflow.log_artifact(str(file))

"""Pipelines of scikit-learn in model files: the transformers whose fitted state is arrays and simple values."""

from __future__ import annotations

import warnings
from functools import cache
from importlib import import_module
from typing import Any

import sklearn

from mercer.parts import require

#: The classes that a file may name, by module of scikit-learn.
CLASSES = {
    "compose": ("ColumnTransformer",),
    "decomposition": ("PCA", "TruncatedSVD"),
    "feature_selection": ("VarianceThreshold",),
    "impute": ("MissingIndicator", "SimpleImputer"),
    "pipeline": ("FeatureUnion", "Pipeline"),
    "preprocessing": (
        "FunctionTransformer",
        "MaxAbsScaler",
        "MinMaxScaler",
        "Normalizer",
        "OneHotEncoder",
        "OrdinalEncoder",
        "PolynomialFeatures",
        "PowerTransformer",
        "QuantileTransformer",
        "RobustScaler",
        "StandardScaler",
    ),
}
#: What the name of such a class begins with in files.
PREFIX = "sklearn."


@cache
def transformers() -> dict[str, type]:
    """The classes by their names in files."""
    return {
        f"{PREFIX}{name}": getattr(import_module(f"sklearn.{module}"), name)
        for module, names in CLASSES.items()
        for name in names
    }


def transformer_named(name: str) -> type:
    """The class of scikit-learn that a file names, where it is one of these."""
    known = transformers()
    require(name in known, "a class in the file", f"one of {', '.join(known)}", name)
    return known[name]


def fitted_state(value: Any) -> dict[str, Any]:
    """The attributes of a transformer that are not parameters."""
    return {name: held for name, held in vars(value).items() if name not in value.get_params(deep=False)}


def new_transformer(cls: Any, parameters: dict[str, Any], version: Any) -> Any:
    """An unfitted transformer; its parameters are checked by scikit-learn."""
    known = cls._get_param_names()
    unknown = sorted(set(parameters) - set(known))
    require(not unknown, f"the parameters of {cls.__name__}", f"among {known}", unknown)
    if version != sklearn.__version__:
        warnings.warn(
            f"the {cls.__name__} was fitted by scikit-learn {version}, and here is {sklearn.__version__}: "
            f"compare some predictions before the pipeline is used",
            stacklevel=2,
        )
    transformer = cls(**parameters)
    if hasattr(cls, "_parameter_constraints"):
        transformer._validate_params()
    return transformer

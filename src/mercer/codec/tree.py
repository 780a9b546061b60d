"""Encode objects as a JSON tree with references to arrays, and decode them; nothing in a tree can run code.

Numbers, text, booleans, None and lists stand in JSON as they are; everything else is an object with one key that names
its kind: ``{"array": "3"}``, ``{"tuple": […]}``, ``{"class": "kernels.Gaussian", "fields": {…}}``.

Pipelines of scikit-learn keep the transformers whose fitted state is arrays and simple values.
"""

from __future__ import annotations

import math
import re
import warnings
from collections import UserList
from collections.abc import Mapping
from dataclasses import dataclass, field, is_dataclass
from functools import cache
from hashlib import sha256
from importlib import import_module
from typing import Any

import numpy as np
import scipy.sparse
import sklearn
import torch
from sklearn.base import BaseEstimator

from mercer.base.parameters import check
from mercer.clock import StopKind, StopReason
from mercer.codec.registry import check_arrays, checked_fields, class_named, name_of, parameters, registry
from mercer.kernels import Kernel
from mercer.kernels.sparse_rows import Entries
from mercer.parts import Component, require

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
#: Deepest nesting of a tree that is decoded.
MAX_DEPTH = 100
#: Parameters that belong to a session and not to a model: they are not written.
SESSION_PARAMETERS = ("callbacks",)
#: Kinds of numbers that arrays may hold.
INTEGERS = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
NUMBERS = (*INTEGERS, "float16", "float32", "float64")
#: Attributes that are not written: the first holds the state of a warm start, the second lists the others.
LEFT_OUT = ("_warm", "_kept", "_skl_callbacks", "_parent_callback_ctx")


@cache
def transformers() -> dict[str, type]:
    """The classes by their names in files."""
    return {
        f"{PREFIX}{name}": getattr(import_module(f"sklearn.{module}"), name)
        for module, names in CLASSES.items()
        for name in names
    }


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


class NotEncodableError(ValueError):
    """An object that no file can hold, such as a function of the user's."""


@dataclass
class Encoder:
    """Encodes values; `arrays` are those met so far, each once, by the name that the tree gives it."""

    stages: bool = False
    arrays: dict[str, np.ndarray] = field(default_factory=dict)
    _seen: dict[tuple[Any, ...], str] = field(default_factory=dict)

    def encode(self, value: Any, where: str = "the model") -> Any:
        """Encode a value as JSON; `where` names it in error messages."""
        if isinstance(value, StopReason):
            return {"stop_reason": str(value), "kinds": sorted(kind.name for kind in value.kinds)}
        if value is None or isinstance(value, bool | str) or type(value) is int:
            return value
        if type(value) is float:
            return value if math.isfinite(value) else {"float": repr(value)}
        if isinstance(value, np.ndarray):
            return self._array(value, where)
        if isinstance(value, np.generic):
            return {"number": self._array(np.asarray(value), where)}
        if isinstance(value, scipy.sparse.csr_array):
            return {"sparse": self.encode(Entries.of(value), where)}
        if isinstance(value, torch.device):
            return str(value)
        if isinstance(value, torch.dtype):
            return str(value).removeprefix("torch.")
        if isinstance(value, np.dtype) or (isinstance(value, type) and issubclass(value, np.generic)):
            return {"type": np.dtype(value).str}
        if type(value) is list or isinstance(value, UserList):
            return [self.encode(item, where) for item in value]
        if type(value) is tuple:
            return {"tuple": [self.encode(item, where) for item in value]}
        if type(value) is slice:
            return {"slice": [self.encode(item, where) for item in (value.start, value.stop, value.step)]}
        if type(value) is dict:
            return {"dict": [[self.encode(k, where), self.encode(v, f"{where}[{k!r}]")] for k, v in value.items()]}
        return self._object(value, where)

    def _object(self, value: Any, where: str) -> dict[str, Any]:
        cls = type(value)
        theirs = transformers().get(PREFIX + cls.__name__) is cls
        if not theirs and not (is_dataclass(cls) and registry().get(name_of(cls)) is cls):
            if isinstance(value, BaseEstimator):
                held = ", ".join(name.removeprefix(PREFIX) for name in transformers())
                wanted = f"which no model file can hold (of scikit-learn it holds {held}): use pickle or joblib"
                raise NotEncodableError(f"{where} has a {cls.__name__}, {wanted}")
            kind = "a function" if callable(value) else f"a {cls.__name__}"
            raise NotEncodableError(
                f"{where} is {kind} of your own, which no model file can hold: use pickle or joblib"
            )
        names = value.get_params(deep=False) if theirs else [field.name for field in parameters(cls)]
        given = {name: getattr(value, name) for name in names}
        if not isinstance(value, BaseEstimator) or isinstance(value, Component):
            return {"class": name_of(cls), "fields": self._each(given, cls.__name__)}
        fitted = {name: held for name, held in vars(value).items() if name not in (*given, *LEFT_OUT)}
        if not self.stages:
            fitted.pop("_stages", None)
        given = {name: None if name in SESSION_PARAMETERS else _without_rng(held) for name, held in given.items()}
        return {
            "class": PREFIX + cls.__name__ if theirs else name_of(cls),
            **({"version": sklearn.__version__} if theirs else {}),
            "parameters": self._each(given, cls.__name__),
            "fitted": self._each(fitted, cls.__name__),
        }

    def _each(self, values: Mapping[str, Any], where: str) -> dict[str, Any]:
        return {name: self.encode(value, f"{name} of {where}") for name, value in values.items()}

    def _array(self, value: np.ndarray, where: str) -> dict[str, Any]:
        if value.dtype.kind in "OU":
            shape = list(value.shape)
            return {"objects": self.encode(value.ravel().tolist(), where), "shape": shape, "kind": value.dtype.kind}
        held = value.view(np.int64) if value.dtype.kind in "mM" else value
        kind = str(value.dtype.newbyteorder("=")) if value.dtype.kind in "mM" else held.dtype.name
        good = held.dtype.name in NUMBERS
        require(good, where, "an array of numbers, booleans, dates or text", f"one of {value.dtype}")
        held = _narrowed(np.ascontiguousarray(held, dtype=held.dtype.newbyteorder("=")).reshape(held.shape))
        key = (held.dtype.name, held.shape, sha256(held.data).digest())
        name = self._seen.setdefault(key, str(len(self.arrays)))
        self.arrays[name] = held
        return {"array": name} if kind == held.dtype.name else {"array": name, "dtype": kind}


@dataclass
class Decoder:
    """Decodes a tree from an untrusted file; `limit` bounds the bytes of all arrays that it asks for."""

    arrays: Mapping[str, np.ndarray]
    limit: float = math.inf

    def decode(self, node: Any, depth: int = 0) -> Any:
        """Decode a node; refuse, in a sentence, what no encoder writes."""
        require(depth <= MAX_DEPTH, "the depth of the description", f"at most {MAX_DEPTH}", depth)
        if node is None or isinstance(node, bool | str | int):
            return node
        if isinstance(node, float):
            require(math.isfinite(node), "a number in the description", "finite", node)
            return node
        if isinstance(node, list):
            return [self.decode(item, depth + 1) for item in node]
        require(isinstance(node, dict), "a value in the description", "a value of JSON", type(node).__name__)
        tags = [tag for tag in _DECODERS if tag in node]
        wanted = f"an object with one of {sorted(_DECODERS)}"
        require(len(tags) == 1, "a value in the description", wanted, sorted(map(str, node)))
        return _DECODERS[tags[0]](self, node, depth + 1)

    def _several(self, node: Any, depth: int) -> list[Any]:
        require(isinstance(node, list), "a value in the description", "a list", type(node).__name__)
        return [self.decode(item, depth) for item in node]

    def _mapping(self, node: Any, depth: int) -> dict[str, Any]:
        require(isinstance(node, dict), "a value in the description", "an object", type(node).__name__)
        return {name: self.decode(item, depth) for name, item in node.items()}

    def _float(self, node: dict[str, Any], depth: int) -> float:
        known = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
        require(node["float"] in list(known), "a number in the description", f"one of {list(known)}", node["float"])
        return known[node["float"]]

    def _stop_reason(self, node: dict[str, Any], depth: int) -> StopReason:
        sentence, kinds = node["stop_reason"], self._several(node.get("kinds"), depth)
        good = isinstance(sentence, str) and all(kind in StopKind.__members__ for kind in kinds)
        require(good, "a stop reason in the description", f"a sentence with some of {list(StopKind.__members__)}", node)
        return StopReason(sentence, *(StopKind[kind] for kind in kinds))

    def _slice(self, node: dict[str, Any], depth: int) -> slice:
        ends = self._several(node["slice"], depth)
        good = len(ends) == 3 and all(end is None or type(end) is int for end in ends)
        require(good, "a slice in the description", "of three integers or None", ends)
        return slice(*ends)

    def _dict(self, node: dict[str, Any], depth: int) -> dict[Any, Any]:
        pairs = [self._several(pair, depth) for pair in node["dict"]] if isinstance(node["dict"], list) else [[]]
        plain = str | int | float | bool | None
        good = all(len(pair) == 2 and isinstance(pair[0], plain | tuple) for pair in pairs)
        require(good, "a mapping in the description", "a list of pairs", "something else")
        return {pair[0]: pair[1] for pair in pairs}

    def _array(self, node: dict[str, Any], depth: int) -> np.ndarray:
        name = node["array"]
        require(isinstance(name, str) and name in self.arrays, "an array in the file", "one that it has", name)
        held = self.arrays[name]
        kind = node.get("dtype", held.dtype.name)
        dated = isinstance(kind, str) and kind.startswith(("datetime64[", "timedelta64["))
        require(kind in NUMBERS or dated, "the type of an array", f"one of {NUMBERS}", kind)
        size = held.size * (8 if dated else np.dtype(kind).itemsize)
        self.limit -= size
        require(self.limit >= 0, "the arrays that the description asks for", "about as large as the file", "more")
        return held.astype(np.int64).view(kind) if dated else held.astype(kind)

    def _number(self, node: dict[str, Any], depth: int) -> Any:
        array = self.decode(node["number"], depth)
        require(isinstance(array, np.ndarray) and array.ndim == 0, "a number in the description", "one number", array)
        return array[()]

    def _objects(self, node: dict[str, Any], depth: int) -> np.ndarray:
        values, kind = self._several(node["objects"], depth), node.get("kind")
        require(kind in ("O", "U"), "the kind of an array of text", "'O' or 'U'", kind)
        shape = self._several(node.get("shape"), depth)
        whole = all(type(n) is int and n >= 0 for n in shape)
        require(whole and math.prod(shape) == len(values), "the shape of an array of text", f"{len(values)}", shape)
        if kind == "U":
            text = all(isinstance(value, str) for value in values)
            require(text, "an array of text", "of text alone", "other values")
            longest = max(map(len, values), default=0)  # an array of text has room for the longest everywhere
            self.limit -= 4 * longest * len(values)
            require(self.limit >= 0, "an array of text", "about as large as the file", "more")
            return np.array(values, dtype=f"<U{max(longest, 1)}").reshape(shape)
        array = np.empty(len(values), dtype=object)
        array[:] = values
        return array.reshape(shape)

    def _sparse(self, node: dict[str, Any], depth: int) -> Any:
        entries = self.decode(node["sparse"], depth)
        require(
            isinstance(entries, Entries), "a sparse table in the file", "one by its entries", type(entries).__name__
        )
        entries.check()
        return entries.table

    def _dtype(self, node: dict[str, Any], depth: int) -> np.dtype:
        name = node["type"]
        good = isinstance(name, str) and re.fullmatch(r"[<|=][biufU]\d{1,3}|\|O", name) is not None
        require(good, "a type in the description", "one of numbers or text", name)
        return np.dtype(name)

    def _object(self, node: dict[str, Any], depth: int) -> Any:
        cls = _class_named(node["class"])
        if issubclass(cls, BaseEstimator) and not issubclass(cls, Component):
            return self._estimator(cls, node, depth)
        require("fields" in node, f"a {name_of(cls)} in the file", "with fields", sorted(node))
        made = cls(**checked_fields(cls, self._mapping(node["fields"], depth)))
        check_arrays(made)
        if isinstance(made, Kernel):
            made.check()
        return made

    def _estimator(self, cls: Any, node: dict[str, Any], depth: int) -> Any:
        complete = "parameters" in node and "fitted" in node
        require(complete, f"a {name_of(cls)} in the file", "with parameters and fitted", sorted(node))
        given = self._mapping(node["parameters"], depth)
        if cls in transformers().values():
            model = new_transformer(cls, given, node.get("version"))
            vars(model).update(self._attributes(cls, node["fitted"], depth))
            return model
        model = cls(**checked_fields(cls, given))
        check(model)
        fitted = self._attributes(cls, node["fitted"], depth)
        vars(model).update(fitted, _kept=tuple(fitted))
        return model

    def _attributes(self, cls: type, node: Any, depth: int) -> dict[str, Any]:
        """The fitted attributes of an estimator; none may replace a method."""
        fitted = self._mapping(node, depth)
        for name in fitted:
            is_attribute = name.isidentifier() and (name.endswith("_") or name.startswith("_"))
            good = is_attribute and not hasattr(cls, name) and name != "_kept"
            require(good, f"a fitted attribute of {name_of(cls)}", "one of its own", name)
        return fitted


_DECODERS: dict[str, Any] = {
    "float": Decoder._float,
    "tuple": lambda reader, node, depth: tuple(reader._several(node["tuple"], depth)),
    "slice": Decoder._slice,
    "stop_reason": Decoder._stop_reason,
    "dict": Decoder._dict,
    "array": Decoder._array,
    "number": Decoder._number,
    "type": Decoder._dtype,
    "objects": Decoder._objects,
    "sparse": Decoder._sparse,
    "class": Decoder._object,
}


def _class_named(name: Any) -> Any:
    """The class that a file names: one of mercer's, or a transformer of scikit-learn."""
    if not isinstance(name, str) or not name.startswith(PREFIX):
        return class_named(name)
    require(name in transformers(), "a class in the file", f"one of {', '.join(transformers())}", name)
    return transformers()[name]


def _without_rng(value: Any) -> Any:
    """The value, or None for a random generator: its state has moved on since `fit`."""
    return None if isinstance(value, np.random.RandomState | np.random.Generator) else value


def _narrowed(array: np.ndarray) -> np.ndarray:
    """The same numbers in half the bytes, if none of them changes."""
    half = {"float64": np.float32, "int64": np.int32}.get(array.dtype.name)
    if half is None or array.size == 0:
        return array
    with np.errstate(over="ignore", invalid="ignore"):
        small = array.astype(half)
    same = np.array_equal(small.astype(array.dtype), array, equal_nan=array.dtype.kind == "f")
    return small if same and not (array.dtype.kind == "f" and np.isnan(array).any()) else array

"""The classes that a file may name, the dataclasses of the modules listed here, and what their arrays look like.

Files call a class by its folder and its name, ``kernels.Gaussian``: it may move to another module of its folder and old
files still load. A class that is renamed, or moves to another folder, gets an entry in `RENAMED` that stays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import cache, reduce
from importlib import import_module
from pkgutil import iter_modules
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import numpy as np
from sklearn.base import BaseEstimator
from torch import Tensor

from mercer.parts import require

#: Modules, or folders of modules, whose dataclasses may stand in a file. A new fitted part is registered by the line of
#: its module.
MODULES = (
    "mercer.kernels.base",
    "mercer.kernels.custom",
    "mercer.kernels.dot",
    "mercer.kernels.partitioned",
    "mercer.kernels.sparse_rows",
    "mercer.kernels.radial",
    "mercer.kernels.separable",
    "mercer.losses",
    "mercer.data.column_maps",
    "mercer.base",
    "mercer.preprocessing",
    "mercer.evidence.posterior",
    "mercer.forward.boosting",
    "mercer.forward.combine",
    "mercer.forward.criteria",
    "mercer.forward.loop",
    "mercer.forward.gradient_metric",
    "mercer.forward.greedy",
    "mercer.forward.model_selection",  # in checkpoints: the selected kernels
    "mercer.forward.expansion",
    "mercer.forward.nystroem",
    "mercer.forward.partial_fit",
    "mercer.forward.path",
    "mercer.forward.stopping",
    "mercer.mixture.class_experts",
    "mercer.mixture.classifiers",
    "mercer.mixture.densities",
    "mercer.mixture.em",
    "mercer.mixture.experts",
    "mercer.mixture.features",
    "mercer.mixture.gates",
    "mercer.mixture.regressors",
    "mercer.mixture.uncertainty",
    "mercer.gp.ard",
    "mercer.gp.classifier",
    "mercer.gp.model",
    "mercer.gp.regressor",
    "mercer.empirical.classifiers",
    "mercer.empirical.ensemble",
    "mercer.empirical.kernel_map",
    "mercer.empirical.regressor",
)
#: Old names of classes, as earlier versions wrote them, and their names today.
RENAMED: dict[str, str] = {
    "border.ClassTargets": "preprocessing.ClassTargets",
    "border.Counts": "preprocessing.Counts",
    "border.Cycle": "preprocessing.Cyclic",
    "border.Day": "preprocessing.DayNumber",
    "border.DayMeans": "preprocessing.DayTargetMean",
    "border.Described": "preprocessing.ColumnDescription",
    "border.FloorAndPower": "base.FloorAndPower",
    "border.InputMap": "preprocessing.InputMap",
    "border.Intervals": "base.Intervals",
    "border.Layout": "preprocessing.Layout",
    "border.Levels": "preprocessing.OneHot",
    "border.LocalScale": "base.LocalScale",
    "border.Means": "preprocessing.TargetMean",
    "border.Missing": "preprocessing.Missing",
    "border.Rank": "preprocessing.Rank",
    "border.RealTargets": "preprocessing.RealTargets",
    "border.TableMap": "preprocessing.TableMap",
    "border.Temperature": "base.Temperature",
    "border.Truth": "preprocessing.BooleanCode",
    "border.Value": "preprocessing.Value",
    "empirical.Ensemble": "empirical.MemberEnsemble",
    "empirical.Member": "empirical.EnsembleMember",
    "forward.Final": "forward.FittedExpansion",
    "forward.RowNumbers": "forward.RowIndexMap",
    "forward.Stage": "forward.BlockPath",
    "forward.Stages": "forward.StagedExpansion",
    "kernels.Numbered": "kernels.SparseRowKernel",
    "mixture.Constant": "mixture.ConstantExperts",
    "mixture.Linear": "mixture.LinearExperts",
    "mixture.Logistic": "mixture.LogisticExperts",
}
#: Shapes of arrays, checked when a file is read. A letter is a size, the same wherever it stands within an object; "=D"
#: says that an integer equals it, and a bar separates alternatives. Other fields are checked by their type, and by the
#: trial prediction that ends `load`.
SHAPES: dict[str, dict[str, str]] = {
    "preprocessing.InputMap": {"mean": "D", "scale": "D", "limits": "b D"},
    "preprocessing.Constants": {"columns": "c", "values": "c"},
    "preprocessing.RealTargets": {"mean": "p"},
    "preprocessing.PositiveTargets": {"mean": "p"},
    "preprocessing.ClassTargets": {"classes": "C"},
    "preprocessing.LabelTargets": {"mean": "p"},
    "data.Bend": {"columns": "b", "centre": "b", "width": "b"},
    "data.ColumnMap": {"centre": "D", "width": "D", "mean": "D", "spread": "D", "knots": "D K", "levels": "D K"},
    "evidence.Posterior": {"basis": "m D", "weights": "m p", "explained": "m r", "scatter": "c m s"},
    "forward.Expansion": {"basis": "m D", "weights": "m p|z"},  # those of stages have no weights of their own
    "mixture.Gates": {"weights": "k", "means": "k D", "covariances": "k D|k D D", "root": "k D|k D D", "log_det": "k"},
    "mixture.Floor": {"variance": "D", "groups": "k"},
    "mixture.ConstantExperts": {"intercept": "k p", "noise": "k p", "floor": "p"},
    "mixture.LinearExperts": {"intercept": "k p", "noise": "k p", "floor": "p", "coef": "k p D"},
    "mixture.Categorical": {"table": "k C"},
    "mixture.Owned": {"table": "k C"},
    "mixture.LogisticExperts": {"coef": "k c w"},
    "mixture.WeightPosterior": {"factor": "R R"},
    "mixture.Mixture": {"gates.means": "k D", "layout.n_inputs": "=D", "floor.variance": "D", "floor.groups": "k"},
    "empirical.EnsembleMember": {"basis": "p D", "basis_indices": "p", "dual_coef": "M p P", "bias": "M P"},
}
#: Fields of fitted parts that may hold NaN or infinity.
MAY_BE_INFINITE = {"empirical.EnsembleMember": {"agreement", "kernel_norms", "objective_path"}}


def name_of(cls: type) -> str:
    """The name of a class in files: its folder (or module) of the package, and its own name."""
    return f"{cls.__module__.split('.')[1]}.{cls.__name__}"


@cache
def registry() -> dict[str, type]:
    """Every class that a file may name."""
    found: dict[str, type] = {}
    for module in map(import_module, MODULES):
        within = [info.name for info in iter_modules(getattr(module, "__path__", []), f"{module.__name__}.")]
        for part in (module, *map(import_module, within)):
            for cls in vars(part).values():
                if isinstance(cls, type) and cls.__module__ == part.__name__ and is_dataclass(cls):
                    assert name_of(cls) not in found, f"two classes are called {name_of(cls)}"
                    found[name_of(cls)] = cls
    return found


def class_named(name: Any) -> type:
    """The class that a file names, where it is one of ours."""
    known = registry()
    name = RENAMED.get(name, name) if isinstance(name, str) else name
    wanted = "one of mercer's (perhaps it is of a newer version)"
    require(isinstance(name, str) and name in known, "a class in the file", wanted, name)
    return known[name]


def parameters(cls: Any) -> list[Field[Any]]:
    """The fields that a class is made from."""
    return [field for field in fields(cls) if field.init]


def checked_fields(cls: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a class as a file gives them: none unknown, none missing that has no default, types as declared."""
    known, name = {field.name: field for field in parameters(cls)}, name_of(cls)
    unknown = sorted(set(given) - set(known))
    require(not unknown, f"the fields of {name}", f"among {sorted(known)}", unknown)
    required = {key for key, field in known.items() if field.default is field.default_factory is MISSING}
    missing = sorted(required - set(given))
    require(not missing, f"the fields of {name}", "complete", f"none of {missing}")
    if not issubclass(cls, BaseEstimator):  # parts and estimators check their parameters themselves
        hints = declared(cls)
        for key, value in given.items():
            require(fits(value, hints.get(key, Any)), f"{key} of {name}", f"of type {hints.get(key)}", value)
    return dict(given)


#: The types that the fields of a class are declared to have.
declared = cache(get_type_hints)


def fits(value: Any, hint: Any) -> bool:
    """Whether a value is of a declared type; tensors are arrays in models that are kept, integers are floats too.

    >>> fits([1.0, 2.0], list[float]), fits("two", float | None)
    (True, False)
    """
    origin, inner = get_origin(hint), get_args(hint)
    if hint is Any:
        return True
    if origin is Annotated:
        return fits(value, inner[0])
    if origin in (Union, UnionType):
        return any(fits(value, option) for option in inner)
    if hint is None or hint is NoneType:
        return value is None
    if hint in (Tensor, np.ndarray) or origin is np.ndarray:
        return isinstance(value, np.ndarray) and value.dtype.kind in "biufUSOMm"
    if hint is float:
        return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int | np.integer) and not isinstance(value, bool)
    if hint is Callable or origin is Callable:
        return callable(value)
    if origin is tuple:
        return isinstance(value, tuple) and _items_fit(value, inner)
    if origin in (list, Sequence, Iterable):
        return isinstance(value, list | tuple) and all(fits(item, inner[0]) for item in value)
    if origin in (dict, Mapping):
        return isinstance(value, dict) and all(fits(k, inner[0]) and fits(v, inner[1]) for k, v in value.items())
    return isinstance(value, hint) if isinstance(hint, type) else False


def _items_fit(value: tuple[Any, ...], inner: tuple[Any, ...]) -> bool:
    if len(inner) == 2 and inner[1] is Ellipsis:
        return all(fits(item, inner[0]) for item in value)
    return len(value) == len(inner) and all(fits(item, hint) for item, hint in zip(value, inner, strict=True))


def check_arrays(value: Any) -> None:
    """Refuse a fitted part whose arrays have shapes that disagree, or hold NaN or infinity."""
    name = name_of(type(value))
    for field in parameters(type(value)):
        array = getattr(value, field.name)
        if isinstance(array, np.ndarray) and array.dtype.kind == "f":
            finite = field.name in MAY_BE_INFINITE.get(name, ()) or bool(np.isfinite(array).all())
            require(finite, f"{field.name} of {name}", "finite", "an array with NaN or infinity")
    sizes: dict[str, int] = {}
    for path, forms in SHAPES.get(name, {}).items():
        held = reduce(getattr, path.split("."), value)
        if held is not None:
            found = _matched(held, forms, sizes)
            wanted = f"of shape {forms} with {sizes}"
            require(found is not None, f"{path} of {name}", wanted, getattr(held, "shape", held))
            sizes = found or {}


def _matched(held: Any, forms: str, sizes: dict[str, int]) -> dict[str, int] | None:
    """The sizes with those of one more array, or None where it fits to no form."""
    if forms.startswith("="):
        return sizes if held == sizes.get(forms[1:]) else None
    for form in forms.split("|"):
        letters = form.split()
        if not isinstance(held, np.ndarray) or held.ndim != len(letters):
            continue
        merged = dict(sizes)
        if all(merged.setdefault(letter, n) == n for letter, n in zip(letters, held.shape, strict=True)):
            return merged
    return None

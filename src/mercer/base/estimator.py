"""The base class of estimators, with the parameters that all of them share.

An estimator is a dataclass that lists its own parameters and inherits these. Its `fit` checks, reads, prepares, calls
one algorithm and keeps the result, in this order; until then the estimator stays as it was. A fitted model is made of
NumPy arrays, so that pickle, joblib, skops and model files need neither torch nor a GPU. Fields of a model that are
declared as `Tensor` are tensors while it is fitted; its methods take arrays as well.
"""

from __future__ import annotations

import inspect
import os
import re
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Annotated, Any, ClassVar, Self, dataclass_transform

import numpy as np
from sklearn.base import BaseEstimator
from torch import Tensor

from mercer.base.out_of_fold import N_FOLDS
from mercer.base.parameters import BOOL, CALLBACKS, CATEGORIES, CYCLES, PLACES, SECONDS, TEXTS, literal
from mercer.preprocessing.columns import column_table

#: The environment variable with the address of the documentation: a server, or file:///… of a local build.
DOCUMENTATION = "MERCER_DOCS"
#: Sections whose entries are inherited, in the order numpydoc wants them.
INHERITED = ("Parameters", "Attributes")


def to_numpy(value: Any) -> Any:
    """Replace tensors by NumPy arrays, inside lists, tuples, dicts and dataclasses too.

    A value without tensors is returned as it is, not as a copy.

    >>> import torch
    >>> to_numpy({"weights": [torch.ones(2)], "why": "converged"})
    {'weights': [array([1., 1.], dtype=float32)], 'why': 'converged'}
    """
    if isinstance(value, Tensor):
        return value.detach().cpu().contiguous().numpy()  # products of another memory layout are rounded otherwise
    if type(value) in (list, tuple):
        items = [to_numpy(item) for item in value]
        return value if all(a is b for a, b in zip(items, value, strict=True)) else type(value)(items)
    if type(value) is dict:
        entries = {name: to_numpy(item) for name, item in value.items()}
        return value if all(entries[name] is item for name, item in value.items()) else entries
    if is_dataclass(value) and not isinstance(value, type):
        old = {field.name: getattr(value, field.name) for field in fields(value) if field.init}
        changed = {name: new for name, item in old.items() if (new := to_numpy(item)) is not item}
        return replace(value, **changed) if changed else value
    return value


def inherit_docstring(cls: type) -> str:
    """The docstring of `cls` with the parameters and attributes that its bases document.

    A parameter is documented by the class that declares it, and shown by every estimator.
    """
    summary, sections = _sections(cls.__doc__ or "")
    bases = [_sections(base.__dict__.get("__doc__") or "")[1] for base in cls.__mro__[1:]]
    merged: dict[str, str] = {}
    for title in INHERITED:
        entries: dict[str, str] = {}
        for source in (sections, *bases):
            for name, text in _entries(source.get(title, "")).items():
                entries.setdefault(name, text)
        if entries:
            merged[title] = "\n".join(entries.values())
    rest = {title: body for title, body in sections.items() if title not in INHERITED}
    parts = [f"{title}\n{'-' * len(title)}\n{body}" for title, body in (merged | rest).items()]
    return "\n\n".join([summary, *parts])


def _sections(doc: str) -> tuple[str, dict[str, str]]:
    """The text before the first section, and that of each section by title."""
    pieces = re.split(r"^([A-Z][A-Za-z ]*)\n-+\n", inspect.cleandoc(doc), flags=re.MULTILINE)
    return pieces[0].strip(), {title: body.strip("\n") for title, body in zip(pieces[1::2], pieces[2::2], strict=True)}


def _entries(body: str) -> dict[str, str]:
    """The entries of a section by name: a line without indent and the indented lines under it."""
    found = re.findall(r"^\S.*(?:\n(?:[ \t].*|)(?=\n|$))*", body, flags=re.MULTILINE)
    return {entry.split(":")[0].split("(")[0].strip(): entry.rstrip() for entry in found}


@dataclass_transform(kw_only_default=False)
def estimator_dataclass(cls: type) -> Any:
    """Make a class an estimator: a dataclass with scikit-learn's `repr` and the docstrings of its bases."""
    made: Any = dataclass(eq=False, repr=False)(cls)
    made.__doc__ = inherit_docstring(made)
    return made


try:  # `set_callbacks` of scikit-learn 1.9
    from sklearn.callback import CallbackSupportMixin
except ImportError:

    class CallbackSupportMixin:  # type: ignore[no-redef]
        """Nothing: earlier versions have no callbacks."""


class SaveMixin:
    """The method `save`."""

    def save(self, path: str | os.PathLike[str], *, stages: bool = False, small: bool = False) -> None:
        """Write the fitted model to a file that `mercer.load` reads; see `mercer.save`."""
        from mercer.files.save import save  # the one import of a higher layer: users look for `save` here

        save(self, path, stages=stages, small=small)


@dataclass(eq=False, repr=False, kw_only=True)
class BaseKernelEstimator(SaveMixin, CallbackSupportMixin, BaseEstimator):
    """Base of all estimators; tables are arrays, frames, tensors, files or row sources.

    Parameters
    ----------
    scale_inputs : bool or "standard", default True
        True standardises all columns and, where the kernel is tuned, bends columns with heavy tails if that improves
        predictions of held-out rows. "standard" only standardises; False leaves the columns as they are.
    categorical_features : "from_dtype", names, numbers or a mask of columns, or None, default "from_dtype"
        Columns that hold categories: those of a categorical type (text, pandas' and polars' categories, Arrow's
        dictionaries), the named columns beside them, or none. `columns_` describes how each column was encoded.
    text_features : "from_values", names, numbers or a mask of columns, or None, default "from_values"
        Columns that hold free text: those of text with fewer than five rows per distinct value and a median of three
        words or more, the named columns beside them, or none. Their words become coordinates.
    cyclic_features : dict or None, default None
        Periods of columns by name or number, such as ``{"hour": 24}``: their numbers become places on a circle, so that
        23 and 0 are as near as 0 and 1.
    spherical_features : pairs of columns, "from_names" or None, default None
        Pairs of latitude and longitude in degrees, such as ``[("lat", "lon")]``: they become unit vectors with one
        length-scale. "from_names" takes the pairs whose names differ in "latitude" and "longitude" (or "lat" and
        "lon") alone. Relevances and Shapley values of a place are those of its latitude.
    time_budget : float or None, default None
        Seconds that `fit` may take in all. The model is the best that can be fitted in this time.
    device : "auto", "cpu", "cuda" or a torch device, default "auto"
        Where kernel values are computed; "auto" takes a CUDA device if there is one.
    dtype : "auto", "float32" or "float64", default "auto"
        Precision of kernel values. "auto" is float32 on CUDA and for more than 10 000 rows, float64 otherwise. Greedy
        and boosted models also take float64 where the rounding of float32 would add to their error; those of 1000 and
        more basis vectors predict in float32 where rounding is at most 2 % of the error of held-out rows. Small
        matrices are always float64.
    memory_limit : int, str or None, default None
        Bytes that `fit` and `predict` may take beside the table, as a number or as "4GB"; None is 60 % of the free
        memory.
    random_state : int, RandomState or None, default None
        Seed of all random numbers; an int makes the fit reproducible.
    verbose : bool, default False
        Show one progress bar over all phases of the fit; the logger "mercer" gets the same events.
    callbacks : function, several or None, default None
        Called with an `Event` after each step of every phase: tuning, selection, learners, polish, … (`phase`, `step`,
        `total`, `seconds`, `left`, and the `state` of the fit). A callback that returns true ends the fit, in phases
        that can end early with a model.

    Attributes
    ----------
    n_features_in_ : int
        Number of columns of `X` in `fit`.
    feature_names_in_ : ndarray of shape (D,)
        Their names, where they had any.
    columns_ : list of dict
        For each column of `X`: name, kind, levels, share of missing values, map, length-scale (in units of the mapped
        column, by the first kernel) and relevance.
    table_ : TableMap
        The codes of columns, where not all are complete numbers (categories, dates, missing values).
    fill_ : ndarray of shape (D,)
        Medians of the columns, which replace numbers that are missing in `predict` though none was in `fit`.
    constants_ : Constants
        The columns of numbers that had one value in all rows of `fit`, and these values. They have no influence: they
        keep that value in `predict`, whatever `X` holds. Kernels that are functions see all columns as they are.
    """

    scale_inputs: Annotated[bool | str, BOOL | literal("standard")] = True
    categorical_features: Annotated[Any, CATEGORIES] = "from_dtype"
    text_features: Annotated[Any, TEXTS] = "from_values"
    cyclic_features: Annotated[Any, CYCLES] = None
    spherical_features: Annotated[Any, PLACES] = None
    time_budget: Annotated[float | None, SECONDS] = None
    device: Any = "auto"
    dtype: Any = "auto"
    memory_limit: Any = None
    random_state: Any = None
    verbose: bool = False
    callbacks: Annotated[Any, CALLBACKS] = None

    #: Folds of the refits that calibrate probabilities and intervals of few rows.
    _calibration_folds: ClassVar[int] = N_FOLDS
    #: scikit-learn's HTML of an estimator links to its documentation, if `MERCER_DOCS` is set.
    _doc_link_module: ClassVar[str] = "mercer"

    @property
    def _doc_link_template(self) -> str:
        site = os.environ.get(DOCUMENTATION, "").rstrip("/")
        return f"{site}/api/mercer.{{estimator_name}}.html" if site else ""

    @property
    def _pairwise(self) -> bool:
        """Whether the columns are kernel values, which must not be scaled."""
        return False

    def _encodes_twice(self, n_rows: int) -> bool:
        """Whether categories get one-hot codes and target means, each for models of its own."""
        return False

    @property
    def columns_(self) -> list[dict[str, Any]]:
        """How each column was encoded, and its length-scale and relevance."""
        if not hasattr(self, "n_features_in_"):
            raise AttributeError("columns_ is known once the estimator is fitted")
        return column_table(self)

    @property
    def feature_importances_(self) -> np.ndarray:
        """`relevance_` under scikit-learn's name, for `SelectFromModel`, `RFE` and others: shares of sum 1.

        Several rows of relevances, one for each class, are averaged.
        """
        relevance = vars(self).get("relevance_")
        if relevance is None:
            raise AttributeError("feature_importances_ is known once an estimator with relevance_ is fitted")
        return np.atleast_2d(relevance).mean(0)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = tags.input_tags.string = tags.input_tags.categorical = not self._pairwise
        tags.input_tags.sparse = True
        return tags

    def _keep(self, **fitted: Any) -> Self:
        return keep(self, **fitted)


def keep(estimator: Any, **fitted: Any) -> Any:
    """Replace all fitted attributes by `fitted` in one step; their tensors become arrays, except in `_warm`.

    `_warm` is the state from which a warm start continues.
    """
    attributes = {
        name: value if name == "_warm" else to_numpy(value) for name, value in fitted.items() if value is not None
    }
    for name in vars(estimator).get("_kept", ()):
        vars(estimator).pop(name, None)
    vars(estimator).update(attributes, _kept=tuple(attributes))
    return estimator

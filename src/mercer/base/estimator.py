"""The base of every estimator: the parameters all of them share, declared, ranged and explained once.

A face is a dataclass that lists its own parameters and inherits these. Its `fit` checks, reads, prepares, calls one
algorithm and keeps what that returns, in this order; until it keeps, the estimator is as it was before. What it keeps
is made of NumPy arrays: pickle, joblib, skops and model files then need no torch, and no GPU. Where a dataclass of a
model says `Tensor`, that is so while the model is fitted; its methods take arrays as well.
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

from mercer.base.parameters import BOOL, CALLBACKS, CATEGORIES, SECONDS, literal
from mercer.data.group import ALONE, Group
from mercer.engine.sample import generator
from mercer.preprocessing.columns import column_table

#: The variable that holds the address of the documentation: that of a server, or file:///… of a site built here.
DOCUMENTATION = "MERCER_DOCS"
#: Sections whose entries are inherited, in the order numpydoc wants them.
INHERITED = ("Parameters", "Attributes")


def to_numpy(value: Any) -> Any:
    """The same with arrays in place of tensors, inside lists, tuples, dicts and dataclasses too.

    What holds no tensor is returned as it is, not as a copy.

    >>> import torch
    >>> to_numpy({"weights": [torch.ones(2)], "why": "converged"})
    {'weights': [array([1., 1.], dtype=float32)], 'why': 'converged'}
    """
    if isinstance(value, Tensor):
        return value.detach().cpu().contiguous().numpy()  # in another order, products are rounded otherwise
    if type(value) in (list, tuple):
        members = [to_numpy(one) for one in value]
        return value if all(a is b for a, b in zip(members, value, strict=True)) else type(value)(members)
    if type(value) is dict:
        found = {name: to_numpy(one) for name, one in value.items()}
        return value if all(found[name] is one for name, one in value.items()) else found
    if is_dataclass(value) and not isinstance(value, type):
        held = {field.name: getattr(value, field.name) for field in fields(value) if field.init}
        changed = {name: new for name, one in held.items() if (new := to_numpy(one)) is not one}
        return replace(value, **changed) if changed else value
    return value


def inherit_docstring(cls: type) -> str:
    """The docstring of `cls` with what its bases say of their parameters and attributes, its own words first.

    So a parameter is explained by the class that declares it, and shown by every face.

    >>> class Base:
    ...     '''A base.
    ...
    ...     Parameters
    ...     ----------
    ...     speed : float
    ...         How fast.
    ...     '''
    >>> class Car(Base):
    ...     '''A car.'''
    >>> print(inherit_docstring(Car))
    A car.
    <BLANKLINE>
    Parameters
    ----------
    speed : float
        How fast.
    """
    summary, own = _sections(cls.__doc__ or "")
    bases = [_sections(base.__dict__.get("__doc__") or "")[1] for base in cls.__mro__[1:]]
    known: dict[str, str] = {}
    for title in INHERITED:
        entries: dict[str, str] = {}
        for body in (one.get(title, "") for one in (own, *bases)):
            for name, text in _entries(body).items():
                entries.setdefault(name, text)
        if entries:
            known[title] = "\n".join(entries.values())
    rest = {title: body for title, body in own.items() if title not in INHERITED}
    parts = [f"{title}\n{'-' * len(title)}\n{body}" for title, body in (known | rest).items()]
    return "\n\n".join([summary, *parts])


def _sections(doc: str) -> tuple[str, dict[str, str]]:
    """What stands before the first headline, and the text under each."""
    pieces = re.split(r"^([A-Z][A-Za-z ]*)\n-+\n", inspect.cleandoc(doc), flags=re.MULTILINE)
    return pieces[0].strip(), {title: body.strip("\n") for title, body in zip(pieces[1::2], pieces[2::2], strict=True)}


def _entries(body: str) -> dict[str, str]:
    """The entries of a section by name: a line without indent, and what is indented under it."""
    found = re.findall(r"^\S.*(?:\n(?:[ \t].*|)(?=\n|$))*", body, flags=re.MULTILINE)
    return {entry.split(":")[0].split("(")[0].strip(): entry.rstrip() for entry in found}


@dataclass_transform(kw_only_default=False)
def estimator_dataclass(cls: type) -> Any:
    """Make a class an estimator: a dataclass with scikit-learn's `repr`, whose help explains inherited parameters."""
    made: Any = dataclass(eq=False, repr=False)(cls)
    made.__doc__ = inherit_docstring(made)
    return made


class SaveMixin:
    """What can be written to a file."""

    def save(self, path: str | os.PathLike[str], *, stages: bool = False, small: bool = False) -> None:
        """Write the fitted model to a file that `mercer.load` reads; see `mercer.save`."""
        from mercer.files.save import save  # the one import that points up: a method that users look for here

        save(self, path, stages=stages, small=small)


@dataclass(eq=False, repr=False, kw_only=True)
class BaseKernelEstimator(SaveMixin, BaseEstimator):
    """Base of all estimators: a table comes in as an array, frame, tensor, file or source.

    Parameters
    ----------
    scale_inputs : bool or "standard", default True
        True standardises all columns and, where the kernel is tuned and held-out rows speak for it, bends those with
        heavy tails before; "standard" only standardises; False leaves the columns alone.
    categorical_features : "from_dtype", names, numbers or a mask of columns, or None, default "from_dtype"
        Which columns hold categories: those whose type says so (text, pandas' and polars' categories, Arrow's
        dictionaries), these beside them, or none. `columns_` tells what was done with each column.
    time_budget : float or None, default None
        Seconds that `fit` may take, everything counted. The model is then the best that fits into them.
    device : "auto", "cpu", "cuda" or a torch device, default "auto"
        Where kernel values are computed; "auto" takes a CUDA device if there is one.
    dtype : "auto", "float32" or "float64", default "auto"
        Precision of kernel values. "auto" is float32 on CUDA and for more than 10 000 rows, float64 else. Greedy and
        boosted models also take float64 where the rounding of float32 would show beside their own error. Small
        matrices are float64 in any case.
    memory_limit : int, str or None, default None
        Bytes that `fit` and `predict` may take beside the table, as a number or as "4GB"; None is 60 % of what is
        free.
    random_state : int, RandomState or None, default None
        Seed of everything random; an int repeats the fit.
    verbose : bool, default False
        Show one progress bar over all phases of the fit; the logger "mercer" hears of the same events.
    callbacks : function, several or None, default None
        Called with an `Event` after each step of every phase: tuning, race, learners, polish, … (`phase`, `step`,
        `total`, `seconds`, `left`, and the `state` of the fit). One that returns true ends the fit in phases that can
        end early with a model.

    Attributes
    ----------
    n_features_in_ : int
        Columns of `X` in `fit`.
    feature_names_in_ : ndarray of shape (D,)
        Their names, where they had any.
    columns_ : list of dict
        What was done with each column of `X`: name, kind, levels, share of missing values, map, length-scale (in units
        of the mapped column, by the first kernel) and relevance.
    table_ : TableMap
        How columns became numbers, where some were not (categories, dates, missing values).
    fill_ : ndarray of shape (D,)
        What stands for a number that is missing in `predict` alone: the median of some rows.
    constants_ : Constants
        The columns of numbers that had one value in all rows of `fit`, and these values. They have no influence: in
        `predict` they keep that value, whatever `X` holds. Kernels that are functions see all columns as they are.
    """

    scale_inputs: Annotated[bool | str, BOOL | literal("standard")] = True
    categorical_features: Annotated[Any, CATEGORIES] = "from_dtype"
    time_budget: Annotated[float | None, SECONDS] = None
    device: Any = "auto"
    dtype: Any = "auto"
    memory_limit: Any = None
    random_state: Any = None
    verbose: bool = False
    callbacks: Annotated[Any, CALLBACKS] = None

    #: scikit-learn's page of an estimator links to its documentation, where `MERCER_DOCS` names a site that was built.
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
        """What was done with each column."""
        if not hasattr(self, "n_features_in_"):
            raise AttributeError("columns_ is known once the estimator is fitted")
        return column_table(self)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = tags.input_tags.string = tags.input_tags.categorical = not self._pairwise
        tags.input_tags.sparse = True
        return tags

    def _generator(self, group: Group = ALONE) -> np.random.Generator:
        """The one stream of random numbers of a fit, of all processes the same."""
        rng = generator(self.random_state)
        rng.bit_generator.state = group.first(lambda: rng.bit_generator.state)
        return rng

    def _keep(self, **fitted: Any) -> Self:
        return keep(self, **fitted)


def keep(estimator: Any, **fitted: Any) -> Any:
    """Replace all that an earlier fit left behind by `fitted`, in one step; its tensors become arrays.

    `_warm`, with which a fit goes on, is left as it is.
    """
    known = {name: value if name == "_warm" else to_numpy(value) for name, value in fitted.items() if value is not None}
    for name in vars(estimator).get("_kept", ()):
        delattr(estimator, name)
    vars(estimator).update(known, _kept=tuple(known))
    return estimator

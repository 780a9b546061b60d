"""The base of every estimator: the parameters all of them share, declared, ranged and explained once.

A face is a dataclass that lists its own parameters and inherits these. Its `fit` checks, reads, prepares, calls one
algorithm and keeps what that returns, in this order; until it keeps, the estimator is as it was before.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Self, dataclass_transform

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state

from mercer.border.columns import column_table
from mercer.border.explained import explained
from mercer.border.kept import on_host
from mercer.border.rules import CALLBACKS, CATEGORIES, SECONDS, SWITCH, literal

#: The variable that holds the address of the documentation: that of a server, or file:///… of a site built here.
DOCUMENTATION = "MERCER_DOCS"


@dataclass_transform(kw_only_default=False)
def face(cls: type) -> Any:
    """Make a class an estimator: a dataclass with scikit-learn's `repr`, whose help explains inherited parameters."""
    made: Any = dataclass(eq=False, repr=False)(cls)
    made.__doc__ = explained(made)
    return made


class Saved:
    """What can be written to a file."""

    def save(self, path: str | os.PathLike[str], *, stages: bool = False, small: bool = False) -> None:
        """Write the fitted model to a file that `mercer.load` reads; see `mercer.save`."""
        from mercer.files.save import save  # the one import that points up: a method that users look for here

        save(self, path, stages=stages, small=small)


@dataclass(eq=False, repr=False, kw_only=True)
class Face(Saved, BaseEstimator):
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
        Precision of kernel values. "auto" is float32 on CUDA and for many rows, float64 else; small matrices are
        float64 in any case.
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
    """

    scale_inputs: Annotated[bool | str, SWITCH | literal("standard")] = True
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

    @property
    def columns_(self) -> list[dict[str, Any]]:
        """What was done with each column."""
        if not hasattr(self, "n_features_in_"):
            raise AttributeError("columns_ is known once the estimator is fitted")
        return column_table(self)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = tags.input_tags.string = tags.input_tags.categorical = not self._pairwise
        return tags

    def _generator(self) -> np.random.Generator:
        """The one stream of random numbers of a fit; a `RandomState` that was passed in moves on."""
        return np.random.default_rng(check_random_state(self.random_state).randint(2**31))

    def _keep(self, **fitted: Any) -> Self:
        return keep(self, **fitted)


def keep(estimator: Any, **fitted: Any) -> Any:
    """Replace all that an earlier fit left behind by `fitted`, in one step; its tensors become arrays.

    `_warm`, with which a fit goes on, is left as it is.
    """
    known = {name: value if name == "_warm" else on_host(value) for name, value in fitted.items() if value is not None}
    for name in vars(estimator).get("_kept", ()):
        delattr(estimator, name)
    vars(estimator).update(known, _kept=tuple(known))
    return estimator

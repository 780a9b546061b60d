"""Columns whose codes the user names: `cyclic_features` and `spherical_features`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mercer.data.raw import RawColumn
from mercer.parts import require
from mercer.preprocessing.columns_read import column_index

#: Names of latitudes and longitudes that `spherical_features="from_names"` finds, in small letters.
LATITUDES, LONGITUDES = ("latitude", "lat"), ("longitude", "long", "lon", "lng")


@dataclass(frozen=True)
class DeclaredCodes:
    """The period of each cyclic column, and the longitude of each latitude, by the numbers of columns."""

    periods: dict[int, float] = field(default_factory=dict)
    places: dict[int, int] = field(default_factory=dict)

    @classmethod
    def of(cls, estimator: Any, columns: Sequence[RawColumn]) -> DeclaredCodes:
        """Those that an estimator names; refuse columns that are not numbers, or named twice."""
        names = [column.name for column in columns]
        cyclic, pairs = getattr(estimator, "cyclic_features", None), getattr(estimator, "spherical_features", None)
        periods = {column_index(c, names, "cyclic_features"): float(p) for c, p in (cyclic or {}).items()}
        found = _named_pairs(names) if isinstance(pairs, str) else pairs or ()
        places = {}
        for latitude, longitude in found:
            index = column_index(latitude, names, "spherical_features")
            places[index] = column_index(longitude, names, "spherical_features")
        used = [*periods, *places, *places.values()]
        for index in used:
            kind, name = columns[index].kind, columns[index].name
            numeric = kind in ("number", "bool")
            require(numeric, f"column {name!r} of X", "of numbers where it is a cycle or a place", f"of kind {kind!r}")
            once = used.count(index) == 1
            require(once, f"column {name!r} of X", "named once in cyclic_features and spherical_features", "twice")
        return cls(periods, places)


def names_codes(estimator: Any) -> bool:
    """Whether an estimator names the codes of any column."""
    return bool(getattr(estimator, "cyclic_features", None)) or bool(getattr(estimator, "spherical_features", None))


def _named_pairs(names: Sequence[str]) -> list[tuple[str, str]]:
    """Pairs whose names differ in "latitude" and "longitude", or short forms of these, alone.

    >>> _named_pairs(["start_lat", "start_lng", "Latitude", "age", "Longitude", "platform"])
    [('start_lat', 'start_lng'), ('Latitude', 'Longitude')]
    """
    small = [name.lower() for name in names]
    pairs = []
    for index, name in enumerate(small):
        word = next((word for word in LATITUDES if name == word or name.endswith(f"_{word}")), None)
        partners = [] if word is None else [name[: -len(word)] + other for other in LONGITUDES]
        found = np.flatnonzero(np.isin(small, partners))
        pairs += [(names[index], names[found[0]])] if len(found) else []
    return pairs

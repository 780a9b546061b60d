"""Read a data set from a folder of ``.npz`` files, which the environment variable ``MERCER_DATA`` names.

A file has arrays `X` and `y`, and optionally `X_test`, `y_test`, `test_mask`, `cat` and a JSON string `info`. Files are
never unpickled. `sklearn.datasets` downloads public data sets.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.model_selection import train_test_split
from sklearn.utils import Bunch

from mercer.parts import require


def available() -> list[str]:
    """Return the names that `load` accepts: those of the files in the ``MERCER_DATA`` folder."""
    return sorted(path.stem for path in _folder().glob("*.npz"))


def load(name: str) -> Bunch:
    """Load a data set: its arrays, and `info` as a dict."""
    require(name in available(), "name", f"one of {available()}", name)
    path = _folder() / f"{name}.npz"
    arrays = _arrays(path)
    if not {"X", "y"} <= arrays.keys() and "series" not in arrays:
        raise ValueError(f"{path} must hold arrays X and y, or a series, got {sorted(arrays)}")
    bunch = Bunch(**{key: a.item() if a.ndim == 0 else a for key, a in arrays.items()} | {"name": name})
    bunch["info"] = _parsed(path, bunch.get("info", "{}"))
    return bunch


def split(bunch: Bunch, test_size: float = 0.1, seed: Any = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Split all rows at random, training and test files pooled: ``X_train, X_test, y_train, y_test``.

    This is the protocol of Boost10: 36 000 and 4000 rows of KIN40K, 522 910 and 58 102 of COVTYPE.

    >>> halves = Bunch(X=np.zeros((6, 2)), y=np.zeros(6), X_test=np.ones((4, 2)), y_test=np.ones(4))
    >>> [len(part) for part in split(halves, test_size=0.1)]
    [9, 1, 9, 1]
    """
    X, y = bunch["X"], bunch["y"]
    if X.ndim != 2:
        raise ValueError(f"X must be a table of rows and columns to be split, got shape {X.shape}")
    if "X_test" in bunch:
        X, y = np.concatenate([X, bunch["X_test"]]), np.concatenate([y, bunch["y_test"]])
    X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=test_size, random_state=seed)
    return X_train, X_test, y_train, y_test


def _folder() -> Path:
    named = os.environ.get("MERCER_DATA")
    if not named or not Path(named).is_dir():
        raise NotADirectoryError(f"MERCER_DATA must name a folder of .npz files, got {named!r}")
    return Path(named)


def _arrays(path: Path) -> dict[str, np.ndarray]:
    try:
        with open(path, "rb") as opened, np.load(opened, allow_pickle=False) as file:
            return {key: file[key] for key in file.files}
    except Exception as error:  # zip, zlib and NumPy raise different errors
        raise ValueError(f"{path} must be an .npz file of arrays, whole and undamaged: {error}") from error


def _parsed(path: Path, info: Any) -> dict[str, Any]:
    try:
        parsed = json.loads(info)
    except (TypeError, ValueError):
        parsed = None
    require(isinstance(parsed, dict), f"{path}: info", "a JSON object as text", str(info)[:60])
    return parsed

"""Read a data set from a folder, or download it once and cache it.

A set is one ``.npz`` file with arrays `X` and `y`, and optionally `X_test`, `y_test`, `test_mask`, `cat` and a JSON
string `info`. `load` searches the folder named by the environment variable ``MERCER_DATA``, then the cache
(``MERCER_CACHE``, or the platform's cache folder), and downloads the set if neither has it. Files are never unpickled.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import tempfile
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.model_selection import train_test_split
from sklearn.utils import Bunch

from mercer.atomic_write import write_atomically
from mercer.datasets.registry import REGISTRY, Dataset


def available() -> list[str]:
    """Return the names that `load` accepts: the registry's, and every file of the ``MERCER_DATA`` folder.

    >>> "kin40k" in available()
    True
    """
    folder = data_folder()
    return sorted({*REGISTRY, *(path.stem for path in folder.glob("*.npz"))} if folder else REGISTRY)


def load(name: str) -> Bunch:
    """Load a data set: its arrays, `info` as a dict, and, if known, `description` and `licence`.

    A downloaded file whose checksum differs from the registry's is refused. The checksums of the downloaded files are
    recorded in ``info["sha256"]``.
    """
    if name not in available():
        raise ValueError(f"name must be one of {available()}, got {name!r}")
    folder = data_folder()
    if folder and (path := folder / f"{name}.npz").exists():
        return _read(path, name)
    path = cache_folder() / f"{name}.npz"
    if not path.exists():
        found = _download(REGISTRY[name])
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, lambda file: np.savez_compressed(file, **found | {"info": json.dumps(found["info"])}))
    return _read(path, name)


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


def data_folder() -> Path | None:
    """Return the folder named by ``MERCER_DATA``, or None."""
    if not (named := os.environ.get("MERCER_DATA")):
        return None
    if not Path(named).is_dir():
        raise NotADirectoryError(f"MERCER_DATA must name a folder of .npz files, got {named!r}")
    return Path(named)


def cache_folder() -> Path:
    """Return the folder of downloaded sets: ``MERCER_CACHE``, or one in the platform's cache folder."""
    if named := os.environ.get("MERCER_CACHE"):
        return Path(named)
    home = Path.home()
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA", home / "AppData" / "Local"))
    elif sys.platform == "darwin":
        base = home / "Library" / "Caches"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache")
    return base / "mercer"


def _read(path: Path, name: str) -> Bunch:
    arrays = _arrays(path)
    if not {"X", "y"} <= arrays.keys() and "series" not in arrays:
        raise ValueError(f"{path} must hold arrays X and y, or a series, got {sorted(arrays)}")
    bunch = Bunch(**{key: a.item() if a.ndim == 0 else a for key, a in arrays.items()} | {"name": name})
    bunch["info"] = _parsed(path, bunch.get("info", "{}"))
    if name in REGISTRY:
        bunch["description"], bunch["licence"] = REGISTRY[name].description, REGISTRY[name].licence
    return bunch


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
    if not isinstance(parsed, dict):
        raise ValueError(f"{path}: info must be a JSON object as text, got {str(info)[:60]!r}")
    return parsed


def _download(dataset: Dataset) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        paths, seen = [], []
        for i, (url, wanted) in enumerate(dataset.files):
            paths.append(Path(folder, str(i)))
            seen.append(_copy(url, paths[-1], dataset.name))
            if wanted not in (None, seen[-1]):
                raise ValueError(f"{url} must have SHA-256 {wanted}, got {seen[-1]}; nothing was kept")
        arrays = dataset.loader(paths)
    source = {"url": [url for url, _ in dataset.files], "sha256": seen}
    return arrays | {"info": arrays.get("info", {}) | source}


def _copy(url: str, path: Path, name: str) -> str:
    """Copy the file at `url` to `path`; return its SHA-256."""
    digest = hashlib.sha256()
    try:
        with urllib.request.urlopen(url, timeout=60) as response, open(path, "wb") as file:
            while chunk := response.read(1 << 20):
                digest.update(chunk)
                file.write(chunk)
            promised = int(response.headers.get("Content-Length") or file.tell())
            if file.tell() != promised:  # a broken connection looks like the end of the file
                raise ConnectionError(f"{file.tell()} bytes came of {promised}")
    except (urllib.error.URLError, TimeoutError, ConnectionError) as error:
        reason = getattr(error, "reason", error)
        raise ConnectionError(
            f"{name} could not be fetched from {url} ({reason}); "
            f"without a network, put {name}.npz with arrays X and y into a folder named by MERCER_DATA"
        ) from error
    return digest.hexdigest()

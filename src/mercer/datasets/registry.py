"""Public data sets: address, checksum, loader and licence of each.

A loader turns the downloaded files into named arrays; `mercer.datasets.fetch` downloads, checks and caches them. To add
a set, put a `Dataset` into `REGISTRY`.
"""

from __future__ import annotations

import gzip
import tarfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

Loader = Callable[[Sequence[Path]], dict[str, Any]]


@dataclass(frozen=True)
class Dataset:
    """A data set on the web, in one file or several.

    `files` holds the URL and the SHA-256 of each file. A checksum of None means that no trustworthy one is published:
    the download is then accepted, and its checksum recorded in ``info["sha256"]`` of the result of `load`.
    """

    name: str
    files: tuple[tuple[str, str | None], ...]
    loader: Loader
    licence: str
    description: str


# Loaders


def table(*, target: int = -1, drop: Sequence[int] = (), delimiter: str | None = ",", classes: bool = False) -> Loader:
    """Return a loader of a text table whose nominal columns become integer codes in sorted order.

    The names of the codes go to ``info``, and `cat` marks the nominal inputs. With `classes` the target holds class
    labels: integers stay, names become integer codes.
    """

    def load(paths: Sequence[Path]) -> dict[str, Any]:
        lines = paths[0].read_text(encoding="utf-8").splitlines()
        text = np.array([line.split(delimiter) for line in lines if line.strip()])
        target_column = target % text.shape[1]
        y, class_names = _numbers_or_codes(text[:, target_column])
        left_out = {target_column, *drop}
        columns = [_numbers_or_codes(text[:, j]) for j in range(text.shape[1]) if j not in left_out]
        info: dict[str, Any] = {"classes": class_names}
        info["categories"] = {str(j): names for j, (_, names) in enumerate(columns) if names}
        return {
            "X": np.column_stack([values for values, _ in columns]),
            "y": y.astype(np.int64) if classes else y,
            "cat": np.array([names is not None for _, names in columns]),
            "info": info,
        }

    return load


def _numbers_or_codes(column: np.ndarray) -> tuple[np.ndarray, list[str] | None]:
    try:
        return column.astype(np.float64), None
    except ValueError:
        names, codes = np.unique(column, return_inverse=True)
        return codes.astype(np.float64), names.tolist()


def load_arff_numbers(paths: Sequence[Path]) -> dict[str, Any]:
    """Load an ARFF file of numeric attributes, the last of which is the target."""
    with open(paths[0], encoding="utf-8") as lines:
        for line in lines:
            if line.strip().lower() == "@data":
                break
        return _last_is_target(lines)


def load_kin40k(paths: Sequence[Path]) -> dict[str, Any]:
    """Load training inputs and targets, then test inputs and targets, from four files."""
    X, y, X_test, y_test = (np.loadtxt(path) for path in paths)
    return {"X": X, "y": y, "X_test": X_test, "y_test": y_test}


def load_covtype(paths: Sequence[Path]) -> dict[str, Any]:
    """Load 54 inputs of integers, exact in float32, and the cover type from 1 to 7."""
    with gzip.open(paths[0], "rt") as lines:
        arrays = _last_is_target(lines, np.float32)
    return {"X": arrays["X"], "y": arrays["y"].astype(np.int8)}


def load_cal_housing(paths: Sequence[Path]) -> dict[str, Any]:
    """Load eight inputs and the median house value from a compressed archive."""
    with tarfile.open(paths[0]) as archive:
        member = archive.extractfile("CaliforniaHousing/cal_housing.data")
        assert member is not None  # it is a plain file
        return _last_is_target(line.decode() for line in member)


def _last_is_target(lines: Iterable[str], dtype: type = np.float64) -> dict[str, Any]:
    rows: np.ndarray = np.loadtxt(lines, dtype, delimiter=",", ndmin=2)
    return {"X": np.ascontiguousarray(rows[:, :-1]), "y": rows[:, -1].copy()}


# The sets

_UCI = "https://archive.ics.uci.edu/ml/machine-learning-databases/"
_ARFF = "https://raw.githubusercontent.com/renatopp/arff-datasets/c59f172882592bb58982cc54d2d3c8a2b57e9b73/regression/"
_KIN40K = "https://raw.githubusercontent.com/trungngv/fgp/a981e1bd17f12672a00a933c28f28beffe404d48/data/kin40k/kin40k_"
_FIGSHARE = "https://ndownloader.figshare.com/files/"
_UCI_LICENCE = "CC BY 4.0 (UCI Machine Learning Repository)"

# fmt: off
_UCI_SETS = {
    "abalone": ("abalone/abalone.data", table(),
                "Rings of abalone shells, 4177 rows x 8, the sex nominal; regression."),
    "ecoli": ("ecoli/ecoli.data", table(drop=(0,), delimiter=None, classes=True),
              "Localisation sites of proteins, 336 rows x 7; 8 classes."),
    "ionosphere": ("ionosphere/ionosphere.data", table(classes=True),
                   "Radar returns, 351 rows x 34, the second input constant; 2 classes."),
    "letter": ("letter-recognition/letter-recognition.data", table(target=0, classes=True),
               "Printed capital letters, 20 000 rows x 16; 26 classes."),
    "sonar": ("undocumented/connectionist-bench/sonar/sonar.all-data", table(classes=True),
              "Sonar echoes of mines and rocks, 208 rows x 60; 2 classes."),
    "spambase": ("spambase/spambase.data", table(classes=True),
                 "Word frequencies of e-mails, 4601 rows x 57; 2 classes."),
    "wdbc": ("breast-cancer-wisconsin/wdbc.data", table(target=1, drop=(0,), classes=True),
             "Wisconsin breast cancer diagnoses, 569 rows x 30; 2 classes."),
}
# fmt: on
_SETS = (
    Dataset(
        "kin40k",
        (
            (f"{_KIN40K}train_data.asc", "586beb1ebe6ed0bd8988d86494183b438814ca3ee56b7616b917ff0a8e3cca55"),
            (f"{_KIN40K}train_labels.asc", "0a5851bda3dabfb2009aeb0ff7e781c85221db0dad91e6cdc7948bd97173b005"),
            (f"{_KIN40K}test_data.asc", "75ff1d28e23e5be45fc70094dcf2bba4e93af585fa75dd6790c7f69710224ce0"),
            (f"{_KIN40K}test_labels.asc", "3a6568c4824f9cc83e3e9df900ef146aea11e383d466daabb9eea50949cbffe0"),
        ),
        load_kin40k,
        "not stated",
        "Robot-arm kinematics, 10 000 + 30 000 rows x 8, standardised; regression.",
    ),
    Dataset(
        "kin8nm",
        ((f"{_ARFF}kin8nm.arff", "64a4d839e3ce2fd57f57a21d612392170a57f9612fdd56a8fc35b4e7a5d59881"),),
        load_arff_numbers,
        "not stated (DELVE)",
        "Robot-arm kinematics, nonlinear, medium noise, 8192 rows x 8; regression.",
    ),
    Dataset(
        "house_8L",
        ((f"{_ARFF}house8L.arff", "7fdd550aee31efd8318eb4a5927a0daa3e0e89c09ff58d8735c96e079439d6cc"),),
        load_arff_numbers,
        "not stated (DELVE)",
        "Median house price from the 1990 US census, 22 784 rows x 8; regression.",
    ),
    Dataset(
        "cal_housing",
        ((f"{_FIGSHARE}5976036", "aaa5c9a6afe2225cc2aed2723682ae403280c4a3695a2ddda4ffb5d8215ea681"),),
        load_cal_housing,
        "not stated (StatLib)",
        "Median house value of Californian districts, 20 640 rows x 8; regression.",
    ),
    Dataset(
        "covtype",
        ((f"{_FIGSHARE}5976039", "614360d0257557dd1792834a85a1cdebfadc3c4f30b011d56afee7ffb5b15771"),),
        load_covtype,
        _UCI_LICENCE,
        "Forest cover type, 581 012 rows x 54; 7 classes, or class 2 against the rest.",
    ),
    *(
        Dataset(name, ((_UCI + path, None),), loader, _UCI_LICENCE, about)
        for name, (path, loader, about) in _UCI_SETS.items()
    ),
)

REGISTRY: dict[str, Dataset] = {dataset.name: dataset for dataset in _SETS}

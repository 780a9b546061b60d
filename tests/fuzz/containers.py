"""The same table as a list, arrays of many kinds, frames, tensors, memory maps and files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse
import torch

try:
    import polars as pl
except ImportError:  # a machine without it draws the same cases, with a pandas frame in its place
    pl = None


def _memory_map(X: np.ndarray, folder: Path) -> Any:
    np.save(folder / "map.npy", X)
    return np.load(folder / "map.npy", mmap_mode="r")


def _npy(X: np.ndarray, folder: Path) -> Any:
    np.save(folder / "x.npy", X)
    return folder / "x.npy"


def _csv(X: np.ndarray, folder: Path) -> Any:
    _frame(X).to_csv(folder / "x.csv", index=False)
    return str(folder / "x.csv")


def _parquet(X: np.ndarray, folder: Path) -> Any:
    _frame(X).to_parquet(folder / "x.parquet", row_group_size=7)
    return folder / "x.parquet"


def _frame(X: np.ndarray) -> pd.DataFrame:
    return pd.DataFrame(X, columns=[f"x{j}" for j in range(X.shape[1])])


def _polars(X: np.ndarray, _: Path) -> Any:
    return _frame(X) if pl is None else pl.DataFrame(X, schema=[f"x{j}" for j in range(X.shape[1])], orient="row")


def _gap(X: np.ndarray, _: Path) -> Any:
    return (pd if pl is None else pl).DataFrame({"x0": [None] * len(X)})


def _mixed(X: np.ndarray, _: Path) -> Any:
    """Categories, dates, durations and gaps beside the numbers."""
    days, words = np.arange(len(X)) % 40, np.array(["oak", "elm", "ash", None], dtype=object)
    return _frame(X).assign(
        kind=pd.Categorical(words[days % 4]),
        day=pd.Timestamp("2024-01-01") + pd.to_timedelta(days, unit="D"),
        lasted=pd.to_timedelta(days, unit="h"),
        gaps=np.where(days % 5 == 0, np.nan, X[:, 0]),
    )


#: Containers that change no number of the table.
FAITHFUL = {
    "array": lambda X, _: X,
    "Fortran order": lambda X, _: np.asfortranarray(X),
    "strided": lambda X, _: np.repeat(X, 2, axis=1)[:, ::2],
    "reversed": lambda X, _: X[::-1].copy()[::-1],
    "read-only": lambda X, _: np.frombuffer(X.tobytes()).reshape(X.shape),
    "big-endian": lambda X, _: X.astype(">f8"),
    "list": lambda X, _: X.tolist(),
    "pandas": lambda X, _: _frame(X),
    "polars": _polars,
    "tensor": lambda X, _: torch.from_numpy(X.copy()),
    "tensor with gradient": lambda X, _: torch.from_numpy(X.copy()).requires_grad_(),
    "memory map": _memory_map,
    ".npy file": _npy,
    ".csv file": _csv,
    ".parquet file": _parquet,
}
#: Containers that round, or hold what no table should.
HOSTILE = {
    "float32": lambda X, _: X.astype(np.float32),
    "float16": lambda X, _: X.astype(np.float16),
    "long double": lambda X, _: X.astype(np.longdouble),
    "int": lambda X, _: np.clip(X, -1e9, 1e9).astype(int),
    "bool": lambda X, _: X > 0,
    "bfloat16": lambda X, _: torch.from_numpy(X.copy()).to(torch.bfloat16),
    "complex": lambda X, _: X + 1j,
    "objects": lambda X, _: X.astype(object),
    "None among objects": lambda X, _: np.where(X > 0, X.astype(object), None),
    "text": lambda X, _: X.astype(str),
    "words": lambda X, _: np.full(X.shape, "oak"),
    "sparse": lambda X, _: scipy.sparse.csr_array(X),
    "sparse tensor": lambda X, _: torch.from_numpy(X.copy()).to_sparse(),
    "dates": lambda X, _: np.zeros(X.shape, "datetime64[s]"),
    "masked": lambda X, _: np.ma.masked_array(X, X > 0),
    "dictionary": lambda X, _: {"x": X},
    "None": lambda X, _: None,
    "a word": lambda X, _: "oak",
    "categories": lambda X, _: _frame(X).assign(x0=pd.Categorical(["oak"] * len(X))),
    "nullable with a gap": lambda X, _: _frame(X).astype("Float64").mask(X > 1),
    "mixed names": lambda X, _: pd.DataFrame(X, columns=[str(j) if j % 2 else j for j in range(X.shape[1])]),
    "null in polars": _gap,
    "mixed": _mixed,
    "durations": lambda X, _: _frame(X).assign(x0=pd.to_timedelta(np.arange(len(X)), unit="h")),
}


def contain(X: np.ndarray, rng: np.random.Generator, folder: Path, hostile: bool) -> tuple[str, Any]:
    """The table in a container drawn at random, and what it is called; what is no table stays an array."""
    if X.ndim != 2 or 0 in X.shape:
        return "array", X
    table = FAITHFUL | HOSTILE if hostile else FAITHFUL
    kind = str(rng.choice(list(table)))
    with np.errstate(all="ignore"):
        return kind, table[kind](X, folder)

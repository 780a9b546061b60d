"""Random damage to files of every format: what is read is the table, or a sentence says what is wrong."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import mercer
from mercer.data import CsvRows, LibsvmRows, NpyRows, ParquetRows, as_source

N, D = 30, 3


def broken_file_case(rng: np.random.Generator, folder: Path, story: list[str]) -> None:
    """Write a file, damage it, open it with odd options, read it, and perhaps fit and predict from it."""
    X = rng.normal(size=(N, D))
    y = X.sum(1)
    reader, path = _WRITERS[int(rng.integers(len(_WRITERS)))](X, y, folder, rng)
    damage = whole if rng.random() < 0.3 else _DAMAGES[int(rng.integers(len(_DAMAGES)))]
    path.write_bytes(damage(bytearray(path.read_bytes()), rng))
    sane = {} if reader is LibsvmRows else {"target": 3}
    options = sane if rng.random() < 0.6 else _options(reader, rng)
    story += [path.name, damage.__name__, f"{options}"]
    source = reader(path, **options) if rng.random() < 0.8 else as_source(path)
    rows = np.concatenate([np.asarray(block) for _, block in source.blocks(int(rng.integers(1, 40)))])
    assert rows.shape == (source.n_rows, source.n_columns)
    taken = source.take(np.arange(source.n_rows)[:: int(rng.integers(1, 5))])
    assert taken.shape[1] == source.n_columns
    source.targets()
    if rng.random() < 0.3:
        model = mercer.KernelBoostingRegressor(2, learner_size=5, tuning_rows=20, random_state=0)
        assert np.isfinite(model.fit(source).predict(source)).all()


def _csv(X: np.ndarray, y: np.ndarray, folder: Path, rng: np.random.Generator) -> tuple[Any, Path]:
    frame = pd.DataFrame(np.column_stack([X, y]), columns=["a", "b", "c", "y"])
    frame.to_csv(folder / "t.csv", index=False, header=bool(rng.random() < 0.8))
    return CsvRows, folder / "t.csv"


def _npy(X: np.ndarray, y: np.ndarray, folder: Path, rng: np.random.Generator) -> tuple[Any, Path]:
    kinds = ("<f8", ">f8", "<f4", "<i4", "<f2", "<c16", "<U5", "bool")
    table = np.column_stack([X, y]).astype(kinds[int(rng.integers(len(kinds)))])
    np.save(folder / "t.npy", table.T.copy().T if rng.random() < 0.3 else table)
    return NpyRows, folder / "t.npy"


def _libsvm(X: np.ndarray, y: np.ndarray, folder: Path, rng: np.random.Generator) -> tuple[Any, Path]:
    lines = [" ".join([f"{t}", *(f"{j + 1}:{v}" for j, v in enumerate(x))]) for x, t in zip(X, y, strict=True)]
    (folder / "t.svm").write_text("\n".join(lines) + "\n")
    return LibsvmRows, folder / "t.svm"


def _parquet(X: np.ndarray, y: np.ndarray, folder: Path, rng: np.random.Generator) -> tuple[Any, Path]:
    frame = pd.DataFrame(np.column_stack([X, y]), columns=["a", "b", "c", "y"])
    frame.to_parquet(folder / "t.parquet", row_group_size=int(rng.integers(1, 40)), write_page_checksum=True)
    return ParquetRows, folder / "t.parquet"


_WRITERS = (_csv, _npy, _libsvm, _parquet)


def _options(reader: Any, rng: np.random.Generator) -> dict[str, Any]:
    targets = ("y", 3, -1, None, "absent", 9, 1.5, True)
    drawn = {"target": targets[int(rng.integers(len(targets)))]} if rng.random() < 0.8 else {}
    if reader is LibsvmRows:
        return {"n_columns": [None, 3, 2, 5, "3", 0, 2.0][int(rng.integers(7))]}
    if reader is CsvRows and rng.random() < 0.2:
        drawn["delimiter"] = [";", 5, "", "ab", '"', "\n", "\t"][int(rng.integers(7))]
    if reader is not NpyRows and rng.random() < 0.2:
        drawn["columns"] = [["a"], ["b", 0], [], "ab", ["a", "a"], 3, [1.5]][int(rng.integers(7))]
    return drawn


def whole(content: bytearray, rng: np.random.Generator) -> bytes:
    return bytes(content)


def cut_short(content: bytearray, rng: np.random.Generator) -> bytes:
    return bytes(content[: int(rng.integers(len(content)))])


def bytes_changed(content: bytearray, rng: np.random.Generator) -> bytes:
    for _ in range(int(rng.integers(1, 5))):
        content[int(rng.integers(len(content)))] = int(rng.integers(256))
    return bytes(content)


def bytes_lost(content: bytearray, rng: np.random.Generator) -> bytes:
    start = int(rng.integers(len(content)))
    return bytes(content[:start] + content[start + int(rng.integers(1, 40)) :])


def doubled(content: bytearray, rng: np.random.Generator) -> bytes:
    return bytes(content + content)


def compressed(content: bytearray, rng: np.random.Generator) -> bytes:
    return gzip.compress(bytes(content))


def word_planted(content: bytearray, rng: np.random.Generator) -> bytes:
    words = (b"nan", b"inf", b"1e999", b"oak", b",", b'"', b"\n", b"\r", b"\0", b":", b"#", b"", b"9" * 30, b"\xff")
    at = int(rng.integers(len(content)))
    return bytes(content[:at] + words[int(rng.integers(len(words)))] + content[at:])


def noise(content: bytearray, rng: np.random.Generator) -> bytes:
    return rng.bytes(int(rng.integers(0, 3000)))


_DAMAGES = (cut_short, bytes_changed, bytes_lost, doubled, compressed, word_planted, noise)

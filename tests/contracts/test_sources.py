"""What every source of rows promises, proved on one table told in many ways."""

from __future__ import annotations

import sys
import threading
import time
import tracemalloc
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mercer.data import (
    ArrayRows,
    CsvRows,
    Group,
    LibsvmRows,
    NpyRows,
    ParquetRows,
    PreparedRows,
    TensorRows,
    as_source,
    read_ahead,
    text,
)
from mercer.data import parquet as parquet_module
from mercer.data.source import READY

N, D = 23, 4
NAMES = [f"x{j}" for j in range(D)]
# Halves and zeros: the same numbers in float32, float64 and text.
X = np.random.default_rng(0).integers(-5, 6, (N, D)) / 2
X[0, D - 1] = 1.0  # the last LIBSVM column is seen
Y = np.where(X.sum(1) > 0, 1.0, -1.0)
XY = np.column_stack([X, Y])


def npy(folder):
    np.save(folder / "x.npy", X)
    return as_source(str(folder / "x.npy"))


def npy_with_target_column(folder):
    np.save(folder / "xy.npy", np.insert(X, 2, Y, axis=1))
    return NpyRows(folder / "xy.npy", target=2)


def npy_with_target_file(folder):
    np.save(folder / "x.npy", np.asfortranarray(X))
    np.save(folder / "y.npy", Y)
    return NpyRows(folder / "x.npy", target=folder / "y.npy")


def parquet(folder):
    table = pa.table({"label": Y, **{name: X[:, j] for j, name in enumerate(NAMES)}})
    pq.write_table(table, folder / "table.parquet", row_group_size=5)
    return ParquetRows(folder / "table.parquet", target="label")


def parquet_folder(folder):
    parts = folder / "parts"
    parts.mkdir()
    for part, rows in enumerate([slice(0, 9), slice(9, N)]):
        # Columns in another order and a column of text, both of which a choice of columns must survive.
        table = pa.table(
            {"note": ["n"] * len(Y[rows])}
            | {name: X[rows, j].astype(np.float32) for j, name in reversed(list(enumerate(NAMES)))}
            | {"label": Y[rows]}
        )
        pq.write_table(table, parts / f"{part}.parquet", row_group_size=4)
    return ParquetRows(parts, target=-1, columns=NAMES)


def csv_with_header(folder):
    lines = [";".join(["label", '"x0"', "x1", "x2", "x3"])]
    lines += [";".join(map(str, [y, *x])) for x, y in zip(X, Y, strict=True)]
    (folder / "header.csv").write_bytes("\r\n\r\n".join(lines).encode("utf-8-sig"))
    return CsvRows(folder / "header.csv", target="label", delimiter=";")


def csv_without_header(folder):
    np.savetxt(folder / "plain.csv", XY, delimiter=",", header="a comment")
    return CsvRows(folder / "plain.csv", target=D)


def libsvm(folder):
    lines = ["# a comment"]
    for x, y in zip(X, Y, strict=True):
        lines.append(" ".join([f"{y:+.0f}", *(f"{j + 1}:{v}" for j, v in enumerate(x) if v)]) + " # end")
    (folder / "table.svm").write_text("\n".join(lines))
    return as_source(folder / "table.svm")


WITHOUT_TARGETS = {
    "array": lambda _: as_source(X),
    "reversed array": lambda _: as_source(X[::-1].copy()[::-1]),
    "big-endian array": lambda _: as_source(X.astype(">f8")),
    "float32 tensor": lambda _: as_source(torch.from_numpy(X).float()),
    "pandas": lambda _: as_source(pd.DataFrame(X, columns=NAMES)),
    "polars": lambda _: as_source(pl.DataFrame(X, schema=NAMES)),
    "npy": npy,
}
WITH_TARGETS = {
    "npy, target column": npy_with_target_column,
    "npy, target file": npy_with_target_file,
    "parquet": parquet,
    "parquet folder": parquet_folder,
    "csv with header": csv_with_header,
    "csv without header": csv_without_header,
    "libsvm": libsvm,
}
FACTORIES = WITHOUT_TARGETS | WITH_TARGETS
NAMED = {"pandas", "polars", "parquet", "parquet folder", "csv with header"}


@pytest.fixture(scope="module", params=FACTORIES)
def kind(request):
    return request.param


@pytest.fixture(scope="module")
def source(kind, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text, "MARK_EVERY", 3)  # several marks in a short file
        yield FACTORIES[kind](tmp_path_factory.mktemp("source"))


def same(rows, wanted):
    return rows.shape == wanted.shape and np.array_equal(rows.double().numpy(), wanted)


# The contract


def test_the_shape_is_known_before_rows_are_read(source):
    assert (source.n_rows, source.n_columns) == (N, D)


@settings(max_examples=15, deadline=None)
@given(size=st.integers(1, 2 * N))
def test_blocks_of_any_size_are_the_rows_in_order(source, size):
    starts, blocks = zip(*source.blocks(size), strict=True)
    assert list(starts) == list(range(0, N, size))
    assert all(len(block) == size for block in blocks[:-1])
    assert same(torch.cat(blocks), X)


@settings(max_examples=15, deadline=None)
@given(index=st.lists(st.integers(-N, N - 1), min_size=1, max_size=2 * N))
def test_take_is_indexing_in_any_order_and_with_duplicates(source, index):
    assert same(source.take(np.array(index)), X[index])
    assert same(source.take(torch.tensor(index)), X[index])


def test_rows_that_were_taken_may_be_changed_without_changing_the_source(source):
    rows = source.take([1, 1])
    rows[0] += 1
    assert same(rows[1:], X[1:2])
    assert same(source.take([1]), X[1:2])


def test_taking_no_rows_gives_an_empty_table(source):
    assert source.take(np.array([], dtype=int)).shape == (0, D)


def test_taking_a_row_that_is_not_there_is_refused(source):
    with pytest.raises(IndexError):
        source.take([0, N])


def test_targets_are_those_stored_with_the_rows(source, kind):
    if kind in WITH_TARGETS:
        assert np.array_equal(source.targets(), Y)
    else:
        assert source.targets() is None


def test_names_are_those_of_the_columns(source, kind):
    assert source.names() == (NAMES if kind in NAMED else None)


def test_on_one_process_total_is_the_identity(source):
    scores = torch.tensor([0.5, 3.0, -1.0])
    assert source.total(scores) is scores


@pytest.mark.parametrize("size", [1, 4, 100])
def test_the_runs_of_several_processes_are_the_rows_in_order(source, size):
    parts = []
    for rank in range(3):
        group = Group()
        group.rank, group.size = rank, 3
        rows = source.partition(group)
        blocks = [block for start, block in rows.blocks(size)] or [torch.empty(0, D)]
        parts.append(torch.cat(blocks).double())
        index = np.arange(rows.n_rows)[::-1]
        assert torch.equal(rows.take(index).double(), parts[-1][index.copy()])
    assert np.array_equal(torch.cat(parts).numpy(), X)


def test_prepared_rows_are_the_rows_in_another_precision(source):
    prepared = PreparedRows(source, torch.device("cpu"), torch.float32)
    rows = torch.cat([block for _, block in prepared.blocks(5)])
    assert torch.equal(rows, torch.from_numpy(X.astype(np.float32)))
    assert torch.equal(prepared.take([4, 2]), rows[[4, 2]])


# What single sources promise


def test_a_source_is_its_own_source(source):
    assert as_source(source) is source


def test_single_precision_is_kept(tmp_path):
    frame = pd.DataFrame(X.astype(np.float32), columns=NAMES)
    frame.to_parquet(tmp_path / "x.parquet")
    np.save(tmp_path / "x.npy", frame.to_numpy())
    for given_rows in (frame, pl.DataFrame(frame.to_numpy()), tmp_path / "x.parquet", tmp_path / "x.npy"):
        assert as_source(given_rows).take([0]).dtype == torch.float32


def test_missing_values_and_mixed_types_of_frames_become_floats(tmp_path):
    wanted = np.array([[1.0, 0.5, 1.0], [np.nan, 1.5, 0.0]])
    columns = {"a": [1, None], "b": [0.5, 1.5], "c": [True, False]}
    frame = pl.DataFrame(columns)
    pandas_frame = pd.DataFrame(columns).astype({"a": "Int64", "c": "boolean"})
    frame.write_parquet(tmp_path / "x.parquet")
    for given_rows in (frame, pandas_frame, tmp_path / "x.parquet"):
        np.testing.assert_array_equal(as_source(given_rows).take([0, 1]).numpy(), wanted)


def test_class_names_may_be_targets(tmp_path):
    kinds = np.array(["oak", "elm", "oak"])
    frame = pd.DataFrame({"x": [1.0, 2.0, 3.0], "kind": pd.Categorical(kinds)})
    frame.to_parquet(tmp_path / "t.parquet")
    frame.to_csv(tmp_path / "t.csv", index=False)
    frame.to_csv(tmp_path / "plain.csv", index=False, header=False)
    for rows in (
        ParquetRows(tmp_path / "t.parquet", target="kind"),
        CsvRows(tmp_path / "t.csv", target="kind"),
        CsvRows(tmp_path / "plain.csv", target=1),
    ):
        assert list(rows.targets()) == list(kinds)
        assert same(rows.take([0, 1, 2]), np.array([[1.0], [2.0], [3.0]]))


def test_a_quoted_field_may_hold_the_delimiter(tmp_path):
    (tmp_path / "q.csv").write_text('a,kind,b\n"1","x, y",2\n3,z,4\n')
    rows = CsvRows(tmp_path / "q.csv", target="kind")
    assert same(rows.take([0, 1]), np.array([[1.0, 2.0], [3.0, 4.0]]))
    assert list(rows.targets()) == ["x, y", "z"]


def test_columns_are_chosen_by_name_or_number_in_the_order_given(tmp_path):
    frame = pd.DataFrame(XY, columns=[*NAMES, "label"])
    frame.to_csv(tmp_path / "t.csv", index=False)
    frame.to_parquet(tmp_path / "t.parquet")
    for rows in (
        CsvRows(tmp_path / "t.csv", columns=["x2", 0]),
        ParquetRows(tmp_path / "t.parquet", columns=["x2", 0]),
    ):
        assert rows.names() == ["x2", "x0"]
        assert same(rows.take(np.arange(N)), X[:, [2, 0]])


def test_libsvm_columns_beyond_the_last_index_can_be_asked_for(tmp_path):
    (tmp_path / "t.txt").write_text("1 2:5\n0\n")
    assert as_source(tmp_path / "t.txt").n_columns == 2
    assert same(LibsvmRows(tmp_path / "t.txt", n_columns=3).take([0, 1]), np.array([[0.0, 5, 0], [0, 0, 0]]))


@pytest.mark.parametrize(("reader", "line"), [(CsvRows, "1,2\n"), (LibsvmRows, "1 1:2\n")])
def test_take_reads_only_the_stretch_of_text_where_the_row_lies(tmp_path, monkeypatch, reader, line):
    monkeypatch.setattr(text, "MARK_EVERY", 2048)
    path = tmp_path / "long"
    n_lines = 3 * text.MARK_EVERY
    path.write_text(line * n_lines)
    rows = reader(path)
    # Rows before and after the second stretch are spoiled behind the back of the source.
    spoiled = line.replace("2", "?")
    path.write_text(spoiled * text.MARK_EVERY + line * text.MARK_EVERY + spoiled * (n_lines - 2 * text.MARK_EVERY))
    assert rows.take([text.MARK_EVERY, 2 * text.MARK_EVERY - 1])[:, -1].tolist() == [2, 2]
    with pytest.raises(ValueError, match=f"line {n_lines}: "):
        rows.take([n_lines - 1])


def test_a_memory_map_is_never_held_whole(tmp_path):
    shape = (100_000, 256)  # 205 MB, of which the disk holds nothing
    np.lib.format.open_memmap(tmp_path / "big.npy", mode="w+", dtype=np.float64, shape=shape)[-1] = 1.0
    tracemalloc.start()
    try:
        rows = as_source(tmp_path / "big.npy")
        total = sum(float(block[-1].sum()) for _, block in rows.blocks(2000))
        total += float(rows.take([shape[0] - 1, 0]).sum())
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert total == 2 * shape[1]
    one_block = 2000 * shape[1] * 8
    assert peak < 3 * one_block  # the block in use and the one being made


# Refusals


def test_sparse_input_is_rows_too():
    for sparse in (scipy.sparse.csr_array(X), torch.from_numpy(X).to_sparse()):
        rows = as_source(sparse)
        assert np.array_equal(rows.take([2, 0]).numpy(), X[[2, 0]])
        assert np.array_equal(torch.cat([block for _, block in rows.blocks(3)]).numpy(), X)


@pytest.mark.parametrize(
    ("given_rows", "error", "sentence"),
    [
        ([[1.0]], TypeError, "X must be an array.*, got list"),
        (pd.Series([1.0]), TypeError, "X must be an array.*, got Series"),
        (X[0], ValueError, r"X must be an array of two dimensions, got \(4,\)"),
        (torch.zeros(3), ValueError, r"X must be a tensor of two dimensions, got \(3,\)"),
        (torch.zeros(3, 1, dtype=torch.complex64), ValueError, "real numbers, got torch.complex64"),
        (X.astype(object), ValueError, "X must hold real numbers of at most 64 bits, got object"),
        (pd.DataFrame({"a": [1], "kind": ["oak"]}), ValueError, "column 'kind' must hold numbers, got str"),
        (pl.DataFrame({"a": [1], "kind": ["oak"]}), ValueError, "column 'kind' must hold numbers, got Str"),
        ("rows.xlsx", ValueError, r"the path X must be a folder or end in one of .*, got 'rows\.xlsx'"),
        ("absent.npy", FileNotFoundError, "absent.npy"),
        ("absent.csv", FileNotFoundError, "absent.csv"),
        ("absent.parquet", FileNotFoundError, "absent.parquet"),
    ],
)
def test_what_is_no_table_of_numbers_is_refused_in_a_sentence(given_rows, error, sentence):
    with pytest.raises(error, match=sentence):
        as_source(given_rows)


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("t.csv", "a,b\n1,2\n\n3,oak\n", r"t\.csv, line 4: column 'b' must be a number, got 'oak'"),
        ("t.csv", "1,2\n3,\n", r"t\.csv, line 2: column 1 must be a number, got ''"),
        ("t.csv", "1,2\n3,1_0\n", r"t\.csv, line 2: column 1 must be a number, got '1_0'"),
        ("t.csv", "1,2\n3\n", r"t\.csv, line 2: a row must have 2 fields, got 1"),
        ("t.csv", "1,2\n3,4,5\n", r"t\.csv, line 2: a row must have 2 fields, got 3"),
        ("t.csv", "a;b\n1.5;2\n", r"t\.csv must have .* got lines such as '1\.5;2': pass CsvRows\(path, delimiter=';'"),
        ("t.csv", "1,5;2,3\n2,5;1,5\n", r"delimiter=';'\); pandas\.read_csv reads numbers with commas: decimal=','"),
        ("t.csv", "a,b\n1,2\n3,'2,5'\n".replace("'", '"'), r"must be a number, got '2,5'; pandas\.read_csv reads"),
        ("t.csv", "", r"t\.csv has no rows"),
        ("t.csv", "a,b\n", r"t\.csv has no rows"),
        ("t.svm", "1 1:2\n1 1:oak\n", r"t\.svm, line 2: .* must be index:number, got '1:oak'"),
        ("t.svm", "1 1:2\n1 2\n", r"t\.svm, line 2: .* must be index:number, got '2'"),
        ("t.svm", "1 0:2 1:1\n", r"t\.svm, line 1: indices must count from 1, got '0:2'"),
        ("t.svm", "1 3:2 1:1\n", r"t\.svm, line 1: indices must ascend, got 1 after 3"),
        ("t.svm", "oak 1:2\n", r"t\.svm, line 1: the label must be a number, got 'oak'"),
        ("t.svm", "1\n0\n", r"t\.svm has no index:value pairs"),
        ("t.svm", "\n# nothing\n", r"t\.svm has no rows"),
        ("t.npy", "", r"t\.npy must be a \.npy file"),
        ("t.npy", "oak", r"t\.npy must be a \.npy file"),
        ("t.parquet", "", r"t\.parquet must be a Parquet file"),
        ("t.parquet", "oak", r"t\.parquet must be a Parquet file"),
    ],
)
def test_a_file_with_a_fault_is_refused_with_its_place(tmp_path, name, content, sentence):
    (tmp_path / name).write_text(content)
    with pytest.raises(ValueError, match=sentence):
        read_all(tmp_path / name)


def read_all(path: Path) -> None:
    rows = as_source(path)
    list(rows.blocks(2))
    rows.targets()


def test_a_number_among_class_names_is_kept_but_a_name_among_numbers_is_refused(tmp_path):
    (tmp_path / "t.csv").write_text("x,y\n1,oak\n1,2\n")
    assert list(CsvRows(tmp_path / "t.csv", target="y").targets()) == ["oak", "2"]
    (tmp_path / "t.csv").write_text("x,y\n1,2\n1,oak\n")
    with pytest.raises(ValueError, match=r"line 3: column 'y' must be a number, got 'oak'"):
        CsvRows(tmp_path / "t.csv", target="y").targets()


def test_targets_with_decimal_commas_are_refused_with_what_to_do(tmp_path):
    (tmp_path / "t.csv").write_text("a;b\n1,5;2,3\n")
    with pytest.raises(ValueError, match="column 'b', must hold numbers, got '2,3'; pandas"):
        CsvRows(tmp_path / "t.csv", target="b", delimiter=";").real_targets()


def test_an_address_of_the_web_is_no_path():
    with pytest.raises(ValueError, match="must be a file or folder of this machine"):
        as_source("https://a.org/t.csv")


def test_faulty_npy_files_are_refused_in_a_sentence(tmp_path):
    np.save(tmp_path / "flat.npy", Y)
    np.save(tmp_path / "none.npy", X[:0])
    np.save(tmp_path / "text.npy", np.array([["oak"]]))
    np.save(tmp_path / "x.npy", X[1:])
    for name, sentence in [
        ("flat", "must be an array of two dimensions, got"),
        ("none", "at least one row"),
        ("text", "must hold real numbers of at most 64 bits, got <U3"),
    ]:
        with pytest.raises(ValueError, match=rf"{name}\.npy.*{sentence}"):
            as_source(tmp_path / f"{name}.npy")
    with pytest.raises(ValueError, match=rf"flat\.npy must be of length {N - 1}, got {N}"):
        NpyRows(tmp_path / "x.npy", target=tmp_path / "flat.npy")
    with pytest.raises(ValueError, match="has 4 columns, got column 4"):
        NpyRows(tmp_path / "x.npy", target=4)


def test_faulty_parquet_files_are_refused_in_a_sentence(tmp_path):
    with pytest.raises(ValueError, match=r"is a folder without \.parquet files"):
        as_source(tmp_path)
    pq.write_table(pa.table({"a": [1.0], "b": [2.0]}), tmp_path / "1.parquet")
    with pytest.raises(ValueError, match=r"must have a column 'c', got columns \['a', 'b'\]"):
        ParquetRows(tmp_path, target="c")
    with pytest.raises(ValueError, match="the target 'a' must not be one of the columns"):
        ParquetRows(tmp_path, target="a", columns=["a", "b"])
    pq.write_table(pa.table({"a": [1.0]}), tmp_path / "2.parquet")
    with pytest.raises(ValueError, match=r"2\.parquet must have one column 'b', got 0"):
        as_source(tmp_path)
    pq.write_table(pa.table({"a": [1.0], "b": ["oak"]}), tmp_path / "2.parquet")
    with pytest.raises(ValueError, match=r"2\.parquet: column 'b' must hold numbers, got string"):
        as_source(tmp_path).take([1])
    with pytest.raises(ValueError, match="must hold files whose columns have the same types"):
        as_source(tmp_path).columns()
    pq.write_table(pa.table({"a": pa.array([], "double")}), tmp_path / "none.parquet")
    with pytest.raises(ValueError, match=r"none\.parquet has no rows"):
        as_source(tmp_path / "none.parquet")


def test_parquet_without_pyarrow_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(ImportError, match=r"reading Parquet needs pyarrow: pip install 'mercer\[files\]'"):
        as_source(tmp_path / "t.parquet")


def test_a_column_name_needs_a_header(tmp_path):
    (tmp_path / "t.csv").write_text("1,2\n")
    with pytest.raises(ValueError, match=r"must have a column 'a', got no column names"):
        CsvRows(tmp_path / "t.csv", target="a")


def test_the_source_of_an_array_or_tensor_shares_its_memory():
    assert np.shares_memory(as_source(X).X, X)
    tensor = torch.zeros(2, 2)
    assert as_source(tensor).X is tensor
    assert isinstance(as_source(tensor), TensorRows)
    assert isinstance(as_source(X), ArrayRows)


def counted_blocks(n, made):
    """Blocks of one row, each of which is noted when it is made."""
    for k in range(n):
        made.append(k)
        yield k, torch.full((1, 1), float(k))


def reading_threads():
    return [thread for thread in threading.enumerate() if thread.name.startswith("mercer reads ahead")]


def test_blocks_are_made_while_others_are_worked_on_but_not_too_many():
    made = []
    blocks = read_ahead(counted_blocks(9, made))
    start, block = next(blocks)
    ends = time.monotonic() + 10
    while len(made) < 1 + READY and time.monotonic() < ends:  # nobody asks for them
        time.sleep(0.001)
    time.sleep(0.01)
    assert (start, float(block), len(made)) == (0, 0.0, 1 + READY)
    assert [start for start, _ in blocks] == list(range(1, 9))
    assert not reading_threads()


def test_what_goes_wrong_while_reading_ahead_is_raised_in_its_place():
    def broken():
        yield 0, torch.zeros(1, 1)
        raise ValueError("row 1 is damaged")

    blocks = read_ahead(broken())
    next(blocks)
    with pytest.raises(ValueError, match="row 1 is damaged"):
        next(blocks)
    assert not reading_threads()


def test_whoever_leaves_a_loop_early_ends_the_reading():
    made = []
    for start, _ in read_ahead(counted_blocks(1000, made)):
        if start == 3:
            break
    assert len(made) < 10
    assert not reading_threads()


def test_rows_of_one_large_row_group_are_taken_batch_by_batch(tmp_path, monkeypatch):
    pq.write_table(pa.table({"x": np.arange(100.0), "z": np.arange(100)}), tmp_path / "one.parquet")
    monkeypatch.setattr(parquet_module, "BATCH_ROWS", 8)
    longest, plain = [], ParquetRows._inputs
    monkeypatch.setattr(ParquetRows, "_inputs", lambda self, t: longest.append(t.num_rows) or plain(self, t))
    rows = ParquetRows(tmp_path / "one.parquet", target="z")
    assert rows.take([99, 3, 3, 50])[:, 0].tolist() == [99.0, 3.0, 3.0, 50.0]
    assert longest == [8, 8, 4]  # the batches that hold a wanted row
    assert rows.targets().tolist() == list(range(100))

"""Files with a fault are refused in a sentence that names file and place; columns are found by name."""

from __future__ import annotations

import bz2
import gzip
import io
import struct

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import mercer
from mercer.data import CsvRows, LibsvmRows, NpyRows, ParquetRows, as_source, parquet

X = np.arange(12.0).reshape(4, 3)
TABLE = "a,b,y\n1,2,3\n4,5,6\n7,8,9\n"


def read_all(source):
    rows = [block for _, block in source.blocks(2)]
    source.targets()
    return rows


def npy_with_header(header: bytes) -> bytes:
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + bytes(96)


HUGE_FIELD = f'a,b,y\n1,2,"{"x" * 200_000}"\n'.encode()
FAULTS = {
    "gzip": ("t.csv", gzip.compress(TABLE.encode()), r"t\.csv must be plain text in UTF-8, got .* by gzip"),
    "bzip2": ("t.svm", bz2.compress(b"1 1:1\n"), r"t\.svm must be plain text in UTF-8, got .* by bzip2"),
    "utf-16": ("t.csv", TABLE.encode("utf-16"), r"t\.csv must be plain text in UTF-8, got .* UTF-16"),
    "parquet in csv": ("t.csv", b"PAR1junk", r"t\.csv must be plain text in UTF-8, got .* Parquet"),
    "CR only": ("t.csv", TABLE.replace("\n", "\r").encode(), r"t\.csv must have lines that end in a line feed"),
    "one CR": ("t.csv", b"a,b\n1,2\n3,4\r5,6\n", r"line 3: lines must .* got a carriage return alone"),
    "NUL": ("t.csv", b"a,b\n1,2\n3,\0\n", r"line 3: lines must be text .* got a NUL byte"),
    "huge field": ("t.csv", HUGE_FIELD, r"line 2: fields must be readable, got a line of 200006 characters"),
    "quote across lines": ("t.csv", b'1,2\n1,"2\n3",4\n', r"line 2: a quote must be closed on its line"),
    "not UTF-8": (
        "t.csv",
        b"a,b\n1,\xf6\n",
        r"t\.csv, line 2: column 'b' must be text in UTF-8, got the bytes b'.xf6'",
    ),
    "not UTF-8, quoted": (
        "t.csv",
        b'k,z\n"a,b","\xe9"\n',
        r"line 2: column 'z' must be text in UTF-8.*encoding='cp1252'",
    ),
    "not UTF-8 in the header": ("t.csv", b"k,\xe9\n1,2\n", r"line 1: column 1 must be text in UTF-8"),
    "not UTF-8 in LIBSVM": ("t.svm", b"1 1:1\n2 \xe9:1\n", r"t\.svm, line 2: character 3 must be text in UTF-8"),
    "index of 3e8": ("t.svm", b"1 1:1\n2 300000000:1\n", r"line 2: an index must be at most 1048576.*2\.24 GiB"),
    "index of 1e30": ("t.svm", b"1 1:1\n2 1%s:1\n" % (b"0" * 30), r"line 2: .* more than any memory"),
    "index of 5000 digits": ("t.svm", b"1 %s:1\n" % (b"9" * 5000), r"line 1: .* must be index:number, got '99"),
    "descending": ("t.svm", b"1 2:1 5:1 1:2\n2 1:1\n", r"line 1: indices must ascend, got 1 after 5"),
    "twice": ("t.svm", b"1 1:1 1:2\n", r"line 1: indices must ascend, got 1 after 1"),
    "underscore": ("t.svm", b"1 1:1_0\n", r"line 1: .* must be index:number, got '1:1_0'"),
    "open header": ("t.npy", npy_with_header(b"{'descr': 'garbage" + b" " * 40), r"t\.npy must be a \.npy file"),
    "code as header": ("t.npy", npy_with_header(b"{'descr': print(1), 'shape': (3, 3)}\n"), r"must be a \.npy file"),
    "more rows than bytes": (
        "t.npy",
        npy_with_header(b"{'descr': '<f8', 'fortran_order': False, 'shape': (10000000, 3), }\n"),
        r"t\.npy must be a \.npy file",
    ),
    "negative shape": (
        "t.npy",
        npy_with_header(b"{'descr': '<f8', 'fortran_order': False, 'shape': (-3, 3), }\n"),
        r"t\.npy must be a \.npy file",
    ),
}


@pytest.mark.parametrize(("name", "content", "sentence"), FAULTS.values(), ids=FAULTS)
def test_a_damaged_file_is_refused_with_its_name_and_place(tmp_path, name, content, sentence):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=sentence):
        read_all(as_source(tmp_path / name))


def test_an_archive_called_npy_is_refused_and_closed(tmp_path):
    np.savez(tmp_path / "t.npz", X=X)
    (tmp_path / "t.npz").rename(tmp_path / "t.npy")
    with pytest.raises(ValueError, match=r"t\.npy must be a \.npy file with at least one row"):
        as_source(tmp_path / "t.npy")


def written(tmp_path, content=TABLE, name="t.csv"):
    (tmp_path / name).write_text(content)
    return tmp_path / name


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"delimiter": 5}, "delimiter must be one character, no quote and no line break, got 5"),
        ({"delimiter": '"'}, "delimiter must be one character"),
        ({"delimiter": "\n"}, "delimiter must be one character"),
        ({"encoding": "utf-16"}, "encoding must be the name of a text encoding that extends ASCII.*got 'utf-16'"),
        ({"encoding": "rot13"}, "encoding must be the name of a text encoding"),
        ({"encoding": "cp9999"}, "encoding must be the name of a text encoding"),
        ({"encoding": 5}, "encoding must be the name of a text encoding"),
        ({"target": 1.5}, r"t\.csv: a column must be a name or an integer, got 1\.5"),
        ({"target": True}, "a column must be a name or an integer, got True"),
        ({"target": None, "columns": "ab"}, "columns must be several names or numbers of columns, got 'ab'"),
        ({"target": None, "columns": 3}, "columns must be several names or numbers of columns, got 3"),
        ({"target": "y", "columns": ["a", 0]}, r"t\.csv: each of the columns must be named once"),
        ({"target": "y", "columns": []}, "no input columns besides the target"),
    ],
)
def test_options_of_a_file_are_checked_in_a_sentence(tmp_path, options, sentence):
    with pytest.raises(ValueError, match=sentence):
        CsvRows(written(tmp_path), **options)


@pytest.mark.parametrize("n_columns", ["3", 2.5, 0, -1, True])
def test_the_number_of_columns_is_whole_and_positive(tmp_path, n_columns):
    with pytest.raises(ValueError, match="n_columns must be None or an integer of at least 1, got"):
        LibsvmRows(written(tmp_path, "1 1:1\n", "t.svm"), n_columns=n_columns)


def test_a_target_file_holds_one_target_a_row(tmp_path):
    np.save(tmp_path / "x.npy", X)
    for name, y in (("point", np.float64(3)), ("cube", np.zeros((4, 2, 2)))):
        np.save(tmp_path / f"{name}.npy", y)
        with pytest.raises(ValueError, match=rf"{name}\.npy must be an array of one target a row, got"):
            NpyRows(tmp_path / "x.npy", target=tmp_path / f"{name}.npy")


@pytest.mark.parametrize("path", ["", "a\0.csv"])
def test_a_path_names_something(path):
    with pytest.raises(ValueError, match="the path X must be the name of a file or folder, got"):
        as_source(path)


def test_two_columns_named_like_the_target_are_refused_in_csv_as_in_parquet(tmp_path):
    csv = written(tmp_path, TABLE.replace("b", "y", 1))
    pq.write_table(pa.table([[1.0], [2.0], [3.0]], names=["a", "y", "y"]), tmp_path / "t.parquet")
    for reader, path in ((CsvRows, csv), (ParquetRows, tmp_path / "t.parquet")):
        with pytest.raises(ValueError, match=r"must have one column 'y', got 2"):
            reader(path, target="y")
    assert CsvRows(csv, target=2).names() == ["a", "y"]  # by number there is no doubt


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252", "utf-8", "utf-8-sig"])
def test_levels_that_differ_in_one_byte_stay_apart_in_every_encoding(tmp_path, encoding):
    path = tmp_path / "t.csv"
    path.write_text("k,z,y\ncaf\u00e9,1,caf\u00e9\ncaf\u00e8,2,caf\u00e8\n", encoding=encoding)
    rows = CsvRows(path, target="y", encoding=encoding)
    assert rows.columns()[0].levels == ("caf\u00e8", "caf\u00e9")
    assert rows.targets().tolist() == ["caf\u00e9", "caf\u00e8"]


def test_levels_of_bytes_that_are_no_text_are_refused_instead_of_merged():
    frame = pd.DataFrame({"k": [b"caf\xe9", b"caf\xe8"] * 20, "z": np.arange(40) % 7})
    with pytest.raises(ValueError, match=r"levels of bytes must be text in UTF-8, got b'caf.xe9': decode them first"):
        mercer.NRBFRegressor().fit(frame, np.arange(40.0))


@pytest.mark.parametrize("values", ["258", "uvu"])
def test_two_inputs_of_the_same_name_are_refused_in_fit_as_in_predict(tmp_path, values):
    lines = [f"{place},{value},{place}\n" for place, value in enumerate(values)]
    rows = CsvRows(written(tmp_path, "a,a,y\n" + "".join(lines)), target="y")
    with pytest.raises(ValueError, match=r"the names of the columns of X must be different.*\['a'\] twice"):
        mercer.NRBFRegressor().fit(rows)


def test_a_word_among_numbers_is_shown_as_it_is_written(tmp_path):
    rows = CsvRows(written(tmp_path, "a,k\n1,u\n2,v\n3,u\n0x10,v\n"))
    with pytest.raises(ValueError, match=r"line 5: column 'a' must hold numbers.*, got '0x10';"):
        rows.columns()


def test_a_class_without_a_name_is_refused_with_its_place(tmp_path):
    rows = CsvRows(written(tmp_path, "a,kind\n1,oak\n2,\n"), target="kind")
    with pytest.raises(ValueError, match=r"t\.csv, line 3: column 'kind' must name a class, got ''"):
        rows.targets()
    for names in (["oak", None], ["oak", ""]):
        pq.write_table(pa.table({"a": [1.0, 2.0], "kind": names}), tmp_path / "t.parquet")
        with pytest.raises(ValueError, match=r"t\.parquet, column 'kind': a target must be given in every row"):
            ParquetRows(tmp_path / "t.parquet", target="kind").targets()


@pytest.mark.parametrize("gap", ["", "NA"])
def test_numbers_of_which_the_first_is_missing_are_no_classes(gap, tmp_path):
    (tmp_path / "t.csv").write_text(f"x,price\n1,{gap}\n2,3.5\n3,4\n")
    with pytest.raises(ValueError, match=rf"t\.csv, line 2: column 'price' must be a number, got '{gap}'"):
        CsvRows(tmp_path / "t.csv", target="price").targets()


def test_text_where_numbers_are_wanted_is_refused_with_column_and_file(tmp_path):
    csv = CsvRows(written(tmp_path, "a,kind\n1,oak\n2,elm\n"), target="kind")
    pq.write_table(pa.table({"a": [1.0, 2.0], "kind": ["oak", "elm"]}), tmp_path / "t.parquet")
    for rows in (csv, ParquetRows(tmp_path / "t.parquet", target="kind")):
        with pytest.raises(ValueError, match=r"t\.(csv|parquet), column 'kind', must hold numbers, got '?.*oak"):
            rows.real_targets()
    numbers = CsvRows(written(tmp_path), target="y")
    assert numbers.real_targets().tolist() == [3, 6, 9]


def test_targets_that_are_no_targets_are_refused(tmp_path):
    for kind, column in (("timestamp", pa.array([1, 2], pa.timestamp("s"))), ("list", pa.array([[1.0], [2.0]]))):
        pq.write_table(pa.table({"a": [1.0, 2.0], "y": column}), tmp_path / "t.parquet")
        with pytest.raises(ValueError, match=rf"the target 'y' must be numbers or names of classes, got '{kind}"):
            ParquetRows(tmp_path / "t.parquet", target="y")


def test_a_file_that_lost_rows_after_it_was_opened_is_refused(tmp_path):
    rows = CsvRows(written(tmp_path), target="y")
    written(tmp_path, "a,b,y\n1,2,3\n")
    with pytest.raises(ValueError, match=r"t\.csv must stay as it was when it was opened, got fewer than its 3 rows"):
        read_all(rows)
    with pytest.raises(ValueError, match=r"t\.csv must stay as it was"):
        rows.take([2])


# Columns by name


def test_columns_are_found_by_name_in_any_order_beside_others(tmp_path):
    frame = pd.DataFrame({"note": ["n"] * 4, "c": X[:, 2], "y": X.sum(1), "a": X[:, 0], "b": X[:, 1]})
    frame.to_csv(tmp_path / "t.csv", index=False)
    frame.to_parquet(tmp_path / "t.parquet")
    named = ["a", "b", "c"]
    for given in (
        tmp_path / "t.csv",
        tmp_path / "t.parquet",
        CsvRows(tmp_path / "t.csv", target="y"),
        ParquetRows(tmp_path / "t.parquet", target="y", columns=["c", "b", "a"]),
        frame[["c", "y", "b", "a"]],
    ):
        source = as_source(given, names=named)
        assert source.names() == named
        assert np.array_equal(np.concatenate(read_all(source)), X)
        assert np.array_equal(source.take([2, 0]), X[[2, 0]])
        with pytest.raises(ValueError, match="must have a column 'd'"):
            as_source(given, names=["a", "d"])


def test_targets_are_found_by_name_where_there_are_some(tmp_path):
    frame = pd.DataFrame(X, columns=["a", "y", "b"])
    frame.to_csv(tmp_path / "t.csv", index=False)
    frame.to_parquet(tmp_path / "t.parquet")
    for path in (tmp_path / "t.csv", tmp_path / "t.parquet"):
        source = as_source(path, names=["a", "b"], target="y")
        assert source.target_name == "y"
        assert np.array_equal(source.targets(), X[:, 1])
        assert as_source(path, target="y").names() == ["a", "b"]
        assert as_source(path, names=["a", "b"], target="absent").targets() is None
        assert as_source(path, names=["a", "b"]).targets() is None


def test_choosing_columns_keeps_the_target_that_was_chosen(tmp_path):
    rows = CsvRows(written(tmp_path), target="y")
    assert rows.select(["b"]).targets().tolist() == [3, 6, 9]
    assert rows.select(["y"]).targets() is None
    assert rows.names() == ["a", "b"]  # the source itself stays as it was


def test_what_has_no_names_is_taken_by_position(tmp_path):
    np.save(tmp_path / "x.npy", X)
    plain = written(tmp_path, "1,2,3\n4,5,6\n", "plain.csv")
    for given in (X, tmp_path / "x.npy", plain):
        assert as_source(given, names=["a", "b"]).n_columns == 3
    with pytest.raises(ValueError, match="X must be a source whose columns have names, got a ArrayRows"):
        as_source(X).select(["a"])


# Parquet


def test_take_decodes_only_the_row_groups_that_hold_the_rows(tmp_path, monkeypatch):
    for part in range(2):
        table = pa.table({"a": np.arange(10.0) + 10 * part})
        pq.write_table(table, tmp_path / f"{part}.parquet", row_group_size=3)
    rows = as_source(tmp_path)
    decoded = []
    opened = parquet._open

    class Spy:
        def __init__(self, path, file):
            self.path, self.file = path, file

        def iter_batches(self, *, row_groups, **options):
            decoded.extend((self.path.name, group) for group in row_groups)
            return self.file.iter_batches(row_groups=row_groups, **options)

    @parquet.contextmanager
    def watched(path):
        with opened(path) as file:
            yield Spy(path, file)

    monkeypatch.setattr(parquet, "_open", watched)
    assert rows.take([19, 4, 5, 19])[:, 0].tolist() == [19, 4, 5, 19]
    assert decoded == [("0.parquet", 1), ("1.parquet", 3)]


def test_a_parquet_file_damaged_inside_is_refused_with_its_name(tmp_path):
    table = pa.table({"a": np.random.default_rng(0).normal(size=2000)})
    buffer = io.BytesIO()
    pq.write_table(table, buffer, write_page_checksum=True)
    content = bytearray(buffer.getvalue())
    content[5000:5100] = bytes(100)
    (tmp_path / "t.parquet").write_bytes(content)
    with pytest.raises(ValueError, match=r"t\.parquet must be a Parquet file, whole and undamaged"):
        read_all(as_source(tmp_path / "t.parquet"))


def test_a_row_of_a_csv_may_start_with_a_hash(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("# a comment\na,b\n1,2\n#N/A,4\n5,6\n")
    rows = CsvRows(path)
    assert rows.n_rows == 3
    np.testing.assert_array_equal(rows.columns()[0].values, [1, np.nan, 5])
    path.write_text("a,b\n1,2\n# the end\n")
    with pytest.raises(ValueError, match="line 3: a row must have 2 fields, got 1; comments stand above the first row"):
        CsvRows(path).columns()


@pytest.mark.parametrize("word", ["", "NaN", "nan", "-NAN", "#N/A", "<NA>", "n/a"])
@pytest.mark.parametrize("row", [3, 2500])
def test_a_number_may_be_missing_in_any_row_of_a_csv(tmp_path, word, row):
    path = tmp_path / "t.csv"
    lines = [f"{i}.5,{i % 7}" for i in range(2600)]
    lines[row] = f"{word},1"
    path.write_text("\n".join(["a,b", *lines]))
    rows = CsvRows(path)
    assert rows.mixed
    assert np.flatnonzero(rows.columns()[0].missing).tolist() == [row]
    assert not rows.select(["b"]).mixed


def test_a_model_of_a_file_takes_new_rows_with_missing_numbers(tmp_path):
    X = np.random.default_rng(0).normal(size=(41, 2)).round(3)
    frame = pd.DataFrame(X, columns=["a", "b"])
    frame.assign(y=X[:, 0]).to_csv(tmp_path / "t.csv", index=False)
    model = mercer.GreedyKernelRegressor(5, kernel="gaussian", random_state=0)
    model.fit(CsvRows(tmp_path / "t.csv", target="y"))
    np.testing.assert_array_equal(model.fill_, np.median(X, axis=0))
    new = frame[:4].copy()
    new.loc[2, "a"] = np.nan
    wanted = model.predict(frame[:4].assign(a=[*X[:2, 0], model.fill_[0], X[3, 0]]))
    new.to_csv(tmp_path / "new.csv", index=False)
    new.to_parquet(tmp_path / "new.parquet")
    for table in (new, tmp_path / "new.csv", tmp_path / "new.parquet"):
        np.testing.assert_array_equal(model.predict(table), wanted)

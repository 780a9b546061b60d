"""The command line: a fresh process predicts what Python predicts, and whatever is wrong is said in one sentence."""

from __future__ import annotations

import csv
import errno
import json
import os
import subprocess
import sys

import numpy as np
import pytest

import mercer
from mercer.cli import DONE, REFUSED, main
from mercer.data import CsvRows, ParquetRows

pytestmark = pytest.mark.usefixtures("two_folds")

QUICK = ["--estimator", "NRBF", "--set", "n_components=3", "--quiet"]


def write_csv(path, header, rows):
    with open(path, "w", newline="") as file:
        csv.writer(file).writerows([header, *rows])
    return str(path)


@pytest.fixture
def table(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 2)).round(6)
    y = (np.sin(X[:, 0]) + X[:, 1]).round(6)
    return write_csv(tmp_path / "table.csv", ["depth", "width", "price"], np.column_stack([X, y]).tolist())


@pytest.fixture
def kinds(tmp_path):
    rng = np.random.default_rng(0)
    rows = [[a, b, "oak" if a > 0 else "elm"] for a, b in rng.normal(size=(80, 2)).round(6).tolist()]
    return write_csv(tmp_path / "kinds.csv", ["depth", "width", "kind"], rows)


@pytest.fixture
def model(table, tmp_path):
    path = str(tmp_path / "m.mercer")
    assert main(["fit", table, "--target", "price", "--out", path, *QUICK]) == DONE
    return path


def in_a_process(*arguments):
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, "-m", "mercer.cli", *arguments], capture_output=True, text=True, env=environment, check=False
    )


def refused(capsys, *arguments):
    capsys.readouterr()
    assert main([*arguments]) == REFUSED
    said = capsys.readouterr()
    assert said.out == ""
    assert len(said.err.strip().splitlines()) == 1
    return said.err


@pytest.mark.long
def test_what_a_fresh_process_predicts_is_what_python_predicts(table, tmp_path, capsys):
    path, out = str(tmp_path / "p.mercer"), tmp_path / "predictions.csv"
    assert main(["fit", table, "--target", "price", "--out", path, "--json", *QUICK]) == DONE
    said = json.loads(capsys.readouterr().out)
    assert said["estimator"] == "NRBFRegressor"
    assert (said["rows"], said["columns"]) == (80, 2)
    predicted = in_a_process("predict", path, table, "--std", "--out", str(out))
    assert predicted.returncode == DONE, predicted.stderr
    model = mercer.NRBFRegressor(3, random_state=0).fit(CsvRows(table, target="price"))
    mean, std = model.predict(table, return_std=True)
    rows = list(csv.DictReader(out.read_text().splitlines()))
    assert [float(row["prediction"]) for row in rows] == mean.tolist()
    assert [float(row["std"]) for row in rows] == std.tolist()


def test_text_targets_are_classes(kinds, tmp_path, capsys):
    path = str(tmp_path / "k.mercer")
    assert main(["fit", kinds, "--target", "kind", "--out", path, *QUICK]) == DONE
    assert "classes: elm, oak" in capsys.readouterr().out
    assert main(["predict", path, kinds, "--proba"]) == DONE
    rows = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    assert {row["prediction"] for row in rows} == {"elm", "oak"}
    assert all(abs(float(row["p_elm"]) + float(row["p_oak"]) - 1) < 1e-12 for row in rows)


@pytest.mark.parametrize("suffix", ["parquet", "arrow", "feather"])
def test_other_kinds_of_tables_are_read(suffix, table, tmp_path, capsys):
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    frame, path = pandas.read_csv(table), tmp_path / f"table.{suffix}"
    frame.to_parquet(path) if suffix == "parquet" else frame.to_feather(path)
    out = str(tmp_path / "other.mercer")
    assert main(["fit", str(path), "--target", "price", "--out", out, *QUICK]) == DONE
    capsys.readouterr()
    assert main(["predict", out, str(path), "--json"]) == DONE
    model, X = mercer.NRBFRegressor(3, random_state=0), frame[["depth", "width"]]
    if suffix == "parquet":
        model.fit(ParquetRows(path, target="price"))
    else:
        model.fit(X, frame["price"])
    assert json.loads(capsys.readouterr().out)["prediction"] == model.predict(X).tolist()


def test_a_bad_line_is_named(tmp_path, capsys):
    path = tmp_path / "bad.csv"
    path.write_text("depth,width,price\n1,2,3\n4,five,6\n7,8,9\n")
    error = refused(capsys, "fit", str(path), "--target", "price", "--out", str(tmp_path / "m.mercer"), *QUICK)
    assert "five" in error
    assert "line 3" in error
    assert not (tmp_path / "m.mercer").exists()


def test_a_table_in_another_encoding_is_read_by_its_name(tmp_path, capsys):
    path, model, out = (str(tmp_path / name) for name in ("t.csv", "m.mercer", "p.csv"))
    kinds = [("caf\u00e9", "caf\u00e8")[i % 2] for i in range(80)]
    with open(path, "w", encoding="cp1252") as file:
        file.write("k,z,kind\n" + "".join(f"{kind},{i % 7},{kind}\n" for i, kind in enumerate(kinds)))
    arguments = ["fit", path, "--target", "kind", "--out", model, *QUICK]
    assert "t.csv, line 2: column 'k' must be text in UTF-8" in refused(capsys, *arguments)
    assert main([*arguments, "--encoding", "cp1252"]) == DONE
    assert main(["predict", model, path, "--out", out, "--encoding", "cp1252"]) == DONE
    with open(out, encoding="utf-8") as file:
        assert file.read().split()[1:] == kinds
    said = refused(capsys, "predict", model, str(tmp_path), "--encoding", "cp1252")
    assert "--encoding must be left out" in said


def test_a_target_that_is_not_there_is_named(table, tmp_path, capsys):
    error = refused(capsys, "fit", table, "--target", "prize", "--out", str(tmp_path / "m.mercer"))
    assert "must have a column 'prize', got columns ['depth', 'width', 'price']" in error


def test_a_missing_column_is_named(model, tmp_path, capsys):
    path = write_csv(tmp_path / "less.csv", ["depth", "price"], [[1.0, 2.0]])
    assert "'width'" in refused(capsys, "predict", model, path)


def test_text_as_numbers_is_refused(kinds, tmp_path, capsys):
    out = str(tmp_path / "m.mercer")
    error = refused(capsys, "fit", kinds, "--target", "kind", "--out", out, "--task", "regression", *QUICK)
    assert "elm" in error or "oak" in error or "numbers" in error


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--set", "n_componentz=3"], "a parameter of NRBFRegressor"),
        (["--set", "n_components"], "--set must be NAME=VALUE"),
        (["--set", "n_components=-1"], "n_components must be 'auto' or an integer of at least 1, got -1"),
        (["--set", "n_components__x=1"], "--set must be a parameter of NRBFRegressor"),
        (
            ["--set", f"n_components={'-' * 9000}1"],
            "n_components must be 'auto' or an integer",
        ),
        (
            ["--set", f"n_components={'[' * 9000}"],
            "n_components must be 'auto' or an integer",
        ),
        (["--set", f"n_components={'1' * 20000}"], "--set must be a value of at most 10000 characters"),
        (["--estimator", "Oracle"], "--estimator must be one of"),
        (["--time", "-3"], "time_budget must be None or a positive number of seconds, got -3.0"),
    ],
)
def test_wrong_arguments_are_said_in_a_sentence(arguments, words, table, tmp_path, capsys):
    error = refused(capsys, "fit", table, "--target", "price", "--out", str(tmp_path / "m"), *QUICK, *arguments)
    assert words in error


def test_files_that_are_not_there_or_no_models_are_named(table, tmp_path, capsys):
    assert "there is no file" in refused(capsys, "predict", str(tmp_path / "none.mercer"), table)
    assert "is no model that can be read" in refused(capsys, "info", table)
    error = refused(capsys, "fit", str(tmp_path / "none.csv"), "--target", "y", "--out", str(tmp_path / "m.mercer"))
    assert "TABLE must be a file or folder that exists" in error


def test_errors_are_json_where_that_is_asked_for(tmp_path, capsys):
    assert "there is no file" in json.loads(refused(capsys, "info", str(tmp_path / "none.mercer"), "--json"))["error"]


def test_time_and_parameters_reach_the_estimator(table, tmp_path):
    out = str(tmp_path / "m.mercer")
    settings = ["--set", "kernel=matern32", "--set", "n_basis=7", "--set", "prune=True", "--time", "30"]
    assert main(["fit", table, "--target", "price", "--out", out, "--estimator", "GreedyKernel", *settings]) == DONE
    model = mercer.load(out)
    assert (model.kernel, model.n_basis, model.prune, model.time_budget) == ("matern32", 7, True, 30.0)


def test_info_tells_what_is_in_a_file(model, capsys):
    capsys.readouterr()
    assert main(["info", model]) == DONE
    assert "class: mixture.NRBFRegressor" in capsys.readouterr().out
    assert main(["info", model, "--json"]) == DONE
    assert json.loads(capsys.readouterr().out)["columns"] == ["depth", "width"]


def test_export_writes_a_graph(model, tmp_path, capsys):
    onnx = pytest.importorskip("onnx")
    assert main(["export", model, "--onnx", str(tmp_path / "m.onnx")]) == DONE
    assert [one.name for one in onnx.load(tmp_path / "m.onnx").graph.output] == ["prediction", "std"]


def test_the_doctor_finds_products_that_agree(monkeypatch, capsys):
    monkeypatch.setattr("mercer.doctor.SECONDS", 0.01)
    monkeypatch.setattr("mercer.doctor.ROWS", 200)
    assert main(["doctor", "--json"]) == DONE
    said = json.loads(capsys.readouterr().out)
    assert said["healthy"] is True
    assert said["versions"]["torch"]


def test_a_report_from_a_file_with_words_dates_and_truth_values(tmp_path, capsys):
    rng = np.random.default_rng(0)
    a, tree, old = rng.normal(size=120).round(4), rng.choice(["oak", "elm"], 120), rng.random(120) < 0.5
    day = np.datetime64("2021-01-01") + rng.integers(0, 500, 120)
    price = (a + (tree == "oak")).round(4)
    header = ["size", "tree", "old", "sold", "remark", "price"]
    rows = list(zip(a, tree, old, day.astype(str), ["none"] * 120, price, strict=True))
    learn, judge = write_csv(tmp_path / "a.csv", header, rows[:80]), write_csv(tmp_path / "b.csv", header, rows[80:])
    model, page = str(tmp_path / "m.mercer"), tmp_path / "r.html"
    greedy = ["--estimator", "GreedyKernel", "--set", "n_basis=8", "--set", "kernel=gaussian", "--without", "remark"]
    assert main(["fit", learn, "--target", "price", "--out", model, "--quiet", *greedy]) == DONE
    assert mercer.load(model).feature_names_in_.tolist() == ["size", "tree", "old", "sold"]
    assert [one["kind"] for one in mercer.load(model).columns_] == ["number", "category", "bool", "date"]
    capsys.readouterr()
    assert main(["report", model, judge, "--train", learn, "--out", str(page)]) == DONE
    said = capsys.readouterr().out
    assert "On 40 test rows the typical error (RMSE) is" in said
    assert "All learned from the same 80 rows." in said
    assert "<h2" in page.read_text()
    for unknown in ("nan", "inf"):
        gap = write_csv(tmp_path / "gap.csv", header, [*rows[80:], (*rows[0][:-1], unknown)])
        assert "1 missing or infinite of 41" in refused(capsys, "report", model, gap, "--out", str(page))
    without = refused(capsys, "fit", learn, "--target", "price", "--out", model, "--without", "remarks")
    assert "--without must be one of the columns" in without


def test_control_characters_of_names_are_written_out(tmp_path, capsys):
    rows = [[i % 7, i % 5, "red\x1b[31m" if i % 2 else "\x07bell"] for i in range(40)]
    path = write_csv(tmp_path / "t.csv", ["dep\x1b]0;th", "wi\u202edth", "kind"], rows)
    model, page = str(tmp_path / "m"), tmp_path / "r.html"
    assert main(["fit", path, "--target", "kind", "--out", model, *QUICK]) == DONE
    assert main(["info", model]) == DONE
    assert main(["report", model, path, "--out", str(page)]) == DONE
    said = capsys.readouterr().out
    assert "red\\x1b[31m" in said
    assert "dep\\x1b]0;th" in said
    error = refused(capsys, "fit", path, "--target", "no\x1bne", "--out", model)
    for text in (said, error, page.read_text(encoding="utf-8")):
        assert not set("\x1b\x07\u202e").intersection(text)


def test_a_disk_that_is_full_is_named_and_nothing_half_is_left(table, tmp_path, capsys, monkeypatch):
    def full(handle):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("mercer.atomic_write.os.fsync", full)
    out = tmp_path / "m.mercer"
    error = refused(capsys, "fit", table, "--target", "price", "--out", str(out), *QUICK)
    assert error == f"mercer: {out}: No space left on device\n"
    assert [one.name for one in tmp_path.iterdir()] == ["table.csv"]


def test_intervals_and_identifiers_stand_beside_predictions(table, model, tmp_path, capsys):
    with open(table) as file:
        header, *rows = csv.reader(file)
    named = write_csv(tmp_path / "named.csv", ["id", *header], [[f"00{i}", *row] for i, row in enumerate(rows)])
    capsys.readouterr()
    assert main(["predict", model, named, "--interval", "0.8", "--keep", "id", "--keep", "width"]) == DONE
    lines = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    assert list(lines[0]) == ["id", "width", "prediction", "lower", "upper"]
    assert [line["id"] for line in lines] == [f"00{i}" for i in range(80)], "text stays as it stands"
    assert [line["width"] for line in lines] == [row[1] for row in rows]
    expected = mercer.load(model).predict_interval(table, 0.8)
    np.testing.assert_allclose([[float(line["lower"]), float(line["upper"])] for line in lines], expected)
    assert "--keep must be one of the columns" in refused(capsys, "predict", model, named, "--keep", "name")
    assert "coverage must be a number above 0" in refused(capsys, "predict", model, named, "--interval", "90")


@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
def test_columns_of_other_tables_are_carried_over(suffix, table, model, tmp_path, capsys):
    arrow = pytest.importorskip("pyarrow.csv").read_csv(table)
    path = str(tmp_path / f"table.{suffix}")
    if suffix == "parquet":
        pytest.importorskip("pyarrow.parquet").write_table(arrow, path)
    else:
        pytest.importorskip("pyarrow.feather").write_feather(arrow, path)
    capsys.readouterr()
    assert main(["predict", model, path, "--keep", "price"]) == DONE
    lines = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    np.testing.assert_array_equal([float(line["price"]) for line in lines], arrow["price"].to_numpy())
    assert "--keep must be one of the columns" in refused(capsys, "predict", model, path, "--keep", "id")


def test_sets_of_classes_stand_beside_predictions(kinds, tmp_path, capsys):
    path = str(tmp_path / "k.mercer")
    assert main(["fit", kinds, "--target", "kind", "--out", path, *QUICK]) == DONE
    capsys.readouterr()
    assert main(["predict", path, kinds, "--interval", "0.999"]) == DONE
    lines = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    assert {line["set"] for line in lines} == {"elm|oak"}, "80 rows are too few for 99.9 %"


@pytest.mark.parametrize(("suffix", "delimiter", "options"), [("tsv", "\t", []), ("csv", ";", ["--delimiter", ";"])])
def test_other_delimiters_are_read(suffix, delimiter, options, table, tmp_path, capsys):
    other, path = tmp_path / f"other.{suffix}", str(tmp_path / "m.mercer")
    with open(table) as file:
        other.write_text(file.read().replace(",", delimiter))
    assert main(["fit", str(other), "--target", "price", "--out", path, *options, *QUICK]) == DONE
    capsys.readouterr()
    assert main(["predict", path, str(other), *options, "--keep", "price"]) == DONE
    beside = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    assert main(["predict", path, table, "--keep", "price"]) == DONE
    assert list(csv.DictReader(capsys.readouterr().out.splitlines())) == beside
    assert "--delimiter must be left out" in refused(capsys, "predict", path, str(tmp_path), "--delimiter", ";")


def test_standard_input_is_a_table(table, model, capsys, monkeypatch):
    capsys.readouterr()
    assert main(["predict", model, table]) == DONE
    expected = capsys.readouterr().out
    assert expected.startswith("prediction\n")
    with open(table) as file:
        monkeypatch.setattr("sys.stdin", file)
        assert main(["predict", model, "-"]) == DONE
    assert capsys.readouterr().out == expected

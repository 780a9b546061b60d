"""A file with faults gets a sentence: some hundreds of them in every run, and the kinds that have a name."""

from __future__ import annotations

import json
import os
import pickle

import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import load as from_bytes
from safetensors.numpy import save as as_bytes

import mercer
from mercer.files import describe
from mercer.files.load import contents
from mercer.files.save import FORMAT, digest
from tests.files import fuzz
from tests.files.models import fitted


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    return fuzz.files(folder), folder


@pytest.mark.parametrize("part", range(10))
def test_a_file_with_faults_gets_a_sentence(sound, part):
    for seed in range(20 * part, 20 * part + 20):
        fuzz.run(seed, *sound)


@pytest.fixture
def path(tmp_path):
    fitted("NRBFRegressor").save(tmp_path / "m.mercer")
    return tmp_path / "m.mercer"


def rewritten(path, change):
    """The file with its description changed, under a checksum that is right."""
    tree, _, _ = contents(path)
    arrays = from_bytes(path.read_bytes())
    change(tree, arrays)
    text = json.dumps(tree)
    path.write_bytes(as_bytes(arrays, {"mercer": text, "sha256": digest(text, arrays)}))
    return path


def newer(tree, arrays):
    tree |= {"format": FORMAT + 1, "mercer": "9.9"}


def unknown_class(tree, arrays):
    tree["model"]["class"] = "mixture.Oracle"


def foreign_class(tree, arrays):
    tree["model"]["fitted"]["inputs_"]["class"] = "subprocess.Popen"


def unknown_field(tree, arrays):
    tree["model"]["fitted"]["inputs_"]["fields"]["shift"] = 1.0


def wrong_type(tree, arrays):
    tree["model"]["fitted"]["inputs_"]["fields"]["mean"] = "zero"


def wrong_shape(tree, arrays):
    arrays["extra"] = np.ones(5)
    tree["model"]["fitted"]["inputs_"]["fields"]["mean"] = {"array": "extra"}


def not_a_number(tree, arrays):
    arrays["extra"] = np.full(3, np.nan)
    tree["model"]["fitted"]["inputs_"]["fields"]["mean"] = {"array": "extra"}


def bad_parameter(tree, arrays):
    tree["model"]["parameters"]["n_components"] = -3


def hidden_method(tree, arrays):
    tree["model"]["fitted"]["predict"] = 1


def crowded(tree, arrays):
    tree["model"]["fitted"]["more_"] = [[]] * 500_001


def huge(tree, arrays):
    name = tree["model"]["fitted"]["means_"]["array"]
    arrays[name] = np.ones((1000, 3))
    tree["model"]["fitted"]["more_"] = [{"array": name}] * 2000


FAULTS = {
    newer: "at most 2: it was written by mercer 9.9, which is newer than this one, got 3",
    unknown_class: "a class in the file must be one of mercer's .* got 'mixture.Oracle'",
    foreign_class: "got 'subprocess.Popen'",
    unknown_field: "the fields of preprocessing.InputMap must be among .* got \\['shift'\\]",
    wrong_type: "mean of preprocessing.InputMap must be of type .*ndarray.* got 'zero'",
    wrong_shape: "scale of preprocessing.InputMap must be of shape D",
    not_a_number: "mean of preprocessing.InputMap must be finite",
    bad_parameter: "n_components must be 'auto' or an integer of at least 1, got -3",
    hidden_method: "a fitted attribute of mixture.NRBFRegressor must be one of its own, got 'predict'",
    huge: "about as large as the file",
    crowded: "the description must be of at most 500000 lists and objects",
}


def test_a_level_may_be_named_by_brackets(tmp_path):
    levels = [f"{'[' * 100_000}{i}" for i in range(6)] * 5
    table = pd.DataFrame({"k": levels, "x": np.arange(30.0)})
    model = mercer.NRBFRegressor(2, random_state=0).fit(table, np.arange(30.0))
    model.save(tmp_path / "m")
    np.testing.assert_array_equal(mercer.load(tmp_path / "m").predict(table), model.predict(table))


@pytest.mark.parametrize(("change", "words"), FAULTS.items(), ids=lambda one: getattr(one, "__name__", ""))
def test_a_changed_description_is_refused_by_name(path, change, words):
    with pytest.raises(ValueError, match=words):
        mercer.load(rewritten(path, change))


def test_a_device_that_nothing_runs_on_becomes_the_one_that_is_here(path):
    model = mercer.load(rewritten(path, lambda tree, arrays: tree["model"]["parameters"].update(device="xla")))
    assert model.device == "auto"
    model.predict(np.zeros((1, model.n_features_in_)))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (pickle.dumps([1.0] * 9), "it looks like a pickle"),
        (b"not a model at all", "it was not written by mercer.save, or it was cut short"),
        (b"", "it was not written by mercer.save, or it was cut short"),
    ],
)
def test_files_of_others_are_named_as_what_they_are(tmp_path, content, words):
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(ValueError, match=f"x is no model that can be read: {words}"):
        mercer.load(tmp_path / "x")


def test_damage_is_told_from_other_faults(path):
    data = bytearray(path.read_bytes())
    data[-3] ^= 16
    path.write_bytes(data)
    with pytest.raises(ValueError, match="the file is damaged"):
        mercer.load(path)


def test_other_files_are_no_models(tmp_path):
    (tmp_path / "text").write_text("depth,width\n1,2\n")
    (tmp_path / "weights").write_bytes(as_bytes({"w": np.ones(2)}))
    for name in ("text", "weights"):
        with pytest.raises(ValueError, match=r"is no model that can be read"):
            mercer.load(tmp_path / name)
    with pytest.raises(FileNotFoundError, match="there is no file"):
        mercer.load(tmp_path / "nothing")


def test_places_that_are_no_file_are_refused_and_long_names_are_not(tmp_path):
    model = fitted("NRBFRegressor")
    for place, words in (("", "name of a file, got ''"), (tmp_path, "name of a file, got 'the folder"),
                         (tmp_path / "no" / "m", "the folder of the path must be one that exists")):  # fmt: skip
        with pytest.raises(ValueError, match=words):
            model.save(place)
    longest = tmp_path / ("m" * 255)
    model.save(longest)
    assert list(tmp_path.iterdir()) == [longest]
    with pytest.raises(OSError, match=r"File name too long: '[^']*m{256}'$"):
        model.save(tmp_path / ("m" * 256))


def test_a_file_has_the_permissions_of_new_files_and_nobody_sets_the_mask(tmp_path, monkeypatch):
    before = os.umask(0o027)
    try:
        monkeypatch.setattr("os.umask", None)  # which belongs to all threads
        fitted("NRBFRegressor").save(tmp_path / "m")
    finally:
        monkeypatch.undo()
        os.umask(before)
    assert (tmp_path / "m").stat().st_mode & 0o777 == 0o640


def test_a_save_that_fails_leaves_the_old_file_and_nothing_else(path, monkeypatch):
    before = path.read_bytes()

    def full(*_):
        raise OSError("no space left on the device")

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(OSError, match="no space left"):
        fitted("NRBFRegressor").save(path)
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


def test_a_description_tells_what_is_in_a_file(path):
    said = describe(path)
    assert said["class"] == "mixture.NRBFRegressor"
    assert said["format"] == FORMAT
    assert said["bytes"] == path.stat().st_size
    assert said["parameters"]["n_components"] == "auto"

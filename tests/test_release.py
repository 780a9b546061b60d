"""Files that repeat what `pyproject.toml` says: version, requirements, summary and command."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest

import mercer

yaml = pytest.importorskip("yaml")
ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
RECIPE = yaml.safe_load((ROOT / "conda/recipe.yaml").read_text())
CITATION = yaml.safe_load((ROOT / "CITATION.cff").read_text())
CODEMETA = json.loads((ROOT / "codemeta.json").read_text())
#: Packages that conda-forge names differently.
NAMES = {"torch": "pytorch"}


def test_every_file_names_the_same_version_and_the_changelog_dates_it():
    versions = {PROJECT["version"], RECIPE["context"]["version"], str(CITATION["version"]), CODEMETA["version"]}
    assert versions == {mercer.__version__}
    newest = re.search(r"^## (\S+) \((\S+)\)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest is not None
    assert newest.groups() == (mercer.__version__, str(CITATION["date-released"]))


def test_the_conda_recipe_requires_what_the_wheel_requires():
    wanted = {f"python {PROJECT['requires-python']}"}
    for requirement in PROJECT["dependencies"]:
        name, bound = re.fullmatch(r"([\w-]+)(>=.*)", requirement).groups()
        wanted.add(f"{NAMES.get(name, name)} {bound}")
    assert set(RECIPE["requirements"]["run"]) == wanted


def test_the_conda_recipe_installs_the_same_commands():
    wanted = [f"{name} = {target}" for name, target in PROJECT["scripts"].items()]
    assert RECIPE["build"]["python"]["entry_points"] == wanted


def test_summary_licence_and_keywords_are_the_same_everywhere():
    assert {RECIPE["about"]["summary"], CODEMETA["description"]} == {PROJECT["description"]}
    assert {RECIPE["about"]["license"], CITATION["license"]} == {PROJECT["license"]}
    assert CODEMETA["license"].endswith("/" + PROJECT["license"])
    assert CITATION["keywords"] == CODEMETA["keywords"] == PROJECT["keywords"]

"""What a release says about itself: one version, one list of dependencies, and links that lead somewhere."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest

import mercer

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
#: The changelog names files that have left.
PAGES = sorted({*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")} - {ROOT / "CHANGELOG.md"})


def found(path: str, pattern: str) -> str:
    match = re.search(pattern, (ROOT / path).read_text(), re.MULTILINE)
    assert match, f"{path} has no line like {pattern}"
    return match.group(1)


def test_the_version_is_the_same_wherever_it_stands():
    versions = {
        "package": mercer.__version__,
        "pyproject.toml": PROJECT["version"],
        "codemeta.json": json.loads((ROOT / "codemeta.json").read_text())["version"],
        "CITATION.cff": found("CITATION.cff", r"^version: (\S+)$"),
        "CHANGELOG.md": found("CHANGELOG.md", r"^## (\S+) \(\d{4}-\d\d-\d\d\)$"),
        "conda": found("conda/recipe.yaml", r'^  version: "(\S+)"$'),
    }
    assert set(versions.values()) == {mercer.__version__}, versions


def test_the_conda_recipe_asks_for_what_the_package_asks_for():
    listed = found("conda/recipe.yaml", r"^  run:\n((?:    - .*\n)+)")
    recipe = {line.strip("- ").replace(" ", "") for line in listed.splitlines()}
    wanted = {text.replace("torch", "pytorch") for text in PROJECT["dependencies"]}
    assert recipe == wanted | {f"python{PROJECT['requires-python']}"}


def test_summary_command_and_date_are_the_same_wherever_they_stand():
    summary, command = PROJECT["description"], PROJECT["scripts"]["mercer"]
    assert json.loads((ROOT / "codemeta.json").read_text())["description"] == summary
    assert found("conda/recipe.yaml", r"^  summary: (.+)$") == summary
    assert found("conda/recipe.yaml", r"^ +- mercer = (\S+)$") == command
    assert found("CHANGELOG.md", r"^## \S+ \((\S+)\)$") == found("CITATION.cff", r"^date-released: (\S+)$")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_link_of_a_page_leads_to_a_file(page):
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    links = re.findall(r"\]\(([^)\s#]+)[^)]*\)", text)
    near = [link for link in links if "://" not in link and not link.startswith("mailto:")]
    named = re.findall(r"`((?:docs|benchmarks|examples|tests|src)/[\w./-]+\.(?:md|py|json|png))`", text)
    folders = (page.parent, ROOT / "docs")  # a page that another one includes has the links of that one
    missing = [link for link in near if not any((folder / link).exists() for folder in folders)]
    missing += [path for path in named if not (ROOT / path).exists()]
    assert not missing

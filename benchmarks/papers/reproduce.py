"""docs/reproduce/*.md, from what the papers' own `summary.json` say: one line for each table and figure.

python benchmarks/papers/reproduce.py
"""

from __future__ import annotations

import json
from pathlib import Path

HERE = Path(__file__).parent
PAGES = {
    "boost_greedy": {
        "boost06": "Boost06: boosted kernel ridge models",
        "boost10": "Boost10: ensembles of basis vectors",
        "greedy02": "Greedy02: greedy selection",
    },
    "thesis_mekl": {
        "thesis09_mixtures": "Thesis09, chapters 2 and 3: mixtures",
        "thesis09_gp": "Thesis09, chapter 5: Gaussian processes",
        "mekl13": "MEKL13: several empirical kernels",
    },
}


def lines(folder: str, title: str) -> list[str]:
    """A paper's table, in the order of its `summary.json`."""
    rows = json.loads((HERE / folder / "summary.json").read_text(encoding="utf-8"))
    cells = (" | ".join(cell.replace("|", r"\|") for cell in row) for row in rows)
    head = [f"## {title}", "", f"Details: `benchmarks/papers/{folder}/results.md`.", ""]
    return [*head, "| what | shows | outcome |", "|---|---|---|", *(f"| {row} |" for row in cells), ""]


def main() -> None:
    folder = HERE.parents[1] / "docs" / "reproduce"
    folder.mkdir(parents=True, exist_ok=True)
    for name, parts in PAGES.items():
        page = [line for part, title in parts.items() for line in lines(part, title)]
        (folder / f"{name}.md").write_text("\n".join(page), encoding="utf-8")


if __name__ == "__main__":
    main()

"""docs/reproduce/thesis_mekl.md, from what the papers' own `summary.json` say: one line for each table and figure.

python benchmarks/papers/reproduce.py
"""

from __future__ import annotations

import json
from pathlib import Path

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "reproduce" / "thesis_mekl.md"
PARTS = {
    "thesis09_mixtures": "Thesis09, chapters 2 and 3: mixtures",
    "thesis09_gp": "Thesis09, chapter 5: Gaussian processes",
    "mekl13": "MEKL13: several empirical kernels",
}


def main() -> None:
    lines = []
    for folder, title in PARTS.items():
        rows = json.loads((HERE / folder / "summary.json").read_text(encoding="utf-8"))
        lines += [f"## {title}", "", f"Details: `benchmarks/papers/{folder}/results.md`.", ""]
        lines += ["| what | shows | outcome |", "|---|---|---|", *("| " + " | ".join(row) + " |" for row in rows), ""]
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text("\n".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()

"""docs/reproduce/boost_greedy.md: one line for each table and figure of Boost06, Boost10 and Greedy02.

python benchmarks/papers/boost_greedy.py
"""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "reproduce" / "boost_greedy.md"
PARTS = {"boost06": "Boost06: boosted kernel ridge models", "boost10": "Boost10: ensembles of basis vectors",
         "greedy02": "Greedy02: greedy selection"}  # fmt: skip


def rows_of(name: str) -> list[list[str]]:
    """The summary of a folder, whose modules are forgotten afterwards: others have some of the same names."""
    folder, before = HERE / name, set(sys.modules)
    sys.path[:0] = [str(folder), str(HERE)]
    try:
        summary = runpy.run_path(str(folder / "report.py"))["summary"]
        ours: Any = json.loads((folder / "ours.json").read_text()) if name == "greedy02" else folder / "ours"
        return summary(ours)
    finally:
        del sys.path[:2]
        for module in set(sys.modules) - before:
            if str(HERE) in (getattr(sys.modules[module], "__file__", None) or ""):
                del sys.modules[module]


def main() -> None:
    lines = []
    for folder, title in PARTS.items():
        lines += [f"## {title}", "", f"Details: `benchmarks/papers/{folder}/results.md`.", ""]
        lines += ["| what | shows | outcome |", "|---|---|---|"]
        lines += ["| " + " | ".join(cell.replace("|", r"\|") for cell in row) + " |" for row in rows_of(folder)] + [""]
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text("\n".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()

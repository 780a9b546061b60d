"""MEKL13 beside ours: tables 2 and 3 and figure 1.

    MERCER_DATA=… python benchmarks/papers/mekl13/run.py [--jobs 16] [--only iris] [--quick]

`ours.json` keeps every cell; `results.md` and the figure are made from it.
"""

from __future__ import annotations

import sys
import tomllib
from functools import partial
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

import methods  # noqa: E402
import protocol  # noqa: E402
from measure import Job, run  # noqa: E402
from report import draw, write  # noqa: E402
from rivals import RIVALS  # noqa: E402
from summary import summary  # noqa: E402

PAPER = tomllib.loads((HERE / "paper.toml").read_text(encoding="utf-8"))


def jobs(quick: bool = False) -> dict[str, Job]:
    """What there is to measure, set by set, small ones first; rivals are not asked about large ones.

    A rival's choice among its candidates would take an hour of one core there. Where dozens of pairs of classes make
    it long, half of the splits have to do, as on page-blocks; raw inputs have three where they decide nothing.
    """
    found: dict[str, Job] = {}
    for name in ("wine", "iris") if quick else protocol.SETS:
        for seed in range(2 if quick else protocol.FEW if name == "page-blocks" else protocol.SPLITS):
            found[f"{name}/{seed}/coupled"] = (methods.coupled_cell, (name, seed))
            if name in protocol.LARGE:
                continue
            if seed < protocol.FEWER or name in protocol.DOUBTFUL:
                found[f"{name}/{seed}/raw"] = (methods.raw_cell, (name, seed))
            if seed < protocol.FEW or name not in protocol.MANY:
                for method in RIVALS:
                    found[f"{name}/{seed}/{method}"] = (methods.rival_cell, (name, seed, method))
    return found | {f"figure1/{name}": (methods.objective_path, (name,)) for name in protocol.BINARY}


def main() -> None:
    store, given = run(__doc__, HERE, jobs, partial(write, PAPER), partial(summary, PAPER))
    if not given.quick and store.under("figure1/"):
        draw(store, HERE.parents[2] / "docs" / "figures" / "mekl13_figure1.png")


if __name__ == "__main__":
    main()

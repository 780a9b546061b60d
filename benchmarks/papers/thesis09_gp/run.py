"""Thesis09, chapter 5, beside ours: sparse Gaussian process classifiers for M = 4 to 2048.

    MERCER_DATA=… python benchmarks/papers/thesis09_gp/run.py [--jobs 16] [--only usps] [--quick]

`ours.json` keeps every cell; `results.md` is written from it, figures by `figures.py`.
"""

from __future__ import annotations

import sys
import tomllib
from functools import partial
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

import methods  # noqa: E402
from measure import Job, run  # noqa: E402
from report import write  # noqa: E402
from summary import summary  # noqa: E402

PAPER = tomllib.loads((HERE / "paper.toml").read_text(encoding="utf-8"))
#: Splits; of E. coli, whose rows are all used for both, other random numbers.
SPLITS = {"ecoli": 3, "spam": 3, "usps": 3}
DRAWS = 10


def jobs(quick: bool = False) -> dict[str, Job]:
    """What there is to measure: the short ones, then one split after the other, the longest first."""
    found: dict[str, Job] = {}
    splits = dict.fromkeys(SPLITS, 1) if quick else SPLITS
    found["alm/0"] = (methods.alm_cell, (0,))
    for seed in range(2 if quick else DRAWS):
        found[f"alone/{seed}"] = (methods.alone_cell, (seed,))
        found[f"boundary/{seed}"] = (methods.boundary_cell, (seed,))
        for prior in (2.0, None):
            found[f"scales/{'prior' if prior else 'none'}/{seed}"] = (methods.scales_cell, (seed, prior))
    cells = [(name, m, s) for name in splits for m in PAPER[name]["sizes"] for s in range(splits[name])]
    for name, m, seed in sorted(cells, key=lambda cell: (cell[2], -cell[1])):
        if m == 512 and not quick:
            found[f"pixels/{seed}"] = (methods.pixels_cell, (seed,))
            for which in ("thesis", "voted"):
                found[f"words/{which}/{seed}"] = (methods.words_cell, (seed, which))
        if quick and m > 16:
            continue
        found[f"{name}/{m}/{seed}/spgp"] = (methods.spgp_cell, (name, m, seed))
        found[f"{name}/{m}/{seed}/sd"] = (methods.subset_cell, (name, m, seed))
    for name, n in splits.items():
        for seed in range(n if name != "ecoli" else 1):
            if not quick or name == "ecoli":
                found[f"{name}/full/{seed}"] = (methods.full_cell, (name, seed))
    return found


def main() -> None:
    run(__doc__, HERE, jobs, partial(write, PAPER), partial(summary, PAPER))


if __name__ == "__main__":
    main()

"""Thesis09, chapters 2 and 3, beside ours: mixtures for regression and classes.

    MERCER_DATA=… python benchmarks/papers/thesis09_mixtures/run.py [--jobs 16] [--only wdbc] [--quick]

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
SHAPES = ("spherical", "diagonal", "full")
LAGS = (32, 16, 8, 4, 2, 1)
DRAWS = 10


def jobs(quick: bool = False) -> dict[str, Job]:
    """What there is to measure, the printed tables first."""
    found: dict[str, Job] = {}
    for seed in range(2 if quick else DRAWS):
        for name in methods.CLASSIFIERS:
            found[f"gaussians/{name}/{seed}"] = (methods.gaussians_cell, (name, seed))
        for name in ("two-step NRBF", "ENRBF"):
            found[f"sin2/{name}/{seed}"] = (methods.sin2_cell, (name, seed))
    for shape in ("diagonal",) if quick else SHAPES:
        for name in methods.CLASSIFIERS | methods.PENALTIES:
            found[f"wdbc/{name}/{shape}"] = (methods.wdbc_cell, (name, shape))
        for name in ("ENRBFC", *methods.PENALTIES):
            found[f"two/{name}/{shape}"] = (methods.wdbc_cell, (name, shape, 2))
    for name in ("ENRBF",) if quick else methods.LASER_SIZES:
        for lag in (1,) if quick else LAGS:
            found[f"laser/{lag}/{name}"] = (methods.laser_cell, (lag, name))
    for name in ("iris",) if quick else methods.SEVERAL:
        for shape in ("diagonal", "full"):
            for model in methods.CLASSIFIERS:
                found[f"several/{name}/{shape}/{model}"] = (methods.several_cell, (name, model, shape))
        found[f"several/{name}/none/logistic regression"] = (methods.several_cell, (name, "logistic regression", ""))
    return found


def main() -> None:
    run(__doc__, HERE, jobs, partial(write, PAPER), partial(summary, PAPER))


if __name__ == "__main__":
    main()

"""Boost10 beside ours: measures what is asked for into `ours/`, then writes `results.md` and the figures from there.

    MERCER_DATA=… python benchmarks/papers/boost10/run.py                    # what `ours/` does not hold yet
    MERCER_DATA=… python benchmarks/papers/boost10/run.py --quick            # of that one split of KIN40K at most
    MERCER_DATA=… python benchmarks/papers/boost10/run.py kin40k --seed 3    # one part, one split
    python benchmarks/papers/boost10/run.py --write                          # only the page, from what is kept

Times of KIN40K are CPU seconds: one thread (OMP_NUM_THREADS=1), and splits may run beside each other.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
KEPT = HERE / "ours"
SPLITS = 5


def keep(folder: Path, name: str, found: Any) -> None:
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.json").write_text(json.dumps(found, separators=(",", ":")) + "\n", encoding="utf-8")


def missing(seeds: Sequence[int], folder: Path, name: str) -> list[int]:
    """Splits not kept yet."""
    return [seed for seed in seeds if not (folder / f"{name}-{seed}.json").exists()]


def kin40k(seeds: Sequence[int], folder: Path) -> None:
    """Tables IV and V, figures 2, 4 and 5, one file for each group of curves."""
    import kin40k as part

    for group in part.GROUPS:
        for seed in missing(seeds, folder, f"kin40k-{group}"):
            keep(folder, f"kin40k-{group}-{seed}", part.measure(seed, group))


def probe(seeds: Sequence[int], folder: Path) -> None:
    """Why our errors on KIN40K are not the printed ones."""
    import probe as part
    import torch

    for seed in missing(list(seeds)[:5], folder, "probe"):
        keep(folder, f"probe-{seed}", part.measure(seed, "cuda" if torch.cuda.is_available() else "cpu"))


def covtype(seeds: Sequence[int], folder: Path) -> None:
    """Figure 6 by the paper's protocol, and the core vector machine; without a GPU this takes days."""
    folder.mkdir(exist_ok=True)
    for what in ("boosting", "cvm", "svm"):
        if (folder / f"covtype-{what}.json").exists():
            continue
        command = [sys.executable, str(HERE / "covtype_paper.py"), what, "--out", str(folder / f"covtype-{what}.json")]
        subprocess.run(command, check=True)


PARTS = {"kin40k": kin40k, "probe": probe, "covtype": covtype}


def main() -> None:
    options = argparse.ArgumentParser(description="Boost10 beside ours")
    options.add_argument("parts", nargs="*", help=f"some of {', '.join(PARTS)}, or nothing for all")
    options.add_argument("--seed", type=int, default=None, help="one split instead of all")
    options.add_argument("--quick", action="store_true", help="one split, without COVTYPE and the search for causes")
    options.add_argument("--kept", type=Path, default=KEPT, help="another folder for what is found")
    options.add_argument("--write", action="store_true", help="measure nothing")
    given = options.parse_args()
    wanted = given.parts or (["kin40k"] if given.quick else list(PARTS))
    seeds = [given.seed] if given.seed is not None else [0] if given.quick else range(SPLITS)
    for name in [] if given.write else wanted:
        PARTS[name](seeds, given.kept)
    if given.seed is None:
        import report

        report.write(given.kept, HERE / "results.md")


if __name__ == "__main__":
    main()

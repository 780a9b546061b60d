"""Boost06 beside ours: measures into `ours/`, then writes `results.md` and the figures from there.

    MERCER_DATA=… python benchmarks/papers/boost06/run.py                            # what `ours/` does not hold yet
    MERCER_DATA=… python benchmarks/papers/boost06/run.py --quick                    # one split of KIN40K
    MERCER_DATA=… python benchmarks/papers/boost06/run.py kin40k --seed 3            # one part, one split
    MERCER_DATA=… python benchmarks/papers/boost06/run.py memory --seed 0            # the single model to 1800 vectors
    python benchmarks/papers/boost06/run.py --write                                  # only the page

Times are CPU seconds of one thread (OMP_NUM_THREADS=1), so splits may run beside each other; with `--device cuda` they
are the wall's. What is found on either is kept apart.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from method import TABLES, measure, other_ways, to_memory

HERE = Path(__file__).parent
KEPT = HERE / "ours"
#: Splits of KIN40K, and of what has no printed number.
SPLITS, FEW = 10, 3
#: What the pages leave open on KIN40K.
BESIDE = {"memory": to_memory, "ways": other_ways}


def main() -> None:
    options = argparse.ArgumentParser(description="Boost06 beside ours")
    options.add_argument("tables", nargs="*", help=f"some of {', '.join((*TABLES, *BESIDE))}, or nothing for all")
    options.add_argument("--seed", type=int, default=None, help="one split instead of ten")
    options.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    options.add_argument("--quick", action="store_true", help="one split of KIN40K")
    options.add_argument("--kept", type=Path, default=KEPT, help="another folder for what is found")
    options.add_argument("--write", action="store_true", help="measure nothing")
    given = options.parse_args()
    wanted = given.tables or (TABLES[:1] if given.quick else (*TABLES, *BESIDE))
    seeds = [given.seed] if given.seed is not None else [0] if given.quick else range(SPLITS)
    given.kept.mkdir(exist_ok=True)
    for name in () if given.write else wanted:
        for seed in list(seeds)[: SPLITS if name == "kin40k" else FEW]:
            path = given.kept / f"{name}-{given.device}-{seed}.json"
            if path.exists() and given.seed is None:
                continue
            found = BESIDE[name](seed) if name in BESIDE else measure(name, seed, given.device)
            text = json.dumps(found, separators=(",", ":"))
            path.write_text(text + "\n", encoding="utf-8")
    if given.seed is None:
        import report

        report.write(given.kept, HERE / "results.md")


if __name__ == "__main__":
    main()

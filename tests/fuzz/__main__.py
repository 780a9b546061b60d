"""``python -m tests.fuzz``: many cases, counts per name and kind, and every fault with the seed that repeats it."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from itertools import cycle, islice

from . import settings
from .cases import NAMES, run
from .runner import HANG_SECONDS, run_all, work


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--cases", type=int, default=1000, help="how many, spread evenly over the names")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes, of one thread each")
    parser.add_argument("--seed", type=int, default=0, help="the first seed; names take turns")
    parser.add_argument("--names", nargs="+", default=NAMES, help="public names, and 'files'")
    parser.add_argument("--limit", type=float, default=HANG_SECONDS, help="seconds after which a case hangs")
    parser.add_argument("--replay", nargs=2, metavar=("NAME", "SEED"), help="run one case here and show it")
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        work()
        return 0
    if options.replay:
        return _replay(options.replay[0], int(options.replay[1]))
    turns = enumerate(islice(cycle(options.names), options.cases))
    cases = [(name, options.seed + turn // len(options.names)) for turn, name in turns]
    return _report(cases, options.jobs, options.limit)


def _replay(name: str, seed: int) -> int:
    outcome = run(name, seed)
    for key, value in vars(outcome).items():
        print(f"{key}: {value}")
    return bool(outcome.faults)


def _report(cases: list[tuple[str, int]], jobs: int, limit: float) -> int:
    start, ended, kinds, faulty = time.monotonic(), Counter(), Counter(), 0
    for outcome in run_all(cases, jobs, limit):
        ended[outcome.name, outcome.ended.split(":")[0]] += 1
        faulty += bool(outcome.faults)
        for fault in outcome.faults:
            kinds[outcome.name, fault.split(":")[0]] += 1
            print(f"{outcome.name} {outcome.seed} ({outcome.kind}) {fault}\n    {'; '.join(outcome.story)}", flush=True)
    print(f"\n{'name':32}{'answered':>9}{'refused':>9}{'failed':>9}  faults")
    for name in dict.fromkeys(name for name, _ in cases):
        counts = "".join(f"{ended[name, how]:>9}" for how in ("answered", "refused", "failed"))
        found = ", ".join(f"{kind} {n}" for (who, kind), n in sorted(kinds.items()) if who == name)
        print(f"{name:32}{counts}  {found}")
    if missing := settings.unknown():
        print(f"no legal values are listed for {missing}")
    print(f"{len(cases)} cases, {faulty} with faults, {time.monotonic() - start:.0f} s with {jobs} processes")
    return bool(faulty)


if __name__ == "__main__":
    sys.exit(main())

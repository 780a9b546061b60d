"""``python -m tests.fuzz``: many cases, counts per name and kind, and every fault with the seed that repeats it."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import cycle, islice
from pathlib import Path

from . import settings
from .cases import NAMES, Outcome, run
from .runner import HANG_SECONDS, run_all, work


@dataclass
class Counts:
    """How the cases of one name ended."""

    answered: int = 0
    refused: int = 0
    failed: int = 0
    faulty: int = 0
    slowest: float = 0.0
    seconds: float = 0.0
    faults: dict[str, int] = field(default_factory=dict)

    @property
    def cases(self) -> int:
        return self.answered + self.refused + self.failed

    def add(self, outcome: Outcome) -> None:
        how = outcome.ended.split(":")[0]
        setattr(self, how, getattr(self, how) + 1)
        self.faulty += bool(outcome.faults)
        self.slowest = max(self.slowest, outcome.seconds)
        self.seconds += outcome.seconds
        for fault in outcome.faults:
            kind = fault.split(":")[0]
            self.faults[kind] = self.faults.get(kind, 0) + 1

    def __str__(self) -> str:
        kinds = ", ".join(f"{kind} {n}" for kind, n in sorted(self.faults.items()))
        return f"{self.answered:>9}{self.refused:>9}{self.failed:>9}{self.seconds:>8.0f}s{self.slowest:>8.1f}s  {kinds}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--cases", type=int, default=1000, help="how many, spread evenly over the names")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes, of one thread each")
    parser.add_argument("--seed", type=int, default=0, help="the first seed; names take turns")
    parser.add_argument("--names", nargs="+", default=NAMES, help="public names, and 'files'")
    parser.add_argument("--limit", type=float, default=HANG_SECONDS, help="seconds after which a case hangs")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="no case is begun after so many")
    parser.add_argument("--json", help="a file for the counts")
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
    return _report(cases, options)


def _replay(name: str, seed: int) -> int:
    outcome = run(name, seed)
    for key, value in vars(outcome).items():
        print(f"{key}: {value}")
    return bool(outcome.faults)


def _report(cases: list[tuple[str, int]], options: argparse.Namespace) -> int:
    start, found = time.monotonic(), {name: Counts() for name in options.names}
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with suppress(KeyboardInterrupt):  # what was seen until then is told
        for outcome in run_all(cases, options.jobs, options.limit, options.seconds):
            found[outcome.name].add(outcome)
            story = "; ".join(outcome.story)
            for fault in outcome.faults:
                print(f"{outcome.name} {outcome.seed} ({outcome.kind}) {fault}\n    {story}", flush=True)
    print(f"\n{'name':32}{'answered':>9}{'refused':>9}{'failed':>9}{'CPU':>9}{'slowest':>9}  faults")
    for name, counts in found.items():
        print(f"{name:32}{counts}")
    if missing := settings.unknown():
        print(f"no legal values are listed for {missing}")
    n_cases, faulty = (sum(getattr(counts, key) for counts in found.values()) for key in ("cases", "faulty"))
    print(f"{n_cases} cases, {faulty} with faults, {time.monotonic() - start:.0f} s with {options.jobs} processes")
    if options.json:
        Path(options.json).write_text(json.dumps({name: vars(counts) for name, counts in found.items()}, indent=1))
    return bool(faulty)


if __name__ == "__main__":
    sys.exit(main())

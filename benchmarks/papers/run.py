"""All papers, one after another: `make papers`. Data are read from the folder that MERCER_DATA names.

    MERCER_DATA=… python benchmarks/papers/run.py [--quick]

Each folder's `run.py` measures what its `ours.json` does not hold yet and writes its `results.md`.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
PAPERS = ("boost06", "boost10", "greedy02", "thesis09_mixtures", "thesis09_gp", "mekl13")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--quick", action="store_true", help="a small part of each, which overwrites nothing that is kept"
    )
    options = ["--quick"] if parser.parse_args().quick else []
    if "MERCER_DATA" not in os.environ:
        raise SystemExit("MERCER_DATA must name the folder of the data sets (see docs/reproduce.md), it is not set")
    began, failed = time.monotonic(), []
    for number, paper in enumerate(PAPERS, 1):
        print(f"\n=== {number}/{len(PAPERS)} {paper}", flush=True)
        done = subprocess.run([sys.executable, str(HERE / paper / "run.py"), *options], check=False)
        failed += [paper] if done.returncode else []
        print(
            f"=== {paper}: {'failed' if done.returncode else 'done'} after {time.monotonic() - began:.0f} s", flush=True
        )
    if not options:
        subprocess.run([sys.executable, str(HERE / "reproduce.py")], check=True)
    if failed:
        raise SystemExit(f"{len(failed)} of {len(PAPERS)} papers failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()

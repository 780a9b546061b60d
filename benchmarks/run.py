"""`make bench`: what fits in ten minutes on two cores. Data sets are read from the folder that MERCER_DATA names."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
ALWAYS = ["speed/scaling.py"]
WITH_DATA = ["speed/foundation.py", "papers/boost10/kin40k.py --splits 1"]


def main() -> None:
    wanted = ALWAYS + (WITH_DATA if "MERCER_DATA" in os.environ else [])
    if len(wanted) == len(ALWAYS):
        print("MERCER_DATA names no folder: benchmarks on real data are left out")
    for command in wanted:
        script, *options = command.split()
        print(f"\n=== {command}", flush=True)
        subprocess.run([sys.executable, str(HERE / script), *options], check=True)


if __name__ == "__main__":
    main()

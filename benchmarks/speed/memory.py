"""The most memory that a fit takes, beside its `memory_limit`: tables in memory, and one streamed from a file.

    python benchmarks/speed/memory.py [--rows 1e5 1e7] [--limit 1GiB 2GiB] [--budget 120]
    python benchmarks/speed/memory.py --read land.parquet --limit 4GiB --budget 600
    python benchmarks/speed/memory.py --device cuda --limit 2GiB 8GiB

Every fit has a process of its own. On a CPU the peak is the resident memory of that process (VmHWM), whole where rows
are streamed; where the table is in memory, what the process held before the fit (interpreter, libraries, the table) is
the user's, and is told apart. On CUDA it is what torch allocated there, the table being in the host's memory. A line
ends with the peak in units of the limit; one above 1.1 is an error. `large.py --land 1e8 --write land.parquet` makes
the file.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
from pathlib import Path
from subprocess import run
from typing import Any

import torch
from resident import forget_peak, resident

from mercer import KernelBoostingClassifier, KernelBoostingRegressor
from mercer.data import ParquetRows
from mercer.datasets import make_smooth_regression
from mercer.engine import make_plan

#: A peak may be this many times the limit.
BOUND = 1.1


def peak_of(model: Any, X: Any, y: Any, device: str, limit: str) -> bool:
    """Fit, print, and say whether the peak was within the bound."""
    gc.collect()
    before = 0 if y is None else resident()
    forget_peak()
    began, worked = time.perf_counter(), time.process_time()
    model.fit(X, y)
    seconds, cpu = time.perf_counter() - began, time.process_time() - worked
    peak = torch.cuda.max_memory_allocated() if device == "cuda" else resident("VmHWM") - before
    most = make_plan(1, "cpu", memory_limit=limit).memory_limit
    rows, where = (X.n_rows, "streamed") if y is None else (len(X), "in memory")
    held = f" beside {before / 2**20:.0f} before it" if before and device == "cpu" else ""
    print(f"{rows} rows {where}, memory_limit={limit}: {peak / 2**20:.0f} MiB{held}, {seconds:.0f} s ({cpu:.0f} of "
          f"CPU), {model.n_steps_} learners: {peak / most:.2f} of the limit", flush=True)  # fmt: skip
    return peak <= BOUND * most


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--rows", type=float, nargs="*", default=[1e5, 1e7])
    options.add_argument("--read", type=Path, default=None, help="a Parquet file with a column y of classes")
    options.add_argument("--limit", nargs="*", default=["1GiB", "2GiB"], help="one for each table")
    options.add_argument("--budget", type=float, default=None)
    options.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    options.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    given = options.parse_args()
    if not given.inside:
        shared = ["--inside", "--device", given.device, *(["--budget", str(given.budget)] if given.budget else [])]
        tables = [["--read", str(given.read)]] if given.read else [["--rows", str(n)] for n in given.rows]
        ends = [
            run([sys.executable, __file__, *one, "--limit", limit, *shared], check=False).returncode
            for one, limit in zip(tables, given.limit, strict=True)
        ]
        raise SystemExit(f"within {BOUND} of the limit: {not any(ends)}" if any(ends) else 0)
    [limit] = given.limit
    settings = {"random_state": 0, "device": given.device, "memory_limit": limit, "time_budget": given.budget}
    if given.read:
        good = peak_of(KernelBoostingClassifier(**settings), ParquetRows(given.read, "y"), None, given.device, limit)
    else:
        table = make_smooth_regression(int(given.rows[0]), random_state=0)
        good = peak_of(KernelBoostingRegressor(**settings), *table, given.device, limit)
    raise SystemExit(0 if good else 1)


if __name__ == "__main__":
    main()

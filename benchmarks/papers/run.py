"""All papers: measure cells of earlier code, then missing ones, the cheapest first, and write docs/reproduce.

    MERCER_DATA=… python benchmarks/papers/run.py [--minutes 60] [--jobs 2] [--only greedy02/table2]
    MERCER_DATA=… python benchmarks/papers/run.py --check     # after a change: the cheapest cell of each kind once more
    MERCER_DATA=… python benchmarks/papers/run.py --quick     # a cell of each table, ten minutes, into build/papers
    python benchmarks/papers/run.py --report                  # only the pages; --figures draws the figures as well
    python benchmarks/papers/run.py --merge other.json        # take in cells that another machine measured

Data are read from the folder that MERCER_DATA names.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import ModuleType

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE.parent))

from papers.measure import Job, Store, cheapest_of_each_change, measure  # noqa: E402
from papers.pages import PAPERS, write  # noqa: E402

QUICK_MINUTES = 10.0


def papers() -> dict[str, ModuleType]:
    return {name: import_module(f"papers.{name}.paper") for name in PAPERS}


def all_jobs() -> dict[str, Job]:
    return {name: job for paper in papers().values() for name, job in paper.jobs().items()}


def surrogates(path: Path) -> None:
    """Without data: small cells on generated rows, which no page shows, beside the values that are kept."""
    lines = ["# Surrogates on generated rows: MERCER_DATA names no data", "", "| paper | cell | kept | now | within |"]
    lines.append("| --- | --- | --- | --- | --- |")
    for paper in PAPERS:
        made = import_module(f"papers.{paper}.surrogates").CELLS
        for name, (value, within, _) in json.loads((HERE / paper / "surrogates.json").read_text("utf-8")).items():
            found = made[name]()
            lines.append(f"| {paper} | {name} | {value:.6g} | {found:.6g} | {abs(found - value) <= within} |")
            print(lines[-1], flush=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--quick", action="store_true", help="a cell of each table within ten minutes, into build/papers"
    )
    parser.add_argument("--minutes", type=float, default=float("inf"), help="time after which the run ends")
    parser.add_argument("--jobs", type=int, default=1, help="processes of one thread each")
    parser.add_argument("--only", nargs="*", default=[""], help="cells whose names begin so")
    parser.add_argument("--check", action="store_true", help="the cheapest cell of each kind whose code has changed")
    parser.add_argument("--again", action="store_true", help="measure cells of today's code as well")
    parser.add_argument("--report", action="store_true", help="measure nothing")
    parser.add_argument("--figures", action="store_true", help="draw the figures")
    parser.add_argument("--merge", type=Path, help="another store, whose cells are taken in")
    parser.add_argument("--into", type=Path, default=HERE / "store.json", help="the store")
    given = parser.parse_args()
    if given.quick and "MERCER_DATA" not in os.environ:
        surrogates(ROOT / "build" / "papers" / "surrogates.md")
        return
    if "MERCER_DATA" not in os.environ and not given.report and not given.merge:
        raise SystemExit("MERCER_DATA must name the folder of the data sets (see docs/reproduce.md), it is not set")
    store = Store.read(given.into)
    if given.quick:
        kept, store = store, Store(ROOT / "build" / "papers" / "store.json")
        store.functions = dict(kept.functions)
        jobs = all_jobs()
        short = {name: add for paper in papers().values() for name, add in paper.QUICK.items()}
        cost = lambda name: kept.cells.get(name, {}).get("cost_s", 0.0)  # noqa: E731
        quick = {n: replace(jobs[n], arguments=jobs[n].arguments + short[n]) for n in sorted(short, key=cost)}
        jobs_at_once = max(given.jobs, min(os.cpu_count() or 1, 4))
        measure(store, quick, min(given.minutes, QUICK_MINUTES), jobs_at_once, False)
        write(store, ROOT / "build" / "papers")
        return
    if given.merge:
        store.take(Store.read(given.merge))
        store.write()
    elif not given.report:
        wanted = {name: job for name, job in all_jobs().items() if name.startswith(tuple(given.only))}
        if given.check:
            wanted = cheapest_of_each_change(store, wanted)
        elif not given.again:
            wanted = {n: job for n, job in wanted.items() if n not in store.cells or store.is_marked(n)}
        measure(store, wanted, given.minutes, given.jobs, check=given.check)
    if given.into == HERE / "store.json":
        write(store, ROOT / "docs" / "reproduce")
    if given.figures:
        import matplotlib

        matplotlib.use("Agg")
        for paper in papers().values():
            if hasattr(paper, "draw"):
                paper.draw(store, ROOT / "docs" / "figures")


if __name__ == "__main__":
    main()

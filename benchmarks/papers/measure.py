"""Cells of a paper's tables, measured side by side and kept as soon as they are there.

A folder's `run.py` names its jobs; `ours.json` keeps what they return, one line a cell, with the version of the code
that made it (a digest of src/mercer). A run may be stopped and taken up again; `--again` measures everything anew, and
`--quick` a small part of it, into build/papers, where nothing that is kept is touched.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

import mercer

Job = tuple[Callable[..., dict[str, Any]], tuple[Any, ...]]
ROOT = Path(__file__).parents[2]
#: The version of cells that were measured before there was one protocol for all.
EARLIER = "earlier"


@cache
def code_version() -> str:
    """The first digits of a digest of the package's source."""
    source = Path(mercer.__file__).parent
    digest = hashlib.sha1()
    for path in sorted(source.rglob("*.py")):
        digest.update(path.relative_to(source).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()[:10]


@dataclass
class Store:
    """Cells by name, in one file."""

    path: Path
    cells: dict[str, dict[str, Any]] = field(default_factory=dict)

    @classmethod
    def of(cls, folder: Path, given: argparse.Namespace) -> Store:
        """Where a folder's cells are kept; or the file that `--into` names."""
        path = ROOT / "build" / "papers" / folder.name / "ours.json" if given.quick else folder / "ours.json"
        path = path if given.into is None else Path(given.into)
        return cls(path, json.loads(path.read_text(encoding="utf-8")) if path.exists() else {})

    def keep(self, name: str, value: dict[str, Any]) -> None:
        self.cells[name] = value | {"code": code_version()}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        lines = (f"{json.dumps(key)}: {json.dumps(self.cells[key])}" for key in sorted(self.cells))
        self.path.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")

    def under(self, prefix: str) -> dict[str, dict[str, Any]]:
        """The cells whose names begin so, by what follows."""
        return {name[len(prefix) :]: cell for name, cell in self.cells.items() if name.startswith(prefix)}

    def lacks(self, name: str) -> bool:
        """Whether a cell is still to be measured: it is not there, or older than the way in which cells are made."""
        return name not in self.cells or self.cells[name]["code"] == EARLIER

    def mark(self, prefix: str, label: str) -> str:
        """A label with a sign where cells of older code stand behind it."""
        return f"{label} †" if any(cell["code"] == EARLIER for cell in self.under(prefix).values()) else label

    def versions(self) -> str:
        """A sentence about the code that the cells were made by."""
        found = sorted({cell["code"] for cell in self.cells.values()} - {EARLIER})
        if old := sum(cell["code"] == EARLIER for cell in self.cells.values()):
            return (
                f"{len(self.cells) - old} cells were made by the code of version {', '.join(found) or 'none'}; {old} "
                "are older, are marked †, and are measured again by the next run."
            )
        if len(found) == 1:
            return f"All cells were made by one version of the code ({found[0]})."
        return f"Cells were made by {len(found)} versions of the code ({', '.join(found)})."


def clock(device: str = "cpu") -> float:
    """Seconds: of this process's CPU, which do not mind what runs beside it; of the wall where a GPU does the work."""
    return time.process_time() if device == "cpu" else time.perf_counter()


def summarise(target: Path, rows: list[list[str]]) -> None:
    """Keep one line for each table and figure, for docs/reproduce.md, beside `results.md`."""
    target.with_name("summary.json").write_text(json.dumps(rows, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def options(doc: str | None) -> argparse.ArgumentParser:
    """What every `run.py` understands."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a small part, into build/papers")
    parser.add_argument("--again", action="store_true", help="measure what is there already as well")
    parser.add_argument("--report", action="store_true", help="only write results.md")
    parser.add_argument("--jobs", type=int, default=1, help="processes of one thread each")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="after which the run ends, kept as it is")
    parser.add_argument("--only", nargs="*", default=[], help="jobs whose names contain one of these")
    parser.add_argument("--skip", nargs="*", default=[], help="but none of these")
    parser.add_argument("--into", help="the file to keep cells in, instead of the folder's ours.json")
    return parser


def measure(store: Store, jobs: Mapping[str, Job], given: argparse.Namespace) -> None:
    """Do the jobs that are not kept yet, in their order, by so many processes at once, until time is up."""
    began = time.monotonic()
    wanted = {name: job for name, job in jobs.items() if given.again or store.lacks(name)}
    wanted = {n: job for n, job in wanted.items() if not given.only or any(part in n for part in given.only)}
    wanted = {n: job for n, job in wanted.items() if not any(part in n for part in given.skip)}
    print(f"{len(wanted)} of {len(jobs)} cells to measure, {given.jobs} at a time", flush=True)
    pool = ProcessPoolExecutor(given.jobs, get_context("spawn"), initializer=_alone)
    running = {pool.submit(_timed, *job): name for name, job in wanted.items()}
    failed = []
    try:
        left = None if given.minutes == float("inf") else 60 * given.minutes
        for done, future in enumerate(as_completed(running, left), 1):
            name, error = running[future], future.exception()
            if error is not None:
                failed.append(f"{name}: {error!r}")
                print(f"{done}/{len(wanted)} {failed[-1]}", file=sys.stderr, flush=True)
                continue
            store.keep(name, future.result())
            spent = time.monotonic() - began
            print(f"{done}/{len(wanted)} {name} {_short(store.cells[name])} [{spent:.0f} s]", flush=True)
    except TimeoutError:
        print(f"{given.minutes} minutes are up: {sum(not f.done() for f in running)} cells are left", flush=True)
        for process in list(getattr(pool, "_processes", {}).values()):
            process.terminate()
    pool.shutdown(wait=False, cancel_futures=True)
    if failed:
        raise SystemExit(f"{len(failed)} cells failed, first {failed[0]}")


def run(
    doc: str | None,
    folder: Path,
    jobs: Callable[[bool], Mapping[str, Job]],
    write: Callable[[Store, Path], None],
    summary: Callable[[Store], list[list[str]]],
) -> tuple[Store, argparse.Namespace]:
    """What every `run.py` does: measure what is asked for, then write `results.md` and a line for each table."""
    given = options(doc).parse_args()
    store = Store.of(folder, given)
    if not given.report:
        measure(store, jobs(given.quick), given)
    target = store.path.with_name("results.md")
    write(store, target)
    summarise(target, summary(store))
    return store, given


def _alone() -> None:
    """A worker has one thread, also where a library counts cores itself."""
    os.environ["OMP_NUM_THREADS"] = "1"
    torch.set_num_threads(1)


def _timed(function: Callable[..., dict[str, Any]], arguments: tuple[Any, ...]) -> dict[str, Any]:
    began = clock()
    return function(*arguments) | {"whole_s": round(clock() - began, 3), "machine": platform.machine()}


def _short(cell: dict[str, Any]) -> str:
    return ", ".join(f"{k} {v:.4g}" for k, v in cell.items() if isinstance(v, int | float) and k != "whole_s")

"""One store of all cells of all papers, and the runs that fill it.

`store.json` has one line a cell: what its job returned for one split, the protocol, the seed, the commit, the kind of
machine, the seconds it took, and a digest of the code it depends on (`depends.py`). A cell whose code has changed since
is marked (†). A run measures marked cells, then missing ones, the cheapest first, and may be stopped at any time.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from papers.depends import ROOT, digest, functions_of

Cell = dict[str, Any]
HERE = Path(__file__).parent
#: What every cell has beside its results.
FIELDS = ("job", "protocol", "seed", "commit", "code", "machine", "cost_s")
#: Seconds that a cell is taken to need if none of its kind was measured yet.
UNKNOWN = 30.0


@dataclass(frozen=True)
class Job:
    """A function that measures one cell. `protocol` is "printed" (the paper's), or names what differs.

    Cells of one `kind`, a function and a `variant` of its arguments, depend on the same code. `short` are further
    arguments that make the function end early, where it has such.
    """

    function: Callable[..., Cell]
    arguments: tuple[Any, ...] = ()
    protocol: str = "printed"
    seed: int = 0
    variant: str = ""
    short: tuple[Any, ...] = ()

    @property
    def kind(self) -> str:
        name = f"{self.function.__module__}.{self.function.__name__}".removeprefix("papers.")
        return f"{name} {self.variant}".strip()

    def __call__(self) -> Cell:
        return self.function(*self.arguments)


@dataclass
class Store:
    """Cells by name, and the functions that each kind of job depends on."""

    path: Path
    cells: dict[str, Cell] = field(default_factory=dict)
    functions: dict[str, list[str]] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path = HERE / "store.json") -> Store:
        kept = (
            json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"cells": {}, "kinds": {}, "names": {}}
        )
        names = list(kept["names"])
        return cls(path, kept["cells"], {kind: [names[i] for i in own] for kind, own in kept["kinds"].items()})

    def write(self) -> None:
        def block(name: str, entries: Mapping[str, Any]) -> str:
            lines = (f"{json.dumps(k, ensure_ascii=False)}: {_compact(entries[k])}" for k in sorted(entries))
            return f'"{name}": {{\n' + ",\n".join(lines) + "\n}"

        names = {name: i for i, name in enumerate(sorted({n for own in self.functions.values() for n in own}))}
        kinds = {kind: [names[name] for name in own] for kind, own in self.functions.items()}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        text = ",\n".join((block("names", names), block("kinds", kinds), block("cells", self.cells)))
        text = "{\n" + text + "\n}\n"
        beside = self.path.with_suffix(".new")  # a run that is killed while it writes leaves the store as it was
        beside.write_text(text, encoding="utf-8")
        beside.replace(self.path)

    def keep(self, name: str, job: Job, found: Cell, cost: float) -> None:
        about = {"job": job.kind, "protocol": job.protocol, "seed": job.seed, "commit": commit(), "machine": machine()}
        self.cells[name] = found | about | {"code": self.code(job.kind), "cost_s": round(cost, 2)}

    def code(self, kind: str) -> str:
        """The digest that cells of a kind have today."""
        return digest(tuple(self.functions.get(kind, ())))

    def is_marked(self, name: str) -> bool:
        """Whether a cell is of code that has changed since, or of code that nobody knows."""
        cell = self.cells[name]
        return cell.get("job") not in self.functions or cell["code"] != self.code(cell["job"])

    def take(self, other: Store) -> None:
        """Take in another store's cells as they are, except those of earlier code where ours are of today's."""
        ours, theirs = ({name for name in at.cells if not at.is_marked(name)} for at in (self, other))
        kinds, their_kinds = {self.cells[name]["job"] for name in ours}, {other.cells[name]["job"] for name in theirs}
        self.cells |= {name: cell for name, cell in other.cells.items() if name not in ours - theirs}
        for kind, functions in other.functions.items():
            known = self.functions[kind] if kind in kinds else []
            self.functions[kind] = sorted({*known, *(functions if kind in their_kinds or not known else ())})
        for name in ours | theirs:  # both depend on today's code, by two lists of functions that are now one
            self.cells[name]["code"] = self.code(self.cells[name]["job"])

    def under(self, prefix: str) -> dict[str, Cell]:
        """The cells whose names begin so, in the order of their seeds, by what follows."""
        found = {name[len(prefix) :]: cell for name, cell in self.cells.items() if name.startswith(prefix)}
        return dict(sorted(found.items(), key=lambda item: (item[1].get("seed", 0), item[0])))

    def costs(self) -> dict[str, float]:
        """Mean seconds of the cells of each kind."""
        found: dict[str, list[float]] = {}
        for cell in self.cells.values():
            found.setdefault(cell.get("job", ""), []).append(cell.get("cost_s", UNKNOWN))
        return {kind: sum(seconds) / len(seconds) for kind, seconds in found.items()}


def measure(
    store: Store, jobs: Mapping[str, Job], minutes: float = float("inf"), processes: int = 1, trace: bool = True
) -> None:
    """Measure cells, marked ones before missing ones, the cheapest first, in processes of one thread each.

    Time ends a run; cells are written as they come. With `trace` the first cell of a kind that has no current cell runs
    once more, to see which functions it calls.
    """
    ends = time.monotonic() + 60 * minutes
    waiting, kept, costs = dict(jobs), dict(store.cells), store.costs()
    current = {cell["job"] for name, cell in store.cells.items() if not store.is_marked(name)}
    os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"))
    pool = ProcessPoolExecutor(processes, get_context("spawn"), initializer=_one_thread)
    running: dict[Future[tuple[Cell, float, list[str]]], str] = {}
    failed: list[str] = []
    made: dict[str, list[str]] = {}
    print(f"{len(waiting)} cells to measure, {processes} at a time", flush=True)
    while running or waiting:
        while waiting and len(running) < processes and time.monotonic() < ends:
            name = min(
                waiting, key=lambda n: (n not in kept, kept.get(n, {}).get("cost_s", costs.get(jobs[n].kind, UNKNOWN)))
            )
            del waiting[name]
            kind = jobs[name].kind
            traced = trace and kind not in current
            if traced:
                store.functions.pop(kind, None)  # a list of earlier code; cells stay marked until there is a new one
            running[pool.submit(_measured, jobs[name], traced)] = name
            current.add(kind)
        done, _ = wait(running, max(ends - time.monotonic(), 0.0) if ends < float("inf") else None, FIRST_COMPLETED)
        if not done:
            break
        for future in done:
            name = running.pop(future)
            if (error := future.exception()) is not None:
                failed.append(f"{name}: {error!r}")
                print(f"failed: {failed[-1]}", file=sys.stderr, flush=True)
                continue
            found, cost, functions = future.result()
            kind = jobs[name].kind
            store.keep(name, jobs[name], found, cost)
            made.setdefault(kind, []).append(name)
            if functions:
                store.functions[kind] = functions
                for one in made[kind]:  # cells that were done before their functions were known
                    store.cells[one]["code"] = store.code(kind)
            store.write()
            costs.setdefault(kind, cost)
            print(f"{len(waiting) + len(running)} left; {name} took {cost:.1f} s", flush=True)
    if running or waiting:
        print(f"the {minutes:g} minutes are over: {len(running) + len(waiting)} cells are left", flush=True)
    for process in list((getattr(pool, "_processes", None) or {}).values()) if running else []:
        process.terminate()
    pool.shutdown(wait=False, cancel_futures=True)
    if failed:
        raise SystemExit(f"{len(failed)} cells failed, first {failed[0]}")


def clock(device: str = "cpu") -> float:
    """Seconds of this process on the CPU, which other processes do not change; of the wall where a GPU computes."""
    return time.process_time() if device == "cpu" else time.perf_counter()


@cache
def commit() -> str:
    """The last commit of the source, with a plus sign if files differ from it."""
    if given := os.environ.get("MERCER_COMMIT"):
        return given

    def git(*command: str) -> str:
        found = subprocess.run(
            ["git", "-C", str(ROOT), *command, "--", "src"], capture_output=True, text=True, check=False
        )
        return found.stdout.strip()

    return (git("log", "-1", "--format=%h", "--abbrev=7") or "unknown") + "+" * bool(git("status", "--porcelain"))


@cache
def machine() -> str:
    """The kind of machine: processor, and a GPU if there is one."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    cpu = names[0] if names else platform.processor() or platform.machine()
    return cpu + (f", {torch.cuda.get_device_name()}" if torch.cuda.is_available() else "")


def _one_thread() -> None:
    torch.set_num_threads(1)


def _measured(job: Job, trace: bool) -> tuple[Cell, float, list[str]]:
    began = clock()
    found = job()
    cost = clock() - began
    return found, cost, functions_of(job.function, job.arguments + job.short) if trace else []


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))

"""One store of all cells of all papers, and the runs that fill it.

`store.json` has one line a cell: what its job returned for one split, the protocol, the seed, the commit, the kind of
machine, the seconds it took, and a digest of the code it depends on (`depends.py`). A cell whose code has changed since
is marked: † if nothing is known of the change, ‡ if cells of the same function and code were made again since and came
out the same. A run measures cells with †, then missing ones, the cheapest first, and may be stopped at any time.
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
from math import isclose
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from papers.depends import ROOT, digest, functions_of, traced

Cell = dict[str, Any]
HERE = Path(__file__).parent
#: What every cell has beside its results.
FIELDS = ("job", "protocol", "seed", "commit", "code", "machine", "cost_s")
#: Seconds that a cell is taken to need if none of its kind was measured yet.
UNKNOWN = 30.0
#: Results that are times.
TIMES = ("seconds", "_s")
#: Marks of cells of earlier code: ‡ if the change since left results of cells that were made again as they were.
OLD, CHECKED = "†", "‡"


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
class Again:
    """How many cells of a kind and an earlier code came out the same, or not, by a later code."""

    code: str
    same: int = 0
    other: int = 0


@dataclass
class Store:
    """Cells by name, the functions that each kind of job depends on, and what was found when cells were made again.

    `again` is by kind and earlier code.
    """

    path: Path
    cells: dict[str, Cell] = field(default_factory=dict)
    functions: dict[str, list[str]] = field(default_factory=dict)
    again: dict[str, dict[str, Again]] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path = HERE / "store.json") -> Store:
        kept = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        names = list(kept.get("names", ()))
        functions = {kind: [names[i] for i in own] for kind, own in kept.get("kinds", {}).items()}
        again = {
            kind: {code: Again(*found) for code, found in own.items()} for kind, own in kept.get("again", {}).items()
        }
        return cls(path, kept.get("cells", {}), functions, again)

    def write(self) -> None:
        def block(name: str, entries: Mapping[str, Any]) -> str:
            lines = (f"{json.dumps(k, ensure_ascii=False)}: {_compact(entries[k])}" for k in sorted(entries))
            return f'"{name}": {{\n' + ",\n".join(lines) + "\n}"

        names = {name: i for i, name in enumerate(sorted({n for own in self.functions.values() for n in own}))}
        kinds = {kind: [names[name] for name in own] for kind, own in self.functions.items()}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        again = {kind: {code: [a.code, a.same, a.other] for code, a in own.items()} for kind, own in self.again.items()}
        blocks = (("names", names), ("kinds", kinds), ("again", again), ("cells", self.cells))
        text = ",\n".join(block(name, entries) for name, entries in blocks)
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

    def mark(self, name: str) -> str:
        """Nothing for a cell of today's code, ‡ if all cells of its kind and code that were made again are the same."""
        if not self.is_marked(name):
            return ""
        kind = self.cells[name].get("job", "")
        return CHECKED if kind in self.functions and self.latest(name) == self.code(kind) else OLD

    def latest(self, name: str) -> str:
        """The latest code by which cells like this one came out the same."""
        code, seen = self.cells[name].get("code", ""), set[str]()
        changes = self.again.get(self.cells[name].get("job", ""), {})
        while code in changes and code not in seen and changes[code].same and not changes[code].other:
            seen.add(code)
            code = changes[code].code
        return code

    def compare(self, before: Cell, after: Cell) -> None:
        """Note whether a cell of earlier code came out the same by today's."""
        kind, earlier, code = after["job"], before["code"], after["code"]
        if before["job"] != kind or earlier == code:
            return
        own = self.again.setdefault(kind, {})
        if earlier not in own or own[earlier].code != code:
            own[earlier] = Again(code)
        if same_results(before, after):
            own[earlier].same += 1
        else:
            own[earlier].other += 1

    def take(self, other: Store) -> None:
        """Take in another store's cells as they are, except those of earlier code where ours are of today's."""
        today = {kind: {at.code(kind) for at in (self, other)} for kind in self.functions.keys() | other.functions}
        for kind, own in other.again.items():
            self.again[kind] = self.again.get(kind, {}) | own
        ours, theirs = ({name for name in at.cells if not at.is_marked(name)} for at in (self, other))
        kinds, their_kinds = {self.cells[name]["job"] for name in ours}, {other.cells[name]["job"] for name in theirs}
        self.cells |= {name: cell for name, cell in other.cells.items() if name not in ours - theirs}
        for kind, functions in other.functions.items():
            known = self.functions[kind] if kind in kinds else []
            self.functions[kind] = sorted({*known, *(functions if kind in their_kinds or not known else ())})
        for name in ours | theirs:  # both depend on today's code, by two lists of functions that are now one
            self.cells[name]["code"] = self.code(self.cells[name]["job"])
        for kind, own in self.again.items():
            for found in own.values():
                found.code = self.code(kind) if found.code in today.get(kind, ()) else found.code

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
    store: Store,
    jobs: Mapping[str, Job],
    minutes: float = float("inf"),
    processes: int = 1,
    trace: bool = True,
    check: bool = False,
) -> None:
    """Measure cells with †, then missing ones, then those with ‡, the cheapest first, in processes of one thread each.

    Time ends a run; cells are written as they come. With `trace` the first cell of a kind that has no current cell runs
    once more, to see which functions it calls. With `check` it runs once where it has no shorter version: tracing takes
    time, so that cells which come out the same keep their times, commit and machine.
    """
    ends = time.monotonic() + 60 * minutes
    waiting, kept, costs = dict(jobs), dict(store.cells), store.costs()
    current = {cell["job"] for name, cell in store.cells.items() if not store.is_marked(name)}
    order = {n: (OLD, None, CHECKED, "").index(store.mark(n) if n in kept else None) for n in jobs}
    priced = lambda n: (order[n], kept.get(n, {}).get("cost_s", costs.get(jobs[n].kind, UNKNOWN)))  # noqa: E731
    os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"))
    pool = ProcessPoolExecutor(processes, get_context("spawn"), initializer=_one_thread)
    running: dict[Future[tuple[Cell, float, list[str]]], str] = {}
    failed: list[str] = []
    made: dict[str, list[str]] = {}
    earlier: dict[str, list[str]] = {}
    print(f"{len(waiting)} cells to measure, {processes} at a time", flush=True)
    while running or waiting:
        while waiting and len(running) < processes and time.monotonic() < ends:
            name = min(waiting, key=priced)
            del waiting[name]
            kind = jobs[name].kind
            traces = trace and kind not in current
            if traces:
                earlier[kind] = store.functions.pop(kind, [])  # cells stay marked until there is a new list
            running[pool.submit(_measured, jobs[name], traces, check)] = name
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
            before = kept.get(name)
            if check and before is not None and same_results(before, found):
                store.cells[name] = before | {"code": store.code(kind)}
            else:
                store.keep(name, jobs[name], found, cost)
            made.setdefault(kind, []).append(name)
            if functions:
                store.functions[kind] = functions
                for one in made[kind]:  # cells that were done before their functions were known
                    store.cells[one]["code"] = store.code(kind)
            if kind in store.functions:
                for one in made.pop(kind):
                    if one in kept:
                        store.compare(kept[one], store.cells[one])
            store.write()
            costs.setdefault(kind, cost)
            print(f"{len(waiting) + len(running)} left; {name} took {cost:.1f} s", flush=True)
    if running or waiting:
        print(f"the {minutes:g} minutes are over: {len(running) + len(waiting)} cells are left", flush=True)
    if lost := {kind: names for kind, names in earlier.items() if names and kind not in store.functions}:
        store.functions |= lost
        store.write()
    for process in list((getattr(pool, "_processes", None) or {}).values()) if running else []:
        process.terminate()
    pool.shutdown(wait=False, cancel_futures=True)
    if failed:
        raise SystemExit(f"{len(failed)} cells failed, first {failed[0]}")


def cheapest_of_each_change(store: Store, jobs: Mapping[str, Job]) -> dict[str, Job]:
    """The cheapest cell with † of each kind and latest code: made again, it tells whether a change shows in results."""
    found: dict[tuple[str, str], str] = {}
    old = [n for n in jobs if n in store.cells and store.mark(n) == OLD and store.cells[n]["job"] == jobs[n].kind]
    for name in sorted(old, key=lambda n: (store.cells[n]["code"] != store.latest(n), store.cells[n].get("cost_s", 0))):
        found.setdefault((jobs[name].kind, store.latest(name)), name)
    return {name: jobs[name] for name in found.values()}


def same_results(a: Any, b: Any) -> bool:
    """Whether two cells hold the same numbers, to six digits. Times are not compared.

    >>> same_results({"error": 0.5, "seconds": 1.0}, {"error": 0.5, "seconds": 2.0})
    True
    """
    if isinstance(a, dict) and isinstance(b, dict):
        one, two = ({key for key in cell if key not in FIELDS and not key.endswith(TIMES)} for cell in (a, b))
        return one == two and all(same_results(a[key], b[key]) for key in one)
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(map(same_results, a, b))
    return isclose(a, b, rel_tol=1e-6) if isinstance(a, float) and isinstance(b, int | float) else bool(a == b)


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


def _measured(job: Job, trace: bool, once: bool) -> tuple[Cell, float, list[str]]:
    began = clock()
    if trace and once and not job.short:
        found, functions = traced(job.function, job.arguments)
        return found, clock() - began, functions
    found = job()
    cost = clock() - began
    return found, cost, functions_of(job.function, job.arguments + job.short) if trace else []


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))

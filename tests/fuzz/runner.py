"""Many cases over several processes, each with a watchdog: a case that hangs or kills its process is a fault, too."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import select
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from queue import Empty, Queue

import torch

from .cases import Outcome, run

HANG_SECONDS = 60
START_SECONDS = 300  # imports and a first case on a busy machine
WARMING = (("KernelBoostingClassifier", 0), ("SparseGPRegressor", 0))  # between them they import nearly everything
MEMORY_BYTES = 8 << 30  # of addresses a process beyond its libraries: a runaway allocation does not fill the machine

PATIENCE = 10  # limits to wait for a process that had no processor for half of the time: others are busy, it is not

Case = tuple[str, int]


def _processor_seconds(pid: int) -> float:
    """Seconds that a process has computed; without end where the system does not tell."""
    told = Path(f"/proc/{pid}/stat")
    if not told.exists():
        return float("inf")
    user, system = told.read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def _addresses() -> int:
    """Bytes of addresses that this process has, libraries and all; none where the system does not tell."""
    told = Path("/proc/self/statm")
    return int(told.read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE") if told.exists() else 0


def work() -> None:
    """Answer each line "name seed" on standard input with one line of JSON; ends with the input."""
    answers, sys.stdout = sys.stdout, sys.stderr  # whatever a case prints must not look like an answer
    torch.set_num_threads(1)
    for case in WARMING:  # what is imported on the way is not on the clock of the first case
        run(*case)
    if not torch.cuda.is_available():  # CUDA reserves far more addresses than it uses
        most = _addresses() + MEMORY_BYTES
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
    print("ready", file=answers, flush=True)
    for line in sys.stdin:
        name, seed = line.split()
        print(json.dumps(asdict(run(name, int(seed))), default=str), file=answers, flush=True)


class Worker:
    """A process that runs cases one after another, started anew when one of them takes it down."""

    def __init__(
        self, limit: float = HANG_SECONDS, command: Sequence[str] = (sys.executable, "-m", "tests.fuzz", "--work")
    ) -> None:
        self.limit, self.command, self.process = limit, command, None

    def run(self, case: Case) -> Outcome:
        process = self.process or self._start()
        try:
            print(*case, file=process.stdin, flush=True)
            line = self._line(self.limit)
        except BrokenPipeError:
            line = ""
            process.wait()
        if line:
            return Outcome(**json.loads(line))
        hung = process.poll() is None
        self.stop()
        why = (
            f"hang: no answer within {self.limit} s" if hung else f"crash: the process ended with {process.returncode}"
        )
        return Outcome(*case, ended="failed", faults=[why])

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            with contextlib.suppress(BrokenPipeError):  # a line that the process did not live to read
                self.process.communicate()
            self.process = None

    def _start(self) -> subprocess.Popen[str]:
        self.process = subprocess.Popen(
            self.command,
            cwd=Path(__file__).parents[2],
            env=os.environ | dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        if not self._line(START_SECONDS):
            raise RuntimeError("a fuzz process did not start; run python -m tests.fuzz --work to see why")
        return self.process

    def _line(self, seconds: float) -> str:
        """The next line of the process, or nothing if it does not come in time."""
        assert self.process is not None
        begun = _processor_seconds(self.process.pid)
        for waited in range(1, PATIENCE + 1):
            ready, _, _ = select.select([self.process.stdout], [], [], seconds)
            starved = _processor_seconds(self.process.pid) - begun < waited * seconds / 2
            if ready or not starved:
                break
        line = self.process.stdout.readline() if ready else ""
        if not line and not ready:
            return ""
        if not line:
            self.process.wait()
        return line


def run_all(
    cases: Iterable[Case], jobs: int, limit: float = HANG_SECONDS, seconds: float = float("inf")
) -> Iterator[Outcome]:
    """Outcomes of the cases as they come, from `jobs` processes at once; none is begun after `seconds`.

    A case that hangs is repeated at the end, alone: on a crowded machine it may only have been slow.
    """
    again: list[Case] = []
    for outcome in _side_by_side(cases, jobs, limit, seconds):
        if any(fault.startswith("hang") for fault in outcome.faults):
            again.append((outcome.name, outcome.seed))
        else:
            yield outcome
    yield from _side_by_side(again, 1, limit, float("inf"))


def _side_by_side(cases: Iterable[Case], jobs: int, limit: float, seconds: float) -> Iterator[Outcome]:
    end = time.monotonic() + seconds
    waiting: Queue[Case] = Queue()
    for case in cases:
        waiting.put(case)
    done: Queue[Outcome | BaseException | None] = Queue()

    def serve() -> None:
        worker = Worker(limit)
        try:
            while time.monotonic() < end:
                done.put(worker.run(waiting.get_nowait()))
        except Empty:
            pass
        except BaseException as error:
            done.put(error)
        finally:
            worker.stop()
            done.put(None)

    threads = [threading.Thread(target=serve, daemon=True) for _ in range(jobs)]
    for thread in threads:
        thread.start()
    left = jobs
    while left:
        outcome = done.get()
        if outcome is None:
            left -= 1
        elif isinstance(outcome, BaseException):
            raise outcome
        else:
            yield outcome

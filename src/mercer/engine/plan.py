"""Decisions about hardware, made here and nowhere else: device, precision, block sizes, whether K is kept.

A `Plan` is made once per fit from the size of the data and the user's parameters. Algorithms and products ask the
plan and never examine devices or memory themselves.

A `Sample` is the training data of algorithms: rows, targets, weights and the plan, in one record.
"""

from __future__ import annotations

import math
import os
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np
import torch
from sklearn.utils import check_random_state
from torch import Tensor

from mercer.data import RowSource, TensorRows
from mercer.data.row_groups import RowGroups
from mercer.data.shard import ONE_PROCESS, Group
from mercer.data.source import WeightedRows
from mercer.parts import as_float, is_auto, require

Result = TypeVar("Result")
#: Elements of a CPU tile: measured best near 2 MiB in float32, what the second-level caches of a few cores hold.
CACHE_ELEMENTS = 1 << 19
#: Rows of a panel for matrix products whose result is m × m: enough to amortise the pass over that result.
PANEL_ROWS = 2048
#: Rows read from a source at a time, for a CPU and for a GPU.
CHUNK_ROWS = {"cpu": 1 << 16, "cuda": 1 << 22}
#: Elements of the packed inputs of a fused product at a time: offsets into them are 32-bit numbers.
FUSED_ELEMENTS = 1 << 30
#: An exact solution by conjugate gradients needs fewer steps with a larger penalty: its limit of rows is multiplied by
#: (penalty / HARD) ** POWER, at most by EASIEST.
POWER, HARD, EASIEST = 0.2, 3e-6, 5.0
#: Memory of an exact solution in units of the matrix in float32: by conjugate gradients, and by a factor.
READ, FACTORED = 1.25, 2.0
#: Rows up to which two classes are fitted exactly on a CPU: Newton's method takes about ten times as long as ridge.
#: Several classes have as many columns, so that rows times their root count.
LIKELIHOOD_ROWS = 5000
#: Rows from which fits keep freed memory: glibc itself keeps smaller matrices, and returning memory takes up to 60 ms
#: in a process with many small objects.
KEPT_MEMORY_ROWS = 1000
#: Rows that a model selection draws at most and at least; memory from which it draws all of these, and what it needs
#: for each row with less, in bytes. Two threads took 72, 90 and 480 MiB for 590, 1390 and 3000 rows of ten columns.
SELECTION_ROWS, SELECTION_MEMORY, SELECTION_BYTES = (20_000, 200), 1 << 30, 160 << 10
#: Kernel values of one pass up to which a polish is worth its passes in float64.
POLISHED_VALUES = (1e9, 3e9)
#: Operations a second that a Cholesky factor is counted on to take, on a CPU and on a GPU.
FACTOR_RATE = (5e9, 5e12)
#: Kernel values a second that a fit is expected to compute, on a CPU and on a GPU.
KERNEL_RATE = (3e8, 1e12)
#: The most rows that boosting is fitted to at a time, and the fewest whatever the time budget.
STAGE_ROWS, LEAST_STAGE_ROWS = (1_000_000, 10_000_000), 10_000
#: Kernel values for each row of a boosted model of medium size: two passes over forty learners in half of the time.
STAGE_VALUES = (2 * 2 * 40 * 500, 2 * 2 * 40 * 2000)
#: Below this many rows float64 costs little on a CPU and avoids rounding problems.
FLOAT64_ROWS = 10_000
#: Rows that stand for all rows of a table in estimates of sizes, spreads, curvatures and validation losses.
SAMPLE_ROWS = 10_000
#: Kinds of devices that fits and predictions run on. Devices of Apple have no float64.
DEVICES = ("cpu", "cuda")


def record(function: Callable[[], Result]) -> tuple[torch.cuda.CUDAGraph, Result]:
    """The graph of all launches of `function`, and its result: tensors that each replay overwrites.

    `function` must have run before, since libraries initialise themselves on first use. It may neither read a number
    from the GPU nor copy one to it; a RuntimeError is raised if it does.
    """
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        result = function()
    return graph, result


@dataclass(frozen=True)
class Plan:
    """Device, precision and memory of one fit or prediction.

    An exact solution is worth its work up to `exact_limits` rows, on a CPU and on a GPU, for any penalty. On 13 500 to
    20 500 rows of pol, elevators, cal_housing and house_16H errors are 0.44, 6.86, 12.0 and 30.3 % exactly, 0.55, 6.92,
    12.9 and 32.5 % by boosting, in 0.5 to 1.8 times the time. 36 000 rows of KIN40K, whose penalty is tiny, take 221
    steps of a second; those four tables take 12 to 85.
    """

    exact_limits: ClassVar[tuple[int, int]] = (12_000, 60_000)
    device: torch.device
    dtype: torch.dtype
    memory_limit: int

    @property
    def itemsize(self) -> int:
        return self.dtype.itemsize

    def tile_rows(self, m: int) -> int:
        """Rows of a tile with `m` columns that is reduced at once: it stays in the cache, or fills the GPU."""
        elements = CACHE_ELEMENTS if self.device.type == "cpu" else 1 << 27
        return self._within_memory(max(elements // max(m, 1), 32), m)

    def panel_rows(self, m: int) -> int:
        """Rows of a tile with `m` columns that enters an m × m product."""
        rows = PANEL_ROWS if self.device.type == "cpu" else max((1 << 28) // max(m, 1), PANEL_ROWS)
        return self._within_memory(rows, m)

    def fused_rows(self, width: int) -> int:
        """Rows of a fused product, `width` packed float16 numbers each, at a time: an eighth of the memory at most."""
        affordable = self.memory_limit // (8 * 4 * width)  # with the float32 numbers they are made of
        return max(min(FUSED_ELEMENTS // width, affordable), 1)

    def part_rows(self, m: int) -> int:
        """Rows of a random subsample for approximate steps on m inducing inputs: fewer would not fill the device."""
        return max(10 * m, 1000) if self.device.type == "cpu" else max(128 * m, 32_000)

    def traced_rows(self, m: int) -> int:
        """Rows of a tile whose gradient is wanted: autograd keeps several tiles at once.

        A CPU needs tiles of at least half the cache to amortise autograd's many small steps: with 50 columns 5000 rows
        at a time are 2.6 times as fast as 500.
        """
        rows = max(self.panel_rows(m) // 4, 1)
        if self.device.type != "cpu":
            return rows
        return max(rows, self._within_memory(CACHE_ELEMENTS // (2 * max(m, 1)), m))

    def replays(self, n_rows: int, m: int) -> bool:
        """Whether launches over these rows are recorded and replayed: on a GPU, if all rows are one block.

        Issuing the launches then takes longer than running them. Only the main thread records: copies by other threads
        fail meanwhile, so models that are fitted in parallel launch one by one.
        """
        main = threading.current_thread() is threading.main_thread()
        return main and self.device.type == "cuda" and n_rows <= self.traced_rows(m)

    def chunk_rows(self, n_columns: int, wanted: int = 0) -> int:
        """Rows read from a source at a time: at least `wanted`, but at most an eighth of the memory."""
        affordable = self.memory_limit // (8 * 8 * max(n_columns, 1))
        return max(min(max(CHUNK_ROWS[self.device.type], wanted), affordable), 1)

    def holds_rows(self, n_rows: int, n_columns: int) -> bool:
        """Whether all rows stay on the device: if they take at most a quarter of the memory."""
        return n_rows * n_columns * self.itemsize * 4 <= self.memory_limit

    def keeps_tiles(self, n_rows: int, m: int, uses: int) -> bool:
        """Whether K (n_rows × m) is kept: it is used more than once and takes at most a third of the memory."""
        return uses > 1 and 3 * n_rows * m * self.itemsize <= self.memory_limit

    def kernel_values(self, seconds: float) -> float:
        """Kernel values that a fit is expected to compute in so many seconds."""
        return seconds * KERNEL_RATE[self.device.type == "cuda"]

    def stage_rows(self, n_columns: int, seconds: float | None = None) -> int:
        """Rows that boosting is fitted to at a time: a quarter of the memory at most, with time for enough learners."""
        on_gpu = self.device.type == "cuda"
        most = min(STAGE_ROWS[on_gpu], self.memory_limit // (4 * self.itemsize * n_columns))
        if seconds is None:
            return most
        return min(most, max(int(self.kernel_values(seconds) / STAGE_VALUES[on_gpu]), LEAST_STAGE_ROWS))

    def exact_rows(self, penalty: float = 0.0) -> int:
        """Rows up to which all of them serve as basis vectors: n × n numbers in float32 fit and take seconds."""
        on_gpu = self.device.type == "cuda"
        times = 1.0 if on_gpu else min(max((penalty / HARD) ** POWER, 1.0), EASIEST)
        affordable = (self.memory_limit / (4 * (FACTORED if times == 1 else READ))) ** 0.5
        return int(min(times * self.exact_limits[on_gpu], affordable))

    def likelihood_rows(self, n_outputs: int) -> int:
        """Rows up to which the exact solution of a likelihood is affordable."""
        most = self.exact_rows() if self.device.type == "cuda" else LIKELIHOOD_ROWS / n_outputs**0.5
        return int(min(self.square_rows(copies=4), most))

    def selection_rows(self) -> int:
        """Rows that a model selection may draw.

        >>> [make_plan(1, "cpu", memory_limit=limit).selection_rows() for limit in ("64MiB", "512MiB", "1GiB")]
        [409, 3276, 20000]
        """
        most, fewest = SELECTION_ROWS
        return most if self.memory_limit >= SELECTION_MEMORY else max(self.memory_limit // SELECTION_BYTES, fewest)

    def polish_pays(self, n_rows: int, m: int) -> bool:
        """Whether a polish of m basis vectors is worth its passes over the rows."""
        return n_rows * m <= POLISHED_VALUES[self.device.type == "cuda"]

    def square_rows(self, copies: int = 6) -> int:
        """The largest n of which so many n × n arrays of float64 fit."""
        return math.isqrt(self.memory_limit // (8 * copies))

    def holds_square(self, n: int, copies: int = 4) -> bool:
        """Whether n × n arrays of float64 fit: by default a matrix, its factor, and two copies for factoring."""
        return copies * 8 * n**2 <= self.memory_limit

    def keeps_freed_memory(self, n: int) -> bool:
        """Whether fits to n rows keep freed memory: it pays for large matrices; gaps may add one to the peak."""
        return self.device.type == "cpu" and n >= KEPT_MEMORY_ROWS and self.holds_square(n, copies=2)

    def require_functions(self, n_rows: int, m: int) -> None:
        """Raise MemoryError if m functions at all rows alone would exceed the memory limit."""
        needed = n_rows * m * self.itemsize
        if needed > self.memory_limit:
            raise MemoryError(
                f"{m} functions at {n_rows} rows need {needed / 2**20:.0f} MiB, more than "
                f"memory_limit={self.memory_limit / 2**20:.0f} MiB; take fewer basis vectors, or absorption='one' "
                "(update='one'), which holds one learner at a time"
            )

    def require_square(self, m: int, copies: int = 6) -> None:
        """Raise MemoryError if the m × m algebra of m basis vectors alone would exceed the memory limit."""
        if not self.holds_square(m, copies):
            raise MemoryError(
                f"{m} basis vectors need about {copies * m * m * 8 / 2**20:.0f} MiB for their {m} × {m} algebra, "
                f"more than memory_limit={self.memory_limit / 2**20:.0f} MiB; "
                "use fewer basis vectors or raise memory_limit"
            )

    def _within_memory(self, rows: int, m: int) -> int:
        affordable = self.memory_limit // (8 * self.itemsize * max(m, 1))  # a tile and its temporaries
        return max(min(rows, affordable), 1)


def factored_rows(seconds: float, on_gpu: bool) -> int:
    """The size of the largest matrix whose factor, a third of its cube of operations, takes no more than `seconds`.

    >>> factored_rows(1.0, on_gpu=False)
    2466
    """
    return int((3 * FACTOR_RATE[on_gpu] * seconds) ** (1 / 3))


def make_plan(
    n_rows: int,
    device: Any = "auto",
    dtype: Any = "auto",
    memory_limit: int | float | str | None = None,
) -> Plan:
    """Decide device, precision and memory for `n_rows` rows.

    `device="auto"` takes CUDA where torch finds it. `dtype="auto"` takes float32 tiles on CUDA and for
    more than 10 000 rows, float64 otherwise; m × m algebra is float64 in any case. `memory_limit` is in
    bytes, or written out ("4GB", "500MB", "2GiB"); by default 60 % of what is free.

    >>> make_plan(1000, device="cpu").dtype
    torch.float64
    """
    where = chosen_device(device)
    if is_auto(dtype):
        tiles = torch.float32 if where.type != "cpu" or n_rows > FLOAT64_ROWS else torch.float64
    else:
        tiles = getattr(torch, str(dtype).removeprefix("torch."), None)  # type: ignore[assignment]
        require(tiles in (torch.float32, torch.float64), "dtype", "'auto', 'float32' or 'float64'", dtype)
    limit = 0.6 * _free_memory(where) if memory_limit is None else _bytes(memory_limit)
    wanted = "None, a number of bytes of at least 1048576, or text such as '4GB' or '500MiB'"
    require(2**20 <= limit < float("inf"), "memory_limit", wanted, memory_limit)
    return Plan(where, tiles, int(limit))


def _bytes(limit: Any) -> float:
    """A number of bytes, as such or with a unit: kB, MB, GB, TB are powers of 1000, KiB and so on of 1024."""
    if not isinstance(limit, str):
        return as_float(limit)
    found = re.fullmatch(r"\s*(\d+(?:\.\d*)?)\s*([kmgt]?)(i?)b\s*", limit, re.IGNORECASE)
    if found is None:
        return float("nan")
    number, prefix, binary = found.groups()
    return float(number) * (1024 if binary else 1000) ** " kmgt".index(prefix.lower() or " ")


def chosen_device(choice: Any) -> torch.device:
    """The device for "auto", a name or a torch device; "auto" takes CUDA where torch finds it."""
    if is_auto(choice):
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(choice)
    except (RuntimeError, TypeError):
        raise ValueError(f"device must be 'auto', 'cpu', 'cuda' or a torch device, got {choice!r}") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"device must be one that torch finds, got {choice!r}: there is no CUDA device here")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ValueError(f"device must be one of the {torch.cuda.device_count()} CUDA devices here, got {choice!r}")
    if device.type not in DEVICES:
        raise ValueError(f"device must be 'auto', 'cpu' or 'cuda', got {choice!r}: mercer does not run there")
    return device


def _free_memory(device: torch.device) -> int:
    if device.type == "cuda":
        return reusable(
            torch.cuda.mem_get_info(device)[0],
            torch.cuda.memory_reserved(device),
            torch.cuda.memory_allocated(device),
        )
    try:  # files that the system keeps in memory make room when asked
        lines = Path("/proc/meminfo").read_text().splitlines()
        return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):  # not Linux
        pass
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):  # systems that do not tell
        return 4 << 30


def reusable(free: int, reserved: int, allocated: int) -> int:
    """Bytes of a GPU that a process can still allocate: free ones, and those that torch has reserved for itself.

    Torch keeps freed memory for later allocations, so the driver counts it as used; torch returns it when an allocation
    does not fit. With this count a process that has fitted before plans as a fresh one does.

    >>> reusable(free=100, reserved=0, allocated=0), reusable(free=20, reserved=80, allocated=0)
    (100, 100)
    >>> reusable(free=20, reserved=80, allocated=30)
    70
    """
    return free + reserved - allocated


def generator(random_state: Any, group: Group = ONE_PROCESS) -> np.random.Generator:
    """The random numbers of a fit, the same on all processes; a `RandomState` that is passed in advances."""
    rng = np.random.default_rng(check_random_state(random_state).randint(2**31))
    rng.bit_generator.state = group.first(lambda: rng.bit_generator.state)
    return rng


@dataclass(frozen=True)
class Sample(WeightedRows):
    """Rows, targets (n × p; float64 unless `in_tiles`), weights and the plan.

    >>> from mercer.engine import Sample, make_plan
    >>> X = torch.arange(6.0)[:, None]
    >>> sample = Sample(TensorRows(X), X.double(), torch.tensor([1.0, 0, 1, 1, 1, 1]), make_plan(6, device="cpu"))
    >>> sample.alive.tolist(), sample.spaced(3).tolist(), len(sample.draw(2, np.random.default_rng(0)))
    ([0, 2, 3, 4, 5], [0, 3, 5], 2)
    >>> sample.part(sample.spaced(3)).Y[:, 0].tolist()
    [0.0, 3.0, 5.0]
    """

    rows: RowSource
    Y: Tensor
    weight: Tensor
    plan: Plan
    #: A group number for each column; columns of one group, such as the levels of a category, share a length-scale.
    column_groups: np.ndarray | None = None
    #: Weights of the held-out rows, whose `weight` is zero; one each if None.
    validation_weight: Tensor | None = None
    #: Rows that every split keeps together.
    row_groups: RowGroups | None = None
    #: Known noise variance of each row, on top of the one that all rows share.
    noise: Tensor | None = None

    @property
    def n_rows(self) -> int:
        return self.rows.n_rows

    @property
    def n_total(self) -> int:
        """The number of rows of all processes."""
        return self.rows.shard.length(self.n_rows)

    @cached_property
    def total_weight(self) -> float:
        """The sum of the weights, of all processes."""
        return float(self.rows.total(self.weight.sum(dtype=torch.float64)))

    @cached_property
    def mean_weight(self) -> float:
        """The mean weight of rows of positive weight."""
        return self.total_weight / self.n_alive

    def part(self, index: Any) -> Sample:
        """The rows of these indices, in this order, on the plan's device; the same on every process."""
        where = torch.as_tensor(index, device=self.plan.device)
        block = self.rows.fetch(index).to(self.plan.device, self.plan.dtype)
        Y, weight = self.rows.pick(self.Y.T, where).T.contiguous(), self.rows.pick(self.weight, where)
        noise = None if self.noise is None else self.rows.pick(self.noise, where)
        together = self._together(where)
        return Sample(TensorRows(block), Y, weight, self.plan, self.column_groups, row_groups=together, noise=noise)

    def here(self, places: Tensor) -> Sample:
        """The sample restricted to these local rows of this process, in order; other processes keep theirs."""
        rows = TensorRows(self.rows.take(places), self.rows.shard.part(places))
        held_out = None if self.validation_weight is None else self.validation_weight[places]
        return replace(
            self,
            rows=rows,
            Y=self.Y[places],
            weight=self.weight[places],
            validation_weight=held_out,
            row_groups=self._together(places),
            noise=None if self.noise is None else self.noise[places],
        )

    def _together(self, index: Tensor) -> RowGroups | None:
        return None if self.row_groups is None else self.row_groups.take(index.cpu().numpy())

    def in_tiles(self, plan: Plan) -> Sample:
        """The sample with targets and weights on the plan's device, in the precision of its tiles."""
        Y, weight = (part.to(plan.device, plan.dtype) for part in (self.Y, self.weight))
        held_out = None if self.validation_weight is None else self.validation_weight.to(plan.device, plan.dtype)
        return replace(self, Y=Y, weight=weight, plan=plan, validation_weight=held_out)

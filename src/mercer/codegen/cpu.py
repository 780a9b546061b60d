r"""Fast paths of CPUs: the exponential, memory that is used again, and threads that share rows.

**The exponential** costs more than the rest of a kernel's value. MKL's `exp` is several times as fast as any other;
without it torch uses Sleef, whose `exp2` is faster than its `exp`, since it needs no reduction of the argument. On an
ARM Neoverse N1 (one core, float32, eight inputs, 2048 basis vectors) the steps of a product with a Gaussian kernel take

    =============================  ==============
    the exponents, one product     0.95 ns a value
    `exp`                          3.7
    `exp2`                         2.4
    the tile times v               0.2
    clamping, zeroing (far rows)   0.25, 0.35
    =============================  ==============

The factor on the argument is part of the scaled inputs (`Radial.log_base_scale`), so it costs nothing. The choice
follows from how torch was built, not from a timing: two processes that share a model must round alike.

**Memory.** A freed tile of two megabytes goes back to the system, and the next one gets pages that are cleared first.
That takes about 1 ns a value there, as much as the arithmetic. So temporary arrays lie in a buffer of their thread, and
freed memory stays in the process during fits (`freed_memory_kept`).

A kernel of the form polynomial times exponential is written once, as a `ClosedForm`. Torch (`mercer.kernels.radial`),
LLVM (`machine_code`), Triton (`mercer.engine.fused_kernels`) and ONNX (`mercer.files.onnx.kernels`) evaluate it.
"""

from __future__ import annotations

import ctypes
import math
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor

LOG2E = math.log2(math.e)
#: The logarithm of e to the base of `fast_exp`: e^x = fast_exp(EXP_BASE_FACTOR · x).
EXP_BASE_FACTOR = 1.0 if torch.backends.mkl.is_available() else LOG2E
_local = threading.local()
#: Sizes of a buffer in numbers: larger arrays are too rare to be held, and smaller ones are made sooner than found.
SMALLEST, LARGEST = 1 << 12, 1 << 22
#: Numbers that several passes go over at a time, so that they stay in the processor's cache.
CACHED_VALUES = 200_000
#: Slots of buffers: two temporaries of a profile, the tile itself, and the features of a mixture's block.
FIRST, SECOND, TILE, FEATURES = 0, 1, 2, 3
Result = TypeVar("Result")
#: Thread pools by their number of threads; a forked process starts without any.
_pools: dict[int, ThreadPoolExecutor] = {}
#: Values below this are set to zero: the root of the smallest normal number of single precision.
LEAST = 2.0**-63
#: Inputs up to which squared distances in single precision are sums of squared differences: always on a CPU, where that
#: costs nothing, and on a GPU where it matters. Norms and products are faster for more inputs, but their error is 2⁻²²
#: of the largest squared norm. Rows of few inputs may lie so close that a length-scale of a thousandth of the table's
#: extent fits best, and then that error would exceed the distances.
FEW_INPUTS = 4
#: Parameters of `mallopt` of glibc.
TRIM_THRESHOLD, MMAP_THRESHOLD, MMAP_MAX = -1, -3, -4
#: During fits no array comes from the system directly, and all free memory stays.
DURING_FITS = {MMAP_MAX: 0, TRIM_THRESHOLD: -1}
#: What glibc itself arrives at once arrays of 32 MiB have been freed.
AFTER_FITS = {MMAP_MAX: 65_536, MMAP_THRESHOLD: 32 << 20, TRIM_THRESHOLD: 64 << 20}
_keeping = threading.Lock()
_n_keeping = 0


def fast_exp(x: Tensor, out: Tensor | None = None) -> Tensor:
    """The faster exponential: `exp`, or `exp2` without MKL."""
    return torch.exp(x, out=out) if EXP_BASE_FACTOR == 1.0 else torch.exp2(x, out=out)


def cached_rows(row: int, like: Tensor) -> int:
    """Rows of `row` numbers that the processor's cache holds; any number on a GPU, whose memory is fast enough."""
    return max(CACHED_VALUES // max(row, 1), 1) if like.device.type == "cpu" else torch.iinfo(torch.int64).max


def thread_buffer(like: Tensor, slot: int, shape: tuple[int, ...] | None = None) -> Tensor | None:
    """A buffer like `like` (or of `shape`) that the next call overwrites; None on a GPU and for other sizes."""
    shape = tuple(like.shape) if shape is None else shape
    key, size = (slot, like.dtype), math.prod(shape)
    if like.device.type != "cpu" or not SMALLEST <= size <= LARGEST:
        return None
    buffers: dict[tuple[int, torch.dtype], Tensor] = _local.__dict__.setdefault("buffers", {})
    if key not in buffers or not size <= buffers[key].numel() <= 4 * size + 4096:
        buffers[key] = like.new_empty(size)
    return buffers[key][:size].view(shape)


@contextmanager
def freed_memory_kept(wanted: bool = True) -> Iterator[None]:
    """Keep the memory of freed arrays in the process while the block runs, if `wanted` and the C library is glibc.

    A default fit makes thousands of kernel matrices of a few megabytes; 3000 rows take 0.82 of the time if the system
    does not clear pages for each, 8000 rows 0.85. Threads other than the first keep arrays below 64 MiB only. Blocks
    may be nested or run in several threads; the last to end returns the memory.
    """
    global _n_keeping
    libc = _glibc() if wanted else None
    if libc is None:
        yield
        return
    with _keeping:
        _n_keeping += 1
        if _n_keeping == 1:
            _set_malloc(libc, DURING_FITS)
    try:
        yield
    finally:
        with _keeping:
            _n_keeping = max(_n_keeping - 1, 0)  # a process forked inside the block counts from zero
            if _n_keeping == 0:
                _set_malloc(libc, AFTER_FITS)
                libc.malloc_trim(0)


def _set_malloc(libc: Any, values: dict[int, int]) -> None:
    for parameter, value in values.items():
        libc.mallopt(parameter, value)


@cache
def _glibc() -> Any:
    """The C library of this process if it is glibc, else None."""
    if sys.platform != "linux":
        return None
    libc = ctypes.CDLL(None)
    return libc if hasattr(libc, "gnu_get_libc_version") else None


def _forget_other_threads() -> None:
    """A forked process has one thread: neither pools, nor fits of other threads that keep freed memory."""
    global _keeping, _n_keeping
    _pools.clear()
    _keeping, _n_keeping = threading.Lock(), 0


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_forget_other_threads)
#: Parts per thread: the others take over the parts of a thread that is delayed.
PARTS = 4


def over_rows(n: int, multiple: int, work: Callable[[slice], Result], least: int = 1) -> list[Result]:
    """Run ``work(where)`` in threads on parts of n rows, and return the results in order.

    Each part but the last is a multiple of `multiple` rows long, and has at least `least` rows: smaller parts would
    cost more in waiting than they take to compute.

    >>> sum(over_rows(10, 3, lambda where: where.stop - where.start))
    10
    """
    threads = torch.get_num_threads()
    each = -(-max(-(-n // (PARTS * threads)), least) // multiple) * multiple if threads > 1 else n
    parts = [slice(start, min(start + each, n)) for start in range(0, n, max(each, 1))]
    if threads == 1 or len(parts) < 2:
        return [work(where) for where in parts]
    waiting, found = deque(range(len(parts))), dict[int, Result]()

    def take() -> None:
        while waiting:
            try:
                index = waiting.popleft()
            except IndexError:  # another thread was faster
                return
            found[index] = work(parts[index])

    others = [_pool(threads - 1).submit(take) for _ in range(min(threads, len(parts)) - 1)]
    try:
        take()
    finally:
        waiting.clear()
        for other in others:
            other.result()
    return [found[index] for index in range(len(parts))]


def _pool(threads: int) -> ThreadPoolExecutor:
    if threads not in _pools:
        _pools[threads] = ThreadPoolExecutor(threads, thread_name_prefix="mercer-rows")
    return _pools[threads]


@dataclass(frozen=True)
class ClosedForm:
    r"""The formula :math:`k = p(a)\,e^{-a}` with :math:`p(a) = (c_0 + c_1 a + c_2 a^2)/c_0` and a = s, or a = √s.

    s is `coefficient` times the squared Euclidean distance in units of the length-scales, or with `city_block` the sum
    of absolute differences. `polynomial` holds the integers c; without any the value is the distance itself.

    Programs receive b = `base_factor` · a, so that the exponential is the one they are fastest at. With `differences`
    they sum squared differences instead of norms and products.

    >>> matern52 = ClosedForm(root=True, polynomial=(3, 3, 1), coefficient=5.0, base_factor=1.0)
    >>> matern52.linear, matern52.quadratic, matern52.slope()[0]
    (1.0, 0.3333333333333333, 6.0)
    """

    root: bool = False
    polynomial: tuple[int, ...] = (1,)
    coefficient: float = 1.0
    base_factor: float = EXP_BASE_FACTOR
    city_block: bool = False
    differences: bool = False

    @cached_property
    def rate(self) -> float:
        """r of e⁻ᵃ = 2^(−rb)."""
        return LOG2E / self.base_factor

    @cached_property
    def linear(self) -> float:
        """The factor of b in the polynomial."""
        return self._ratio(1) / self.base_factor

    @cached_property
    def quadratic(self) -> float:
        """The factor of b² in the polynomial."""
        return self._ratio(2) / self.base_factor**2

    @cached_property
    def distance_scale(self) -> float:
        """The factor on distances that turns a into b."""
        return self.base_factor if self.root else self.base_factor**0.5

    def slope(self) -> tuple[float, ClosedForm] | None:
        """A number d and a form f with −∂k/∂s = f/d; None where the slope is infinite at s = 0."""
        if not self.root:
            return 1.0, self
        c0, c1, c2 = (*self.polynomial, 0, 0)[:3]
        if c0 != c1:
            return None
        first = c1 - 2 * c2
        return 2 * c0 / first, replace(self, polynomial=(first, c2) if c2 else (first,))

    def value(self, b: float) -> float:
        """The value at b."""
        return (1 + self.linear * b + self.quadratic * b * b) * 2 ** (-self.rate * b)

    def reach(self) -> float:
        """The b from which on the value is below `LEAST`, by bisection, since the value decreases."""
        low, high = 0.0, 1e4 / self.rate
        for _ in range(100):
            b = 0.5 * (low + high)
            value = math.log2(1 + self.linear * b + self.quadratic * b * b) - self.rate * b
            low, high = (b, high) if value >= math.log2(LEAST) else (low, b)
        return low

    def _ratio(self, k: int) -> float:
        return self.polynomial[k] / self.polynomial[0] if k < len(self.polynomial) else 0.0


@dataclass(frozen=True)
class FusedForm:
    r"""variance · p(s) + bias, where s is made of the scaled inputs u, w of two rows.

    s is :math:`-\|u - w\|^2` ("distance", or "differences" where it is not to be made of norms and products),
    :math:`u^\top w` ("dot") or :math:`-\sum_k |u_k - w_k|^p` ("separable", with `norm` p). The inputs enter as
    ``u = (x − shift) · scale``. `profile` names the function p(s), one of those that the engine knows; for "closed" it
    is `formula`. `exponent` and `offset` are further parameters of a profile.
    """

    profile: str
    shift: Tensor
    scale: Tensor
    geometry: Literal["distance", "differences", "dot", "separable"] = "distance"
    norm: float = 2.0
    exponent: float = 1.0
    offset: float = 0.0
    variance: float = 1.0
    bias: float = 0.0
    formula: ClosedForm | None = None

    @property
    def multiplies(self) -> bool:
        """Whether s comes from products of inputs."""
        return self.geometry in ("distance", "dot")

"""Memory of freed arrays stays in the process during a fit, and goes back at its end."""

from __future__ import annotations

import os
import platform
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from mercer.codegen.cpu import freed_memory_kept
from mercer.engine import make_plan

pytestmark = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries are left alone")
MEGABYTES = 64


def returned() -> float:
    """Megabytes of this process in memory, once free memory of earlier tests is returned."""
    with freed_memory_kept():
        pass
    return resident()


def resident() -> float:
    """Megabytes of this process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def write_and_free() -> None:
    torch.ones(MEGABYTES * 2**20 // 8, dtype=torch.float64)


def test_memory_of_freed_arrays_stays_until_the_block_ends():
    before = returned()
    with freed_memory_kept():
        write_and_free()
        kept = resident() - before
    assert kept > 0.9 * MEGABYTES
    assert resident() - before < 0.1 * MEGABYTES


def test_the_last_of_several_threads_returns_it():
    before = returned()

    def nested(_: int) -> None:
        with freed_memory_kept(), freed_memory_kept():
            pass

    with freed_memory_kept():
        write_and_free()
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(nested, range(4)))
        assert resident() - before > 0.9 * MEGABYTES
    assert resident() - before < 0.1 * MEGABYTES


def test_fits_keep_it_if_matrices_are_large_and_memory_holds_two_of_them():
    plan = make_plan(100, device="cpu", memory_limit="128MiB")
    assert plan.keeps_freed_memory(1000)
    assert not plan.keeps_freed_memory(900)  # these matrices stay anyway
    assert not plan.keeps_freed_memory(3000)  # two take 137 MiB


def test_an_error_in_the_block_returns_it_too():
    before = returned()

    def fail() -> None:
        with freed_memory_kept():
            write_and_free()
            raise RuntimeError("ended")

    with pytest.raises(RuntimeError, match="ended"):
        fail()
    assert resident() - before < 0.1 * MEGABYTES


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes fork on POSIX alone")
def test_a_process_forked_during_a_fit_of_another_thread_returns_its_own():
    began, ended = threading.Event(), threading.Event()

    def fit() -> None:
        with freed_memory_kept():
            began.set()
            ended.wait()

    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(fit)
        began.wait()
        child = os.fork()
        if child == 0:  # torch would wait for threads that are gone; the exit status says whether the memory went back
            before = returned()
            with freed_memory_kept():
                bytearray(b"1") * (MEGABYTES * 2**20)
            os._exit(int(resident() - before > 0.1 * MEGABYTES))
        ended.set()
        other.result()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

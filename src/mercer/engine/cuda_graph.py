"""Recording launches into a CUDA graph: many short launches are then given out in one call."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

import torch

Result = TypeVar("Result")


def may_record() -> bool:
    """Whether this thread records: the main one alone.

    While one thread records, copies by the others fail, so threads that fit side by side give out launches one by one.
    """
    return threading.current_thread() is threading.main_thread()


def record(function: Callable[[], Result]) -> tuple[torch.cuda.CUDAGraph, Result]:
    """The graph of all launches of `function`, and what it returned: tensors that each replay writes anew.

    `function` must have run before, since libraries set themselves up on first use; it may neither look at a number
    nor copy one from the host, and RuntimeError says so where it does.
    """
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        result = function()
    return graph, result

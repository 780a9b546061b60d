"""CUDA graphs: many short launches are recorded once and replayed by one call."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

import torch

Result = TypeVar("Result")


def may_record() -> bool:
    """Whether this thread may record: only the main thread may.

    Copies by other threads fail while one thread records, so models that are fitted in parallel launch one by one.
    """
    return threading.current_thread() is threading.main_thread()


def record(function: Callable[[], Result]) -> tuple[torch.cuda.CUDAGraph, Result]:
    """The graph of all launches of `function`, and its result: tensors that each replay overwrites.

    `function` must have run before, since libraries initialise themselves on first use. It may neither read a number
    from the GPU nor copy one to it; a RuntimeError is raised if it does.
    """
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        result = function()
    return graph, result

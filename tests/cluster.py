"""Real processes for tests of groups: start them, run one function on each, bring back what they say.

Tables of tests are small, and small tables are not shared but known to every process; `as_if_large` lowers that bound.
"""

import multiprocessing
import pickle
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

import mercer.engine
import mercer.gp.estimator
import mercer.mixture.estimator
import mercer.preprocessing.duplicates
from mercer.data.shard import use_group
from mercer.distributed import join, open_store

TIMEOUT = 120.0


@contextmanager
def as_if_large(bound=10):
    """Tables of more than `bound` rows are shared and not solved exactly, here and in processes started meanwhile."""
    modules = (
        mercer.preprocessing.duplicates,
        mercer.preprocessing.duplicates,
        mercer.gp.estimator,
        mercer.mixture.estimator,
    )
    kept = [module.MERGED_ROWS for module in modules], mercer.engine.Plan.exact_limits
    try:
        for module in modules:
            module.MERGED_ROWS = bound
        mercer.engine.Plan.exact_limits = (bound, bound)
        yield
    finally:
        for module, value in zip(modules, kept[0], strict=True):
            module.MERGED_ROWS = value
        mercer.engine.Plan.exact_limits = kept[1]


def started(n, function, *arguments, timeout=TIMEOUT, folder, secret=None):
    """`n` processes that run ``function(group, *arguments)``; their answers are files in `folder`."""
    context = multiprocessing.get_context("forkserver")
    families = ("forward.boosting", "gp.regressor", "mixture.regressors")  # else every process would import them
    modules = ["torch", "pandas", "pytest", "mercer.distributed.launch", *(f"mercer.{name}" for name in families)]
    context.set_forkserver_preload(modules)
    store = open_store("127.0.0.1")
    whole = [
        context.Process(target=_child, args=(rank, n, store.port, timeout, str(folder), secret, function, arguments))
        for rank in range(n)
    ]
    for process in whole:
        process.start()
    return whole, store


def answers(n, folder):
    """What each process said: its answer, or the error that ended it."""
    files = [Path(folder) / f"{rank}.pickle" for rank in range(n)]
    return [pickle.loads(file.read_bytes()) if file.exists() else None for file in files]


def on_one(function, *arguments):
    """What ``function(group, *arguments)`` returns in a group of which this process is all there is."""
    store = open_store("127.0.0.1")
    with join(0, 1, "127.0.0.1", store.port, TIMEOUT) as group, use_group(group), as_if_large():
        return [function(group, *arguments)]


def on_processes(n, function, *arguments, timeout=TIMEOUT, secret=None):
    """What ``function(group, *arguments)`` returns on each of `n` processes; an error of one is raised here."""
    if n == 1:
        return on_one(function, *arguments)
    with TemporaryDirectory() as folder:
        whole, store = started(n, function, *arguments, timeout=timeout, folder=folder, secret=secret)
        for process in whole:
            process.join(10 * timeout)
        found = answers(n, folder)
        del store
    for one in found:
        if isinstance(one, Exception):
            raise one
    return found


def _child(rank, n, port, timeout, folder, secret, function, arguments):
    torch.set_num_threads(1)
    try:
        with join(rank, n, "127.0.0.1", port, timeout, secret=secret) as group, use_group(group), as_if_large():
            answer = function(group, *arguments)
    except Exception as error:
        answer = error
    part = Path(folder) / f"{rank}.part"
    part.write_bytes(pickle.dumps(answer))
    part.rename(Path(folder) / f"{rank}.pickle")

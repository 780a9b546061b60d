"""Parts of groups of processes: collectives, local and global indices of rows, partitions on the disk."""

import os
import re
import signal
import time
from pathlib import Path

import cluster
import numpy as np
import pytest
import torch

import mercer
from mercer.data import ArrayRows, Runs
from mercer.distributed import LostProcessError, UntrustedMessageError, join, open_store
from mercer.distributed.group import HEAD, Signature
from mercer.distributed.partitions import SpooledRows, write_rows


class Simulated(mercer.data.Group):
    """One of several processes whose collectives are answered by a function of what each of them would say."""

    def __init__(self, rank, size, runs):
        self.rank, self.size, self.runs = rank, size, runs

    def gather(self, thing):
        return self.runs


@pytest.mark.parametrize("rank", [0, 1, 2])
def test_global_and_local_indices_are_inverse_to_each_other(rank):
    runs = [[(40, 10), (0, 15)], [], [(15, 25)]]
    shard = Runs(Simulated(rank, 3, runs), *zip(*(runs[rank] or [(0, 0)]), strict=True))
    indices = shard.global_indices(np.arange(shard.n_rows))
    which, local = shard.local(np.arange(50))
    assert shard.n_total == 50
    assert sorted(indices) == which.tolist()
    np.testing.assert_array_equal(shard.global_indices(local), which)


def test_torch_distributed_is_imported_in_one_file():
    root = Path(mercer.__file__).parent
    found = {
        str(file.relative_to(root))
        for file in root.rglob("*.py")
        if re.search(r"^\s*(import|from) torch\.distributed", file.read_text(), re.MULTILINE)
    }
    assert found == {"distributed/group.py"}


def collectives(group):
    """What each collective says, and that errors of the first process are everybody's."""
    names = group.gather("abc"[group.rank])
    asked = group.first(lambda: group.first(lambda: group.rank))
    function = group.first(lambda: lambda: 3)  # cannot be sent
    try:
        group.first(lambda: 1 / 0)
    except ZeroDivisionError as error:
        failed = str(error)
    total = group.sum(torch.tensor([group.rank, 1]))
    work = group.share_work(4, lambda places: [(place, group.first(lambda: group.rank)) for place in places])
    try:
        group.share_work(3, lambda places: [1 / (place - 2) for place in places])  # of the last process alone
    except ZeroDivisionError as error:
        failed += str(error)
    functions = group.share_work(2, lambda places: [lambda: 5 for _ in places])  # cannot be sent
    for size in (0, HEAD - 1, HEAD, HEAD + 1, 5000):  # in one message or in two
        body = bytes([size % 251]) * (size + group.rank)
        assert group.first(lambda body=body: body) == bytes([size % 251]) * size
        assert [len(one) for one in group.gather(body)] == [size, size + 1, size + 2]
    parts = group.sums(torch.ones(2, 2), torch.tensor(float(group.rank)))
    assert [one.tolist() for one in parts] == [[[3.0, 3.0], [3.0, 3.0]], 3.0]
    sums = total.tolist(), group.min(group.rank), group.max(group.rank)
    return names, asked, function(), failed, *sums, work, functions[1]()


@pytest.mark.cluster
def test_collectives_say_the_same_to_all():
    failed = 2 * "division by zero"
    expected = (["a", "b", "c"], 0, 3, failed, [3, 3], 0, 2, [(0, 0), (1, 1), (2, 2), (3, 0)], 5)
    assert cluster.on_processes(3, collectives) == [expected] * 3


def test_a_process_that_never_joins_is_named():
    store = open_store("127.0.0.1")
    with pytest.raises(LostProcessError, match=r"process 0 of 3 waited 0.5 s .* ranks: 1, 2") as error:
        join(0, 3, "127.0.0.1", store.port, timeout=0.5)
    assert error.value.ranks == [1, 2]


def test_a_store_listens_at_its_own_address_alone():
    table = Path("/proc/net/tcp")
    if not table.exists():
        pytest.skip("this system does not tell at which addresses processes listen")
    store = open_store("127.0.0.1")
    connections = [line.split() for line in table.read_text().splitlines()[1:]]
    local = [address.split(":") for _, address, _, state, *_ in connections if state == "0A"]  # listening
    assert [address for address, port in local if int(port, 16) == store.port] == ["0100007F"]  # 127.0.0.1


def test_a_process_that_does_not_know_the_secret_cannot_join():
    store = open_store("127.0.0.1")
    store.set("mercer/joins/1", b"\0" * 32 + b"here")
    with pytest.raises(UntrustedMessageError, match=r"store/mercer/joins/1 must be signed .*, got 36 bytes"):
        join(0, 2, "127.0.0.1", store.port, timeout=5.0, secret=b"s" * 32)


def refused(group):
    """What a process says to a message that another one signed with another secret, or for another purpose."""
    told = [group.first(lambda: "trusted")]
    group._signature = Signature(b"another" if group.rank == 0 else b"s" * 32)
    for ask in (lambda: group.first(lambda: "forged"), lambda: group.gather("forged")):
        try:
            told.append(ask())
        except UntrustedMessageError as error:
            told.append(str(error).split(" must")[0])
    return told


def test_a_message_that_is_signed_with_another_secret_is_refused_before_it_is_read():
    found = cluster.on_processes(2, refused, secret=b"s" * 32)
    assert found[1] == ["trusted", "the message first/2", "the message gather/3/0"]
    assert found[0] == ["trusted", "forged", "the message gather/3/1"]


def alone_for_longer(group, seconds):
    """Work of the first process, and of the last one in work that is dealt out, which takes longer than the timeout."""
    first = group.first(lambda: time.sleep(seconds) or "done")
    return first, group.share_work(2, lambda places: [time.sleep(seconds * place) or place for place in places])


@pytest.mark.cluster
def test_processes_wait_for_one_that_works_alone_for_longer_than_the_timeout():
    assert cluster.on_processes(2, alone_for_longer, 5.0, timeout=3.0) == [("done", [0, 1])] * 2


def stopped(group):
    """A first process that no longer runs, though its connections stand."""
    group.first(lambda: os.kill(os.getpid(), signal.SIGSTOP))


@pytest.mark.cluster
def test_a_first_process_that_is_stopped_while_it_works_alone_is_noticed(tmp_path):
    processes, store = cluster.started(2, stopped, timeout=3.0, folder=tmp_path)
    try:
        processes[1].join(60)
        error = cluster.answers(2, tmp_path)[1]
        assert isinstance(error, LostProcessError)
        assert error.ranks == [0]
    finally:
        processes[0].kill()
        processes[0].join()
        del store


def test_a_source_of_one_process_sums_to_itself():
    rows = ArrayRows(np.zeros((3, 2)))
    value = torch.ones(2)
    assert rows.total(value) is value


def test_a_partition_is_the_same_rows_on_the_disk_whatever_its_order_in_memory(tmp_path, monkeypatch):
    table = np.asfortranarray(np.random.default_rng(0).normal(size=(7, 3)).astype(np.float32))
    monkeypatch.setattr("mercer.distributed.partitions.WRITE_BYTES", 24)  # two rows
    write_rows(tmp_path / "rows", table)
    rows = SpooledRows(tmp_path / "rows", 7, 3, "<f4")
    assert [start for start, _ in rows.blocks(4)] == [0, 4]
    np.testing.assert_array_equal(torch.cat([block for _, block in rows.blocks(4)]), table)
    np.testing.assert_array_equal(rows.take([6, 0]), table[[6, 0]])

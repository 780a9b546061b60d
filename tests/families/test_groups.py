"""What groups of processes are made of: collectives, places and numbers of rows, partitions on the disk."""

import re
from pathlib import Path

import cluster
import numpy as np
import pytest
import torch

import mercer
from mercer.data import ArrayRows, Pieces
from mercer.distributed import LostProcessError, join, open_store
from mercer.distributed.group import HEAD
from mercer.distributed.partitions import SpooledRows, write_rows


class Simulated(mercer.data.Group):
    """One of several processes whose collectives are answered by a function of what each of them would say."""

    def __init__(self, rank, size, runs):
        self.rank, self.size, self.runs = rank, size, runs

    def gather(self, thing):
        return self.runs


@pytest.mark.parametrize("rank", [0, 1, 2])
def test_numbers_and_places_are_inverse_to_each_other(rank):
    runs = [[(40, 10), (0, 15)], [], [(15, 25)]]
    shard = Pieces(Simulated(rank, 3, runs), *zip(*(runs[rank] or [(0, 0)]), strict=True))
    numbers = shard.numbers(np.arange(shard.n_rows))
    at, places = shard.held(np.arange(50))
    assert shard.n_total == 50
    assert sorted(numbers) == at.tolist()
    np.testing.assert_array_equal(shard.numbers(places), at)


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
    work = group.dealt(4, lambda places: [(place, group.first(lambda: group.rank)) for place in places])
    try:
        group.dealt(3, lambda places: [1 / (place - 2) for place in places])  # of the last process alone
    except ZeroDivisionError as error:
        failed += str(error)
    functions = group.dealt(2, lambda places: [lambda: 5 for _ in places])  # cannot be sent
    for size in (0, HEAD - 1, HEAD, HEAD + 1, 5000):  # in one message or in two
        body = bytes([size % 251]) * (size + group.rank)
        assert group.first(lambda body=body: body) == bytes([size % 251]) * size
        assert [len(one) for one in group.gather(body)] == [size, size + 1, size + 2]
    parts = group.sums(torch.ones(2, 2), torch.tensor(float(group.rank)))
    assert [one.tolist() for one in parts] == [[[3.0, 3.0], [3.0, 3.0]], 3.0]
    sums = total.tolist(), group.least(group.rank), group.largest(group.rank)
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


def test_a_source_of_one_process_sums_to_itself():
    rows = ArrayRows(np.zeros((3, 2)))
    value = torch.ones(2)
    assert rows.total(value) is value


def test_a_partition_is_the_same_rows_on_the_disk_whatever_its_order_in_memory(tmp_path, monkeypatch):
    table = np.asfortranarray(np.random.default_rng(0).normal(size=(7, 3)).astype(np.float32))
    monkeypatch.setattr("mercer.distributed.partitions.WRITTEN", 24)  # two rows
    write_rows(tmp_path / "rows", table)
    rows = SpooledRows(tmp_path / "rows", 7, 3, "<f4")
    assert [start for start, _ in rows.blocks(4)] == [0, 4]
    np.testing.assert_array_equal(torch.cat([block for _, block in rows.blocks(4)]), table)
    np.testing.assert_array_equal(rows.take([6, 0]), table[[6, 0]])

"""Local length-scales: neighbourhoods are those of all rows, and structure that shows only in them is found."""

from __future__ import annotations

from dataclasses import replace

import cluster
import numpy as np
import pytest
import torch

import mercer.forward.large_tables
from mercer import KernelBoostingRegressor
from mercer.clock import Clock
from mercer.data import Runs, TensorRows
from mercer.data.column_maps import ColumnMap
from mercer.data.shard import ONE_PROCESS
from mercer.engine import Sample, make_plan
from mercer.evidence.exact import log_evidence
from mercer.forward.large_tables import LocalLengthScales
from mercer.forward.model_selection import KernelMember, Selection
from mercer.kernels import Gaussian, Linear, Matern32
from mercer.preprocessing.inputs import InputMap
from mercer.preprocessing.read import read
from mercer.selection.neighbourhoods import (
    MOST_CHANGE,
    NEIGHBOURS,
    LocalScales,
    geometric_mean,
    neighbourhood_scales,
    neighbourhoods,
    neighbours_error,
    query_rows,
    summed_evidence,
)
from mercer.selection.settings import DEFAULT_SETTINGS

FEW = replace(DEFAULT_SETTINGS, n_neighbourhoods=3, neighbourhood_share=0.1)


def sample_of(X: np.ndarray, Y: np.ndarray, weight: np.ndarray | None = None, groups: np.ndarray | None = None):
    plan = make_plan(len(X), device="cpu", dtype="float64")
    w = np.ones(len(X)) if weight is None else weight
    return Sample(TensorRows(torch.as_tensor(X)), torch.as_tensor(Y), torch.as_tensor(w), plan, groups)


def near_and_far(n: int, seed: int) -> Sample:
    """The first input decides from afar, the second among rows that agree on the first; the others never."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, 4))
    X[:, 0] = rng.integers(0, 10, n)
    y = X[:, 0] ** 2 / 20 + 0.5 * np.sin(4 * X[:, 1]) + 0.1 * rng.normal(size=n)
    return sample_of(X, ((y - y.mean()) / y.std())[:, None])


def test_neighbourhoods_are_the_nearest_rows_of_positive_weight(monkeypatch):
    rng = np.random.default_rng(0)
    X, y, weight = rng.normal(size=(500, 3)), rng.normal(size=(500, 1)), rng.uniform(0.5, 1, 500)
    weight[::7] = 0.0
    sample = sample_of(X, y, weight)
    monkeypatch.setattr(type(sample.plan), "tile_rows", lambda self, m: 64)  # several blocks
    patches = neighbourhoods(sample, 4, 30, np.random.default_rng(3))
    assert len(patches) == 4
    alive = X[weight > 0]
    for patch in patches:
        assert float(patch.weight.mean()) == pytest.approx(1.0)
        found = {tuple(row) for row in patch.X.numpy()}
        balls = (np.argsort(((alive - centre) ** 2).sum(1))[:30] for centre in patch.X.numpy())
        assert any({tuple(row) for row in alive[ball]} == found for ball in balls)


def test_rows_of_one_target_are_no_neighbourhood():
    X = np.random.default_rng(0).normal(size=(400, 2))
    assert neighbourhoods(sample_of(X, np.where(X[:, :1] > 9, 1.0, -1.0)), 3, 50, np.random.default_rng(0)) == []


def test_the_evidence_of_neighbourhoods_is_the_sum_of_theirs():
    sample = near_and_far(600, 0)
    patches = neighbourhoods(sample, 3, 40, np.random.default_rng(0))
    kernel = Matern32([1.0, 0.5, 2.0, 2.0])
    at = summed_evidence(patches)(kernel, 0.2, None)
    parts = [log_evidence(kernel, 0.2, patch.X, patch.Y, patch.weight) for patch in patches]
    assert at.value == pytest.approx(sum(part[0] for part in parts))
    np.testing.assert_allclose(at.by_parameter["length_scale"], sum(part[1]["length_scale"] for part in parts))


@pytest.fixture
def few():
    return near_and_far(1500, 1)


def test_what_matters_from_near_is_stretched_and_the_spread_of_all_stays(few):
    found = neighbourhood_scales(few, Matern32(2.0), np.random.default_rng(0), Clock(), FEW)
    X, asked = few.rows.take(np.arange(1500)), np.arange(0, 1500, 5)
    stretched = replace(few, rows=TensorRows(X * torch.as_tensor(found.factors)))
    assert neighbours_error(stretched, asked) < neighbours_error(few, asked)
    assert found.factors[1] > 2 * found.factors[2:].max()
    assert found.factors.max() / found.factors.min() <= MOST_CHANGE**2 * (1 + 1e-9)
    spread = X.numpy().var(0, ddof=1)
    assert found.factors**2 @ spread == pytest.approx(spread.sum())
    assert 1e-5 < found.penalty < 0.3  # noise of 0.1 of a sine of 0.5, or of a nearly linear function of large variance


def test_inputs_of_one_group_are_stretched_alike(few):
    grouped = replace(few, column_groups=np.array([0, 1, 1, 2]))
    found = neighbourhood_scales(grouped, Matern32(2.0), np.random.default_rng(0), Clock(), FEW)
    assert found.factors[1] == pytest.approx(found.factors[2])


def test_nothing_changes_without_time_rows_or_length_scales(few):
    rng, endless = np.random.default_rng(0), Clock()
    assert neighbourhood_scales(few, Gaussian(1.0), rng, Clock(1e-6), FEW) is None
    assert neighbourhood_scales(few, Linear(), rng, endless, FEW) is None
    assert neighbourhood_scales(near_and_far(900, 0), Gaussian(1.0), rng, endless, FEW) is None


def test_the_error_of_neighbours_is_that_of_the_nearest_others():
    rng = np.random.default_rng(0)
    X, Y, weight = rng.normal(size=(300, 3)), rng.normal(size=(300, 2)), np.ones(300)
    weight[::5] = 0.0
    sample = sample_of(X, Y, weight)
    asked = query_rows(sample, rng)[:40]
    others = [[j for j in np.argsort(((X - X[i]) ** 2).sum(1)) if j != i and weight[j]][:NEIGHBOURS] for i in asked]
    slow = np.mean([((Y[near].mean(0) - Y[i]) ** 2).sum() for i, near in zip(asked, others, strict=True)])
    assert neighbours_error(sample, asked) == pytest.approx(slow)


def test_a_metric_is_changed_where_the_nearest_of_all_rows_gain(few, monkeypatch):
    X, y = few.rows.take(np.arange(1500)).numpy(), few.Y[:, 0].numpy()
    maps = ColumnMap("standard", torch.zeros(4), torch.ones(4), torch.zeros(4), torch.ones(4))
    inputs, other = (InputMap(np.zeros(4), np.ones(4), maps, turn) for turn in (np.ones(4), np.full(4, 2.0)))
    first = KernelMember(inputs, Gaussian(2.0), 10.0, name="a")
    second = KernelMember(other, Gaussian(1.0), 0.1, name="b")
    given = read(KernelBoostingRegressor(), X, y, None, classes=False)

    def seen(free_penalty: bool = True) -> Selection:
        plan, rng = make_plan(1500, device="cpu", dtype="float64"), np.random.default_rng(0)
        stage = LocalLengthScales(given, y[:, None], plan, rng, Clock(), free_penalty, FEW)
        return stage.refine(Selection([first], runners_up=[second]))

    choice = seen()
    assert [member.name for member in [*choice.members, *choice.runners_up]] == ["a, local length-scales", "b"]
    assert choice.members[0].inputs.transform[1] > 2 * choice.members[0].inputs.transform[2]
    assert choice.members[0].lam == 1.0  # a tenth at most
    assert len(choice.report) == 2
    assert choice.report[1]["loss"] < choice.report[0]["loss"]
    assert seen(free_penalty=False).members[0].lam == 10.0
    monkeypatch.setattr(mercer.forward.large_tables, "neighbours_error", lambda sample, asked: 1.0)
    assert np.array_equal(seen().members[0].inputs.transform, np.ones(4))


def test_members_that_see_the_inputs_alike_are_of_one_kind():
    maps, turns = ColumnMap("standard", *(torch.zeros(2),) * 4), (np.ones(2), np.full(2, 2.0))
    views = [InputMap(np.zeros(2), np.ones(2), maps, turn) for turn in turns]
    members = [KernelMember(views[k], Gaussian(), 1.0, name=name) for name, k in (("a", 0), ("b", 1), ("c", 0))]
    groups = mercer.forward.large_tables._by_view(members)
    assert [[member.name for member in group] for group in groups] == [["a", "c"], ["b"]]


def test_the_geometric_mean_of_proposals_lies_between_them():
    looks = [
        LocalScales(np.array(factors), penalty) for factors, penalty in (([0.5, 2.0, 3.0], 0.1), ([2.0, 1.0, 3.0], 0.4))
    ]
    both = geometric_mean(looks)
    np.testing.assert_allclose(both.factors, [1.0, 2.0**0.5, 3.0])
    assert both.penalty == pytest.approx(0.2)
    np.testing.assert_allclose(geometric_mean(looks[:1]).factors, looks[0].factors)


def patches_of(group, n: int) -> list[np.ndarray]:
    """Neighbourhoods as a process sees them that holds its share of the rows, the last of several processes none."""
    whole = near_and_far(n, 2)
    X, Y = whole.rows.take(np.arange(n)), whole.Y
    shares = max(group.size - 1, 1)
    start, stop = (n * min(rank, shares) // shares for rank in (group.rank, group.rank + 1))
    rows = TensorRows(X[start:stop], Runs(group, [start], [stop - start]))
    sample = Sample(rows, Y[start:stop], torch.ones(stop - start, dtype=torch.float64), whole.plan)
    error = neighbours_error(sample, query_rows(sample, np.random.default_rng(1))[:20])
    return [*(patch.X.numpy() for patch in neighbourhoods(sample, 3, 50, np.random.default_rng(0))), error]


@pytest.mark.cluster
def test_processes_that_share_a_table_see_the_neighbourhoods_of_one():
    alone = patches_of(ONE_PROCESS, 400)
    for found in cluster.on_processes(3, patches_of, 400):
        for shared, alone_values in zip(found, alone, strict=True):
            np.testing.assert_allclose(shared, alone_values)

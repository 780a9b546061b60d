"""What a sample promises: rows of positive weight alone are drawn, in order, and a part keeps what belongs together."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mercer.data import ArrayRows, TensorRows
from mercer.engine import Sample, make_plan

weights = st.lists(st.sampled_from([0.0, 0.5, 2.0]), min_size=1, max_size=60)


def sample(weight: list[float], dtype: str = "float64") -> Sample:
    """Row i holds i, its target 10 i."""
    X = torch.arange(len(weight), dtype=torch.float64)[:, None]
    return Sample(TensorRows(X), 10 * X, torch.tensor(weight), make_plan(len(weight), "cpu", dtype))


@given(weights)
def test_alive_are_the_rows_of_positive_weight_in_order(weight):
    assert sample(weight).alive.tolist() == [i for i, w in enumerate(weight) if w > 0]


@given(weights, st.integers(0, 70), st.integers(0, 2**20))
def test_draws_are_different_living_rows_in_order(weight, n, seed):
    data = sample(weight)
    for drawn in (data.draw(n, np.random.default_rng(seed)), data.spaced(n)):
        assert len(drawn) == min(n, len(data.alive))
        assert (np.diff(drawn) > 0).all()
        assert set(drawn) <= set(data.alive)


def test_every_living_row_is_drawn_as_often_as_any_other():
    data, rng, n = sample([1.0, 0.0, 5.0, 1.0, 1.0]), np.random.default_rng(0), 4000
    counts = np.bincount(np.concatenate([data.draw(2, rng) for _ in range(n)]), minlength=5)
    assert counts[1] == 0
    # Half the draws of two out of four, to five standard deviations.
    assert (np.abs(counts[[0, 2, 3, 4]] - n / 2) <= 5 * (n / 4) ** 0.5).all()


def test_the_same_seed_draws_the_same_rows():
    data = sample([1.0] * 40)
    draws = [data.draw(7, np.random.default_rng(3)).tolist() for _ in range(2)]
    assert draws[0] == draws[1]


def test_spaced_rows_reach_from_the_first_to_the_last():
    spaced = sample([1.0] * 101).spaced(5)
    assert spaced.tolist() == [0, 25, 50, 75, 100]


@pytest.mark.parametrize("index", [np.array([4, 1]), [4, 1], torch.tensor([4, 1])], ids=["array", "list", "tensor"])
def test_a_part_has_the_rows_targets_and_weights_of_its_indices(index):
    data = sample([1.0, 2.0, 0.0, 1.0, 3.0], "float32")
    part = data.part(index)
    assert part.n_rows == 2
    assert part.rows.take([0, 1])[:, 0].tolist() == [4.0, 1.0]
    assert part.rows.take([0]).dtype == torch.float32
    assert part.Y[:, 0].tolist() == [40.0, 10.0]
    assert part.Y.dtype == torch.float64
    assert part.weight.tolist() == [3.0, 2.0]
    assert part.plan is data.plan


def test_a_part_of_a_table_in_memory_is_the_same():
    X = np.arange(5.0)[:, None]
    data = Sample(ArrayRows(X), torch.from_numpy(X), torch.ones(5), make_plan(5, "cpu"))
    assert data.part(data.draw(3, np.random.default_rng(0))).n_rows == 3

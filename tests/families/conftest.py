"""Fixtures of several files."""

from __future__ import annotations

import pytest

from mercer.engine import plan as plans
from mercer.forward import boosting_base
from mercer.selection import constants, more_rows


def pytest_ignore_collect(collection_path, config):
    """Dask takes seconds to import, for tests that are left out but by `make test-cluster`."""
    return True if collection_path.name == "test_dask.py" and config.option.markexpr == "not cluster" else None


@pytest.fixture
def few_rows(monkeypatch):
    """A hundred rows are too many for an exact solution, learners are small, and kernels are chosen by few rows."""
    monkeypatch.setattr(plans, "EXACT_ROWS", (100, 100))
    monkeypatch.setattr(boosting_base, "LARGEST", {"cpu": (40,) * 3, "cuda": (40,) * 3})
    for name, value in (("EVIDENCE_ROWS", 150), ("FITTED_ROWS", 400)):
        monkeypatch.setattr(more_rows, name, (value, value))


@pytest.fixture
def small(monkeypatch):
    """Races of fewer rows at every stage, for tests of what a race does and not of how well."""
    for name, value in {"ROWS": 150, "JUDGING_ROWS": 200, "LAST_ROWS": 250, "LAST_JUDGING_ROWS": 250, "FOLDED": 300,
                        "FIRST_ROWS": 100, "METRIC_ROWS": 300}.items():  # fmt: skip
        monkeypatch.setattr(constants, name, value)

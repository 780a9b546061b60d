"""Fixtures of several files."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from mercer.engine import Plan
from mercer.forward.boosting import Boosting, LearnerSizes
from mercer.selection.settings import DEFAULT_SETTINGS, SelectionSettings

#: Few rows in every stage, for tests of what a selection does and not of how well.
SMALL = replace(
    DEFAULT_SETTINGS, fit_rows=150, last_fit_rows=250, folded_below=300,
    single_stage_below=300, grid_rows=100,
)  # fmt: skip


def pytest_ignore_collect(collection_path, config):
    """Dask takes seconds to import, for tests that are left out but by `make test-cluster`."""
    return True if collection_path.name == "test_dask.py" and config.option.markexpr.startswith("not cluster") else None


@pytest.fixture
def settings(monkeypatch):
    """Changes numbers of the selection of boosted models."""

    def change(**changes: Any) -> None:
        monkeypatch.setattr(Boosting, "_selection_settings", replace(Boosting._selection_settings, **changes))

    return change


@pytest.fixture
def refinement(monkeypatch):
    """Changes numbers of the refinement stages of boosted models."""

    def change(**changes: Any) -> None:
        monkeypatch.setattr(Boosting, "_refinement_settings", replace(Boosting._refinement_settings, **changes))

    return change


@pytest.fixture
def few_rows(monkeypatch, settings):
    """A hundred rows are too many for an exact solution, learners are small, and few rows select kernels."""
    monkeypatch.setattr(Plan, "exact_limits", (100, 100))
    monkeypatch.setattr(Boosting, "_learner_sizes", lambda self, n_rows, plan: LearnerSizes(40, 10))
    settings(more_evidence_rows=(150, 150), more_fit_rows=(400, 400))


@pytest.fixture
def small() -> SelectionSettings:
    return SMALL

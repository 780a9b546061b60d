"""Puts this folder on the path, so that every test can import the slow twins in `oracles.py`."""

import gc
import os
from dataclasses import replace

import pytest
from hypothesis import settings

# What imports and collecting make stays to the end: looking through it again and again takes a fifth of collecting, and
# a second each time that a test asks for everything to be collected.
gc.disable()

# Read when torch is imported. In tests of several threads, those that spin while they wait keep the other worker from
# its core, and take three times the CPU time.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")


def pytest_configure(config):
    """Without a GPU fused products run on the CPU, which must be said before Triton is first imported."""
    if config.getoption("dist", "no") == "no":  # else this process only hands tests out, and needs no torch
        import torch

        if not torch.cuda.is_available():
            os.environ["TRITON_INTERPRET"] = "1"


def pytest_collection_finish():
    gc.freeze()
    gc.enable()


os.environ.setdefault("MPLBACKEND", "Agg")  # no window opens

# The same examples every time, so that a failure can be repeated; HYPOTHESIS_PROFILE=fresh draws others.
settings.register_profile("fixed", derandomize=True, deadline=None)
settings.register_profile("fresh", deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fixed"))


@pytest.fixture
def two_folds(monkeypatch):
    """Calibrate on one of two folds: refits in five take most of a small fit. For tests of something else."""
    from mercer.base import out_of_fold

    folds = out_of_fold.calibration_folds
    monkeypatch.setattr(out_of_fold, "calibration_folds", lambda labels, _: folds(labels, 2)[:1])


@pytest.fixture
def short_selections(monkeypatch):
    """Few candidates and one step in default fits: for tests of a contract, and not of which candidate wins."""
    from mercer.forward.boosting import Boosting
    from mercer.forward.gradient_metric import GradientMetric
    from mercer.selection.settings import DEFAULT_SETTINGS

    settings = replace(
        DEFAULT_SETTINGS, column_maps=DEFAULT_SETTINGS.column_maps[:2], families=("matern32", "matern12"), n_folds=2,
        gradient_steps=1, survivors=2, members=2, trials=2, trials_after_step=2, last_trials=1, grid_rows=60,
        evidence_rows=100, smooth_loss=0.0, likelihood_classes=2,
    )  # fmt: skip
    monkeypatch.setattr(Boosting, "_selection_settings", settings)
    monkeypatch.setattr(GradientMetric, "_selection_settings", settings)

"""Training rows that a model keeps as a background: explanations refer to the mean prediction on them."""

from __future__ import annotations

import numpy as np

from mercer.preprocessing.read import TableData

#: Rows of a background, as many as the explainers of the package shap take.
BACKGROUND_ROWS = 100


def background(given: TableData) -> np.ndarray:
    """Rows of positive weight, drawn at random by a seed of their own."""
    return given.rows.fetch(given.draw(BACKGROUND_ROWS, np.random.default_rng(0))).double().cpu().numpy()

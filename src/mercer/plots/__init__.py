"""Pictures of fitted models: their inputs, their errors, and their calibration.

Matplotlib is imported by the functions that draw.
"""

from mercer.plots.checks import plot_calibration, plot_coverage, plot_history, plot_residuals, plot_selection
from mercer.plots.checks import plot_race as plot_race
from mercer.plots.inputs import (
    plot_effect,
    plot_influence,
    plot_relevance,
    plot_shapley,
    plot_shapley_row,
    plot_uncertainty,
)
from mercer.plots.mixture import plot_boundary, plot_gates, plot_slopes

__all__ = [
    "plot_boundary",
    "plot_calibration",
    "plot_coverage",
    "plot_effect",
    "plot_gates",
    "plot_history",
    "plot_influence",
    "plot_relevance",
    "plot_residuals",
    "plot_selection",
    "plot_shapley",
    "plot_shapley_row",
    "plot_slopes",
    "plot_uncertainty",
]

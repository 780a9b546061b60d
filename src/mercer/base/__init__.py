"""Base classes of the estimators: parameters, checks, calibration, intervals, saving."""

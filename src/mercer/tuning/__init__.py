"""Choosing kernels and their parameters from data."""

from mercer.evidence.exact import left_out, log_evidence
from mercer.tuning.noise import tune_noise
from mercer.tuning.precision import precise
from mercer.tuning.selection import one_standard_error
from mercer.tuning.tune import Tuned, tune_kernel

__all__ = ["Tuned", "left_out", "log_evidence", "one_standard_error", "precise", "tune_kernel", "tune_noise"]

"""Choosing kernels and their parameters from data."""

from mercer.evidence.exact import log_evidence
from mercer.tuning.noise import tune_noise
from mercer.tuning.selection import one_standard_error
from mercer.tuning.tune import Tuned, tune_kernel

__all__ = ["Tuned", "log_evidence", "one_standard_error", "tune_kernel", "tune_noise"]

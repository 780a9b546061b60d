"""Choosing kernels and their parameters from data."""

from mercer.evidence.exact import left_out, log_evidence
from mercer.selection.kernel_choice import precise
from mercer.selection.one_standard_error import one_standard_error
from mercer.selection.tune import Tuned, tune_kernel, tune_noise

__all__ = ["Tuned", "left_out", "log_evidence", "one_standard_error", "precise", "tune_kernel", "tune_noise"]

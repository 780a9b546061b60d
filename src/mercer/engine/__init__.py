"""The engine: blocks of rows become tiles of K and are reduced at once."""

from mercer.engine.plan import Plan, Sample, make_plan, record
from mercer.engine.products import KernelMatrix, each_block, reduce_rows

__all__ = ["KernelMatrix", "Plan", "Sample", "each_block", "make_plan", "record", "reduce_rows"]

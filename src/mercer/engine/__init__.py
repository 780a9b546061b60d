"""The engine: blocks of rows become tiles of K and are reduced at once."""

from mercer.engine.cuda_graph import may_record, record
from mercer.engine.plan import Plan, make_plan
from mercer.engine.products import KernelMatrix, RowMap, each_block, reduce_rows
from mercer.engine.sample import Sample

__all__ = ["KernelMatrix", "Plan", "RowMap", "Sample", "each_block", "make_plan", "may_record", "record", "reduce_rows"]

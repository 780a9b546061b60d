"""Compile the products for Hopper GPUs, which needs no GPU: `python compile_for_hopper.py WIDTH ...`.

Prints how many matrix products and exponentials the machine code has: the assembler has dropped some without a word.
`test_fused.py` runs this in a process of its own, since Triton's interpreter, which the other tests use, cannot be left
again.
"""

import sys

import triton
from triton.backends.compiler import GPUTarget
from triton.experimental.gluon import language as gl
from triton.experimental.gluon._runtime import GluonASTSource

from mercer.engine import hopper_kernels as hopper
from mercer.engine.packing import chunks


def described(dtype: str, shape: list[int], layout: gl.NVMMASharedLayout) -> str:
    return f"tensordesc<{dtype}[{shape[0]}, {shape[1]}],{layout!r}>"


def machine_code(width: int) -> str:
    """The instructions of the program for rows of this width."""
    big, tail, tip, _ = chunks(width)
    program, columns = hopper.vector_product_program, hopper.COLUMNS
    constants = {"BIG": big, "TAIL": tail, "TIP": tip, "COLUMNS": columns, "STAGES": hopper.STAGES}
    types = dict.fromkeys(("n", "m", "span"), "i32")
    types |= {"left": "*fp16", "unscale": "*fp32", "out": "*fp32"} | dict.fromkeys(constants, "constexpr")
    for name, size in zip(("d0", "d1", "d2"), (big, tail or big, tip or big), strict=True):
        types[name] = described("fp16", [columns, size], hopper.column_layout(size))
    types["dv"] = described("fp32", [1, columns], hopper.VECTOR_LAYOUT)
    names = program.arg_names
    source = GluonASTSource(
        program,
        {name: types[name] for name in names},
        {(names.index(name),): value for name, value in constants.items()},
        {(names.index(name),): [["tt.divisibility", 16]] for name in ("left", "unscale", "out", "m", "span")},
    )
    compiled = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 4})
    return compiled.asm["sass"]


for width in sys.argv[1:]:
    code = machine_code(int(width))
    print(code.count("HGMMA.64x64x16"), code.count("MUFU.EX2"))

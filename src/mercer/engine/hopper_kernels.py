"""Gaussian products with one vector on Hopper GPUs (H100, H200), in Gluon, the lower level of Triton.

`fused_kernels.product_program` first multiplies a block and then takes its exponentials, and each program reads the
columns for 128 rows. Where rows are wide, the second-level cache cannot deliver columns that fast, and matrix units
wait for exponentials. Here a program has three groups of warps. The copying group copies blocks of columns to shared
memory. Two multiplying groups multiply them by 128 rows each, which stay in registers, and start the matrix product of
the next half of a block before they take the exponentials of the last one. Columns are read half as often, and both
kinds of units are busy.

`mercer.engine.fused.FusedColumns` launches the program on operands of `mercer.engine.packing`, for one vector without
squares. Rows and columns are data and basis vectors, or basis vectors and data where the product is transposed.

Gluon is experimental. Programs for other kernels compile, but the assembler of Triton 3.6 drops a matrix product of the
Matérn 5/2 kernel's without a word, so the other kernels stay with `product_program`, and so do other versions of Triton
(3.7 and 3.9 compile the program completely, but no GPU has run it).
"""

# No postponed annotations here: Gluon reads `gl.constexpr` off the signatures.

import torch
import triton
from torch import Tensor
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

#: Whether a GPU has run the program as this version of Triton compiles it.
TESTED_TRITON = triton.__version__.startswith("3.6.")
#: Rows of a program and columns of a block, which are fixed: two groups of 128 rows, two halves of 64 columns. Operands
#: are padded to multiples of both, so no load needs a mask.
ROWS, COLUMNS = 256, 128
#: Blocks of columns in shared memory.
STAGES = 3
#: Float16 numbers of the widest packed rows for which registers suffice, and of the narrowest for which this program is
#: faster.
WIDEST, NARROWEST = 176, 64
#: The layout of the vector in shared memory.
VECTOR_LAYOUT = gl.NVMMASharedLayout(swizzle_byte_width=0, element_bitwidth=32, rank=2)

# Names differ between Triton 3.6 and 3.9.
_copy = tma.async_load if hasattr(tma, "async_load") else tma.async_copy_global_to_shared
_barrier = gl.barrier if hasattr(gl, "barrier") else gl.thread_barrier


@gluon.jit
def _register_rows(left, first_row, AT: gl.constexpr, SIZE: gl.constexpr, WIDTH: gl.constexpr, layout: gl.constexpr):
    """A slice of packed rows in registers, as left operands."""
    rows = first_row + gl.arange(0, 128, gl.SliceLayout(1, layout))
    columns = AT + gl.arange(0, SIZE, gl.SliceLayout(0, layout))
    return gl.load(left + rows[:, None] * WIDTH + columns[None, :])


@gluon.jit
def _shared_rows(rows, SIZE: gl.constexpr):
    """The same slice in shared memory, where registers are few."""
    layout: gl.constexpr = gl.NVMMASharedLayout.get_default_for([128, SIZE], gl.float16)
    return gl.allocate_shared_memory(gl.float16, [128, SIZE], layout, rows)


@gluon.jit
def _half_block(block, HALF: gl.constexpr):
    """Half of a block of columns, as a right operand."""
    return block.slice(HALF * 64, 64, 0).permute((1, 0))


@gluon.jit
def _start(x0, x1, x2, b0, b1, b2, HALF: gl.constexpr, accumulator, TAIL: gl.constexpr, TIP: gl.constexpr):
    """Start the matrix product of rows and half a block; its result takes the registers of `accumulator`."""
    product = warpgroup_mma(x0, _half_block(b0, HALF), accumulator, use_acc=False, is_async=True)
    if TAIL > 0:
        product = warpgroup_mma(x1, _half_block(b1, HALF), product, is_async=True)
    if TIP > 0:
        product = warpgroup_mma(x2, _half_block(b2, HALF), product, is_async=True)
    return product


@gluon.jit
def _weighted(s, factor, vector, HALF: gl.constexpr, layout: gl.constexpr):
    """Kernel values times the vector, summed over columns with the same remainder by eight, which one thread holds."""
    k = gl.exp2(gl.minimum(s * factor, 0.0))
    v = vector.slice(HALF * 64, 64, 1).load(layout)
    return gl.sum(gl.reshape(k * v, [128, 8, 8]), 1)


@gluon.jit
def _copy_columns(
    d0, d1, d2, dv, b0, b1, b2, bv, full, empty, begin, n_blocks,
    BIG: gl.constexpr, TAIL: gl.constexpr, TIP: gl.constexpr, COLUMNS: gl.constexpr, STAGES: gl.constexpr,
):  # fmt: skip
    """The copying group: copy each block once the other groups have used the one in its place."""
    for block in range(0, n_blocks):
        place, at = block % STAGES, begin + block * COLUMNS
        mbarrier.wait(empty.index(place), ((block // STAGES) & 1) ^ 1)
        arrived = full.index(place)
        mbarrier.expect(arrived, COLUMNS * ((BIG + TAIL + TIP) * 2 + 4))
        _copy(d0, [at, 0], arrived, b0.index(place))
        if TAIL > 0:
            _copy(d1, [at, 0], arrived, b1.index(place))
        if TIP > 0:
            _copy(d2, [at, 0], arrived, b2.index(place))
        _copy(dv, [0, at], arrived, bv.index(place))


@gluon.jit
def _multiply_rows(
    GROUP: gl.constexpr, left, unscale, out, b0, b1, b2, bv, full, empty, n, n_blocks,
    BIG: gl.constexpr, TAIL: gl.constexpr, TIP: gl.constexpr, STAGES: gl.constexpr,
):  # fmt: skip
    """A multiplying group: K v of 128 rows.

    While exponentials of one half of a block are taken, the matrix product of the next half runs. The first wait on
    `ready` waits for the next block. The second one returns at once; it keeps the compiler from moving exponentials
    before the start of the product.
    """
    WIDTH: gl.constexpr = BIG + TAIL + TIP
    layout: gl.constexpr = gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, 64, 16])
    left_layout: gl.constexpr = gl.DotOperandLayout(0, layout, 2)
    first_row = (gl.program_id(0) * 2 + GROUP) * 128
    x0 = _register_rows(left, first_row, 0, BIG, WIDTH, left_layout)
    x1 = x0
    x2 = x0
    if TAIL > 0:
        x1 = _register_rows(left, first_row, BIG, TAIL, WIDTH, left_layout)
    if TIP > 0:
        x2 = _register_rows(left, first_row, BIG + TAIL, TIP, WIDTH, left_layout)
    if WIDTH > 128:
        x1 = _shared_rows(x1, TAIL)
        if TIP > 0:
            x2 = _shared_rows(x2, TIP)
        fence_async_shared()
        _barrier()
    factor = gl.load(unscale)
    first = gl.full([128, 64], 0.0, gl.float32, layout)
    second = gl.full([128, 64], 0.0, gl.float32, layout)
    total = gl.sum(gl.reshape(first, [128, 8, 8]), 1)
    mbarrier.wait(full.index(0), 0)
    first_product = _start(x0, x1, x2, b0.index(0), b1.index(0), b2.index(0), 0, first, TAIL, TIP)
    for block in range(0, n_blocks - 1):
        place, following = block % STAGES, (block + 1) % STAGES
        ready, phase = full.index(following), ((block + 1) // STAGES) & 1
        first = warpgroup_mma_wait(0, deps=[first_product])
        second_product = _start(x0, x1, x2, b0.index(place), b1.index(place), b2.index(place), 1, second, TAIL, TIP)
        mbarrier.wait(ready, phase)
        vector = bv.index(place)
        total += _weighted(first, factor, vector, 0, layout)
        second = warpgroup_mma_wait(0, deps=[second_product])
        first_product = _start(
            x0, x1, x2, b0.index(following), b1.index(following), b2.index(following), 0, first, TAIL, TIP
        )  # fmt: skip
        mbarrier.wait(ready, phase)
        total += _weighted(second, factor, vector, 1, layout)
        mbarrier.arrive(empty.index(place), count=1)
    place = (n_blocks - 1) % STAGES
    vector = bv.index(place)
    first = warpgroup_mma_wait(0, deps=[first_product])
    second_product = _start(x0, x1, x2, b0.index(place), b1.index(place), b2.index(place), 1, second, TAIL, TIP)
    total += _weighted(first, factor, vector, 0, layout)
    second = warpgroup_mma_wait(0, deps=[second_product])
    total += _weighted(second, factor, vector, 1, layout)
    rows = first_row + gl.arange(0, 128, gl.SliceLayout(1, layout))
    result = gl.convert_layout(gl.sum(total, 1), gl.SliceLayout(1, layout))
    gl.store(out + gl.program_id(1).to(gl.int64) * n + rows, result, mask=rows < n)


@gluon.jit(do_not_specialize=["n"])
def vector_product_program(
    left, d0, d1, d2, dv, unscale, out, n, m, span,
    BIG: gl.constexpr, TAIL: gl.constexpr, TIP: gl.constexpr, COLUMNS: gl.constexpr, STAGES: gl.constexpr,
):  # fmt: skip
    """out[part] = K v over the columns of this part, which the caller sums.

    The numbers at the end are registers of a thread: of the second multiplying group and of the copying group.
    """
    begin = gl.program_id(1) * span
    n_blocks = (gl.minimum(begin + span, m) - begin) // COLUMNS
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    bv = gl.allocate_shared_memory(gl.float32, [STAGES, 1, COLUMNS], dv.layout)
    b0 = gl.allocate_shared_memory(gl.float16, [STAGES, COLUMNS, BIG], d0.layout)
    b1 = b0
    b2 = b0
    if TAIL > 0:
        b1 = gl.allocate_shared_memory(gl.float16, [STAGES, COLUMNS, TAIL], d1.layout)
    if TIP > 0:
        b2 = gl.allocate_shared_memory(gl.float16, [STAGES, COLUMNS, TIP], d2.layout)
    for place in gl.static_range(STAGES):
        mbarrier.init(full.index(place), count=1)
        mbarrier.init(empty.index(place), count=2)
    fence_async_shared()
    gl.warp_specialize([
        (_multiply_rows, (0, left, unscale, out, b0, b1, b2, bv, full, empty, n, n_blocks,
                          BIG, TAIL, TIP, STAGES)),
        (_multiply_rows, (1, left, unscale, out, b0, b1, b2, bv, full, empty, n, n_blocks,
                          BIG, TAIL, TIP, STAGES)),
        (_copy_columns, (d0, d1, d2, dv, b0, b1, b2, bv, full, empty, begin, n_blocks,
                         BIG, TAIL, TIP, COLUMNS, STAGES)),
    ], [4, 1], [240, 24])  # fmt: skip


def supports(width: int, device: torch.device) -> bool:
    """Whether packed rows of this width, the GPU and Triton suit the program; the caller looks at the kernel."""
    return TESTED_TRITON and NARROWEST <= width <= WIDEST and torch.cuda.get_device_capability(device)[0] == 9


def column_layout(size: int) -> gl.NVMMASharedLayout:
    """The layout of a slice of packed columns in shared memory."""
    return gl.NVMMASharedLayout.get_default_for([COLUMNS, size], gl.float16)


def descriptors(right: Tensor, v: Tensor, sizes: tuple[int, int, int]) -> list[TensorDescriptor]:
    """Descriptors, for copies, of each slice of the packed columns and of the vector."""
    m, width = right.shape
    found, at = [], 0
    for size in sizes:
        if size:
            part = right[:, at : at + size]
            found.append(TensorDescriptor(part, [m, size], [width, 1], [COLUMNS, size], column_layout(size)))
            at += size
    found += [found[0]] * (3 - len(found))
    return [*found, TensorDescriptor(v.reshape(1, m), [1, m], [m, 1], [1, COLUMNS], VECTOR_LAYOUT)]

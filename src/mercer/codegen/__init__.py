"""Code generation for CPUs: records that describe a kernel's formula, and the machine code made from them.

`forms` holds the records, `compiled` runs products and tiles, `machine_code` and `vector_code` write LLVM,
`cpu` holds the exponential, the buffers and the threads. Kernels stand above this package.
"""

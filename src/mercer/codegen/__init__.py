"""Code generation for CPUs: records that describe a kernel's formula, and the machine code made from them.

`cpu` holds the records, the exponential, the buffers and the threads, `compiled` runs products and tiles,
`machine_code` and `vector_code` write LLVM. Kernels stand above this package.
"""

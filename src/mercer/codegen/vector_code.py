"""A small language for loops over vectors of numbers, which LLVM turns into machine code for this CPU.

Vectors hold some tens of numbers of single or double precision; LLVM splits them into registers. This is the only
module that imports LLVM (`llvmlite`). Its loops are written in `mercer.codegen.machine_code` and `mercer.explain`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from llvmlite import binding, ir

#: Whether there are 32 registers of sixteen numbers (AVX-512); LLVM has to be told to use their full width.
WIDE = bool(binding.get_host_cpu_features().get("avx512f", False))
#: Numbers of a vector, and of the smallest that any CPU has.
WIDTH, LANES = 32 if WIDE else 16, 4
INT, INT32, FLOAT = ir.IntType(64), ir.IntType(32), ir.FloatType()
VECTOR, SMALL = ir.VectorType(FLOAT, WIDTH), ir.VectorType(FLOAT, LANES)
POINTER = FLOAT.as_pointer()
DOUBLE = ir.DoubleType()
DOUBLES = ir.VectorType(DOUBLE, 16)
#: Numbers of double precision that fill a register: 128 bits of NEON, 256 of a CPU with AVX-512.
DOUBLE_REGISTER = ir.VectorType(DOUBLE, LANES if WIDE else LANES // 2)
#: Bits below the exponent of a number, the integers of its size, and LLVM's name for it.
MANTISSA, INTEGERS, NAMES = {FLOAT: 23, DOUBLE: 52}, {FLOAT: INT32, DOUBLE: INT}, {FLOAT: "f32", DOUBLE: "f64"}
#: Kinds of arguments: an array of numbers (single, double), an integer, a number; to LLVM and to Python.
KINDS = {
    "f": (POINTER, ctypes.c_void_p),
    "d": (DOUBLE.as_pointer(), ctypes.c_void_p),
    "i": (INT, ctypes.c_int64),
    "s": (FLOAT, ctypes.c_float),
}


class Writer:
    """A function being written: loops, and arithmetic on vectors."""

    def __init__(self, name: str, arguments: str) -> None:
        """`arguments` are letters of `KINDS`."""
        kind = ir.FunctionType(ir.VoidType(), [KINDS[a][0] for a in arguments])
        self.name, self.arguments, self.function = name, arguments, ir.Function(ir.Module(name), kind, name)
        for argument in self.function.args:
            if argument.type.is_pointer:
                argument.add_attribute("noalias")
        self.build = ir.IRBuilder(self.function.append_basic_block())

    @contextmanager
    def loop(self, count: Any, held: tuple[Any, ...] = ()) -> Iterator[tuple[Any, list[Any], list[Any]]]:
        """A loop of at least one turn: its counter, the values carried from the last turn, a list for the next ones."""
        b = self.build
        before, body, after = b.block, b.append_basic_block(), b.append_basic_block()
        b.branch(body)
        b.position_at_end(body)
        counter, now = b.phi(INT), [b.phi(value.type) for value in held]
        counter.add_incoming(INT(0), before)
        for phi, value in zip(now, held, strict=True):
            phi.add_incoming(value, before)
        following: list[Any] = []
        yield counter, now, following
        step = b.add(counter, INT(1))
        counter.add_incoming(step, b.block)
        for phi, value in zip(now, following, strict=True):
            phi.add_incoming(value, b.block)
        b.cbranch(b.icmp_signed("<", step, count), body, after)
        b.position_at_end(after)

    def place(self, array: Any, *terms: Any) -> Any:
        """The address `terms` numbers behind the array's; a pair is a product."""
        b, offset = self.build, INT(0)
        for term in terms:
            pair = term if isinstance(term, tuple) else (term, 1)
            offset = b.add(offset, b.mul(*(INT(factor) if isinstance(factor, int) else factor for factor in pair)))
        return b.gep(array, [offset])

    def load(self, address: Any, kind: Any = VECTOR) -> Any:
        return self.build.load(self.build.bitcast(address, kind.as_pointer()), align=4)

    def store(self, value: Any, address: Any) -> None:
        self.build.store(value, self.build.bitcast(address, value.type.as_pointer()), align=4)

    def spread(self, number: Any, kind: Any = VECTOR) -> Any:
        """A number in all places of a vector, or a small vector again and again."""
        b, scalar = self.build, number.type == kind.element
        nothing = ir.Constant(ir.VectorType(kind.element, LANES), ir.Undefined)
        small = b.insert_element(nothing, number, INT32(0)) if scalar else number
        places = [0 if scalar else i % LANES for i in range(kind.count)]
        return b.shuffle_vector(small, nothing, ir.Constant(ir.VectorType(INT32, kind.count), places))

    def call(self, name: str, *vectors: Any) -> Any:
        """A call of one of LLVM's intrinsic functions."""
        kind = vectors[0].type
        module, full = self.build.module, f"llvm.{name}.v{kind.count}{NAMES[kind.element]}"
        known = module.globals.get(full) or ir.Function(module, ir.FunctionType(kind, [kind] * len(vectors)), full)
        return self.build.call(known, vectors)

    def total(self, vector: Any) -> Any:
        """The sum of a vector's numbers, halves first."""
        width = vector.type.count
        while width > 1:
            width //= 2
            halves = [ir.Constant(ir.VectorType(INT32, width), [i + k * width for i in range(width)]) for k in (0, 1)]
            vector = self.build.fadd(*(self.build.shuffle_vector(vector, vector, half) for half in halves))
        return self.build.extract_element(vector, INT32(0))

    def times_plus(self, a: Any, x: Any, c: Any) -> Any:
        """a·x + c, rounded once where the CPU can."""
        once = ("contract",)
        return self.build.fadd(self.build.fmul(a, x, flags=once), c, flags=once)

    def fresh(self, value: float, kind: Any = VECTOR) -> Any:
        """A constant that is read from memory each time it is used.

        A multiply-add of ARM overwrites the addend, so LLVM would copy constants between registers with the units that
        compute. The units that load are idle.
        """
        name = f"constant{value!r}{kind.count}{NAMES[kind.element]}"
        known = self.build.module.globals.get(name)
        if known is None:
            known = ir.GlobalVariable(self.build.module, kind, name)
            known.initializer, known.linkage = constant(value, kind), "private"
        read = self.build.load(known, align=4)
        read.volatile = True
        return self.spread(read) if kind is SMALL else read

    def raised(self, vector: Any, exponents: Any) -> Any:
        """The vector times two to the power of integers, which stand in the lowest bits of `exponents`."""
        b, kind = self.build, vector.type
        ints = ir.VectorType(INTEGERS[kind.element], kind.count)
        shifted = b.shl(b.bitcast(exponents, ints), ir.Constant(ints, [MANTISSA[kind.element]] * kind.count))
        return b.bitcast(b.add(b.bitcast(vector, ints), shifted), kind)

    def where(self, least: Any, x: Any, value: Any) -> Any:
        """The value where x is at least as large, else zero."""
        return self.build.select(self.build.fcmp_ordered(">=", x, least), value, constant(0.0))

    def compiled(self) -> Callable[..., None]:
        """The function, to be called with the addresses of arrays; Python's lock is released meanwhile."""
        self.build.ret_void()
        parsed = binding.parse_assembly(str(self.function.module))
        parsed.verify()
        engine = binding.create_mcjit_compiler(parsed, machine())
        engine.finalize_object()
        kind = ctypes.CFUNCTYPE(None, *(KINDS[a][1] for a in self.arguments))
        made: Any = kind(engine.get_function_address(self.name))
        made.engine = engine  # the code lives as long as it
        return made


def single(value: float) -> float:
    """The nearest number of single precision."""
    return ctypes.c_float(value).value


def constant(value: float, kind: Any = VECTOR) -> Any:
    return ir.Constant(kind, [single(value) if kind.element == FLOAT else value] * kind.count)


def machine() -> Any:
    """An LLVM target for this CPU with all its features; each compiled function owns one."""
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    features = binding.get_host_cpu_features().flatten() + (",-prefer-256-bit" if WIDE else "")
    target = binding.Target.from_default_triple()
    return target.create_target_machine(cpu=binding.get_host_cpu_name(), features=features, opt=3)

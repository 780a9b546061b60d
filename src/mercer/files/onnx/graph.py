"""A graph under construction: operators by name, constants in the precision asked for, fresh names for all results.

Only `onnx.helper` is needed. Rows enter in the precision of the graph, are coded in float64 as `fit` coded them, and
kernel values are made in the precision that the model was fitted with.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

#: Operators of this set are what onnxruntime has had since 1.14.
OPSET = 18


@dataclass
class Graph:
    """Nodes and constants so far; `dtype` is that of inputs and outputs, `prefix` begins every name."""

    dtype: str
    prefix: str = ""
    nodes: list[Any] = field(default_factory=list)
    constants: list[Any] = field(default_factory=list)
    count: list[int] = field(default_factory=lambda: [0])

    def fresh(self, kind: str) -> str:
        """A name that nothing has."""
        self.count[0] += 1
        return f"{self.prefix}{kind}_{self.count[0]}"

    def op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """The result of an operator."""
        from onnx import helper

        name = self.fresh(kind)
        self.nodes.append(helper.make_node(kind, list(inputs), [name], name=name, **attributes))
        return name

    def constant(self, value: Any, dtype: Any = np.float64) -> str:
        """An array of the graph itself."""
        from onnx import numpy_helper

        name = self.fresh("constant")
        array = np.asarray(value, dtype=dtype)
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), name))
        return name

    def text(self, values: Any) -> str:
        """A constant of text."""
        from onnx import TensorProto, helper

        name = self.fresh("text")
        words: Any = [str(value).encode() for value in values]
        self.constants.append(helper.make_tensor(name, TensorProto.STRING, [len(words)], words))
        return name

    def cast(self, value: str, dtype: str) -> str:
        """A value in another precision."""
        return self.op("Cast", value, to=onnx_type(dtype))

    def affine(self, value: str, factor: Any = 1.0, shift: Any = 0.0, dtype: Any = np.float64) -> str:
        """factor · value + shift."""
        if np.any(np.asarray(factor) != 1):
            value = self.op("Mul", value, self.constant(factor, dtype))
        return self.op("Add", value, self.constant(shift, dtype)) if np.any(np.asarray(shift) != 0) else value

    def scaled(self, value: str, factor: Any, width: int, dtype: Any = np.float64) -> str:
        """A matrix of `width` columns times one factor or one a column, to the last digit.

        Next to a matrix product, onnxruntime turns a factor that is one number into an attribute in float32.
        """
        factors = np.broadcast_to(np.asarray(factor), (width,))
        if width == 1:
            return self.op("MatMul", value, self.constant(factors[:, None], dtype))
        return self.op("Mul", value, self.constant(factors[None], dtype))

    def total(self, value: str, axis: int, keep: bool = True) -> str:
        """The sum along one axis."""
        return self.op("ReduceSum", value, self.constant([axis], np.int64), keepdims=int(keep))

    def columns(self, value: str, index: Any) -> str:
        """Some columns of a matrix."""
        return self.op("Gather", value, self.constant(index, np.int64), axis=1)

    def reshaped(self, value: str, *shape: int) -> str:
        return self.op("Reshape", value, self.constant(shape, np.int64))

    def steps(self, n: int, start: str, shape: tuple[Any, ...], dtype: str, step: Any) -> str:
        """``step(body, i, value)`` applied n times to a value, by a `Loop`."""
        from onnx import TensorProto, helper

        body = Graph(self.dtype, self.prefix, constants=self.constants, count=self.count)
        i, on, value = (self.fresh(kind) for kind in ("step", "on", "value"))
        result, further = step(body, i, value), self.fresh("further")
        body.nodes.append(helper.make_node("Identity", [on], [further]))
        info = helper.make_tensor_value_info
        ends = [info(further, TensorProto.BOOL, []), info(result, onnx_type(dtype), shape)]
        begins = [info(i, TensorProto.INT64, []), info(on, TensorProto.BOOL, []), info(value, onnx_type(dtype), shape)]
        inner = helper.make_graph(body.nodes, self.fresh("body"), begins, ends)
        count, begin = self.constant(n, np.int64), self.constant(True, bool)
        return self.op("Loop", count, begin, start, body=inner)


def onnx_type(dtype: str) -> int:
    """ONNX's number of a precision."""
    from onnx import helper

    return helper.np_dtype_to_tensor_dtype(np.dtype(dtype))

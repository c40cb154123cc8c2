"""An ONNX graph under construction: operators, weights, and their precision.

Operators of the domain ``com.microsoft`` are ONNX Runtime's own. They do in one pass over the memory what several
standard operators do in many (attention over all heads, a sum and its normalisation), which tracing the torch model
would leave to pattern matching that depends on versions of three packages.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from crossling.errors import ArtefactError
from crossling.inference.onnx.dependencies import Precision
from crossling.models.card import GRAPH, GRAPH_WEIGHTS

if TYPE_CHECKING:
    from torch import Tensor, nn

Array = np.ndarray[Any, np.dtype[Any]]
OPSET, IR_VERSION, RUNTIME = 17, 9, "com.microsoft"
LEVELS, ZERO = 127, 128
"""In 8 bits, the largest whole number that a value becomes, and what is added to values of vectors, which ONNX Runtime
multiplies faster without signs."""
WHOLE = ("head.", "pooler", "fusion.")
"""How names of products begin that stay in float32: they are small, and labels come from them."""


@dataclass
class Graph:
    """Operators in the order of their execution; a value is known by its name."""

    precision: Precision = "float32"
    nodes: list[Any] = field(default_factory=list)
    weights: dict[str, Array] = field(default_factory=dict)
    _quantised: dict[str, tuple[str, str]] = field(default_factory=dict)
    _shared: dict[str, str] = field(default_factory=dict)

    def add(self, operator: str, *inputs: str, domain: str = "", outputs: int = 1, **attributes: Any) -> str:
        """Add an operator of one output, and give the name of its value. An input that is left out is ``""``."""
        return self.split(operator, *inputs, domain=domain, outputs=outputs, **attributes)[0]

    def split(self, operator: str, *inputs: str, domain: str = "", outputs: int, **attributes: Any) -> list[str]:
        """Add an operator of several outputs."""
        from onnx import helper

        names = [f"{operator}_{len(self.nodes)}_{place}" for place in range(outputs)]
        self.nodes.append(helper.make_node(operator, list(inputs), names, domain=domain, **attributes))
        return names

    def add_initializer(self, values: Any, name: str = "") -> str:
        """Add weights or constants as they are (ONNX calls them initializers); equal names are one weight."""
        name = name or f"constant_{len(self.weights)}"
        self.weights.setdefault(name, np.asarray(values, order="C"))
        return name

    def matmul(self, value: str, weight: Tensor, name: str) -> str:
        """The product of B x S vectors with a torch weight, out x in: in float32, or with both sides in 8 bits.

        In 8 bits every vector and every output of the weight has a scale of its own. With one scale for a whole batch,
        as ONNX Runtime's own quantization has it, a few large values would take the precision from all others, and a
        prediction would depend on what else is in its batch.
        """
        matrix = to_array(weight).T
        if self.precision == "float32" or name.startswith(WHOLE):
            return self.add("MatMul", value, self.add_initializer(matrix, name))
        quantised, scales = quantise_columns(matrix)
        vectors, vector_scales = self._quantise_vectors(value, len(matrix))
        product = self.add(
            "MatMulIntegerToFloat",
            *(
                vectors,
                self.add_initializer(quantised, name),
                self.add_initializer(np.float32(1)),
                self.add_initializer(scales, f"{name}.scales"),
            ),
            self.add_initializer(np.uint8(ZERO), "zero"),
            domain=RUNTIME,
        )
        product = self.add("Mul", product, vector_scales)
        return self.add("Reshape", product, self._shape_of(matrix.shape[1]))

    def _quantise_vectors(self, value: str, width: int) -> tuple[str, str]:
        """Vectors in 8 bits, B * S x width, and the scale of each, B * S x 1; once for all that reads them."""
        if value not in self._quantised:
            flat = self.add("Reshape", value, self.add_initializer(np.array([-1, width]), f"flat.{width}"))
            largest = self.add("ReduceMax", self.add("Abs", flat), axes=[1], keepdims=0)
            scales = self.add(
                "Mul",
                self.add("Max", largest, self.add_initializer(np.float32(1e-9))),
                self.add_initializer(np.float32(1 / LEVELS)),
            )
            zeros = self._once(
                "zeros",
                lambda: self.add("Expand", self.add_initializer(np.uint8(ZERO), "zero"), self.add("Shape", scales)),
            )
            quantised = self.add("QuantizeLinear", flat, scales, zeros, axis=0)
            self._quantised[value] = quantised, self.add("Unsqueeze", scales, self.add_initializer(np.array([1])))
        return self._quantised[value]

    def _shape_of(self, width: int) -> str:
        """The shape B x S x width."""
        return self._once(
            f"shape.{width}",
            lambda: self.add(
                "Concat",
                self._once("shape", lambda: self.add("Shape", "ids")),
                self.add_initializer(np.array([width])),
                axis=0,
            ),
        )

    def _once(self, key: str, make: Callable[[], str]) -> str:
        """A value that many operators read, made when the first one does."""
        if key not in self._shared:
            self._shared[key] = make()
        return self._shared[key]

    def apply_linear(self, value: str, linear: nn.Linear, name: str) -> str:
        """A linear layer with its bias."""
        product = self.matmul(value, linear.weight, name)
        return product if linear.bias is None else self.add("Add", product, self.add_weight(linear.bias, f"{name}.b"))

    def add_weight(self, tensor: Tensor, name: str) -> str:
        """Add a torch weight as an initializer, in float32."""
        return self.add_initializer(to_array(tensor), name)

    def gather_rows(self, table: Tensor, rows: str, name: str) -> str:
        """Rows of a table by number; in 8 bits each row has a scale of its own."""
        values = to_array(table)
        if self.precision == "float32":
            return self.add("Gather", self.add_initializer(values, name), rows)
        quantised, scales = quantise_columns(values.T)
        found = self.add("Gather", self.add_initializer(quantised.T, name), rows)
        scale = self.add("Gather", self.add_initializer(scales[:, None], f"{name}.scales"), rows)
        return self.add("Mul", self.add("Cast", found, to=1), scale)

    def normalize(self, value: str, norm: nn.LayerNorm, name: str) -> str:
        """Layer normalisation, with or without a bias."""
        weights = [self.add_weight(norm.weight, f"{name}.weight")]
        if norm.bias is not None:
            weights.append(self.add_weight(norm.bias, f"{name}.bias"))
        return self.add("LayerNormalization", value, *weights, epsilon=norm.eps)

    def activate(self, value: str, bias: Tensor | None, kind: str, name: str) -> str:
        """A bias and an activation function."""
        if bias is not None and kind == "gelu":
            return self.add("BiasGelu", value, self.add_weight(bias, f"{name}.bias"), domain=RUNTIME)
        if bias is not None:
            value = self.add("Add", value, self.add_weight(bias, f"{name}.bias"))
        if kind not in _ACTIVATIONS:
            raise ArtefactError(
                f"activation {kind!r}: --to onnx has no operator for it, but for {', '.join(sorted(_ACTIVATIONS))}"
            )
        operator, domain = _ACTIVATIONS[kind]
        if operator == "Silu":
            return self.add("Mul", value, self.add("Sigmoid", value))
        return self.add(operator, value, domain=domain)

    def save(self, folder: Path, *, inputs: Sequence[str], outputs: Mapping[str, tuple[str, int, int]]) -> None:
        """Write the graph and, in a second file, its weights, which the engine maps into memory.

        Inputs are B x S whole numbers. ``outputs`` are, by the names that they get, the names of values, their numbers
        of dimensions and the size of the last one.
        """
        import onnx
        from onnx import helper, numpy_helper

        for name, (value, _, _) in outputs.items():
            self.nodes.append(helper.make_node("Identity", [value], [name]))
        sizes = ("batch", "length")
        graph = helper.make_graph(
            self.nodes,
            "crossling",
            [helper.make_tensor_value_info(name, onnx.TensorProto.INT64, sizes) for name in inputs],
            [
                helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, (*sizes[: rank - 1], width))
                for name, (_, rank, width) in outputs.items()
            ],
            [numpy_helper.from_array(values, name) for name, values in self.weights.items()],
        )
        opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(RUNTIME, 1)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION, producer_name="crossling")
        onnx.save_model(
            model,
            str(folder / GRAPH),
            save_as_external_data=True,
            all_tensors_to_one_file=True,
            location=GRAPH_WEIGHTS,
            size_threshold=1024,
        )


_ACTIVATIONS = {
    "gelu": ("Gelu", RUNTIME),
    "gelu_new": ("FastGelu", RUNTIME),
    "gelu_pytorch_tanh": ("FastGelu", RUNTIME),
    "relu": ("Relu", ""),
    "silu": ("Silu", ""),
    "tanh": ("Tanh", ""),
}


def to_array(tensor: Tensor) -> Array:
    """A torch tensor as an array of float32."""
    values: Array = tensor.detach().cpu().float().numpy()
    return values


def quantise_columns(matrix: Array) -> tuple[Array, Array]:
    """A matrix in 8 bits, and the scale of each column: the product of both is near the matrix."""
    scales = np.maximum(np.abs(matrix).max(axis=0), 1e-12) / LEVELS
    return np.round(matrix / scales).astype(np.int8), scales.astype(np.float32)

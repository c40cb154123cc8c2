"""What the extra ``onnx`` installs, or an error that names the extra."""

from __future__ import annotations

from typing import Literal

from crossling.errors import UserError

Precision = Literal["float32", "int8"]


def require_onnx() -> None:
    """An error that names the extra, where ONNX is not installed."""
    try:
        import onnx  # noqa: F401
        import onnxruntime  # noqa: F401
    except ImportError as error:
        raise UserError(
            f"{error.name} is not installed, which models for ONNX Runtime need: pip install 'crossling[onnx]'"
        ) from None

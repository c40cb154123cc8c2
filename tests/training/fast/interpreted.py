"""Triton's kernels where the tests run: compiled on a GPU, else interpreted where TRITON_INTERPRET=1 asks for it."""

from __future__ import annotations

import os
from typing import Any

import pytest
import torch

pytest.importorskip("triton", reason="triton is not installed")
if not torch.cuda.is_available() and os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("kernels need a GPU, or TRITON_INTERPRET=1", allow_module_level=True)

DEVICE = torch.device("cpu" if os.environ.get("TRITON_INTERPRET") == "1" else "cuda")

if DEVICE.type == "cpu":
    from triton.runtime import interpreter

    _patch = interpreter._patch_lang_tensor

    def _patch_index(tensor: Any, scope: Any) -> None:
        """The interpreter makes indices of arrays with one element, which newer versions of numpy refuse."""
        _patch(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    interpreter._patch_lang_tensor = _patch_index

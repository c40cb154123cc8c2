"""The operations that are run once beforehand can be run in every precision."""

from __future__ import annotations

import pytest
import torch

from crossling.training.distributed import Distributed
from crossling.training.fast.first_use import begin_first_use, run_operations


@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16])
def test_operations_run_and_draw_nothing_at_random(precision: torch.dtype) -> None:
    before = torch.get_rng_state()
    run_operations(torch.device("cpu"), precision)
    assert torch.equal(torch.get_rng_state(), before)


def test_nothing_is_run_on_a_cpu() -> None:
    assert begin_first_use(Distributed(0, 1, torch.device("cpu"), torch.float32)).ident is None


@pytest.mark.gpu
@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16])
def test_operations_run_on_a_gpu(precision: torch.dtype, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    begin_first_use(Distributed(0, 1, torch.device("cuda"), precision)).join()
    assert "first use" not in caplog.text

"""Gradients that NCCL adds up inside a captured step, in processes that torchrun starts: one, and two where there are
two GPUs. Run as a program, this file is what such a process does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch

from crossling.recipe.recipe import RunSettings
from crossling.training.distributed import ALWAYS_REDUCE, setup_distributed
from crossling.training.fast.cuda_graph import CapturedSteps
from crossling.training.loop import Execution, fit
from crossling.training.settings import TrainingSettings
from learner import make_learner

pytestmark = pytest.mark.gpu
CASES: dict[str, dict[str, Any]] = {
    "accumulated": {"settings": {"accumulate": 2}},
    "statistics of a batch": {"fusion": {"kind": "dlfa", "layer": 1}},
    "recomputed": {"settings": {"gradient_checkpointing": True}},
    "bfloat16": {"precision": "bfloat16"},
}


def _train(
    folder: Path, *, capture: bool, precision: str = "float32", settings: dict[str, Any] | None = None, **what: Any
) -> dict[str, Any]:
    distributed = setup_distributed(RunSettings(device="cuda", precision=precision))
    model, stream = make_learner(folder / f"encoded-{distributed.rank}", count=201, dropout=False, **what)
    chosen = TrainingSettings(epochs=2, batch=8, lr=1e-3, clip=0.5, **settings or {})
    with patch.object(
        CapturedSteps, "_capture_finish", autospec=True, side_effect=CapturedSteps._capture_finish
    ) as captures:
        position = fit(model, stream, chosen, Execution(distributed, 1, folder / f"{capture}", capture=capture))
    weights = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
    return {
        "processes": distributed.size,
        "joined": distributed.group is not None,
        "captures": captures.call_count,
        "losses": [row["loss"] for row in position.history],
        "norm": float(weights.norm()),
    }


def _work(folder: Path) -> None:
    for name, how in CASES.items():
        for capture in (False, True):
            found = _train(folder / name, capture=capture, **how)
            if os.environ["RANK"] == "0":
                (folder / f"{name}, {capture}.json").write_text(json.dumps(found), encoding="utf-8")


@pytest.mark.parametrize("processes", [1, 2])
def test_captured_sums_of_gradients_give_the_losses_of_one_plain_process(tmp_path: Path, processes: int) -> None:
    if torch.cuda.device_count() < processes:
        pytest.skip(f"needs {processes} GPUs")
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(processes)]
    environment = {**os.environ, ALWAYS_REDUCE: "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [*launcher, __file__, str(tmp_path)], env=environment, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "without CUDA graphs" not in done.stderr
    for name, how in CASES.items():
        alone = _train(tmp_path / "alone" / name, capture=False, **how)
        assert not alone["joined"]
        for capture in (False, True):
            found = json.loads((tmp_path / f"{name}, {capture}.json").read_text(encoding="utf-8"))
            assert found["joined"] and found["processes"] == processes
            assert (found["captures"] > 0) == capture, name
            exact = 1e-4 if how.get("precision") is None else 0.02
            assert found["losses"] == pytest.approx(alone["losses"], rel=exact), (name, capture)
            assert found["norm"] == pytest.approx(alone["norm"], rel=exact), (name, capture)


if __name__ == "__main__":
    _work(Path(sys.argv[1]))

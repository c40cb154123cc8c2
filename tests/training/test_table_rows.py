"""A subword table that moves by rows: against torch's own optimisers, and through the training loop."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from crossling.data.batching import plan_epoch
from crossling.errors import RecipeError, UserError
from crossling.recipe.recipe import parse_recipe
from crossling.training.distributed import Distributed
from crossling.training.loop import Execution, fit
from crossling.training.settings import TrainingSettings
from crossling.training.steps import PlainSteps, build_optimiser
from crossling.training.table_rows import TableRows
from learner import make_learner

ONE = Distributed(0, 1, torch.device("cpu"), torch.float32)
REDUCED = Distributed(0, 1, torch.device("cpu"), torch.bfloat16)


def _mover(rows: int = 6, width: int = 3, **settings: float) -> tuple[nn.Parameter, TableRows]:
    torch.manual_seed(0)
    table = nn.Parameter(torch.randn(rows, width))
    other = nn.Parameter(torch.zeros(1))
    chosen = TrainingSettings.model_validate({"table_update": "rows", **settings})
    return table, TableRows(table, torch.optim.AdamW([other]), chosen)


def test_rows_move_as_torchs_sparse_adam_moves_them() -> None:
    table, mover = _mover(eps=1e-12)
    copy = nn.Parameter(table.detach().clone())
    peer = torch.optim.SparseAdam([copy], lr=0.1, eps=1e-12)
    generator = torch.Generator().manual_seed(1)
    for _ in range(7):
        rows = torch.randint(0, 6, (2, 3), generator=generator)
        gradient = torch.zeros_like(table).index_add_(0, rows.flatten(), torch.randn(6, 3, generator=generator))
        table.grad = gradient.clone()
        mover.move([rows[:1], rows[1:]], 0.1, None)
        assert not table.grad.any(), "cleared for the next step"
        different = rows.unique()
        copy.grad = torch.sparse_coo_tensor(different[None], gradient[different], gradient.shape, check_invariants=True)
        peer.step()
        torch.testing.assert_close(table, copy)


def test_a_step_that_sees_all_rows_is_adamws() -> None:
    table, mover = _mover(weight_decay=0.1)
    copy = nn.Parameter(table.detach().clone())
    peer = torch.optim.AdamW([copy], lr=0.05, weight_decay=0.1)
    for _ in range(5):
        gradient = torch.randn_like(table)
        table.grad, copy.grad = gradient.clone(), gradient / 4
        mover.move([torch.arange(6)], 0.05, torch.tensor(4.0))
        peer.step()
        torch.testing.assert_close(table, copy)


def test_rows_that_a_step_does_not_see_keep_still_and_so_do_their_means() -> None:
    table, mover = _mover()
    for rows in ([0, 1], [2]):
        before = table.detach().clone()
        state = {name: value.clone() for name, value in mover.optimiser.state[table].items()}
        table.grad = torch.zeros_like(table).index_fill_(0, torch.tensor(rows), 1.0)
        mover.move([torch.tensor(rows)], 0.1, None)
        still = [row for row in range(6) if row not in rows]
        assert torch.equal(table[still], before[still]) and not torch.equal(table[rows], before[rows])
        for name in ("exp_avg", "exp_avg_sq") if state else ():
            assert torch.equal(mover.optimiser.state[table][name][still], state[name][still])


def _settings(**changes: object) -> TrainingSettings:
    return TrainingSettings.model_validate({"epochs": 4, "batch": 8, "lr": 2e-3, "table_update": "rows", **changes})


@pytest.mark.parametrize("distributed", [ONE, REDUCED], ids=["whole", "reduced"])
def test_training_moves_the_rows_that_it_saw_and_learns(tmp_path: Path, distributed: Distributed) -> None:
    model, stream = make_learner(tmp_path)
    table = model.encoder.model.get_input_embeddings().weight
    before = table.detach().clone()
    position = fit(model, stream, _settings(), Execution(distributed, 1, tmp_path / "work"))
    losses = [entry["loss"] for entry in position.history]
    assert losses[-1] < 0.9 * losses[0]
    moved = (table.detach() != before).any(1)
    # The pad row is looked up too, but no gradient reaches it.
    seen = set(stream.examples.distinct_ids().tolist())
    assert set(moved.nonzero().flatten().tolist()) == seen - {model.encoder.tokenizer.pad_token_id}


@pytest.mark.parametrize("distributed", [ONE, REDUCED], ids=["whole", "reduced"])
def test_the_first_step_is_that_of_all_rows(tmp_path: Path, distributed: Distributed) -> None:
    """Before there is any momentum, rows that a step does not see stay where they are in both ways."""
    ends = []
    for update in ("all", "rows"):
        model, stream = make_learner(tmp_path)
        settings = _settings(table_update=update, epochs=1, batch=64)
        fit(model, stream, settings, Execution(distributed, 1, tmp_path / update))
        ends.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
    torch.testing.assert_close(ends[0], ends[1], atol=1e-6, rtol=1e-4)


def test_rows_of_all_batches_of_a_step_move(tmp_path: Path) -> None:
    model, stream = make_learner(tmp_path)
    table = model.encoder.model.get_input_embeddings().weight
    before = table.detach().clone()
    fit(model, stream, _settings(epochs=1, accumulate=5), Execution(ONE, 1, tmp_path / "work"))
    moved = set((table.detach() != before).any(1).nonzero().flatten().tolist())
    seen = set(stream.examples.distinct_ids().tolist())
    assert moved == seen - {model.encoder.tokenizer.pad_token_id}
    assert not table.grad.any()


def test_copies_in_reduced_precision_follow(tmp_path: Path) -> None:
    model, stream = make_learner(tmp_path)
    settings = _settings()
    steps = PlainSteps(model.train(), build_optimiser(model, settings, REDUCED.device), settings, REDUCED)
    plan = plan_epoch(stream.examples.lengths, 8, seed=1, epoch=0)[0]
    arrays = stream.objective.collate(stream.examples, plan, size=8)
    for _ in range(2):
        steps.update([(stream.objective, model.prepare(arrays, REDUCED.device))], scales={"main": [1.0]}, rate=1e-2)
    for name, parameter in model.named_parameters():
        if name.startswith("encoder."):
            assert torch.equal(steps.reduced_weights()._copies[name], parameter.to(torch.bfloat16)), name


def test_a_killed_run_goes_on_as_if_nothing_had_happened(tmp_path: Path) -> None:
    ends = []
    for kill in (False, True):
        model, stream = make_learner(tmp_path)
        execution = Execution(ONE, 1, tmp_path / str(kill), checkpoint_seconds=0)
        if kill:
            told = iter(range(100))

            def stop(values: dict[str, float], step: int, told: object = told) -> None:
                if next(told) == 1:  # type: ignore[call-overload]
                    raise KeyboardInterrupt

            with pytest.raises(KeyboardInterrupt):
                fit(model, stream, _settings(), replace(execution, track=stop))
            model, stream = make_learner(tmp_path)
        fit(model, stream, _settings(), execution)
        ends.append(np.concatenate([p.detach().numpy().ravel() for p in model.parameters()]))
    assert np.array_equal(ends[0], ends[1])


def test_several_processes_and_masked_words_refuse(tmp_path: Path) -> None:
    model, stream = make_learner(tmp_path)
    with pytest.raises(UserError, match="one process only"):
        fit(model, stream, _settings(), Execution(replace(ONE, size=2), 1, tmp_path))
    stage = {"kind": "adapt", "train": "phrasebook-pos:en:train", "table_update": "rows"}
    with pytest.raises(RecipeError, match="every subword learns"):
        parse_recipe({"encoder": {"name": "multilingual-e5-small"}, "stage": [stage]})

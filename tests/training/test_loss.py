"""The loss of an update: equation 2 of the adjustment paper."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from crossling.objectives import Terms
from crossling.training.loss import add_terms, name_terms, weigh_terms

WEIGHTS = Terms(task=1.0, pull=0.01, stay=2.0, consistency=0.5)


def test_loss_is_the_sum_of_weighted_terms() -> None:
    sums = Terms(*(torch.tensor(value, requires_grad=True) for value in (6.0, 30.0, 8.0, 9.0)))
    weights = weigh_terms(WEIGHTS, Terms(task=3, pull=10, stay=4, consistency=6))
    assert weights == (1 / 3, 0.01 / 10, 2.0 / 4, 0.5 / 6)
    loss, terms = add_terms(sums, torch.tensor(weights))
    assert float(loss.detach()) == pytest.approx(6 / 3 + 0.01 * 30 / 10 + 2.0 * 8 / 4 + 0.5 * 9 / 6)
    assert terms.tolist() == pytest.approx([6 / 3, 0.01 * 30 / 10, 2.0 * 8 / 4, 0.5 * 9 / 6])
    loss.backward()
    assert [float(term.grad) for term in sums] == pytest.approx(list(weights))


@pytest.mark.parametrize(
    ("objective", "names"),
    [
        (SimpleNamespace(name="ner", weights=Terms(task=1.0)), {0: "ner"}),
        (SimpleNamespace(name="replay", weights=Terms(pull=0.01, stay=0.0)), {1: "replay_pull", 2: "replay_stay"}),
        (SimpleNamespace(name="ner", weights=Terms(task=1.0, consistency=0.0)), {0: "ner", 3: "ner_consistency"}),
    ],
)
def test_reported_terms_are_those_that_an_objective_has(objective: Any, names: dict[int, str]) -> None:
    assert name_terms(objective) == names


def test_missing_terms_add_nothing_to_a_batch() -> None:
    task = torch.tensor(6.0)
    loss, terms = add_terms(Terms(task=task), torch.tensor(weigh_terms(Terms(task=1.0), Terms(task=3))))
    assert loss == task * torch.tensor(1 / 3)
    assert terms.tolist() == [float(loss), 0.0, 0.0, 0.0]


def test_term_without_targets_stays_a_sum() -> None:
    assert weigh_terms(Terms(pull=0.5, stay=2.0), Terms(pull=0, stay=0)) == (0.0, 0.5, 2.0, 0.0)

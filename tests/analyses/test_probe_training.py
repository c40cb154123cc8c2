"""Linear probes are at the minimum of their loss, whichever way and however many of them are trained."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor

from crossling.analyses._probes import losses as losses_module
from crossling.analyses._probes import standardize, training
from crossling.analyses._probes.features import OnDisk
from crossling.analyses._probes.training import InMemory, apply_probes, measure_moments, train_probes


def make(count: int = 400, groups: int = 5, width: int = 6, classes: int = 4) -> tuple[Tensor, Tensor]:
    """Features of unequal size and mean, of which each group separates the classes more or less well."""
    generator = torch.Generator().manual_seed(1)
    draw = lambda *shape: torch.randn(*shape, generator=generator)  # noqa: E731
    labels = (torch.rand(count, generator=generator) ** 2 * classes).long()
    centres = draw(classes, groups, width) * torch.linspace(0.1, 1.5, groups)[:, None]
    mixed = torch.einsum("ngd,gde->nge", centres[labels] + draw(count, groups, width), draw(groups, width, width))
    return mixed * 10 ** draw(groups, width) + 20 * draw(groups, width), labels


def fit_reference(features_ND: Tensor, labels_N: Tensor, *, l2: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """scikit-learn's weights and biases, of which only differences between classes count, and its predictions."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import StandardScaler

    scaled = StandardScaler().fit_transform(features_ND.double().numpy())
    model = LogisticRegression(C=1 / l2, tol=1e-9, max_iter=5_000).fit(scaled, labels_N.numpy())
    weights, biases = model.coef_, model.intercept_
    if len(weights) == 1:  # of two classes it gives the difference
        weights, biases = np.stack([-weights[0], weights[0]]) / 2, np.array([-biases[0], biases[0]]) / 2
    return weights - weights.mean(0), biases - biases.mean(), model.predict(scaled)


@pytest.mark.parametrize("l2", [0.1, 30.0])
def test_probes_are_scikit_learns(l2: float) -> None:
    features, labels = make()
    probes = train_probes(InMemory(features), labels, classes=4, l2=l2, tolerance=1e-7)
    answers = apply_probes(probes, InMemory(features))
    for group in range(5):
        weights, biases, predicted = fit_reference(features[:, group], labels, l2=l2)
        found = probes.point[group, 0]
        np.testing.assert_allclose(found[:, :-1] - found[:, :-1].mean(0), weights, atol=2e-3, rtol=2e-3)
        np.testing.assert_allclose(found[:, -1] - found[:, -1].mean(), biases, atol=2e-3, rtol=2e-3)
        assert (answers[:, group, 0].numpy() == predicted).mean() > 0.995


@pytest.mark.parametrize("l2", [0.5, 10.0])
def test_two_classes_have_the_same_penalty_as_scikit_learns(l2: float) -> None:
    """It has one row of weights for two classes, the difference of ours."""
    features, labels = make(classes=2)
    probes = train_probes(InMemory(features), labels, classes=2, l2=l2, tolerance=1e-7)
    for group in range(5):
        weights, biases, _ = fit_reference(features[:, group], labels, l2=l2)
        np.testing.assert_allclose(probes.point[group, 0, :, :-1], weights, atol=2e-3, rtol=2e-3)
        found = probes.point[group, 0, :, -1]
        np.testing.assert_allclose(found - found.mean(), biases, atol=2e-3, rtol=2e-3)


def test_the_default_tolerance_is_tight_enough() -> None:
    features, labels = make()
    usual, exact = (train_probes(InMemory(features), labels, classes=4, **given) for given in ({}, {"tolerance": 1e-7}))
    assert usual.gradient.max() <= 1e-5
    assert (usual.loss - exact.loss).abs().max() < 1e-6
    agree = apply_probes(usual, InMemory(features)) == apply_probes(exact, InMemory(features))
    assert agree.float().mean() > 0.999


def test_probes_trained_together_equal_probes_trained_alone() -> None:
    features, labels = make()
    together = train_probes(InMemory(features), labels, classes=4, tolerance=1e-7)
    for group in range(5):
        alone = train_probes(InMemory(features[:, group : group + 1]), labels, classes=4, tolerance=1e-7)
        torch.testing.assert_close(together.point[group], alone.point[0], atol=1e-3, rtol=1e-3)
        answers = apply_probes(alone, InMemory(features[:, group : group + 1]))[:, 0]
        assert torch.equal(apply_probes(together, InMemory(features))[:, group], answers)


def test_groups_that_do_not_fit_a_cache_are_trained_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    features, labels = make()
    together = train_probes(InMemory(features), labels, classes=4, tolerance=1e-7)
    monkeypatch.setitem(losses_module.TOGETHER_BYTES, "cpu", 2 * 4 * 400 * 6)
    in_turn = train_probes(InMemory(features), labels, classes=4, tolerance=1e-7)
    torch.testing.assert_close(in_turn.point, together.point, atol=1e-3, rtol=1e-2)


def test_small_parts_and_blocks_give_the_same_probes(monkeypatch: pytest.MonkeyPatch) -> None:
    features, labels = make()
    whole = train_probes(InMemory(features), labels, classes=4, tolerance=1e-7)
    monkeypatch.setattr(standardize, "LEAST", 7)
    for module in (standardize, losses_module):
        monkeypatch.setitem(module.BLOCK_BYTES, "cpu", 4 * 7 * 6 * 2)
    parts = train_probes(InMemory(features), labels, classes=4, tolerance=1e-7)
    torch.testing.assert_close(parts.moments.mean, whole.moments.mean, atol=1e-5, rtol=1e-6)  # features are float32
    torch.testing.assert_close(parts.moments.correlation, whole.moments.correlation, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(parts.point, whole.point, atol=1e-3, rtol=1e-2)


@pytest.mark.parametrize("memory", [0, 1 << 30])
@pytest.mark.parametrize("step", [1, 8])
def test_hessian_preconditioner_leads_to_the_same_minimum(
    monkeypatch: pytest.MonkeyPatch, memory: int, step: int
) -> None:
    """It is measured on all or some of the examples, and takes fewer passes over all of them."""
    features, labels = make(count=3_000)
    counts = torch.randint(0, 3, (1, 3_000), generator=torch.Generator().manual_seed(2)).float()
    weights = torch.cat([torch.ones(1, 3_000), counts])
    settings: dict[str, Any] = {"classes": 4, "weights_RN": weights, "tolerance": 1e-6, "memory": memory}
    monkeypatch.setattr(training, "choose_step", lambda losses, memory: 0)
    prior = train_probes(InMemory(features), labels, **settings)
    monkeypatch.setattr(training, "choose_step", lambda losses, memory: step)
    measured = train_probes(InMemory(features), labels, **settings)
    torch.testing.assert_close(measured.loss, prior.loss, atol=1e-7, rtol=1e-7)
    # Only differences between classes count: the same number more for all biases changes nothing.
    one, other = (probes.point - probes.point.mean(2, keepdim=True) for probes in (measured, prior))
    torch.testing.assert_close(one, other, atol=1e-2, rtol=1e-2)
    assert measured.passes < prior.passes / 2


def test_hessian_is_computed_where_it_pays() -> None:
    def step(count: int, width: int, classes: int, memory: int = 1 << 30) -> int:
        features = InMemory(torch.zeros(1, 1, width).expand(count, 1, width))
        moments = measure_moments(InMemory(torch.randn(4, 1, width)))
        labels = torch.zeros(count, dtype=torch.long)
        scaled = standardize.Standardized(features, moments, width=width)
        losses = losses_module.ProbeLosses(scaled, labels, torch.ones(1, count), moments.correlation, classes, 1.0)
        return training.choose_step(losses, memory)

    assert step(20_000, 32, 17) == 20_000 // (6 * 33 * 17)
    assert step(20_000, 32, 17, memory=1 << 20) == 0, "its matrix must fit"
    assert step(6_000, 32, 17) == 1, "all of them, where there are not many"
    assert step(5_000, 32, 17) == 0, "too few examples to be worth it"
    assert step(20_000, 384, 17) == 0, "too many weights"
    assert step(20_000, 32, 2) == 20_000 // 1_024


def test_hessian_equals_automatic_differentiation() -> None:
    """Against second derivatives by automatic differentiation."""
    features, labels = make(count=90, groups=2, width=3, classes=3)
    moments = measure_moments(InMemory(features))
    scaled = standardize.Standardized(InMemory(features), moments, width=9)
    losses = losses_module.ProbeLosses(scaled, labels, torch.ones(1, 90), moments.correlation, 3, 5.0)
    point = torch.randn(2, 1, 3, 4, generator=torch.Generator().manual_seed(3)).double()
    found = losses.make_hessian_preconditioner(point)
    for group in range(2):
        inputs = moments.standardize(features)[:, [group]]
        expected = torch.autograd.functional.hessian(
            lambda flat, inputs=inputs: _loss(flat.view(1, 3, 4), inputs, labels, l2=5.0).sum(),
            point[group].flatten(),
        )
        wanted = torch.linalg.inv(expected + losses_module.DAMPING * torch.eye(12))
        torch.testing.assert_close(found.inverse[group].double(), wanted, rtol=2e-2, atol=1e-2)
    gradient = torch.randn(2, 1, 3, 4).double()
    by_hand = torch.einsum("gh,ghi->gi", gradient.flatten(1), found.inverse.double())
    torch.testing.assert_close(found(gradient).flatten(1), by_hand, rtol=1e-3, atol=1e-3)


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """However few features are held, passes over them are compiled."""
    monkeypatch.setattr(standardize, "COMPILED_BYTES", 1)
    monkeypatch.setattr(standardize, "COMPILED_GROUPS", 1)


@pytest.mark.usefixtures("compiled")
def test_compiled_pass_equals_automatic_differentiation() -> None:
    """Of several samples, more than a block of examples, and features that are not a multiple of four."""
    features, labels = make(count=600, groups=2, width=6, classes=4)
    weights = torch.randint(0, 3, (2, 600), generator=torch.Generator().manual_seed(2)).float()
    moments = measure_moments(InMemory(features))
    scaled = standardize.Standardized(InMemory(features), moments, width=8)
    scaled.hold()
    assert scaled.by_group is not None and scaled.held_GDN is None
    losses = losses_module.ProbeLosses(scaled, labels, weights, moments.correlation, 4, 5.0)
    point = (3 * torch.randn(2, 2, 4, 7, generator=torch.Generator().manual_seed(3))).double().requires_grad_()
    found_loss, found_gradient = losses.evaluate(point.detach())
    inputs = moments.standardize(features)
    expected = []
    for sample in range(2):
        chosen = torch.arange(600).repeat_interleave(weights[sample].long())
        expected.append(_loss(point[:, sample], inputs[chosen], labels[chosen], l2=5.0))
    expected_loss = torch.stack(expected, dim=1)
    (expected_gradient,) = torch.autograd.grad(expected_loss.sum(), point)
    torch.testing.assert_close(found_loss, expected_loss.detach(), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(found_gradient, expected_gradient, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("scale", [1.0, 100.0, 1e6])
def test_compiled_pass_is_finite_for_scores_of_any_size(scale: float) -> None:
    """exp of the lowest scores is next to 0, and the loss of a wrong answer is how far its score is below the best."""
    from crossling.analyses._probes.compiled_losses import add_cross_entropy

    values = scale * torch.linspace(-1, 1, 50)[None]
    weight, bias = torch.tensor([[0.0], [1.0], [-2.0]]), torch.tensor([[0.1], [0.0], [0.0]])
    labels = torch.arange(50) % 3
    loss, gradient = torch.zeros(1, dtype=torch.float64), torch.zeros(3, 2, dtype=torch.float64)
    add_cross_entropy([values], labels, torch.ones(1, 50), [(weight, bias, loss, gradient)])
    scores = (weight.double() @ values.double() + bias.double()).T
    errors = (scores.softmax(1) - torch.nn.functional.one_hot(labels, 3)).T
    expected = torch.nn.functional.cross_entropy(scores, labels, reduction="sum")
    torch.testing.assert_close(loss[0], expected, rtol=1e-6, atol=1e-5)
    torch.testing.assert_close(gradient[:, :1], errors @ values.double().T, rtol=1e-5, atol=1e-5 * scale)
    torch.testing.assert_close(gradient[:, 1], errors.sum(1), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("step", [0, 8])
def test_compiled_passes_lead_to_the_same_minimum(monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    """With either preconditioner, and as groups converge one after the other; the features are not copied for that."""
    features, labels = make(count=3_000)
    monkeypatch.setattr(training, "choose_step", lambda losses, memory: step)
    usual = train_probes(InMemory(features), labels, classes=4, tolerance=1e-6)
    monkeypatch.setattr(standardize, "COMPILED_BYTES", 1)
    monkeypatch.setattr(standardize, "COMPILED_GROUPS", 1)
    found, again = (train_probes(InMemory(features), labels, classes=4, tolerance=1e-6) for _ in range(2))
    torch.testing.assert_close(found.loss, usual.loss, atol=1e-7, rtol=1e-7)
    one, other = (probes.point - probes.point.mean(2, keepdim=True) for probes in (found, usual))
    torch.testing.assert_close(one, other, atol=1e-2, rtol=1e-2)
    assert torch.equal(found.point, again.point), "reproducible bit by bit"


@pytest.mark.usefixtures("compiled")
def test_number_of_threads_changes_no_compiled_result() -> None:
    features, labels = make()
    moments = measure_moments(InMemory(features))
    scaled = standardize.Standardized(InMemory(features), moments, width=6)
    scaled.hold()
    losses = losses_module.ProbeLosses(scaled, labels, torch.ones(1, 400), moments.correlation, 4, 1.0)
    threads = torch.get_num_threads()
    found = []
    try:
        for number in (1, 3):
            torch.set_num_threads(number)
            found.append(losses.evaluate(losses.start()))
    finally:
        torch.set_num_threads(threads)
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


@pytest.mark.usefixtures("compiled")
def test_some_groups_of_held_features_are_the_features_themselves() -> None:
    features, _ = make()
    moments = measure_moments(InMemory(features))
    scaled = standardize.Standardized(InMemory(features), moments, width=6)
    scaled.hold()
    chosen = scaled.select(torch.tensor([1, 4]))
    assert scaled.by_group is not None and chosen.by_group is not None
    assert [one.data_ptr() for one in chosen.by_group] == [scaled.by_group[place].data_ptr() for place in (1, 4)]
    expected = moments.standardize(features)[:, [1, 4]].transpose(0, 1)
    assert torch.equal(torch.cat(list(chosen.parts()), dim=1), expected)
    few = scaled.subsample(7).select(slice(1, 3))
    assert torch.equal(torch.cat(list(few.parts()), dim=1), moments.standardize(features)[::7, 1:3].transpose(0, 1))


class Watched(InMemory):
    """Features that record how much of them was asked for at a time, and how often."""

    asked: ClassVar[list[int]] = []

    def parts(self, rows: int) -> Iterator[Tensor]:
        self.asked.append(rows)
        return super().parts(rows)


def test_without_memory_to_hold_them_features_are_read_in_every_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    features, labels = make()
    held = train_probes(InMemory(features), labels, classes=4, tolerance=1e-7)
    monkeypatch.setattr(standardize, "LEAST", 16)
    monkeypatch.setitem(standardize.BLOCK_BYTES, "cpu", 1)
    watched = Watched(features)
    watched.asked.clear()
    read = train_probes(watched, labels, classes=4, tolerance=1e-7, memory=0)
    assert set(watched.asked) == {16}
    assert len(watched.asked) == read.passes + 1, "once for the moments, and in every pass"
    torch.testing.assert_close(read.point, held.point, atol=1e-3, rtol=1e-2)


def test_an_example_that_a_sample_has_twice_counts_twice() -> None:
    features, labels = make(count=120)
    counts = torch.randint(0, 3, (2, 120), generator=torch.Generator().manual_seed(2)).float()
    probes = train_probes(InMemory(features), labels, classes=4, weights_RN=counts, tolerance=1e-7, l2=5.0)
    scaled = measure_moments(InMemory(features)).standardize(features)  # as the whole is: the penalty is then the same
    for sample in range(2):
        chosen = torch.arange(120).repeat_interleave(counts[sample].long())
        least = _loss(probes.point[:, sample], scaled[chosen], labels[chosen], l2=5.0)
        torch.testing.assert_close(least, probes.loss[:, sample], atol=1e-6, rtol=1e-6)
        other = _loss(probes.point[:, 1 - sample], scaled[chosen], labels[chosen], l2=5.0)
        assert (other > least + 1e-4).all(), "each sample has a minimum of its own"


def _loss(point_GCE: Tensor, scaled_NGD: Tensor, labels_N: Tensor, *, l2: float) -> Tensor:
    """The plain loss with its penalty, in double precision."""
    weights_GCD, biases_GC = point_GCE[..., :-1], point_GCE[..., -1]
    scores_GNC = torch.einsum("ngd,gcd->gnc", scaled_NGD.double(), weights_GCD) + biases_GC[:, None]
    gold_GN1 = scores_GNC.log_softmax(-1).gather(2, labels_N.expand(len(weights_GCD), -1)[..., None])
    return -gold_GN1.mean((1, 2)) + l2 / 2 * weights_GCD.square().sum((1, 2)) / len(labels_N)


def test_a_sample_that_lacks_a_class_and_a_feature_that_never_changes() -> None:
    features, labels = make()
    features[:, :, 2] = 3.5
    weights = torch.stack([torch.ones(400), (labels != 3).float()])
    probes = train_probes(InMemory(features), labels, classes=4, weights_RN=weights)
    assert torch.isfinite(probes.point).all()
    assert probes.point[..., 2].abs().max() < 1e-4, "what never changes says nothing"
    assert (apply_probes(probes, InMemory(features))[:, :, 1] != 3).all()


def test_separable_classes_have_finite_weights() -> None:
    labels = torch.arange(300) % 3
    features = torch.nn.functional.one_hot(labels, 3).float()[:, None] * 40
    probes = train_probes(InMemory(features), labels, classes=3)
    assert torch.isfinite(probes.point).all()
    assert (apply_probes(probes, InMemory(features))[:, 0, 0] == labels).all()


def test_training_is_reproducible_bit_by_bit() -> None:
    features, labels = make()
    first, again = (train_probes(InMemory(features), labels, classes=4) for _ in range(2))
    assert torch.equal(first.point, again.point)


def test_features_far_from_zero_keep_their_digits() -> None:
    features, labels = make()
    near = features / features.std(0)
    moved = near + 3_000
    first, second = (train_probes(InMemory(values), labels, classes=4) for values in (near, moved))
    assert (apply_probes(first, InMemory(near)) == apply_probes(second, InMemory(moved))).float().mean() > 0.99


MILLION = """
import json, sys
from pathlib import Path
import numpy as np, torch
from crossling.analyses._probes.features import OnDisk
from crossling.analyses._probes.training import train_probes

def peak():  # of this program: getrusage would also count what the one that started it held
    lines = dict(line.split(":", 1) for line in open("/proc/self/status"))
    return int(lines["VmHWM"].split()[0]) // 1024

count, width = 1_000_000, 32
labels = torch.arange(count) % 3
path = Path(sys.argv[1])
with path.open("wb") as file:
    generator = np.random.default_rng(0)
    for start in range(0, count, 50_000):
        part = generator.normal(size=(50_000, width)).astype(np.float16)
        part[:, 0] += labels[start : start + 50_000].numpy()
        part.tofile(file)
features = OnDisk(path, (count, 4, width // 4), torch.device("cpu"))
warm = OnDisk(path, (2_000, 4, width // 4), torch.device("cpu"))
train_probes(warm, labels[:2_000], classes=3, memory=0, passes=3)
before = peak()
probes = train_probes(features, labels, classes=3, memory=0, passes=3)
print(json.dumps({"grown": peak() - before, "loss": probes.loss.tolist()}))
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is looked up in /proc")
def test_a_million_words_are_not_held_in_memory(tmp_path: Path) -> None:
    """Their features are 122 MB in single precision; what may grow are the labels and their weights."""
    done = subprocess.run(
        [sys.executable, "-c", MILLION, str(tmp_path / "features")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert facts["grown"] < 90
    assert facts["loss"][0][0] < facts["loss"][1][0] - 0.05


def test_stored_features_come_back_in_half_precision(tmp_path: Path) -> None:
    features, labels = make()
    path = tmp_path / "features"
    features.half().numpy().tofile(path)
    stored = OnDisk(path, (400, 5, 6), torch.device("cpu"))
    torch.testing.assert_close(torch.cat(list(stored.parts(33))), features.half().float())
    inside = InMemory(features.half().float().contiguous())
    held, read, again = (train_probes(one, labels, classes=4) for one in (inside, stored, stored))
    assert torch.equal(held.point, read.point) and torch.equal(read.point, again.point)

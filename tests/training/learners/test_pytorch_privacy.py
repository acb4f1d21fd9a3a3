from __future__ import annotations

import math
import warnings

import dp_accounting
import numpy as np
import pytest
import torch
from dp_accounting.pld import PLDAccountant
from scipy import stats
from torch import nn

from expunge.core.errors import ParameterError
from expunge.training.learners.pytorch import DPSGD, TorchLearner, TorchModel, TorchSlicedLearner
from expunge.training.learners.pytorch.extra import seeded
from expunge.training.learners.pytorch.privacy import PrivateSteps, PrivateUpdates, data_privacy, poisson_batches


def rows_of(n: int = 24, seed: int = 0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, 1, 5, 5)).astype(np.float32), rng.integers(3, size=n)


def fixed_network():
    """The same weights for every seed, so that what is left is noise."""
    module = nn.Sequential(
        nn.Conv2d(1, 2, 3), nn.GroupNorm(1, 2), nn.Tanh(), nn.Flatten(), nn.LayerNorm(18), nn.Linear(18, 3)
    )
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) / 2)
    return module


def one_step(privacy, X, y, *, seed=0, weights=None, batch_size=1000):
    """How one update moves each parameter: minus the noised sum of clipped gradients over the number of rows."""
    learner = TorchLearner(fixed_network, epochs=1, learning_rate=1.0, batch_size=batch_size, privacy=privacy)
    after = learner.fit(X, y, seed, weights=weights).state
    return {name: after[name] - value.detach().numpy() for name, value in fixed_network().named_parameters()}


def clipped_sum(X, y, max_norm, weights=None):
    """Every example's gradient by itself, by torch.func."""
    module = fixed_network()
    weights = np.ones(len(y)) if weights is None else weights

    def loss(parameters, row, label, weight):
        scores = torch.func.functional_call(module, parameters, (row[None],))
        return weight * nn.functional.cross_entropy(scores, label[None])

    parameters = {name: value.detach() for name, value in module.named_parameters()}
    data = (torch.tensor(X), torch.tensor(y), torch.tensor(weights, dtype=torch.float32))
    gradients = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0, 0))(parameters, *data)
    norms = torch.stack([g.flatten(1).norm(dim=1) for g in gradients.values()]).norm(dim=0)
    factors = (max_norm / norms).clamp(max=1.0)
    sums = {name: torch.einsum("i,i...->...", factors, g).numpy() for name, g in gradients.items()}
    return sums, norms.numpy()


def relative_error(moves, sums, n):
    error = sum(((moves[name] + sums[name] / n) ** 2).sum() for name in sums)
    size = sum(((sums[name] / n) ** 2).sum() for name in sums)
    return math.sqrt(error / size)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("quantile", [0.0, 0.5, 1.0])
def test_every_examples_gradient_is_clipped(quantile, weighted):
    X, y = rows_of()
    weights = np.linspace(0.2, 4, len(y)) if weighted else None
    _, norms = clipped_sum(X, y, 1.0, weights)
    bound = float(np.quantile(norms, quantile)) * 0.999 + 1e-3 * (quantile == 1)
    sums, _ = clipped_sum(X, y, bound, weights)
    moves = one_step(DPSGD(max_grad_norm=bound, noise_multiplier=0.0), X, y, weights=weights)
    assert relative_error(moves, sums, len(y)) < 1e-5
    if quantile < 1:  # the negative control: the sum without clipping is something else
        loose, _ = clipped_sum(X, y, 1e9, weights)
        assert relative_error(moves, loose, len(y)) > 1e-2


def test_the_noise_has_the_stated_deviation():
    X, y = rows_of()
    privacy = DPSGD(max_grad_norm=0.5, noise_multiplier=1.5)
    quiet = one_step(DPSGD(max_grad_norm=0.5, noise_multiplier=0.0), X, y)
    draws = []
    for seed in range(120):
        noisy = one_step(privacy, X, y, seed=seed)
        draws.append(np.concatenate([(noisy[name] - quiet[name]).ravel() for name in quiet]) * len(y))
    noise = np.array(draws, dtype=np.float64) / (0.5 * 1.5)
    low, high = stats.chi2.ppf([2.5e-7, 1 - 2.5e-7], noise.size)
    assert low < (noise**2).sum() < high  # false alarm 5e-7; it is 3% of the deviation
    assert abs(noise.sum()) / math.sqrt(noise.size) < stats.norm.isf(1.25e-7)  # false alarm 2.5e-7
    assert not low < ((1.05 * noise) ** 2).sum() < high
    assert len({row.tobytes() for row in noise}) == 120


def test_an_empty_batch_is_a_step_of_noise():
    X, y = rows_of(2)
    learner = TorchLearner(
        fixed_network,
        epochs=40,
        batch_size=1,
        learning_rate=0.01,
        privacy=DPSGD(max_grad_norm=1e-3, noise_multiplier=1.0),
    )
    model = learner.fit(X, y, 0)  # every batch is empty with probability 1/4
    assert model.private_runs == ((PrivateSteps(1.0, 0.5, 80),),)
    assert np.isfinite(model.state["5.weight"]).all()


def test_batches_are_poisson_samples():
    torch.manual_seed(0)
    batches = list(poisson_batches(50, sample_rate=0.2, steps=400))
    table = np.zeros((400, 50), dtype=int)
    for row, batch in zip(table, batches, strict=True):
        row[batch.numpy()] += 1
    assert table.max() == 1
    low, high = stats.binom.ppf([2.5e-7, 1 - 2.5e-7], table.size, 0.2)
    assert low <= table.sum() <= high  # false alarm 5e-7
    # Sizes vary as those of independent records do: the exact law of the sum of squares, by convolution.
    law = np.zeros(1601)
    np.add.at(law, (np.arange(51) - 10) ** 2, stats.binom.pmf(np.arange(51), 50, 0.2))
    length = 1600 * 400 + 1
    tail = np.cumsum(np.fft.irfft(np.fft.rfft(law, length) ** 400, length))
    low, high = np.searchsorted(tail, [2e-7, 1 - 2e-7])
    assert low <= ((table.sum(axis=1) - 10) ** 2).sum() <= high  # false alarm 4e-7; batches of one size give 0
    assert low > 0


def test_epsilon_agrees_with_another_accountant():
    steps = PrivateSteps(1.1, 0.05, 200)
    other = PLDAccountant()
    other.compose(
        dp_accounting.SelfComposedDpEvent(
            dp_accounting.PoissonSampledDpEvent(0.05, dp_accounting.GaussianDpEvent(1.1)), 200
        )
    )
    exact = other.get_epsilon(1e-5)
    prv = data_privacy([[steps]], delta=1e-5, accountant="prv")
    rdp = data_privacy([[steps]], delta=1e-5, accountant="rdp")
    assert prv.delta == 1e-5
    assert exact - 0.01 < prv.epsilon < exact + 0.05
    assert exact < rdp.epsilon < 1.5 * exact


def test_steps_on_the_same_records_add_up_and_disjoint_ones_do_not():
    def epsilon(runs):
        return data_privacy(runs, delta=1e-5, accountant="rdp").epsilon

    first, second = PrivateSteps(1.0, 0.1, 30), PrivateSteps(1.2, 0.2, 10)
    assert epsilon([[first], [second]]) == max(epsilon([[first]]), epsilon([[second]]))
    assert epsilon([[first, second]]) > epsilon([[first], [second]])
    assert epsilon([[first, first]]) == pytest.approx(epsilon([[PrivateSteps(1.0, 0.1, 60)]]))
    assert epsilon([]) == 0
    assert epsilon([[first], [PrivateSteps(0.0, 0.1, 1)]]) == math.inf


def test_a_model_knows_what_it_cost():
    X, y = rows_of(40)
    privacy = DPSGD(max_grad_norm=1.0, noise_multiplier=2.0)
    model = TorchLearner(fixed_network, epochs=3, batch_size=10, privacy=privacy).fit(X, y, 0)
    assert model.private_runs == ((PrivateSteps(2.0, 0.25, 12),),)
    spent = model.privacy(delta=1e-5)
    assert 0 < spent.epsilon < 10
    assert model.privacy(delta=1e-5, accountant="prv").epsilon < spent.epsilon
    assert TorchLearner(fixed_network, epochs=1).fit(X, y, 0).privacy(delta=1e-5) is None
    for delta in (0.0, "1e-5"):
        with pytest.raises(ParameterError, match=f"delta must be a number > 0 and < 1, got {delta!r}"):
            model.privacy(delta=delta)
    with pytest.raises(ParameterError, match="accountant must be one of rdp, prv"):
        model.privacy(delta=1e-5, accountant="pld")


def test_private_training_repeats_and_learns():
    X, y = rows_of(200)
    X[:, 0, :3, 0] += 3 * np.eye(3)[y]
    learner = TorchLearner(
        lambda: nn.Sequential(nn.Flatten(), nn.Linear(25, 8), nn.Tanh(), nn.Linear(8, 3)),
        epochs=12,
        learning_rate=0.5,
        privacy=DPSGD(max_grad_norm=1.0, noise_multiplier=0.5),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        first, second = learner.fit(X, y, 7), learner.fit(X, y, 7)
    assert all(first.state[name].tobytes() == second.state[name].tobytes() for name in first.state)
    assert (first.predict(X) == y).mean() > 0.8


def test_one_class_is_trained_on_all_the_same():
    """A constant would tell that no record of another class is in the shard."""
    X, _ = rows_of()
    learner = TorchLearner(fixed_network, epochs=1, privacy=DPSGD(max_grad_norm=1.0, noise_multiplier=1.0))
    assert isinstance(learner.fit(X, np.ones(len(X), dtype=int), 0), TorchModel)


def test_what_cannot_be_private_is_refused_in_one_line():
    X, y = rows_of()

    def factory():
        return nn.Sequential(nn.Flatten(), nn.BatchNorm1d(25), nn.Linear(25, 3))

    with pytest.raises(ParameterError, match="DP-SGD cannot train this module: BatchNorm") as caught:
        TorchLearner(factory, privacy=DPSGD(max_grad_norm=1.0, noise_multiplier=1.0)).fit(X, y, 0)
    assert len(str(caught.value)) < 120


BAD_PRIVACY = [("max_grad_norm", value) for value in (0.0, math.inf, "a", None)]
BAD_PRIVACY += [("noise_multiplier", value) for value in (-1.0, "1", None)]


@pytest.mark.parametrize(("name", "value"), BAD_PRIVACY)
def test_bad_options_of_dp_sgd_are_refused(name, value):
    with pytest.raises(ParameterError, match=f"^{name} must be a finite number >=? 0, got {value!r}$"):
        DPSGD(**{"max_grad_norm": 1.0, "noise_multiplier": 1.0, name: value})


class Folded(nn.Module):
    """Five rows of an example, each scored by itself and added up: the batch is folded into rows."""

    def __init__(self, *, spared: int = 0):
        super().__init__()
        self.inner = nn.Linear(5, 4)
        self.last = nn.Linear(4, 3)
        self.spared = spared

    def forward(self, rows):
        if len(rows) <= self.spared:
            return self.last(torch.tanh(self.inner(rows.reshape(-1, 5, 5)))).sum(1)
        return self.last(torch.tanh(self.inner(rows.reshape(-1, 5)))).reshape(-1, 5, 3).sum(1)


class PartlyFolded(Folded):
    """Only the first layer is given rows; Opacus itself would fail at the first step, about stacking tensors."""

    def forward(self, rows):
        return self.last(torch.tanh(self.inner(rows.reshape(-1, 5))).reshape(-1, 5, 4).sum(1))


class Positioned(Folded):
    """A layer that is given no examples at all, but the places in one: as many as there are records in a shard of 5."""

    def __init__(self):
        super().__init__()
        self.places = nn.Embedding(5, 5)

    def forward(self, rows):
        return self.last(self.inner(rows.reshape(-1, 5, 5) + self.places(torch.arange(5)))).sum(1)


class Twice(Folded):
    """One layer on two halves of a batch, one after the other: as if there were half as many examples."""

    def forward(self, rows):
        half = -(-len(rows) // 2)
        inner = torch.cat([self.inner(part.reshape(-1, 5, 5)) for part in (rows[:half], rows[half:])])
        return self.last(inner.sum(1))


class Unasked(Folded):
    """Weights used behind their layer's back."""

    def forward(self, rows):
        inner = nn.functional.linear(rows.reshape(-1, 5, 5), self.inner.weight, self.inner.bias)
        return self.last(inner.sum(1))


ONE_EACH = r"has not one gradient an example \(the first axis of what its layer is given must be the batch\)$"
NOT_PRIVATE = [
    (Folded, f"'inner.weight' {ONE_EACH}"),
    (PartlyFolded, f"'inner.weight' {ONE_EACH}"),
    (Positioned, f"'places.weight' {ONE_EACH}"),
    (Twice, f"'inner.weight' {ONE_EACH}"),
    (Unasked, r"'inner.weight' has no gradients \(its layer must be called, or it be frozen\)$"),
]


@pytest.mark.parametrize(("factory", "message"), NOT_PRIVATE)
@pytest.mark.parametrize("n", [1, 5, 24])
def test_a_module_without_one_gradient_an_example_is_refused(factory, message, n):
    """Opacus clips whatever lies on a layer's first axis: rows of an example would be clipped each by itself."""
    X, y = rows_of(n)
    learner = TorchLearner(factory, epochs=1, privacy=DPSGD(max_grad_norm=1.0, noise_multiplier=1.0))
    with pytest.raises(ParameterError, match=f"^DP-SGD cannot train this module: {message}"):
        learner.fit(X, y, 0)
    TorchLearner(factory, epochs=1).fit(X, y, 0)  # nothing is wrong with it otherwise


def test_every_step_asks_for_one_gradient_an_example():
    """A module that folds large batches only gets past the trial, and no further."""
    X, y = rows_of(24)
    private = {"epochs": 1, "batch_size": 1000, "privacy": DPSGD(max_grad_norm=1.0, noise_multiplier=1.0)}
    with pytest.raises(ParameterError, match=f"'inner.weight' {ONE_EACH}") as caught:
        TorchLearner(lambda: Folded(spared=3), **private).fit(X, y, 0)
    assert not any(character.isdigit() for character in str(caught.value))  # the size of a batch is a secret draw
    assert isinstance(TorchLearner(lambda: Folded(spared=24), **private).fit(X, y, 0), TorchModel)


def test_gradients_of_several_passes_are_no_gradients_of_examples():
    """Opacus keeps those of two backward passes as a list and clips all of them by themselves."""
    module = Folded(spared=9)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    updates = PrivateUpdates(module, optimizer, privacy=DPSGD(max_grad_norm=1.0, noise_multiplier=0.0), mean_batch=4)
    rows = torch.zeros(4, 1, 5, 5)
    updates.step(updates.module(rows).sum(dim=1))
    updates.find_gradients(updates.module(rows).sum(dim=1))
    with pytest.raises(ParameterError, match=f"'inner.weight' {ONE_EACH}"):
        updates.step(updates.module(rows).sum(dim=1))


def test_the_trial_leaves_no_trace():
    """Neither on buffers nor on the generators: the training is what it would be without it."""
    X, y = rows_of(24)

    class Watching(nn.Module):
        def __init__(self):
            super().__init__()
            self.last = nn.Linear(25, 3)
            self.watch = nn.Module()  # of its own, since Opacus refuses buffers in a layer that is trained
            self.watch.register_buffer("calls", torch.zeros(()))
            self.watch.register_buffer("draw", torch.zeros(()))

        def forward(self, rows):
            if self.training:
                self.watch.calls += 1
                self.watch.draw.copy_(torch.rand(()))
            return self.last(rows.flatten(1))

    privacy = DPSGD(max_grad_norm=1.0, noise_multiplier=1.0)
    model = TorchLearner(Watching, epochs=1, batch_size=1000, privacy=privacy).fit(X, y, 7)
    assert model.state["watch.calls"] == 1
    with seeded(7, device=torch.device("cpu"), dtype=torch.float32):
        Watching()
        next(poisson_batches(24, sample_rate=1.0, steps=1))
        assert model.state["watch.draw"] == torch.rand(())


def test_what_opacus_cannot_do_is_said_in_one_line():
    X, y = rows_of()

    class OutOfStep(nn.Module):
        """A layer of one's own that returns more rows than it is given."""

        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.ones(5))

        def forward(self, rows):
            return rows.reshape(-1, 5) * self.scale

    def factory():
        return nn.Sequential(OutOfStep(), nn.Unflatten(0, (-1, 5)), nn.Flatten(), nn.Linear(25, 3))

    with pytest.raises(ParameterError, match=r"^DP-SGD cannot train this module: [A-Z][A-Za-z]+Error: ") as caught:
        TorchLearner(factory, epochs=1, privacy=DPSGD(max_grad_norm=1.0, noise_multiplier=1.0)).fit(X, y, 0)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("cumulative", [True, False])
def test_slices_are_accounted_for(cumulative):
    X, y = rows_of(60)
    base = TorchLearner(fixed_network, epochs=2, batch_size=10, privacy=DPSGD(max_grad_norm=1.0, noise_multiplier=2.0))
    learner = TorchSlicedLearner(base, num_slices=3, cumulative=cumulative)
    checkpoint = None
    for number in range(3):
        rows = slice(0 if cumulative else 20 * number, 20 * (number + 1))
        checkpoint = learner.extend(checkpoint, X[rows], y[rows], number, weights=None)
    runs = learner.make_model(checkpoint).private_runs
    if cumulative:  # a record of the first slice is in all three
        assert runs == ((PrivateSteps(2.0, 1 / 2, 4), PrivateSteps(2.0, 1 / 4, 8), PrivateSteps(2.0, 1 / 6, 12)),)
    else:
        assert runs == ((PrivateSteps(2.0, 1 / 2, 4),),) * 3


class Mixing(nn.Module):
    """A linear model behind something that may look at the whole batch."""

    def __init__(self, mix):
        super().__init__()
        self.mix = mix
        self.last = nn.Linear(25, 3)

    def forward(self, rows):
        return self.last(self.mix(rows.flatten(1)))


class Centred(nn.Module):
    def forward(self, rows):
        return rows - rows.detach().mean(0)


@pytest.mark.parametrize(
    ("mix", "is_refused"),
    [
        (lambda: nn.BatchNorm1d(25, affine=False), True),
        (lambda: nn.BatchNorm1d(25).requires_grad_(False), True),
        (Centred, True),
        (lambda: nn.LayerNorm(25), False),
        (lambda: nn.Dropout(0.5), False),
        (nn.Identity, False),
    ],
)
@pytest.mark.parametrize("size", [1, 24])
def test_who_looks_at_the_company_of_an_example_is_refused(mix, is_refused, size):
    """What clips an example's gradient bounds nothing that others have by it; a shard of one record is no exception."""
    X, y = rows_of(size)
    learner = TorchLearner(
        lambda: Mixing(mix()), epochs=1, privacy=DPSGD(max_grad_norm=1.0, noise_multiplier=1.0), num_classes=3
    )
    if is_refused:
        with pytest.raises(ParameterError, match="depends on the others in its batch"):
            learner.fit(X, y, 0)
    else:
        learner.fit(X, y, 0)

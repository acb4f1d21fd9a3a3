"""The 24 rows of the paper's white-box table (Section 5.2): six experiments at four noise levels each.

Hyperparameters are those of the paper's appendix; two things there are corrected by its released code: the CIFAR-10
network has ReLU where the listing says tanh, and the max-pools have stride 1. The paper's own numbers are in
`paper_table.csv`, copied from its table.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Literal

from expunge.core.errors import InputError

DatasetName = Literal["cifar-10", "fashion-mnist", "mnist", "digits"]
ActivationName = Literal["tanh", "relu"]
TITLES = {"cifar-10": "CIFAR-10", "fashion-mnist": "Fashion-MNIST", "mnist": "MNIST", "digits": "digits"}

CLIP_NORM = 0.1
MOMENTUM = 0.9
CHECK_EVERY = 20


@dataclass(frozen=True)
class Experiment:
    """What the four rows of an experiment share."""

    dataset: DatasetName
    num_shards: int
    points_per_shard: int
    batch_size: int
    num_steps: int
    learning_rate: float
    activation: ActivationName

    @property
    def name(self) -> str:
        """As in file names and on the command line."""
        return f"{self.dataset}-k{self.num_shards}"

    @property
    def title(self) -> str:
        """As in the paper."""
        return f"{TITLES[self.dataset]}, k = {self.num_shards}"

    @property
    def num_points(self) -> int:
        """How many images are trained on."""
        return self.num_shards * self.points_per_shard

    @property
    def work(self) -> int:
        """Example-gradients of one trial: the first training, the retraining, and the control arm."""
        return 3 * self.num_shards * self.num_steps * self.batch_size


@dataclass(frozen=True)
class Spread:
    """A mean and twice the standard deviation over trials."""

    mean: float
    two_deviations: float

    @property
    def interval(self) -> tuple[float, float]:
        """Mean ± two standard deviations."""
        return self.mean - self.two_deviations, self.mean + self.two_deviations


@dataclass(frozen=True)
class PaperRow:
    """A row as printed."""

    indicator: tuple[float, float]
    after: Spread
    before: Spread
    shard: Spread


@dataclass(frozen=True)
class Row:
    """One row: an experiment at a noise multiplier, and what the paper found (None for a stand-in)."""

    experiment: Experiment
    noise_multiplier: float
    paper: PaperRow | None

    @property
    def name(self) -> str:
        """As in file names and on the command line."""
        return f"{self.experiment.name}-{self.noise_multiplier:g}"

    @property
    def title(self) -> str:
        """For people."""
        return f"{self.experiment.title}, noise {self.noise_multiplier:g}"

    # What trains the row's models asks the row alone.

    @property
    def dataset(self) -> DatasetName:
        """Of the experiment, as all that follows."""
        return self.experiment.dataset

    @property
    def num_shards(self) -> int:
        """k."""
        return self.experiment.num_shards

    @property
    def points_per_shard(self) -> int:
        """The size of a shard before any deletion."""
        return self.experiment.points_per_shard

    @property
    def batch_size(self) -> int:
        """Examples in a step."""
        return self.experiment.batch_size

    @property
    def num_steps(self) -> int:
        """Of one training."""
        return self.experiment.num_steps

    @property
    def learning_rate(self) -> float:
        """The paper's step size."""
        return self.experiment.learning_rate

    @property
    def activation(self) -> ActivationName:
        """Between the layers."""
        return self.experiment.activation

    @property
    def num_checks(self) -> int:
        """Validation checks of one training."""
        return self.num_steps // CHECK_EVERY


# The order of the table.
EXPERIMENTS = (
    Experiment("cifar-10", 6, 8000, 64, 4000, 1.0, "relu"),
    Experiment("cifar-10", 2, 8000, 64, 4000, 1.0, "relu"),
    Experiment("fashion-mnist", 6, 6000, 256, 1500, 4.0, "tanh"),
    Experiment("fashion-mnist", 2, 6000, 256, 2000, 4.0, "tanh"),
    Experiment("mnist", 6, 6000, 64, 2500, 0.5, "tanh"),
    Experiment("mnist", 2, 6000, 256, 2000, 0.5, "tanh"),
)

# Under a minute on a CPU: the built-in digits stand in for all three datasets.
QUICK_EXPERIMENTS = (
    Experiment("digits", 6, 200, 16, 160, 4.0, "tanh"),
    Experiment("digits", 2, 200, 16, 160, 4.0, "tanh"),
)
QUICK_MULTIPLIERS = (0.0, 0.4)


@cache
def table_rows() -> tuple[Row, ...]:
    """All 24 rows in the order of the table."""
    experiments = {experiment.name: experiment for experiment in EXPERIMENTS}
    text = files(__package__).joinpath("paper_table.csv").read_text(encoding="utf-8")
    return tuple(
        Row(experiments[line["experiment"]], float(line["noise_multiplier"]), _printed(line))
        for line in csv.DictReader(text.splitlines())
    )


def quick_rows() -> tuple[Row, ...]:
    """The stand-ins of `--quick`, without numbers to compare with."""
    return tuple(Row(experiment, level, None) for experiment in QUICK_EXPERIMENTS for level in QUICK_MULTIPLIERS)


def choose_rows(wanted: Sequence[str], rows: Iterable[Row]) -> tuple[Row, ...]:
    """The rows whose name is given or begins with it (`mnist-k6`, `cifar-10`), in the order of the table; or all."""
    known = tuple(rows)
    if not wanted:
        return known
    for given in wanted:
        if not any(_is_meant(row, given) for row in known):
            raise InputError(f"there is no row {given!r}; rows are {', '.join(row.name for row in known)}")
    return tuple(row for row in known if any(_is_meant(row, given) for given in wanted))


def _is_meant(row: Row, given: str) -> bool:
    return given in (row.name, row.experiment.name, row.experiment.dataset)


def _printed(line: dict[str, str]) -> PaperRow:
    number = {name: float(value) for name, value in line.items() if name != "experiment"}
    return PaperRow(
        indicator=(number["indicator_low"], number["indicator_high"]),
        after=Spread(number["after"], number["after_spread"]),
        before=Spread(number["before"], number["before_spread"]),
        shard=Spread(number["shard"], number["shard_spread"]),
    )

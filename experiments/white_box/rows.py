"""The 24 rows of the table: dataset, number of shards, noise, and how their models are trained."""

from __future__ import annotations

from dataclasses import dataclass

CLIP_NORM = 0.1
MOMENTUM = 0.9
CHECK_EVERY = 20


@dataclass(frozen=True)
class Row:
    """One row: DP-SGD with per-example gradients clipped to 0.1, momentum 0.9, a validation check every 20 steps."""

    dataset: str
    num_shards: int
    points_per_shard: int
    batch_size: int
    num_steps: int
    learning_rate: float
    noise_multiplier: float

    @property
    def name(self) -> str:
        """Short and unique, for file names."""
        return f"{self.dataset}-k{self.num_shards}-noise{self.noise_multiplier:g}"

    @property
    def activation(self) -> str:
        """The released CIFAR-10 network has ReLU where the paper's listing says tanh."""
        return "relu" if self.dataset == "cifar-10" else "tanh"

    @property
    def num_checks(self) -> int:
        """Validation checks a training."""
        return self.num_steps // CHECK_EVERY


_SETTINGS = (
    ("cifar-10", 6, 8000, 64, 4000, 1.0, (0.0, 0.15, 0.22, 0.3)),
    ("cifar-10", 2, 8000, 64, 4000, 1.0, (0.0, 0.2, 0.25, 0.3)),
    ("fashion-mnist", 6, 6000, 256, 1500, 4.0, (0.0, 0.4, 0.6, 0.75)),
    ("fashion-mnist", 2, 6000, 256, 2000, 4.0, (0.0, 0.5, 0.7, 1.0)),
    ("mnist", 6, 6000, 64, 2500, 0.5, (0.0, 0.4, 0.8, 1.1)),
    ("mnist", 2, 6000, 256, 2000, 0.5, (0.0, 0.8, 1.3, 1.6)),
)

ROWS: tuple[Row, ...] = tuple(
    Row(*setting[:6], noise_multiplier) for setting in _SETTINGS for noise_multiplier in setting[6]
)


def find_row(dataset: str, num_shards: int, noise_multiplier: float) -> Row:
    """The row of the table with these settings."""
    for row in ROWS:
        if (row.dataset, row.num_shards, row.noise_multiplier) == (dataset, num_shards, noise_multiplier):
            return row
    raise ValueError(f"the table has no row {dataset}, k={num_shards}, noise multiplier {noise_multiplier}")

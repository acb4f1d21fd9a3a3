"""A trained network: its architecture by name or factory, its weights as plain arrays."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from expunge.core.features import Features
from expunge.training.learners.protocol import ABSTAIN, Codes
from expunge.training.learners.pytorch.extra import import_extra
from expunge.training.learners.pytorch.loop import OptimizerState
from expunge.training.learners.pytorch.network import Network, State
from expunge.training.learners.pytorch.privacy import AccountantName, DataPrivacy, PrivateSteps, data_privacy

_ROWS_AT_ONCE = 1024


@dataclass(frozen=True, eq=False)
class TorchModel:
    """One shard's network. Pickling, copying and storing it moves arrays only."""

    network: Network
    state: State = field(repr=False)
    private_runs: tuple[tuple[PrivateSteps, ...], ...] = ()

    def predict(self, X: Features) -> Codes:
        """The class with the highest score; ⊥ where a score is not a number."""
        torch = import_extra("torch")
        with torch.inference_mode():
            rows = self.network.tensor(X, torch.float32)
            parts = [top_classes(self.module(part)) for part in rows.split(_ROWS_AT_ONCE)]
        return torch.cat(parts).cpu().numpy().astype(np.int64)  # type: ignore[no-any-return]

    @cached_property
    def module(self) -> Any:
        """The module itself, in evaluation mode and single precision, made when first used."""
        return self.network.loaded(self.state)

    def __getstate__(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    def privacy(self, *, delta: float, accountant: AccountantName = "rdp") -> DataPrivacy | None:
        """The (ε,δ) of DP-SGD in the shard's records, None if it was not used. Inside the trust boundary only.

        It depends on the size of the shard, and with that on r.
        """
        if not self.private_runs:
            return None
        return data_privacy(self.private_runs, delta=delta, accountant=accountant)


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """A network after some of a shard's slices, with what its optimiser has to remember."""

    model: TorchModel
    optimizer: OptimizerState = field(repr=False)


def top_classes(scores: Any) -> Any:
    """The class with the highest score along the last axis, `ABSTAIN` where a score is not a number."""
    return scores.argmax(dim=-1).masked_fill_(scores.isnan().any(dim=-1), ABSTAIN)

"""Votes of all networks at once: their weights stacked, one program for all of them.

Which way the votes are computed depends on the architecture, the device and the number of rows, never on the shards:
shards without a network of their own take part with zeros, so that even the last bit of another shard's scores has
nothing to do with them. A shard's vote is a function of its own model.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expunge.features import Features, num_rows
from expunge.learners.protocol import ABSTAIN, Codes, Model, count_votes
from expunge.learners.pytorch._imports import import_extra
from expunge.learners.pytorch.model import TorchModel, top_classes
from expunge.learners.pytorch.network import Network
from expunge.learners.scikit import ConstantModel

_ROWS_TOGETHER = 64  # on a processor; with many rows its caches do better with one network after another
_PAIRS_TOGETHER = 1 << 14  # rows times shards in one go, which bounds the memory of their activations
_ROWS_ALONE = 1024


class TorchVoter:
    """Networks of one architecture, constants, and ⊥, voting together."""

    def __init__(self, network: Network, models: Sequence[Model], num_classes: int) -> None:
        self._network = network
        self._num_classes = num_classes
        self._fixed = np.array([_fixed_vote(model) for model in models], dtype=np.int32)
        self._networks = np.flatnonzero([isinstance(model, TorchModel) for model in models])
        self._module = network.loaded(_some_state(models)) if len(self._networks) else None
        self._weights = _stacked(self._module, models)
        self._can_batch = True
        self._lock = threading.Lock()  # calling a module with other weights changes it for the time of the call

    def count(self, X: Features) -> NDArray[np.int64]:
        """Votes for each class."""
        return count_votes(self.votes(X), self._num_classes)

    def votes(self, X: Features) -> Codes:
        """Every shard's vote."""
        table = np.tile(self._fixed, (num_rows(X), 1))
        if self._module is not None and len(table):
            torch = import_extra("torch")
            with self._lock, torch.inference_mode():
                codes = self._safe_codes(self._network.tensor(X, torch.float32))
            table[:, self._networks] = codes.cpu().numpy().T[:, self._networks]
        return table

    def _safe_codes(self, rows: Any) -> Any:
        """As `_codes`, with ⊥ for every row on which the network fails, as for any other learner."""
        torch = import_extra("torch")
        try:
            return self._codes(rows)
        except Exception:
            if len(rows) == 1:
                return torch.full((len(self._fixed), 1), ABSTAIN)
            return torch.cat([self._safe_codes(row) for row in rows.split(1)], dim=1)

    def _codes(self, rows: Any) -> Any:
        """Votes of shape (shards, rows); what is said for shards without a network means nothing."""
        if self._batches(rows):
            try:
                return self._together(rows)
            except RuntimeError:  # a layer that cannot be batched over weights: the same for all shards and rows
                self._can_batch = False
        return self._one_by_one(rows)

    def _batches(self, rows: Any) -> bool:
        return self._can_batch and (rows.device.type != "cpu" or len(rows) <= _ROWS_TOGETHER)

    def _together(self, rows: Any) -> Any:
        torch = import_extra("torch")
        scores = torch.vmap(self._scores, in_dims=(0, None), randomness="error")
        at_once = max(1, _PAIRS_TOGETHER // len(self._fixed))
        parts = [top_classes(scores(self._weights, part)) for part in rows.split(at_once)]
        return torch.cat(parts, dim=1)

    def _one_by_one(self, rows: Any) -> Any:
        torch = import_extra("torch")
        codes = torch.full((len(self._fixed), len(rows)), ABSTAIN, dtype=torch.int64, device=rows.device)
        for shard in self._networks.tolist():
            weights = {name: stack[shard] for name, stack in self._weights.items()}
            parts = [top_classes(self._scores(weights, part)) for part in rows.split(_ROWS_ALONE)]
            codes[shard] = torch.cat(parts)
        return codes

    def _scores(self, weights: dict[str, Any], rows: Any) -> Any:
        return import_extra("torch.func").functional_call(self._module, weights, (rows,))


def _fixed_vote(model: Model) -> int:
    return model.code if isinstance(model, ConstantModel) else ABSTAIN


def _some_state(models: Sequence[Model]) -> Any:
    return next(model.state for model in models if isinstance(model, TorchModel))


def _stacked(module: Any, models: Sequence[Model]) -> dict[str, Any]:
    """Every parameter and buffer of all shards along a new first axis, tied ones once."""
    if module is None:
        return {}
    torch = import_extra("torch")
    own = dict(module.named_parameters()) | dict(module.named_buffers())
    stacks = {name: torch.zeros((len(models), *tensor.shape)).to(tensor) for name, tensor in own.items()}
    for shard, model in enumerate(models):
        if isinstance(model, TorchModel):
            for name, stack in stacks.items():
                stack[shard] = torch.tensor(model.state[name])
    return stacks

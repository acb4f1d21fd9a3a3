"""Models as named arrays and plain values, and back: what a store writes as safetensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from expunge.errors import InputError
from expunge.learners.jax.model import JaxModel
from expunge.learners.protocol import Abstainer, Model
from expunge.learners.scikit import ConstantModel

StoredModel = dict[str, NDArray[Any] | int | float | str]


def dump_model(model: Model) -> StoredModel:
    """What `load_model` needs besides the learner's own settings."""
    if isinstance(model, Abstainer):
        return {"kind": "abstain"}
    if isinstance(model, ConstantModel):
        return {"kind": "constant", "code": model.code}
    if isinstance(model, JaxModel):
        return {"kind": "network", **dump_parameters(model.parameters)}
    raise InputError(f"the JAX learner cannot store a {type(model).__name__}")


def load_model(stored: Mapping[str, Any], shapes: Any, make: Callable[[Any], Model]) -> Model:
    """The model; `shapes` is the tree of weights that the learner's network has, `make` turns weights into a model."""
    kind = stored.get("kind")
    if kind == "abstain":
        return Abstainer()
    if kind == "constant":
        return ConstantModel(int(stored["code"]))
    if kind == "network":
        return make(load_parameters(stored, shapes))
    raise InputError(f"a stored model must be of kind 'abstain', 'constant' or 'network', got {kind!r}")


def dump_parameters(parameters: Any) -> dict[str, NDArray[Any]]:
    """Every array under its path in the tree; in a type of numpy's own, so that a store can read it again."""
    return {
        "weights" + jax.tree_util.keystr(path): np.ascontiguousarray(_stored(leaf))
        for path, leaf in jax.tree_util.tree_leaves_with_path(parameters)
    }


def _stored(leaf: NDArray[Any]) -> NDArray[Any]:
    """Numbers of fewer bits than numpy has (bfloat16) as float32, which loses nothing; they are read as they were."""
    return leaf.astype(np.float32) if leaf.dtype.kind == "V" else leaf


def load_parameters(stored: Mapping[str, Any], shapes: Any) -> Any:
    """The tree again; an array that is missing, surplus or of another shape is an error that names it."""

    def one(path: Any, expected: Any) -> NDArray[Any]:
        name = "weights" + jax.tree_util.keystr(path)
        found = np.asarray(stored.get(name, np.empty(0)))
        if found.shape != expected.shape:
            raise InputError(f"stored weights {name} must have the shape {expected.shape}, got {found.shape}")
        return np.array(found, dtype=expected.dtype)

    parameters = jax.tree_util.tree_map_with_path(one, shapes)
    surplus = set(stored) - set(dump_parameters(parameters)) - {"kind"}
    if surplus:
        raise InputError(f"stored weights {min(surplus)} belong to another network")
    return parameters

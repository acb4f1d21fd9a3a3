"""Models as flat dictionaries of arrays, numbers and words, for files that cannot run code (safetensors)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expunge.core.errors import InputError, ParameterError
from expunge.training.learners.protocol import Abstainer, Model
from expunge.training.learners.pytorch.model import Checkpoint, TorchModel
from expunge.training.learners.pytorch.network import Network
from expunge.training.learners.pytorch.privacy import PrivateSteps
from expunge.training.learners.scikit import ConstantModel
from expunge.training.learners.slices import SlicedModel

Form = dict[str, NDArray[Any] | int | float | str]


def dump(model: Any) -> Form:
    """A model, a checkpoint, or a whole sliced model; `load` gives it back."""
    if model is None:
        return {"kind": "nothing"}
    if isinstance(model, Abstainer):
        return {"kind": "abstainer"}
    if isinstance(model, ConstantModel):
        return {"kind": "constant", "code": model.code}
    if isinstance(model, TorchModel):
        return {"kind": "network", **_dump_network(model)}
    if isinstance(model, Checkpoint):
        optimizer = {f"optimizer/{name}": array for name, array in model.optimizer.items()}
        return {"kind": "checkpoint", **_dump_network(model.model), **optimizer}
    if isinstance(model, SlicedModel):
        form: Form = {"kind": "slices", "num_slices": len(model.checkpoints)}
        for number, checkpoint in enumerate(model.checkpoints):
            form |= {f"{number}/{name}": value for name, value in dump(checkpoint).items()}
        return form
    raise ParameterError(f"a PyTorch learner cannot store a {type(model).__name__}")


def load(form: Mapping[str, Any], network: Network) -> Any:
    """What `dump` was given, on the learner's own network; the form says nothing about code."""
    kind = _entry(form, "kind")
    if kind == "nothing":
        return None
    if kind == "abstainer":
        return Abstainer()
    if kind == "constant":
        return ConstantModel(int(_entry(form, "code")))
    if kind == "network":
        return _load_network(form, network)
    if kind == "checkpoint":
        optimizer = {name: np.asarray(array) for name, array in _under(form, "optimizer/").items()}
        return Checkpoint(_load_network(form, network), optimizer)
    if kind == "slices":
        numbers = range(int(_entry(form, "num_slices")))
        checkpoints = tuple(load(_under(form, f"{number}/"), network) for number in numbers)
        return SlicedModel(checkpoints, final_model(checkpoints[-1]) if checkpoints else Abstainer())
    raise InputError(f"the stored model is of an unknown kind: {kind!r}")


def final_model(checkpoint: Any) -> Model:
    """The model that votes after the last slice."""
    if checkpoint is None:
        return Abstainer()
    return checkpoint.model if isinstance(checkpoint, Checkpoint) else checkpoint


def _dump_network(model: TorchModel) -> Form:
    form: Form = {f"state/{name}": array for name, array in model.state.items()}
    for number, run in enumerate(model.private_runs):
        form[f"private/{number}"] = np.array(run, dtype=np.float64).reshape(-1, len(PrivateSteps._fields))
    return form


def _load_network(form: Mapping[str, Any], network: Network) -> TorchModel:
    state = {name: np.asarray(array) for name, array in _under(form, "state/").items()}
    network.loaded(state)  # refuses what does not fit
    runs = _under(form, "private/")
    private_runs = tuple(
        tuple(PrivateSteps(float(noise), float(rate), int(steps)) for noise, rate, steps in runs[str(number)])
        for number in range(len(runs))
    )
    return TorchModel(network, state, private_runs)


def _under(form: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    return {name.removeprefix(prefix): value for name, value in form.items() if name.startswith(prefix)}


def _entry(form: Mapping[str, Any], name: str) -> Any:
    if name not in form:
        raise InputError(f"the stored model has no {name!r}")
    return form[name]

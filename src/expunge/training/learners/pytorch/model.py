"""A trained network: its architecture and rows, its weights as plain arrays, and how a store writes it.

A stored model is a flat dictionary of arrays, numbers and words, for files that cannot run code (safetensors).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from expunge.core.errors import ExpungeError, InputError, ParameterError
from expunge.core.features import Features, as_features, is_frame, is_sparse, num_rows
from expunge.training.learners.protocol import ABSTAIN, Abstainer, Codes, Floats, Model, Weights, softmax
from expunge.training.learners.pytorch.extra import Named, first_line, import_extra, resolve, seeded
from expunge.training.learners.pytorch.loop import OptimizerState
from expunge.training.learners.pytorch.privacy import AccountantName, DataPrivacy, PrivateSteps, data_privacy
from expunge.training.learners.scikit import ConstantModel
from expunge.training.learners.slices import SlicedModel

_ROWS_AT_ONCE = 1024
_MOST_ROWS_AT_A_TIME = 128
_WORK_AT_A_TIME = 1 << 24  # weights times rows
_OWNED = "_expunge_owned"

State = dict[str, NDArray[Any]]
StoredModel = dict[str, NDArray[Any] | int | float | str]


class Shard(NamedTuple):
    """What a network is trained on: rows in any container, and for each a code and perhaps a weight."""

    X: Features
    y: NDArray[np.int64]
    weights: Weights | None


def check_shard(X: Features, y: Codes, weights: Weights | None, *, num_classes: int | None) -> Shard:
    """Check that every row has a label and, where there are weights, a weight.

    Torch itself would accept more rows than labels, and would cut a label of 1.5 down to 1.
    """
    rows = as_features(X)
    return Shard(
        rows,
        _check_labels(np.asarray(y), num_rows(rows), num_classes),
        None if weights is None else _check_weights(np.asarray(weights), num_rows(rows)),
    )


def _check_labels(labels: NDArray[Any], rows: int, num_classes: int | None) -> NDArray[np.int64]:
    if labels.shape != (rows,):
        found = f"{len(labels)} labels" if labels.ndim == 1 else f"labels of the shape {labels.shape}"
        raise InputError(f"there must be a label a row, got {rows} rows and {found}")
    allowed = "codes from 0 on" if num_classes is None else f"codes from 0 to {num_classes - 1}"
    if rows and labels.dtype.kind not in "iub":  # an empty list has a type of its own
        raise InputError(f"labels must be {allowed}, got values of type {labels.dtype}")
    codes = np.ascontiguousarray(labels, dtype=np.int64)
    is_wrong = codes < 0 if num_classes is None else (codes < 0) | (codes >= num_classes)
    for code in codes[is_wrong][:1]:
        raise InputError(f"labels must be {allowed}, got {code}")
    return codes


def _check_weights(weights: NDArray[Any], rows: int) -> Weights:
    if weights.shape != (rows,):
        found = f"{len(weights)} weights" if weights.ndim == 1 else f"weights of the shape {weights.shape}"
        raise InputError(f"there must be a weight a row, got {rows} rows and {found}")
    if rows and weights.dtype.kind not in "fiub":
        raise InputError(f"weights must be numbers, got values of type {weights.dtype}")
    factors = np.ascontiguousarray(weights, dtype=np.float64)
    for factor in factors[~(np.isfinite(factors) & (factors >= 0))][:1]:
        raise InputError(f"weights must be finite and at least 0, got {factor}")
    return factors


def as_numbers(X: Features) -> NDArray[Any]:
    """Rows of any container as a numeric array whose type, byte order and layout torch has too."""
    if is_frame(X):
        return _frame_numbers(X)
    table = X.toarray() if is_sparse(X) else np.asarray(X)
    if table.dtype.kind not in "fiub":
        raise InputError(f"a PyTorch learner needs numbers, got features of type {table.dtype}")
    return np.ascontiguousarray(table, dtype=_torch_type(table.dtype))


def _torch_type(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The type itself, in the machine's byte order, or float64 where torch has no such type."""
    if dtype.itemsize > 8 or (dtype.kind == "u" and dtype.itemsize > 1):  # long doubles, wide unsigned numbers
        return np.dtype(np.float64)
    return dtype.newbyteorder("=")


def _frame_numbers(X: Any) -> NDArray[np.float64]:
    """Columns of different types as float64. A missing value becomes NaN."""
    for name, kind in X.dtypes.items():
        if kind.kind not in "fiub":
            raise InputError(f"a PyTorch learner needs numbers, but column {name!r} has values of type {kind}")
    return np.ascontiguousarray(X.to_numpy(dtype=np.float64, na_value=np.nan))


class Network:
    """An architecture: every model of a learner is this and a `State`.

    All differences between two modules of the factory must be in parameters and buffers, since only those are kept. A
    store never writes this class: a stored model must not be able to name code.
    """

    def __init__(self, factory: Named, *, num_classes: int | None, device: str, dtype: str) -> None:
        self.factory = factory
        self.num_classes = num_classes
        self.device = device
        self.dtype = dtype

    def place(self) -> Any:
        """The torch device. `auto` is the first GPU, or the CPU where there is none."""
        torch = import_extra("torch")
        has_gpu = torch.cuda.is_available()
        if self.device == "auto":
            return torch.device("cuda" if has_gpu else "cpu")
        if self.device.startswith("cuda") and not has_gpu:
            raise ParameterError(f"device {self.device!r} is not available here")
        return torch.device(self.device)

    def place_name(self) -> str:
        """The kind of the device, with the libraries that compute on it; "not available" where there is none."""
        torch = import_extra("torch")
        try:
            place = self.place()
        except ParameterError:
            return "not available"
        if place.type == "cpu":
            return "cpu"
        return f"{torch.cuda.get_device_name(place)}, CUDA {torch.version.cuda}, cuDNN {torch.backends.cudnn.version()}"

    def number_type(self) -> Any:
        """The torch type in which to train."""
        return getattr(import_extra("torch"), self.dtype)

    def build(self) -> Any:
        """A module with fresh weights, drawn from torch's global generator."""
        torch = import_extra("torch")
        with torch.device("cpu"):
            module = resolve(self.factory, option="factory")()
        if not isinstance(module, torch.nn.Module):
            raise ParameterError(f"factory must return a torch.nn.Module, got {module!r}")
        _take_over(module)
        return module.to(device=self.place(), dtype=self.number_type())

    def loaded(self, state: Mapping[str, NDArray[Any]]) -> Any:
        """A module for voting, with these weights: in evaluation mode, in single precision."""
        with seeded(0, device=self.place(), dtype=self.number_type()):  # the weights it starts with mean nothing
            module = self.build()
        write_state(module, state)
        return module.float().eval()

    def training_data(self, shard: Shard) -> tuple[Any, Any, Any]:
        """A shard as tensors."""
        torch = import_extra("torch")
        labels = torch.tensor(shard.y, dtype=torch.int64, device=self.place())
        factors = None
        if shard.weights is not None:
            factors = torch.tensor(shard.weights, dtype=self.number_type(), device=self.place())
        return self.tensor(shard.X, self.number_type()), labels, factors

    def tensor(self, X: Features, dtype: Any) -> Any:
        """Rows as a tensor of its own, aligned by torch: sums do not depend on where numpy put the rows."""
        return import_extra("torch").tensor(as_numbers(X), dtype=dtype, device=self.place())

    def check_scores(self, module: Any, X: Any, y: Any) -> None:
        """One score for each class, tried on the first rows (which also lets lazy layers find their sizes)."""
        torch = import_extra("torch")
        rows = X[:2]
        try:
            with torch.no_grad():
                scores = module.eval()(rows)
        except Exception as error:
            shape = tuple(rows.shape[1:])
            raise ParameterError(f"the module fails on rows of the shape {shape}: {first_line(error)}") from error
        found = tuple(getattr(scores, "shape", ()))
        classes = self.num_classes
        if classes is None and len(found) == 2:
            classes = max(found[1], int(y.max()) + 1)
        if found != (len(rows), classes):
            expected = f"({len(rows)}, {'classes' if classes is None else classes})"
            raise ParameterError(f"the module must return a score for every class: shape {expected}, got {found}")


def _take_over(module: Any) -> None:
    """Refuse parameters that another module had: they would carry what one shard taught them into the next."""
    for name, parameter in module.named_parameters():
        if hasattr(parameter, _OWNED):
            raise ParameterError(f"factory must make new parameters on every call, but {name!r} was returned before")
        setattr(parameter, _OWNED, True)


def read_state(module: Any) -> State:
    """Copies of all parameters and buffers (running statistics, and also those that a state dict leaves out)."""
    return {name: tensor.detach().cpu().numpy().copy() for name, tensor in _tensors(module).items()}


def write_state(module: Any, state: Mapping[str, NDArray[Any]]) -> None:
    """Replace a module's parameters and buffers by arrays. Refuse arrays that do not fit."""
    torch = import_extra("torch")
    own = _tensors(module)
    for name in sorted(own.keys() ^ state.keys()):
        lacks = "the stored model has no" if name in own else "the factory's module has no"
        raise InputError(f"the stored model does not fit the factory: {lacks} {name!r}")
    is_lazy = torch.nn.parameter.is_lazy
    for name, tensor in own.items():
        if not is_lazy(tensor) and tuple(tensor.shape) != state[name].shape:
            shapes = f"{state[name].shape} instead of {tuple(tensor.shape)}"
            raise InputError(f"the stored model does not fit the factory: {name!r} has shape {shapes}")
    tensors = {name: torch.tensor(array) for name, array in state.items()}
    with torch.no_grad():
        if any(is_lazy(tensor) for tensor in own.values()):
            module.load_state_dict(tensors, strict=False)  # lazy layers take their sizes from it
        for name, tensor in _tensors(module).items():
            tensor.copy_(tensors[name])


def check_finite(module: Any) -> None:
    """Refuse a model with a weight that is not finite."""
    torch = import_extra("torch")
    for name, parameter in module.named_parameters():
        if not bool(torch.isfinite(parameter).all()):
            raise ExpungeError(f"training diverged: {name!r} is not finite (a smaller learning rate may help)")


def _tensors(module: Any) -> dict[str, Any]:
    # Tied weights are listed under each of their names.
    parameters = dict(module.named_parameters(remove_duplicate=False))
    return parameters | dict(module.named_buffers(remove_duplicate=False))


@dataclass(frozen=True, eq=False)
class TorchModel:
    """One shard's network. Pickling, copying and storing it moves arrays only.

    Parameters
    ----------
    network
        The architecture, which all models of a learner share.
    state
        Parameters and buffers as NumPy arrays, by name.
    private_runs
        The steps of DP-SGD that made the model, run by run; empty without DP-SGD.
    """

    network: Network
    state: State = field(repr=False)
    private_runs: tuple[tuple[PrivateSteps, ...], ...] = ()

    def predict(self, X: Features) -> Codes:
        """The class with the highest score, or ⊥ where a score is not a number."""
        torch = import_extra("torch")
        with torch.inference_mode():
            rows = self.network.tensor(X, torch.float32)
            parts = [top_classes(self.module(part)) for part in rows.split(_ROWS_AT_ONCE)]
        return torch.cat(parts).cpu().numpy().astype(np.int64)  # type: ignore[no-any-return]

    def probabilities(self, X: Features, num_classes: int) -> Floats:
        """The softmax of the scores; NaN in a row with a score that is not a number.

        Each model is asked by itself, always as many rows at a time as suit its size: products of many models or of
        other numbers of rows may round otherwise.
        """
        torch = import_extra("torch")
        found = [np.empty((0, num_classes))]
        if not num_rows(X):
            return found[0]
        with torch.inference_mode():
            for part in self.network.tensor(X, torch.float32).split(self._rows_at_a_time):
                missing = self._rows_at_a_time - len(part)
                whole = torch.cat([part, part[:1].expand(missing, *part.shape[1:])]) if missing else part
                found.append(softmax(self.module(whole)[: len(part)].cpu().numpy()))
        return np.concatenate(found)

    @property
    def _rows_at_a_time(self) -> int:
        """Many for small networks; few for large ones, for which a single row would wait for the padding."""
        size = sum(array.size for array in self.state.values())
        return min(_MOST_ROWS_AT_A_TIME, max(1, _WORK_AT_A_TIME // max(1, size)))

    @cached_property
    def module(self) -> Any:
        """The module itself, in evaluation mode and single precision, made when first used."""
        return self.network.loaded(self.state)

    def __getstate__(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    def privacy(self, *, delta: float, accountant: AccountantName = "rdp") -> DataPrivacy | None:
        """The (ε,δ) of DP-SGD in the shard's records, or None if it was not used. Inside the trust boundary only.

        It depends on the size of the shard, and so on r.

        Parameters
        ----------
        delta
            δ, above 0 and below 1.
        accountant
            "rdp" for Rényi accounting, or "prv" for numeric composition.

        Returns
        -------
        DataPrivacy or None
            (ε,δ) for one record.

        Raises
        ------
        ParameterError
            If an option is out of range.
        """
        if not self.private_runs:
            return None
        return data_privacy(self.private_runs, delta=delta, accountant=accountant)


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """A network after some of a shard's slices, with the state of its optimiser.

    Parameters
    ----------
    model
        The network with its weights so far.
    optimizer
        The optimiser's state as arrays, by number of the parameter and name.
    """

    model: TorchModel
    optimizer: OptimizerState = field(repr=False)


def top_classes(scores: Any) -> Any:
    """The class with the highest score along the last axis, `ABSTAIN` where a score is not a number."""
    return scores.argmax(dim=-1).masked_fill_(scores.isnan().any(dim=-1), ABSTAIN)


def dump_model(model: Any) -> StoredModel:
    """A model, a checkpoint, or a whole sliced model; `load_model` gives it back."""
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
        stored: StoredModel = {"kind": "slices", "num_slices": len(model.checkpoints)}
        for number, checkpoint in enumerate(model.checkpoints):
            stored |= {f"{number}/{name}": value for name, value in dump_model(checkpoint).items()}
        return stored
    raise ParameterError(f"a PyTorch learner cannot store a {type(model).__name__}")


def load_model(stored: Mapping[str, Any], network: Network) -> Any:
    """The model that `dump_model` was given, on the learner's own network. What is stored names no code."""
    kind = _entry(stored, "kind")
    if kind == "nothing":
        return None
    if kind == "abstainer":
        return Abstainer()
    if kind == "constant":
        return ConstantModel(int(_entry(stored, "code")))
    if kind == "network":
        return _load_network(stored, network)
    if kind == "checkpoint":
        optimizer = {name: np.asarray(array) for name, array in _under(stored, "optimizer/").items()}
        return Checkpoint(_load_network(stored, network), optimizer)
    if kind == "slices":
        numbers = range(int(_entry(stored, "num_slices")))
        checkpoints = tuple(load_model(_under(stored, f"{number}/"), network) for number in numbers)
        return SlicedModel(checkpoints, final_model(checkpoints[-1]) if checkpoints else Abstainer())
    raise InputError(f"the stored model is of an unknown kind: {kind!r}")


def final_model(checkpoint: Any) -> Model:
    """The model that votes after the last slice."""
    if checkpoint is None:
        return Abstainer()
    return checkpoint.model if isinstance(checkpoint, Checkpoint) else checkpoint


def _dump_network(model: TorchModel) -> StoredModel:
    stored: StoredModel = {f"state/{name}": array for name, array in model.state.items()}
    for number, run in enumerate(model.private_runs):
        stored[f"private/{number}"] = np.array(run, dtype=np.float64).reshape(-1, len(PrivateSteps._fields))
    return stored


def _load_network(stored: Mapping[str, Any], network: Network) -> TorchModel:
    state = {name: np.asarray(array) for name, array in _under(stored, "state/").items()}
    network.loaded(state)  # refuses what does not fit
    runs = _under(stored, "private/")
    private_runs = tuple(
        tuple(PrivateSteps(float(noise), float(rate), int(steps)) for noise, rate, steps in runs[str(number)])
        for number in range(len(runs))
    )
    return TorchModel(network, state, private_runs)


def _under(stored: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    return {name.removeprefix(prefix): value for name, value in stored.items() if name.startswith(prefix)}


def _entry(stored: Mapping[str, Any], name: str) -> Any:
    if name not in stored:
        raise InputError(f"the stored model has no {name!r}")
    return stored[name]

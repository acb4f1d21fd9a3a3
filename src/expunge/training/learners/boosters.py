"""How XGBoost, LightGBM and CatBoost train from a seed on one thread, and store a model in their own text formats.

A trained model is turned into the library's text at once: JSON of XGBoost and CatBoost, text of LightGBM. What answers
questions is always read from that text, so a model that was stored, or came from a worker process, is the same to the
bit. (CatBoost reads some numbers of its own JSON one unit in the last place off. Every reading is off by the same.)

Compiled code believes what such a text says: which node comes next, which column it asks about, where its value is. So
a text is read here first, and refused if it holds anything that a trained model does not: another field, a table of
another length, a column or node that is not there, a node that two others lead to, a number that is not finite. What
the library is given is written anew from what was read.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, NoReturn

import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from scipy.special import expit, softmax

from expunge.core.errors import MissingExtraError, ModelFormatError
from expunge.core.files import overwrite

Table = NDArray[np.float64]
Predictor = Callable[[Any], Table]  # rows -> probabilities of the classes, or one column of numbers

_FLOAT = r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?"
_NUMBER = re.compile(_FLOAT)
_LARGEST = float(np.finfo(np.float32).max)
_SEED_BITS = 0x7FFFFFFF


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


class Booster(ABC):
    """One of the libraries: its options, its training, and the text of its models."""

    library: ClassVar[str]
    estimators: ClassVar[tuple[str, str]]  # the names of its classifier and its regressor
    options: ClassVar[frozenset[str]]  # those that touch neither files, threads, devices nor other processes
    quiet: ClassVar[frozenset[str]]  # those that are set here, so that a user's own value means nothing
    objective: ClassVar[tuple[str, ...]]  # the names of the option that says what is minimised
    objectives: ClassVar[tuple[frozenset[str], frozenset[str]]]  # for classes, and for numbers
    several: ClassVar[frozenset[str]]  # those for more than two classes

    @property
    def module(self) -> Any:
        """The library, or one line that says how to install it."""
        try:
            return import_module(self.library)
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] != self.library:
                raise
            message = f"this needs {self.library}, which is not installed: pip install 'expunge[boosting]'"
            raise MissingExtraError(message) from None

    def objective_name(self, value: Any) -> str:
        """The name of an objective, without its own options."""
        return str(value)

    def made(self, options: Mapping[str, Any], num_classes: int, **own: Any) -> Any:
        """The library's estimator. How classes are told apart follows from how many of them a shard has."""
        kind = getattr(self.module, self.estimators[0 if num_classes else 1])
        given = {name: value for name, value in options.items() if value is not None}
        for name in self.objective if num_classes else ():
            if num_classes == 2 or given.get(name) not in self.several:
                given.pop(name, None)
        return kind(**given, **own)

    @abstractmethod
    def train(self, options: Mapping[str, Any], X: Any, y: Any, weights: Any, *, seed: int, num_classes: int) -> str:
        """Train, and write the model as text. Classes are 0, 1, …; without any, `y` holds numbers."""

    @abstractmethod
    def load(self, text: str, *, num_features: int, num_classes: int) -> Predictor:
        """Check the text of a model for so many columns and classes (0 for numbers), and read it."""


def _refuse(library: str, what: str) -> NoReturn:
    raise ModelFormatError(f"the stored model is malformed: {what} is not what {library} would have written")


class _Reader:
    """Checks of one library's text: every refusal names the part."""

    def __init__(self, library: str) -> None:
        self.library = library

    def require(self, is_fine: Any, what: str) -> None:
        if not bool(is_fine):
            _refuse(self.library, what)

    def json(self, text: str) -> Any:
        def pairs(found: list[tuple[str, Any]]) -> dict[str, Any]:
            self.require(len({name for name, _ in found}) == len(found), "a name that is there twice")
            return dict(found)

        return json.loads(text, object_pairs_hook=pairs, parse_constant=lambda name: _refuse(self.library, name))

    def fields(self, value: Any, names: str, optional: str = "") -> dict[str, Any]:
        """A mapping with these names."""
        self.require(isinstance(value, dict), f"a table of {names}")
        wanted, allowed = set(names.split()), set(optional.split())
        self.require(wanted <= set(value) <= wanted | allowed, f"a table with the fields {', '.join(sorted(value))!r}")
        return value  # type: ignore[no-any-return]

    def whole(self, value: Any, what: str, *, low: int, high: int) -> int:
        """A whole number, or the digits of one, between two bounds."""
        if isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,10}", value):
            value = int(value)
        self.require(type(value) is int and low <= value <= high, what)
        return int(value)

    def whole_numbers(self, values: Any, what: str, *, size: int, low: int, high: int) -> NDArray[np.int64]:
        """A list of whole numbers between two bounds."""
        self.require(isinstance(values, list) and len(values) == size, f"the length of {what}")
        found = np.array(values) if values else np.empty(0, dtype=np.int64)
        self.require(found.dtype.kind == "i" and found.shape == (size,), what)
        self.require(size == 0 or (found.min() >= low and found.max() <= high), f"a number among {what}")
        return found.astype(np.int64)

    def numbers(self, values: Any, what: str, *, size: int, most: float = _LARGEST) -> NDArray[np.float64]:
        """A list of finite numbers."""
        self.require(isinstance(values, list) and len(values) == size, f"the length of {what}")
        found = np.array(values) if values else np.empty(0)
        self.require(found.dtype.kind in "fi" and found.shape == (size,), what)
        self.require(np.all(np.abs(found.astype(np.float64)) <= most), f"a number among {what}")
        return found.astype(np.float64)

    def walk(self, left: NDArray[np.int64], right: NDArray[np.int64], is_inner: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Which nodes the root leads to; each by one way only, so that every walk ends."""
        seen = np.zeros(len(left), dtype=np.int64)
        front = np.zeros(1, dtype=np.int64)
        while len(front):
            np.add.at(seen, front, 1)
            self.require(seen.max() == 1, "a node that two others lead to")
            front = front[is_inner[front]]
            front = np.concatenate([left[front], right[front]])
        found: NDArray[np.bool_] = seen == 1
        return found


class XGBoost(Booster):
    """Models as XGBoost's JSON."""

    library = "xgboost"
    estimators = ("XGBClassifier", "XGBRegressor")
    options = frozenset(
        _words(
            "n_estimators max_depth max_leaves max_bin grow_policy learning_rate objective tree_method gamma "
            "min_child_weight max_delta_step subsample sampling_method colsample_bytree colsample_bylevel "
            "colsample_bynode reg_alpha reg_lambda scale_pos_weight base_score num_parallel_tree monotone_constraints "
            "interaction_constraints tweedie_variance_power huber_slope"
        )
    )
    quiet = frozenset(_words("n_jobs nthread verbosity silent importance_type random_state seed missing"))
    objective = ("objective",)
    objectives = (
        frozenset({"binary:logistic", "multi:softprob"}),
        frozenset(
            _words(
                "reg:squarederror reg:absoluteerror reg:tweedie count:poisson reg:gamma reg:pseudohubererror "
                "reg:squaredlogerror"
            )
        ),
    )
    several = frozenset({"multi:softprob"})

    def train(self, options: Mapping[str, Any], X: Any, y: Any, weights: Any, *, seed: int, num_classes: int) -> str:
        """Train with XGBoost's own estimators."""
        own = {"n_jobs": 1, "random_state": seed & _SEED_BITS, "verbosity": 0, "device": "cpu"}
        made = self.made(options, num_classes, **own)
        raw = made.fit(_plain(X), y, sample_weight=weights).get_booster().save_raw("json")
        return bytes(raw).decode("utf-8")

    def load(self, text: str, *, num_features: int, num_classes: int) -> Predictor:
        """Read a model of trees on numbers; other boosters and native categories are refused."""
        groups = num_classes if num_classes > 2 else 1
        read = _Reader("XGBoost")
        whole = read.fields(read.json(text), "learner version")
        read.whole_numbers(whole["version"], "the version", size=3, low=0, high=10_000)
        learner = read.fields(
            whole["learner"],
            "attributes feature_names feature_types gradient_booster learner_model_param objective",
        )
        read.require(learner["attributes"] == {}, "its attributes")
        read.require(learner["feature_names"] == learner["feature_types"] == [], "names of columns")
        self._check_head(read, learner["learner_model_param"], num_features, groups)
        self._check_objective(read, learner["objective"], num_classes)
        booster = read.fields(learner["gradient_booster"], "model name")
        read.require(booster["name"] == "gbtree", "the kind of booster")
        self._check_trees(read, booster["model"], num_features, groups)
        made = self.module.Booster({"nthread": 1})
        made.load_model(bytearray(json.dumps(whole, separators=(",", ":")).encode()))
        made.set_param({"nthread": 1})

        def predict(X: Any) -> Table:
            found = np.asarray(made.inplace_predict(_plain(X)), dtype=np.float64).reshape(X.shape[0], -1)
            return np.concatenate([1 - found, found], axis=1) if num_classes == 2 else found

        return predict

    def _check_head(self, read: _Reader, head: Any, num_features: int, groups: int) -> None:
        read.fields(head, "base_score num_class num_feature", "boost_from_average num_target")
        read.whole(head["num_feature"], "the number of columns", low=num_features, high=num_features)
        count = groups if groups > 1 else 0
        read.whole(head["num_class"], "the number of classes", low=count, high=count)
        read.whole(head.get("num_target", "1"), "the number of outputs", low=1, high=1)
        read.whole(head.get("boost_from_average", "1"), "the start", low=0, high=1)
        start = head["base_score"]
        listed = re.fullmatch(rf"\[?({_FLOAT}(?:,{_FLOAT})*)\]?", start if isinstance(start, str) else "")
        read.require(listed is not None and listed[1].count(",") + 1 in (1, groups), "the start")

    def _check_objective(self, read: _Reader, objective: Any, num_classes: int) -> None:
        read.require(isinstance(objective, dict) and objective.get("name") in self._names(num_classes), "the objective")
        for name, options in objective.items():
            if name == "name":
                continue
            read.require(isinstance(options, dict), "the objective's options")
            for key, value in options.items():
                read.require(isinstance(value, str) and _NUMBER.fullmatch(value), "an option of the objective")
                read.require(key != "num_class" or value == str(num_classes), "the number of classes")

    def _names(self, num_classes: int) -> frozenset[str]:
        if num_classes == 0:
            return self.objectives[1]
        return frozenset({"multi:softprob" if num_classes > 2 else "binary:logistic"})

    def _check_trees(self, read: _Reader, model: Any, num_features: int, groups: int) -> None:
        read.fields(model, "gbtree_model_param tree_info trees", "cats iteration_indptr")
        nothing: dict[str, Any] = {"enc": [], "feature_segments": [], "sorted_idx": []}
        read.require(model.get("cats", nothing) == nothing, "a list of categories")
        trees = model["trees"]
        read.require(isinstance(trees, list), "the list of trees")
        size = read.fields(model["gbtree_model_param"], "num_trees", "num_parallel_tree")
        read.whole(size["num_trees"], "the number of trees", low=len(trees), high=len(trees))
        read.whole(size.get("num_parallel_tree", "1"), "the number of parallel trees", low=1, high=1 << 20)
        read.whole_numbers(model["tree_info"], "the classes of trees", size=len(trees), low=0, high=groups - 1)
        if "iteration_indptr" in model:
            rounds = model["iteration_indptr"]
            read.require(isinstance(rounds, list) and len(rounds) > 0, "the list of rounds")
            found = read.whole_numbers(rounds, "the rounds", size=len(rounds), low=0, high=len(trees))
            read.require(found[0] == 0 and found[-1] == len(trees) and np.all(np.diff(found) >= 0), "the rounds")
        for place, tree in enumerate(trees):
            self._check_tree(read, tree, place, num_features)

    def _check_tree(self, read: _Reader, tree: Any, place: int, num_features: int) -> None:
        read.fields(
            tree,
            "base_weights default_left id left_children loss_changes parents right_children split_conditions "
            "split_indices sum_hessian tree_param categories categories_nodes categories_segments categories_sizes",
            "split_type",
        )
        read.require(tree["id"] == place and type(tree["id"]) is int, "the number of a tree")
        for name in ("categories", "categories_nodes", "categories_segments", "categories_sizes"):
            read.require(tree[name] == [], "a split by categories")
        head = read.fields(tree["tree_param"], "num_deleted num_feature num_nodes size_leaf_vector")
        size = read.whole(head["num_nodes"], "the number of nodes", low=1, high=len(tree["left_children"]))
        read.whole(head["num_feature"], "the number of columns", low=num_features, high=num_features)
        read.whole(head["size_leaf_vector"], "the size of leaves", low=0, high=1)
        gone = read.whole(head["num_deleted"], "the number of deleted nodes", low=0, high=size - 1)
        for name in ("base_weights", "loss_changes", "split_conditions", "sum_hessian"):
            read.numbers(tree[name], name, size=size)
        left, right = (
            read.whole_numbers(tree[name], name, size=size, low=-1, high=size - 1)
            for name in ("left_children", "right_children")
        )
        top = (1 << 31) - 1
        parents = read.whole_numbers(tree["parents"], "parents", size=size, low=-1, high=top)
        features = read.whole_numbers(tree["split_indices"], "split_indices", size=size, low=-1, high=top)
        read.whole_numbers(tree["default_left"], "default_left", size=size, low=0, high=1)
        if "split_type" in tree:
            read.whole_numbers(tree["split_type"], "a split by categories", size=size, low=0, high=0)
        inner = left != -1
        read.require(np.array_equal(inner, right != -1), "a node with one child")
        seen = read.walk(left, right, inner)
        read.require(size - int(seen.sum()) == gone, "the number of deleted nodes")
        used = np.flatnonzero(seen & inner)
        read.require(parents[0] in (-1, top), "the parent of the root")
        read.require(np.all(parents[left[used]] == used) and np.all(parents[right[used]] == used), "a parent")
        read.require(np.all((features[used] >= 0) & (features[used] < num_features)), "a column that is not there")


class LightGBM(Booster):
    """Models as LightGBM's text."""

    library = "lightgbm"
    estimators = ("LGBMClassifier", "LGBMRegressor")
    options = frozenset(
        _words(
            "boosting_type num_leaves max_depth learning_rate n_estimators subsample_for_bin objective min_split_gain "
            "min_child_weight min_child_samples subsample subsample_freq colsample_bytree reg_alpha reg_lambda "
            "max_bin min_data_in_bin extra_trees path_smooth max_delta_step scale_pos_weight is_unbalance "
            "feature_fraction_bynode alpha fair_c poisson_max_delta_step tweedie_variance_power monotone_constraints "
            "monotone_constraints_method monotone_penalty top_rate other_rate drop_rate max_drop skip_drop "
            "uniform_drop xgboost_dart_mode data_sample_strategy boost_from_average"
        )
    )
    quiet = frozenset(
        _words(
            "n_jobs num_threads nthread nthreads num_thread verbose verbosity silent importance_type random_state "
            "seed random_seed deterministic force_col_wise force_row_wise"
        )
    )
    objective = ("objective",)
    objectives = (
        frozenset({"binary", "multiclass", "multiclassova"}),
        frozenset(_words("regression regression_l1 huber fair poisson quantile mape gamma tweedie")),
    )
    several = frozenset({"multiclass", "multiclassova"})
    _HEAD: ClassVar = _words("version num_class num_tree_per_iteration label_index max_feature_idx objective")
    _TREE: ClassVar = _words(
        "num_leaves num_cat split_feature split_gain threshold decision_type left_child right_child leaf_value "
        "leaf_weight leaf_count internal_value internal_weight internal_count is_linear shrinkage"
    )
    _OBJECTIVE: ClassVar = re.compile(rf"([a-z_0-9]+)((?: [a-z_]+:{_FLOAT}| sqrt)*)")

    def train(self, options: Mapping[str, Any], X: Any, y: Any, weights: Any, *, seed: int, num_classes: int) -> str:
        """Train with LightGBM's own estimators. Histograms are kept by column, for which LightGBM else runs a race."""
        own = {"n_jobs": 1, "random_state": seed & _SEED_BITS, "deterministic": True, "force_col_wise": True}
        made = self.made(options, num_classes, **own, verbose=-1)
        text: str = made.fit(_plain(X), y, sample_weight=weights).booster_.model_to_string()
        return text.partition("\nend of trees")[0]  # what follows is not needed for answers

    def load(self, text: str, *, num_features: int, num_classes: int) -> Predictor:
        """Read a model of trees on numbers; native categories and linear leaves are refused."""
        read = _Reader("LightGBM")
        groups = num_classes if num_classes > 2 else 1
        head, *trees = text.split("\n\nTree=")
        lines = self._checked_head(read, head, num_features, num_classes, len(trees))
        blocks = [self._checked_tree(read, tree, place, num_features) for place, tree in enumerate(trees)]
        read.require(len(trees) % groups == 0, "the number of trees")
        sizes = " ".join(str(len(block)) for block in blocks)
        canonical = "\n".join([*lines, f"tree_sizes={sizes}", "", "".join(blocks) + "end of trees\n"])
        made = self.module.Booster(model_str=canonical)

        def predict(X: Any) -> Table:
            found = made.predict(_plain(X), num_threads=1)
            found = np.asarray(found, dtype=np.float64).reshape(X.shape[0], -1)
            return np.concatenate([1 - found, found], axis=1) if num_classes == 2 else found

        return predict

    def _checked_head(self, read: _Reader, head: str, num_features: int, num_classes: int, num_trees: int) -> list[str]:
        first, *lines = head.split("\n")
        read.require(first == "tree", "the first line")
        given = dict(line.partition("=")[::2] for line in lines if line != "average_output")
        read.require(len(given) == sum(line != "average_output" for line in lines), "a line that is there twice")
        names = {*self._HEAD, "feature_names", "feature_infos"}
        optional = {"tree_sizes", "monotone_constraints"}
        read.require(names <= set(given) <= names | optional, "the list of lines")
        groups = num_classes if num_classes > 2 else 1
        read.require(re.fullmatch(r"v[0-9]{1,2}", given["version"]), "the version")
        for name, wanted in (
            ("num_class", groups),
            ("num_tree_per_iteration", groups),
            ("label_index", 0),
            ("max_feature_idx", num_features - 1),
        ):
            read.whole(given[name], name, low=wanted, high=wanted)
        self._check_objective(read, given["objective"], num_classes)
        names_there = given["feature_names"].split(" ")
        read.require(len(names_there) == num_features, "the number of columns")
        read.require(names_there == [f"Column_{place}" for place in range(num_features)], "names of columns")
        ranges = given["feature_infos"].split(" ")
        read.require(len(ranges) == num_features, "the ranges of columns")
        read.require(
            all(re.fullmatch(rf"none|\[{_FLOAT}:{_FLOAT}\]", each) for each in ranges), "the range of a column"
        )
        kept = [f"{name}={given[name]}" for name in (*self._HEAD, "feature_names", "feature_infos")]
        average = ["average_output"] if "average_output" in lines else []
        return [first, *kept[: len(self._HEAD)], *average, *kept[len(self._HEAD) :]]

    def _check_objective(self, read: _Reader, objective: str, num_classes: int) -> None:
        found = self._OBJECTIVE.fullmatch(objective)
        wanted = {0: self.objectives[1], 2: {"binary"}}.get(num_classes, {"multiclass", "multiclassova"})
        read.require(found is not None and found[1] in wanted, "the objective")
        for option in (found or ["", "", ""])[2].split():
            name, _, value = option.partition(":")
            read.require(name != "num_class" or value == str(num_classes), "the number of classes")

    def _checked_tree(self, read: _Reader, tree: str, place: int, num_features: int) -> str:
        number, *lines = tree.strip("\n").split("\n")
        read.require(number == str(place), "the number of a tree")
        given = [line.partition("=") for line in lines]
        read.require(tuple(name for name, _, _ in given) == self._TREE, "the lines of a tree")
        value = {name: text for name, _, text in given}
        size = read.whole(value["num_leaves"], "the number of leaves", low=1, high=1 << 20)
        for name in ("num_cat", "is_linear"):
            read.whole(value[name], f"a tree with {name}", low=0, high=0)
        read.require(_NUMBER.fullmatch(value["shrinkage"]), "the shrinkage of a tree")

        def whole(name: str, low: int, high: int) -> NDArray[np.int64]:
            words = value[name].split()
            read.require(all(re.fullmatch(r"-?[0-9]{1,10}", word) for word in words), name)
            return read.whole_numbers([*map(int, words)], name, size=size - 1, low=low, high=high)

        for name, length in (("threshold", size - 1), ("leaf_value", size), ("internal_value", size - 1)):
            words = value[name].split()
            if name == "threshold":  # of a split between gaps and everything else
                words = ["1e300" if word == "inf" else word for word in words]
            read.require(all(_NUMBER.fullmatch(word) for word in words), name)
            read.numbers([*map(float, words)], name, size=length, most=1e300)
        whole("split_feature", 0, num_features - 1)
        read.require(np.all(whole("decision_type", 0, 15) & 1 == 0), "a split by categories")
        # A child below zero is the leaf ~child; here leaves come after the inner nodes.
        left, right = (whole(name, -size, size - 2) for name in ("left_child", "right_child"))
        leaves = np.full(size, -1)
        places = [np.concatenate([np.where(side < 0, size - 2 - side, side), leaves]) for side in (left, right)]
        if size > 1:
            seen = read.walk(places[0], places[1], np.arange(2 * size - 1) < size - 1)
            read.require(seen.all(), "a node that nothing leads to")
        for name in ("split_gain", "leaf_weight", "leaf_count", "internal_weight", "internal_count"):
            read.require(all(_NUMBER.fullmatch(word) for word in value[name].split()), name)
        return "\n".join([f"Tree={place}", *lines, "\n\n"])


class CatBoost(Booster):
    """Models as CatBoost's JSON, without its notes about the training: they tell the time."""

    library = "catboost"
    estimators = ("CatBoostClassifier", "CatBoostRegressor")
    options = frozenset(
        _words(
            "iterations n_estimators num_boost_round num_trees learning_rate eta depth max_depth l2_leaf_reg "
            "reg_lambda random_strength bagging_temperature border_count max_bin rsm colsample_bylevel nan_mode "
            "loss_function objective leaf_estimation_iterations leaf_estimation_method leaf_estimation_backtracking "
            "subsample bootstrap_type boosting_type feature_border_type auto_class_weights scale_pos_weight "
            "sampling_frequency score_function boost_from_average monotone_constraints fold_len_multiplier "
            "approx_on_full_history fold_permutation_block has_time"
        )
    )
    quiet = frozenset(
        _words(
            "thread_count verbose silent logging_level verbose_eval metric_period allow_writing_files train_dir name "
            "random_seed random_state"
        )
    )
    objective = ("loss_function", "objective")
    objectives = (
        frozenset({"Logloss", "CrossEntropy", "MultiClass", "MultiClassOneVsAll"}),
        frozenset(_words("RMSE MAE Quantile LogLinQuantile MAPE Huber Expectile Poisson Tweedie")),
    )
    several = frozenset({"MultiClass", "MultiClassOneVsAll"})
    _DEEPEST: ClassVar = 16

    def objective_name(self, value: Any) -> str:
        """The name of a loss: its options follow a colon."""
        return str(value).partition(":")[0]

    def train(self, options: Mapping[str, Any], X: Any, y: Any, weights: Any, *, seed: int, num_classes: int) -> str:
        """Train with CatBoost's own estimators; nothing is written to a disk."""
        own = {"thread_count": 1, "random_seed": seed & _SEED_BITS, "allow_writing_files": False}
        made = self.made(options, num_classes, **own, logging_level="Silent")
        made.fit(_plain(X), y, sample_weight=weights)
        with _memory() as place:
            made.save_model(str(place), format="json")
            whole = json.loads(place.read_bytes())
        columns = [{**each, "feature_id": ""} for each in whole["features_info"].get("float_features", [])]
        trees = whole.get("oblivious_trees", [])
        loss = whole["model_info"]["params"]["loss_function"]["type"]
        kept = {
            "features_info": {"float_features": columns},
            "model_info": {"loss": loss},
            "oblivious_trees": [{name: tree[name] for name in ("leaf_values", "splits")} for tree in trees],
            "scale_and_bias": whole["scale_and_bias"],
        }
        return json.dumps(kept, sort_keys=True, separators=(",", ":"))

    def load(self, text: str, *, num_features: int, num_classes: int) -> Predictor:
        """Read a model of symmetric trees on numbers; native categories, texts and other trees are refused."""
        read = _Reader("CatBoost")
        whole = read.fields(read.json(text), "features_info model_info oblivious_trees scale_and_bias")
        info = read.fields(whole["model_info"], "loss")
        links = self._links(num_classes)
        read.require(info["loss"] in links, "the loss")
        width = num_classes if num_classes > 2 else 1
        columns = read.fields(whole["features_info"], "float_features")["float_features"]
        read.require(isinstance(columns, list) and len(columns) <= num_features, "the list of columns")
        borders = [self._checked_borders(read, column, place) for place, column in enumerate(columns)]
        trees = whole["oblivious_trees"]
        read.require(isinstance(trees, list), "the list of trees")
        for tree in trees:
            self._check_tree(read, tree, borders, width)
        read.require(isinstance(whole["scale_and_bias"], list) and len(whole["scale_and_bias"]) == 2, "the start")
        scale, bias = whole["scale_and_bias"]
        read.numbers([scale], "the scale", size=1, most=1e300)
        read.numbers(bias, "the start", size=width, most=1e300)
        made = self.module.CatBoost()
        with _memory() as place:
            place.write_bytes(json.dumps({**whole, "model_info": {}}, separators=(",", ":")).encode())
            made.load_model(str(place), format="json")
        link = links[info["loss"]]

        def predict(X: Any) -> Table:
            found = made.predict(_plain(X), prediction_type="RawFormulaVal", thread_count=1)
            return link(np.asarray(found, dtype=np.float64).reshape(X.shape[0], -1))

        return predict

    def _links(self, num_classes: int) -> dict[str, Callable[[Table], Table]]:
        """What a raw value stands for, by the loss."""
        if num_classes == 0:
            return {name: np.exp if name in ("Poisson", "Tweedie") else np.asarray for name in self.objectives[1]}
        if num_classes == 2:
            return dict.fromkeys(("Logloss", "CrossEntropy"), lambda raw: expit(np.concatenate([-raw, raw], axis=1)))
        return {"MultiClass": lambda raw: softmax(raw, axis=1), "MultiClassOneVsAll": _shares}

    def _checked_borders(self, read: _Reader, column: Any, place: int) -> set[float]:
        read.fields(column, "borders feature_id feature_index flat_feature_index has_nans nan_value_treatment")
        for name in ("feature_index", "flat_feature_index"):
            read.whole(column[name], "the place of a column", low=place, high=place)
        read.require(column["feature_id"] == "" and type(column["has_nans"]) is bool, "a column")
        read.require(column["nan_value_treatment"] in ("AsIs", "AsFalse", "AsTrue"), "the treatment of gaps")
        read.require(isinstance(column["borders"], list), "the borders of a column")
        borders = read.numbers(column["borders"], "the borders of a column", size=len(column["borders"]))
        read.require(np.all(np.diff(borders) > 0), "the order of borders")
        return set(borders.tolist())

    def _check_tree(self, read: _Reader, tree: Any, borders: list[set[float]], width: int) -> None:
        read.fields(tree, "leaf_values splits")
        splits = tree["splits"] if tree["splits"] is not None else []
        read.require(isinstance(splits, list) and len(splits) <= self._DEEPEST, "the depth of a tree")
        read.numbers(tree["leaf_values"], "the leaves of a tree", size=width << len(splits), most=1e300)
        number = sum(map(len, borders))
        for split in splits:
            read.fields(split, "border float_feature_index split_index split_type")
            read.require(split["split_type"] == "FloatFeature", "a split by categories")
            column = read.whole(split["float_feature_index"], "a column", low=0, high=len(borders) - 1)
            read.whole(split["split_index"], "the number of a split", low=0, high=number - 1)
            read.require(type(split["border"]) in (int, float) and split["border"] in borders[column], "a border")


BOOSTERS: Mapping[str, Booster] = {each.library: each for each in (XGBoost(), LightGBM(), CatBoost())}


def _shares(raw: Table) -> Table:
    """One chance for each class against the others, as shares of their sum."""
    found = np.asarray(expit(raw), dtype=np.float64)
    shares: Table = found / found.sum(axis=1, keepdims=True)
    return shares


def _plain(X: Any) -> Any:
    """Sparse rows as the one class of SciPy that all three libraries take."""
    is_sparse: bool = scipy.sparse.issparse(X)
    return scipy.sparse.csr_matrix(X) if is_sparse else X


@contextmanager
def _memory() -> Iterator[Path]:
    """A file that is nowhere on a disk, where the system has such files; else one that is overwritten at the end."""
    if hasattr(os, "memfd_create") and Path("/proc/self/fd").is_dir():
        number = os.memfd_create("model", os.MFD_CLOEXEC)
        try:
            yield Path(f"/proc/self/fd/{number}")
        finally:
            os.close(number)
        return
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "model"
        try:
            yield place
        finally:
            if place.exists():
                with place.open("r+b") as written:
                    overwrite(written.fileno())

"""Damaged and tampered files: one clear line, and nothing of theirs runs."""

from __future__ import annotations

import os
import pickle

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from sklearn.ensemble import GradientBoostingClassifier, HistGradientBoostingClassifier
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.feature_extraction import FeatureHasher
from sklearn.feature_extraction.text import CountVectorizer, HashingVectorizer, TfidfVectorizer
from sklearn.impute import IterativeImputer
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.svm import SVC

from expunge.core.errors import ModelFormatError
from expunge.folder.codec import container, decode, encode
from expunge.training.learners import LookupTableLearner, ScikitLearner

RNG = np.random.default_rng(0)
X = RNG.normal(size=(40, 3))
Y = (X[:, 0] > 0).astype(np.int64)
LINEAR = encode(ScikitLearner(LogisticRegression()).fit(X, Y, 0)).data
HOLES = np.where(RNG.random(X.shape) < 0.1, np.nan, X)
IMPUTER = encode(IterativeImputer(random_state=0, max_iter=1).fit(HOLES)).data


def refused(format, data, match=None, **options):
    with pytest.raises(ModelFormatError, match=match) as caught:
        decode(format, data, **options)
    assert "\n" not in str(caught.value)


def refused_or_fine(format, data, **options):
    try:
        decode(format, data, **options)
    except ModelFormatError:
        refused(format, data, **options)


def repacked(data, change):
    """The same file with a changed tree or changed arrays, and a right checksum."""
    tree, arrays = container.unpack(data)
    change(tree, arrays)
    return container.pack(tree, [np.ascontiguousarray(array) for array in arrays])


@settings(deadline=None, max_examples=150)
@given(place=st.integers(0, len(LINEAR) * 8 - 1))
def test_one_flipped_bit(place):
    data = bytearray(LINEAR)
    data[place // 8] ^= 1 << place % 8
    refused("arrays", bytes(data))


@settings(deadline=None, max_examples=100)
@given(length=st.integers(0, len(LINEAR) - 1))
def test_truncated(length):
    refused("arrays", LINEAR[:length])
    refused("pickle", LINEAR[:length])


@settings(deadline=None, max_examples=100)
@given(data=st.binary(max_size=200))
def test_noise(data):
    for format in ("arrays", "pickle"):
        refused(format, data, "not a file of expunge")


def test_not_bytes():
    refused("arrays", None, "not a file of expunge")
    refused("arrays", LINEAR + b"x", "checksum")


nodes = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-3, 3), st.floats(), st.text(max_size=5)),
    lambda inner: st.one_of(
        st.tuples(st.sampled_from(sorted(__import__("expunge.folder.codec.reader", fromlist=["x"])._TAGS)), inner).map(
            list
        ),
        st.lists(inner, max_size=4),
        st.builds(
            lambda tag, rest: [tag, *rest],
            st.sampled_from(
                ["object", "record", "call", "array", "bytes", "dict", "tree", "named", "pickle", "objects"]
            ),
            st.lists(inner, max_size=4),
        ),
        st.dictionaries(st.text(max_size=5), inner, max_size=3),
    ),
    max_leaves=12,
)


@settings(deadline=None, max_examples=400)
@given(node=nodes)
def test_any_tree_gives_a_value_or_one_line(node):
    data = container.pack({"version": 1, "value": node}, [np.arange(3.0), np.zeros((2, 2), dtype=np.uint8)])
    refused_or_fine("pickle", data, trusted=["company"])


@pytest.mark.parametrize(
    "tree", [[], 3, None, {}, {"version": 1}, {"version": 2, "value": 1}, {"version": "1", "value": 1}]
)
def test_trees_of_another_layout(tree):
    refused("arrays", container.pack(tree, []))


@pytest.mark.parametrize("version", ["0.1.0", "99.0", 3, ""])
def test_another_scikit_learn(version):
    data = repacked(LINEAR, lambda tree, arrays: tree.update({"scikit-learn": version}))
    refused("arrays", data)


def test_another_scikit_learn_says_what_to_do():
    data = repacked(LINEAR, lambda tree, arrays: tree.update({"scikit-learn": "1.2.3"}))
    refused("arrays", data, "of scikit-learn 1.2.3, here is .*: train it again")


@pytest.mark.parametrize(
    "name",
    [
        "subprocess.Popen",
        "os.system",
        "builtins.eval",
        "sklearn.externals._arff.ArffDecoder",
        "sklearn.datasets._openml.OpenMLError",
        "sklearn.utils.validation.os.system",
        "sklearn.tests.test_base.MyEstimator",
        "sklearn.base",
        "sklearn.",
        "",
        "expunge.training.learners.scikit._Other",
        "expunge.training.learners.scikit.np",
        "expunge.folder.codec.trust.re",
        "expunge.training.learners",
        "..",
    ],
)
def test_names_of_classes(forge, name):
    for tag in ("object", "record", "call", "custom"):
        for rest in ({}, []):
            refused("pickle", forge([tag, name, rest]))
    refused("arrays", forge(["function", name]))
    refused("arrays", forge(["type", name]))


@pytest.mark.parametrize(
    "name",
    [
        "os.system", "posix.system", "builtins.exec", "numpy.load", "numpy.fromfile", "numpy.save", "numpy.f2py",
        "sklearn.metrics._scorer.make_scorer.x", "sklearn.metrics.os", "sklearn.datasets.load_files",
        "company_models.ran", "sklearn.metrics._classification.warnings",
    ],
)  # fmt: skip
def test_names_of_functions(company, forge, name):
    refused("arrays", forge(["function", name]), "refused|cannot")
    refused("arrays", forge(["partial", ["function", name], [], {}]), "refused|cannot")


def test_what_a_trusted_module_merely_imports_is_not_trusted(company, forge):
    for name in (
        "company_models.os",
        "company_models.subprocess",
        "company_models.os.system",
        "company_models.BaseEstimator",
    ):
        refused("arrays", forge(["function", name]), trusted=["company_models"])
        refused("arrays", forge(["object", name, {}]), trusted=["company_models"])
        refused("arrays", forge(["custom", name, {}]), trusted=["company_models"])


class Bomb:
    """Its pickle calls something."""

    def __init__(self, call, *arguments):
        self.call, self.arguments = call, arguments

    def __reduce__(self):
        return self.call, self.arguments


def evil_pickles(target):
    deep = pickle.dumps(Bomb(os.mkdir, target))
    return {
        "a call": deep,
        "evaluation": pickle.dumps(Bomb(eval, f"__import__('os').mkdir({target!r})")),
        "an attribute": pickle.dumps(Bomb(getattr, 3, "real")),
        "a path through a module": b"\x80\x04\x8c\x0ecompany_models\x8c\x08os.mkdir\x93\x8c"
        + bytes([len(target)]) + target.encode() + b"\x85R.",
        "a function of the module": b"ccompany_models\nran\n(tR.",
        "a name that it imported": b"ccompany_models\nsubprocess\n.",
        "an unknown extension": b"\x80\x02\x82\x01.",
        "a persistent id": b"\x80\x02X\x01\x00\x00\x00aQ.",
        "an operator": b"c_operator\nattrgetter\n(S'x'\ntR.",
        "scikit-learn's functions": b"csklearn.datasets\nload_files\n.",
        "numpy's loader": b"cnumpy\nload\n.",
        "a truncated one": deep[:-5],
        "nothing": b"",
    }  # fmt: skip


@pytest.mark.parametrize("name", evil_pickles("x"))
def test_pickles(company, forge, tmp_path, name):
    target = str(tmp_path / "made")
    data = evil_pickles(target)[name]
    refused("pickle", forge(["pickle", 0], [np.frombuffer(data, dtype=np.uint8)]), trusted=["company_models"])
    assert not os.path.exists(target)


def test_the_evil_pickle_is_evil(tmp_path):
    """The control: an ordinary unpickler does run it."""
    target = str(tmp_path / "made")
    pickle.loads(evil_pickles(target)["a call"])
    assert os.path.exists(target)


def test_named_tuples(forge):
    for name in ("sklearn.tree._tree.Tree", "collections.namedtuple", "company_models.Plain", "os.terminal_size", ""):
        refused("pickle", forge(["named", name, [[80, 24]]]), "is refused", trusted=["company_models", "os"])


def test_a_cache(forge):
    stored = encode(make_pipeline(LogisticRegression()))
    refused("arrays", repacked(stored.data, lambda tree, arrays: tree["value"][2].update(memory="somewhere")), "cache")


@settings(deadline=None, max_examples=60)
@given(place=st.integers(0, 10**6), value=st.integers(0, 255))
def test_changed_parts(place, value):
    """Also with a right checksum: a value, or one line."""

    def change(tree, arrays):
        part = max(range(len(arrays)), key=lambda number: arrays[number].size)
        raw = np.array(arrays[part]).view(np.uint8).ravel()
        raw[place % raw.size] = value
        arrays[part] = raw.view(arrays[part].dtype).reshape(arrays[part].shape)

    refused_or_fine("arrays", repacked(IMPUTER, change))


def test_huge_promises(forge):
    refused("arrays", forge(["objects", [10**12]]))
    refused("arrays", forge(["bytes", 0, "<U1000000000", [1]], [np.zeros(4, np.uint8)]))
    refused("arrays", forge(["bytes", 0, "<f8", [2**62, 8]], [np.zeros(8, np.uint8)]))
    refused("arrays", forge(["sparse", "csr_matrix", [2**40, 3], *[["array", n] for n in range(3)]], [X[0], Y, Y]))


def test_too_deep(forge):
    node = ["list"]
    for _ in range(150):
        node = ["list", node]
    assert decode("arrays", forge(node)) is not None
    text = "[" * 200_000
    data = container.pack({"version": 1, "value": 0}, [])
    refused("arrays", data[:-1])
    tree = '{"version":1,"value":' + '["list",' * 50_000 + "0" + "]" * 50_000 + "}"
    refused("arrays", _with_text(tree), "malformed")
    refused("arrays", _with_text(text), "malformed")


def _with_text(text):
    """A file whose tree is this text."""
    real = container.json.dumps
    try:
        container.json.dumps = lambda tree, **options: text
        return container.pack(None, [])
    finally:
        container.json.dumps = real


def test_records_check_their_arguments(forge):
    refused(
        "arrays", forge(["record", "expunge.training.learners.lookup.NearestTableLearner", {"tau": -1}]), "tau must be"
    )
    refused("arrays", forge(["record", "expunge.training.learners.scikit.ScikitLearner", {"estimator": 3}]))
    refused("arrays", forge(["again", 0]), "not there|malformed")
    stored = encode(LookupTableLearner())
    assert decode("arrays", stored.data) == LookupTableLearner()


@pytest.mark.parametrize("named", ["os:getcwd", "company_models:ran", "company_models:os.getcwd", "subprocess:Popen"])
@pytest.mark.parametrize("option", ["factory", "train", "optimizer"])
def test_records_that_name_code(company, forge, named, option):
    """A PyTorch learner imports what its options name; a file may not make it do so."""
    node = ["record", "expunge.training.learners.pytorch.learner.TorchLearner", {"factory": "x", option: named}]
    refused("arrays", forge(node), "is refused")
    if "." in named or not named.startswith("company_models"):
        refused("arrays", forge(node), "is refused", trusted=["company_models"])


@pytest.mark.parametrize(
    "name",
    [
        "expunge.training.learners.pytorch.loop.TrainingLoop",
        "expunge.training.learners.pytorch.model.Network",
        "expunge.training.learners.slices.SlicedShard",
        "expunge.training.learners.named._Recipe",
    ],
)
def test_inner_parts_of_expunge(forge, name):
    refused("arrays", forge(["record", name, {}]), "is refused")


@pytest.mark.parametrize("named", ["evil-code:make", "company-models:make", "évil:make"])
def test_names_that_are_no_identifiers_run_nothing(forge, named, monkeypatch, tmp_path):
    """Python imports `evil-code` by its name; neither the learner nor a file of it may."""
    (tmp_path / f"{named.partition(':')[0]}.py").write_text("open(__file__ + '.ran', 'w')\n")
    monkeypatch.syspath_prepend(tmp_path)
    node = ["record", "expunge.training.learners.pytorch.learner.TorchLearner", {"factory": named}]
    refused("arrays", forge(node), "factory must be a callable or 'package.module:name'")
    assert not list(tmp_path.glob("*.ran"))


def test_code_named_inside_of_options(company, forge):
    node = [
        "record",
        "expunge.training.learners.lookup.NearestTableLearner",
        {"tau": ["dict", ["x"], ["list", "os:a"]]},
    ]
    refused("arrays", forge(node), r"os.a is refused.*trust=\['os.a'\]")


def oversized_boosting():
    model = GradientBoostingClassifier(n_estimators=2, init="zero").fit(X, Y)
    model.estimators_ = np.tile(model.estimators_, (1, 100_000))
    return model


def boosting_from_a_wide_start():
    model = GradientBoostingClassifier(n_estimators=2).fit(X, Y)
    model.n_trees_per_iteration_ = 1000
    model.estimators_ = np.tile(model.estimators_, (1, 1000))
    return model


def boosting_with_another_method():
    model = GradientBoostingClassifier(n_estimators=2).fit(X, Y)
    model.estimators_ = np.tile(model.estimators_, (1, 1000))
    model.n_trees_per_iteration_ = 1000
    model._raw_predict_init = np.abs
    return model


def machine_without_coefficients():
    model = SVC(kernel="linear").fit(scipy.sparse.csr_matrix(X), Y)
    model._dual_coef_ = scipy.sparse.csr_matrix(model._dual_coef_.shape)
    return model


def machine_of_unknown_records():
    model = SVC(kernel="precomputed").fit(X @ X.T, Y)
    model.support_ = model.support_ + 10**8
    return model


def hasher_into_nothing():
    model = FeatureHasher()
    model.n_features = 0
    return model


def changed(model, **attributes):
    vars(model.fit(X, Y)).update(attributes)
    return model


def narrow_categories():
    model = HistGradientBoostingClassifier(max_iter=2, categorical_features=[0]).fit(np.abs(X).round(), Y)
    model._preprocessor.transformers_[1][1].func = np.cbrt
    return model


OUTSIDE = {
    "boosting with more columns than scores": oversized_boosting,
    "boosting from a start that is too narrow": boosting_from_a_wide_start,
    "boosting with a method of its own": boosting_with_another_method,
    "boosting with columns left out": lambda: changed(
        HistGradientBoostingClassifier(max_iter=2), _preprocessor=PCA(1).fit(X)
    ),
    "boosting with another code of categories": narrow_categories,
    "a support vector machine without coefficients": machine_without_coefficients,
    "a support vector machine of more features": lambda: changed(SVC(), n_features_in_=2),
    "a support vector machine of unknown records": machine_of_unknown_records,
    "a support vector machine with chances that it lacks": lambda: changed(SVC(), _effective_probability=True),
    "clusters of more features": lambda: changed(KMeans(2, n_init=1), cluster_centers_=np.zeros((2, 10**6))),
    "neighbours of more features": lambda: changed(
        KNeighborsClassifier(algorithm="brute"), _fit_X=np.zeros((len(X), 10**4))
    ),
    "neighbours in unknown classes": lambda: changed(KNeighborsClassifier(algorithm="brute"), _y=Y + 10**8),
    "hashing into nothing": hasher_into_nothing,
}  # fmt: skip


@pytest.mark.parametrize("name", OUTSIDE)
def test_compiled_code_is_not_sent_outside_of_its_arrays(name):
    """Each of these reads or writes anywhere in memory when it predicts, or ends the process."""
    stored = encode(OUTSIDE[name]())
    refused(stored.format, stored.data, "malformed")


@pytest.mark.parametrize("kind", [CountVectorizer, TfidfVectorizer, HashingVectorizer])
def test_records_are_not_names_of_files(kind, forge):
    """Such a learner would open whatever a record names."""
    with pytest.raises(ModelFormatError, match="its records would name files"):
        encode(kind(input="filename"))
    stored = encode(make_pipeline(kind()))
    with_files = repacked(stored.data, lambda tree, arrays: tree["value"][2]["steps"][1][2][2].update(input="filename"))
    refused("arrays", with_files, "malformed")


def test_boosting_from_a_learner_of_its_own_is_refused_when_it_is_stored():
    model = GradientBoostingClassifier(n_estimators=2, init=LogisticRegression()).fit(X, Y)
    with pytest.raises(ModelFormatError, match="with init= is refused"):
        encode(model)


@pytest.mark.parametrize("place", [-1, 625, 10**9])
def test_random_generators_stay_within_their_numbers(forge, place):
    key = [np.zeros(624, np.uint32)]
    numbers = ["dict", ["key", "pos"], ["list", ["array", 0], place]]
    state = ["dict", ["bit_generator", "state", "has_gauss", "gauss"], ["list", "MT19937", numbers, 0, 0.0]]
    refused("arrays", forge(["random-state", state], key), "beyond its numbers")
    refused("arrays", forge(["generator", state], key), "beyond its numbers")
    philox = ["dict", ["counter", "key"], ["list", ["array", 0], ["array", 1]]]
    names = ["bit_generator", "state", "buffer", "buffer_pos", "has_uint32", "uinteger"]
    state = ["dict", names, ["list", "Philox", philox, ["array", 0], place, 0, 0]]
    refused("arrays", forge(["generator", state], [np.zeros(4, np.uint64), np.zeros(2, np.uint64)]), "beyond its")


class Built:
    """Its pickle calls something, and sets the state of what comes out."""

    def __init__(self, call, *arguments, state=None):
        self.parts = (call, arguments) if state is None else (call, arguments, state)

    def __reduce__(self):
        return self.parts


LIE = Built(np.dtype, "V8", False, True, state=(3, "|", None, ("a",), {"a": (np.dtype("O"), 0)}, 8, 1, 0))
OBJECTS = Built(np.dtype, "O8", False, True, state=(3, "|", None, None, None, 8, 8, 0))
POINTERS = {
    "an array of objects from bytes": Built(np.ndarray, (1,), "O", b"A" * 8),
    "an array of texts from bytes": Built(np.ndarray, (1,), "T", b"A" * 16),
    "a type that hides objects": Built(np._core.multiarray.scalar, LIE, b"A" * 8),
    "objects that are not told": Built(np._core.numeric._frombuffer, b"A" * 8, OBJECTS, (1,), "C"),
    "texts by name": Built(np._core.numeric._frombuffer, b"A" * 16, "T", (1,), "C"),
    "the type of everybody's numbers": Built(np.dtype, "f8", state=(3, ">", None, ("a",), {}, 8, 1, 0)),
    "clusters": Built(KMeans, state={"cluster_centers_": np.zeros((2, 9)), "n_features_in_": 3}),
}


@pytest.mark.parametrize("name", POINTERS)
def test_pickles_do_not_point_into_memory(company, forge, name):
    """The builders of NumPy take pointers from bytes; the compiled unpickler sets any state."""
    data = pickle.dumps(POINTERS[name])
    for trusted in ((), ("company_models",)):
        refused("pickle", forge(["pickle", 0], [np.frombuffer(data, dtype=np.uint8)]), trusted=trusted)
    assert np.dtype("f8").isnative


def test_a_pickle_that_nobody_has_to_trust_is_refused(forge):
    data = pickle.dumps({"a": np.arange(3)})
    refused("pickle", forge(["pickle", 0], [np.frombuffer(data, dtype=np.uint8)]), "pickle of nothing")


@pytest.mark.parametrize(
    "codes",
    [
        np.arange(4, dtype=">i4"),
        np.arange(6.0).reshape(2, 3).T,
        np.array(["2026-01-01", "NaT"], dtype="M8[D]"),
        np.array([1, 2], dtype="m8[25s]"),
        np.array(["a", "bcé"]),
        np.array([{"a": np.float32(3)}, None, (np.datetime64("2026", "Y"), np.str_("x"))], dtype=object),
        np.array([b"a", b""]),
        [np.arange(2, dtype=">f8"), np.arange(2, dtype="<f8"), np.arange(2, dtype=">f8")],
        [np.array(["NaT"], dtype="M8[s]"), np.array(["NaT"], dtype="M8[ns]")],
        [np.bool_(True), np.complex64(1j), np.array([], dtype=np.float16), 1 + 2j, {3}, range(3)],
    ],
    ids=repr,
)
def test_pickled_arrays_are_what_they_were(company, codes):
    stored = encode(company.Plain(codes), trusted=["company_models"])
    found = decode(stored.format, stored.data, trusted=["company_models"]).codes
    assert repr(found) == repr(codes)
    for one, other in zip(found, codes, strict=True) if isinstance(codes, list) else [(found, codes)]:
        assert getattr(one, "dtype", None) == getattr(other, "dtype", None)

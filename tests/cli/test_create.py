from __future__ import annotations

import re
import sys

import numpy as np
import pandas as pd
import pytest

import expunge as library
from expunge.cli.create import LEARNERS, MECHANISMS, PROMISES
from expunge.folder.codec import encode_model
from expunge.serving.promises import NOISE_NAMES, PROMISE_NAMES
from expunge.training.learners.named import exact_names, learner_names
from expunge_lab.datasets.churn import make_churn


def create(expunge, folder, data, *more, code=0):
    shards = () if "--shards" in more else ("--shards", "5")
    return expunge("create", folder, "--data", data, *shards, *more, code=code)


COLUMNS = ("--label", "churned", "--id", "customer_id", "--subject", "household")


# A target that few shards meet, so that the tests are fast.
EASY = (
    "--promise",
    "consensus",
    "--alpha",
    "12",
    "--beta",
    "0.01",
    "--gamma",
    "0.01",
    "--max-predictions",
    "5",
    "--generations",
    "1",
)


def test_the_guarantee_in_force_is_told(tmp_path, files, expunge):
    done = create(expunge, tmp_path / "a", files / "train.csv", *COLUMNS, *EASY, "--shards", "40")
    assert "exact: promised." in done.words
    assert "(α,β,γ): promised." in done.words
    assert "(12, 0.01, 0.01)-close to those of retraining, by T4" in done.words
    assert "at most 163,000 times as likely" in done.words
    assert "over the one generation" in done.words
    made = expunge("status", tmp_path / "a", "--json").json["guarantee"]
    assert (made["is_vacuous"], made["alpha"]) == (False, 12)


def test_no_guarantee_is_told_with_what_would_change_it(tmp_path, files, expunge):
    cases = {
        ("--promise", "unguarded"): "--promise consensus",
        ("--promise", "noise"): "--promise consensus",
        ("--promise", "consensus", "--sampling", "partition"): "--sampling independent",
        ("--promise", "consensus", "--alpha", "0.001"): "a weaker target",
    }
    for place, (options, words) in enumerate(cases.items()):
        done = create(expunge, tmp_path / str(place), files / "train.csv", *COLUMNS, *options, "--json")
        assert done.json["guarantee"]["is_vacuous"] is True
        assert words in done.json["advice"]


def test_names_that_complete_are_those_that_exist():
    assert (*learner_names(), *exact_names()) == LEARNERS
    assert NOISE_NAMES == MECHANISMS
    assert {*PROMISE_NAMES, "student"} == {*PROMISES}


def write_letters(path, separator, size=120):
    """Customers with a date of joining, a postcode and a note, as a spreadsheet of another country writes them."""
    rng = np.random.default_rng(4)
    words = ["late", "parcel", "friendly", "call", "again", "invoice", "refund", "happy"]
    notes = [" ".join(rng.choice(words, 5)) for _ in range(size)]
    frame = pd.DataFrame(
        {
            "customer_id": np.arange(size),
            "joined": [f"{day}.{month}.2024" for day, month in rng.integers(1, 13, (size, 2))],
            "spend": [f"{amount:.2f}".replace(".", ",") for amount in rng.gamma(2, 30, size)],
            "postcode": rng.integers(10_000, 10_004, size),
            "note": notes,
            "churned": ["yes" if "refund" in note else "no" for note in notes],
        }
    )
    frame.loc[3, ["joined", "note"]] = None
    frame.to_csv(path, sep=separator, index=False)
    return path


def test_columns_as_people_have_them(tmp_path, expunge):
    data, folder = write_letters(tmp_path / "letters.csv", ";"), tmp_path / "a"
    options = ("--label", "churned", "--id", "customer_id", "--category", "postcode", "--shards", "3")
    done = expunge("create", folder, "--data", data, *options, "--set", "C=20", "--set", "class_weight=balanced")
    assert "1 column of numbers, dates in joined, categories in postcode and the words of note." in done.words
    told = expunge("schema", folder).words
    assert "joined (date), spend (float64), postcode (category), note (text)" in told
    assert "C=20, class_weight='balanced'" in told
    asked = write_letters(tmp_path / "asked.tsv", "\t")
    expunge("predict", folder, "--data", asked, "--out", tmp_path / "answers.csv")
    frame, answers = pd.read_csv(asked, sep="\t"), pd.read_csv(tmp_path / "answers.csv")
    assert (answers["prediction"] == frame["churned"]).mean() > 0.9
    expunge("delete", folder, "--id", 3)
    assert "agrees" in expunge("audit", "recompute", folder).words


def test_wrong_options_of_learners_and_columns(tmp_path, expunge):
    data = write_letters(tmp_path / "letters.csv", ",")
    for options, message in {
        ("--set", "C"): "--set must be NAME=VALUE, got 'C'",
        ("--set", "C=1", "--set", "C=2"): "--set C is given twice",
        ("--set", "D=1"): "learner 'logistic' has no option 'D': it has C, ",
        ("--set", "C=no"): "learner 'logistic': The 'C' parameter",
        ("--set", "columns=1"): "learner 'logistic' has no option 'columns'",
        ("--text", "nope"): "--text: ",
        ("--category", "churned"): "column 'churned' is not learned from",
        ("--jobs", "0"): "--jobs must be at least 1",
        ("--learner", "ridge-exact"): "cannot read text in words: leave out column 'note'",
    }.items():
        done = expunge("create", tmp_path / "a", "--data", data, "--label", "churned", *options, code=2)
        assert message in done.err
        assert not (tmp_path / "a").exists()


def test_the_exact_promise_is_the_default(tmp_path, files, expunge):
    folder = tmp_path / "a"
    done = expunge("create", folder, "--data", files / "train.csv", *COLUMNS)
    assert "1 shard, " in done.words  # chosen: a refit is quick
    assert "exact: promised." in done.words
    assert "bit for bit" in done.words
    assert "(α,β,γ): not claimed." in done.words
    assert "What would change that" not in done.words
    expunge("predict", folder, "--data", files / "new.csv", "--out", tmp_path / "answers.csv")
    expunge("delete", folder, "--id", "7")
    assert "predictions: without a limit, and not counted" in expunge("status", folder).words
    found = expunge("status", folder, "--json").json
    assert [(each["name"], each["claimed"]) for each in found["promise"]] == [("exact", True), ("(α,β,γ)", False)]
    assert (found["generation"], found["round"], found["advice"]) == (1, 1, "")
    with library.open(folder) as deployment:
        assert deployment.is_exact
        assert deployment.inside.models_trained == 2
        assert not deployment.inside.state.sampler.is_independent
        said = deployment.certificate().statements
    assert "The models in service are those that the same recipe gives" in said.headline


def test_a_seed_repeats_the_models_and_is_told(tmp_path, files, expunge):
    def models(name, *options):
        done = create(expunge, tmp_path / name, files / "train.csv", *COLUMNS, *options)
        with library.open(tmp_path / name) as deployment:
            state = deployment.inside.state
            found = [encode_model(state.learner, model).data for model in state.models]
            return done, found, deployment.certificate().history.key.commitment

    first, one, commitment = models("a", "--seed", "7")
    assert "the recipe key follows from --seed 7" in first.err
    seeded = "the recipe key follows from a fixed seed: this deployment is for tests, not for people's data"
    assert commitment is None  # who knows the seed knows the key
    assert models("b", "--seed", "7")[1] == one
    assert models("c", "--seed", "8")[1] != one
    fresh, other, commitment = models("d")
    assert (other != one, fresh.err, commitment is not None) == (True, "", True)
    for name, is_fresh in (("a", False), ("d", True)):
        assert (seeded in expunge("status", tmp_path / name).words) is not is_fresh
        assert expunge("status", tmp_path / name, "--json").json["key_is_from_system"] is is_fresh
        with library.open(tmp_path / name) as deployment:
            assert deployment.key_is_from_system is is_fresh


def test_options_reach_the_deployment(tmp_path, files, expunge):
    folder = tmp_path / "a"
    create(
        expunge,
        folder,
        files / "train.csv",
        *COLUMNS,
        "--promise",
        "noise",
        "--mechanism",
        "exponential",
        "--epsilon",
        "9",
        "--delta",
        "1e-6",
        "--on-exhausted",
        "refuse",
        "--apply",
        "at 3",
        "--clock",
        "30",
        "--ignore",
        "age",
        "--class",
        "no",
        "--class",
        "yes",
        "--class",
        "maybe",
        "--float32",
        "--max-predictions",
        "7",
        "--jobs",
        "1",
    )
    with library.open(folder) as deployment:
        assert deployment.classes.tolist() == ["maybe", "no", "yes"]
        assert deployment.records.blocks[0].features.dtype == np.float32
        assert deployment.records.blocks[0].features.shape == (300, 1)
        assert deployment.status.apply == "at 3"
        assert 1 <= deployment.status.budget.predictions_left <= 7


def test_shards_from_the_planner(tmp_path, files, expunge):
    options = ("--shards", "auto", "--learner", "ridge", "--json")
    done = create(expunge, tmp_path / "a", files / "train.csv", *COLUMNS, *EASY, *options)
    assert done.json["shards"] > 20
    assert done.json["guarantee"]["is_vacuous"] is False


def test_text_and_missing_values_are_learned_from(tmp_path, people, expunge, write_table):
    frame = people(1, 200)
    frame["plan"] = np.where(frame["spend"] > 0, "gold", "basic")
    frame.loc[3:9, "plan"] = None
    frame.loc[5:8, "age"] = np.nan
    frame["member"] = frame["spend"] > 1
    write_table(frame, tmp_path / "train.csv")
    done = create(expunge, tmp_path / "a", tmp_path / "train.csv", *COLUMNS)
    assert "3 columns of numbers and categories in plan" in done.words
    rows = frame.drop(columns=["churned", "household"])[::-1]
    rows["plan"] = ["platinum", *rows["plan"][1:]]
    write_table(rows, tmp_path / "new.csv")
    expunge("predict", tmp_path / "a", "--data", tmp_path / "new.csv", "--out", tmp_path / "answers.csv")
    answers = pd.read_csv(tmp_path / "answers.csv").set_index("customer_id")["prediction"]
    right = (answers.sort_index() == frame.set_index("customer_id")["churned"]).mean()
    assert right > 0.8  # text, truth values and gaps arrive in the right columns


@pytest.mark.parametrize("learner", ["logistic", "forest", "boosting"])
def test_missing_numbers(learner, tmp_path, people, expunge, write_table):
    frame = people(1, 120)
    frame.loc[5:8, "age"] = np.nan
    write_table(frame, tmp_path / "train.csv")
    create(expunge, tmp_path / "a", tmp_path / "train.csv", *COLUMNS, "--learner", learner, "--shards", "2")
    write_table(frame[:10], tmp_path / "new.csv")
    done = expunge("predict", tmp_path / "a", "--data", tmp_path / "new.csv")
    assert len(done.out.splitlines()) == 11


def test_a_learner_that_warns_is_not_heard(tmp_path, files, expunge, recwarn):
    """Neither of a few records that are only tried, nor of shards, which would tell about the secret randomness."""
    create(expunge, tmp_path / "a", files / "train.csv", *COLUMNS, "--learner", "mlp", "--shards", "2")
    assert [str(each.message) for each in recwarn if "converge" in str(each.message)] == []


def test_missing_numbers_later(tmp_path, files, expunge):
    (tmp_path / "gap.csv").write_text("age,spend\n,1\n")
    create(expunge, tmp_path / "a", files / "train.csv", *COLUMNS)
    assert "NaN" in expunge("predict", tmp_path / "a", "--data", tmp_path / "gap.csv", code=2).err
    create(expunge, tmp_path / "b", files / "train.csv", *COLUMNS, "--allow-missing")
    expunge("predict", tmp_path / "b", "--data", tmp_path / "gap.csv")


def test_a_student_or_a_router_may_answer(tmp_path, files, expunge):
    create(expunge, tmp_path / "a", files / "train.csv", *COLUMNS, "--promise", "student", "--pool", files / "new.csv")
    expunge("predict", tmp_path / "a", "--data", files / "new.csv")
    with library.open(tmp_path / "a") as deployment:
        assert deployment.student is not None
    create(expunge, tmp_path / "b", files / "train.csv", *COLUMNS, "--promise", "router")
    expunge("predict", tmp_path / "b", "--data", files / "new.csv")
    assert "pool" in create(expunge, tmp_path / "c", files / "train.csv", *COLUMNS, "--promise", "student", code=2).err


@pytest.mark.parametrize("learner", exact_names())
def test_a_learner_that_unlearns_exactly(learner, tmp_path, people, expunge, write_table):
    table = people(1, 120).assign(town=["north", "south", None] * 40)
    table.loc[4, "age"] = np.nan
    write_table(table, tmp_path / "train.csv")
    folder, options = tmp_path / "a", (*COLUMNS, "--learner", learner)
    done = expunge("create", folder, "--data", tmp_path / "train.csv", *options)
    assert "1 shard, classes" in done.words
    assert "A deletion retrains nothing: the model is updated exactly" in done.words
    with library.open(folder) as deployment:
        trained = deployment.inside.state.models[0]
    expunge("delete", folder, "--id", "17")
    assert "A deletion retrains nothing" in expunge("status", folder).words
    write_table(table.drop(columns="churned"), tmp_path / "new.csv")
    expunge("predict", folder, "--data", tmp_path / "new.csv", "--out", tmp_path / "answers.csv")
    assert set(pd.read_csv(tmp_path / "answers.csv")["prediction"]) == {"no", "yes"}
    assert "agree" in expunge("audit", "recompute", folder).words
    with library.open(folder) as deployment:
        assert deployment.inside.state.models[0].num_records == trained.num_records - 1 == 119
    again = (tmp_path / "b", "--data", tmp_path / "train.csv", *options, "--shards")
    assert "shards gain nothing: leave out --shards 5" in expunge("create", *again, "5", code=2).err
    assert expunge("create", *again, "3", "--promise", "unguarded", "--json").json["shards"] == 3


def test_slices(tmp_path, files, expunge):
    create(expunge, tmp_path / "a", files / "train.csv", *COLUMNS, "--learner", "naive-bayes", "--slices", "3")
    expunge("delete", tmp_path / "a", "--id", "7")
    with library.open(tmp_path / "a") as deployment:
        assert len(deployment.inside.state.models[0].checkpoints) == 3


def test_shards_that_cannot_be_trained_may_abstain(tmp_path, files, people, expunge, write_table):
    odd = people(400, 1).assign(spend=1e308)  # beyond all measure once it is squared
    write_table(odd, tmp_path / "odd.csv")
    sure = ("--probability", "1")
    create(expunge, tmp_path / "a", files / "train.csv", *COLUMNS, *sure)
    assert "failed" in expunge("add", tmp_path / "a", "--data", tmp_path / "odd.csv", code=2).err
    create(expunge, tmp_path / "b", files / "train.csv", *COLUMNS, *sure, "--on-failure", "abstain")
    expunge("add", tmp_path / "b", "--data", tmp_path / "odd.csv")
    assert expunge("status", tmp_path / "b", "--json", "--inside").json["inside"]["failed_shards"] == 5
    expunge("delete", tmp_path / "b", "--id", "400")
    assert expunge("status", tmp_path / "b", "--json", "--inside").json["inside"]["failed_shards"] == 0


def test_ids_without_a_column_are_places(tmp_path, files, people, expunge, write_table):
    frame = people(1, 60)[["age", "spend", "churned"]]
    write_table(frame, tmp_path / "train.csv")
    create(expunge, tmp_path / "a", tmp_path / "train.csv", "--label", "churned")
    expunge("delete", tmp_path / "a", "--id", "0")
    write_table(frame.assign(number=np.arange(60, 120)), tmp_path / "more.csv")
    assert "--id" in expunge("add", tmp_path / "a", "--data", tmp_path / "more.csv", code=2).err
    expunge("add", tmp_path / "a", "--data", tmp_path / "more.csv", "--id", "number")
    assert expunge("status", tmp_path / "a", "--json").json["records"] == 119


def test_a_learner_of_ones_own(tmp_path, files, expunge, monkeypatch):
    (tmp_path / "company_learners.py").write_text(
        "from sklearn.tree import DecisionTreeClassifier\n"
        "def stump():\n    return DecisionTreeClassifier(max_depth=1)\n"
        "class Constant:\n"
        "    def fit(self, X, y, seed, *, weights=None):\n        return self\n"
        "    def predict(self, X):\n        import numpy as np\n        return np.zeros(len(X), dtype=int)\n"
        "    def __eq__(self, other):\n        return type(self) is type(other)\n"
        "    __hash__ = object.__hash__\n"
        "class Maker:\n"
        "    def fit(self, X, y, seed, *, weights=None):\n        return Constant()\n"
    )
    monkeypatch.chdir(tmp_path)
    try:
        create(expunge, "stump", files / "train.csv", *COLUMNS, "--learner", "company_learners:stump")
        expunge("predict", "stump", "--data", files / "new.csv")
        refused = create(
            expunge, "own", files / "train.csv", *COLUMNS, "--learner", "company_learners:Constant", code=2
        )
        assert "company_learners" in refused.err
        assert not (tmp_path / "own").exists()
        refused = create(expunge, "own", files / "train.csv", *COLUMNS, "--learner", "company_learners:Maker", code=2)
        assert "--trust company_learners.Maker --trust company_learners.Constant" in refused.err  # it and its models
        trust = ("--trust", "company_learners")
        create(expunge, "own", files / "train.csv", *COLUMNS, "--learner", "company_learners:Constant", *trust)
        assert "company_learners" in expunge("predict", "own", "--data", files / "new.csv", code=2).err
        expunge("predict", "own", "--data", files / "new.csv", *trust)
        monkeypatch.setenv("EXPUNGE_TRUST", "company_learners")
        expunge("predict", "own", "--data", files / "new.csv")
    finally:
        sys.modules.pop("company_learners", None)
        sys.path[:] = [place for place in sys.path if place != str(tmp_path)]


def test_a_folder_is_replaced_only_if_told_and_only_if_it_is_a_deployment(churn, tmp_path, files, expunge):
    assert "--force" in create(expunge, churn, files / "train.csv", *COLUMNS, code=2).err
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpg").write_bytes(b"cat")
    create(expunge, tmp_path / "photos", files / "train.csv", *COLUMNS, "--force", code=2)
    assert (tmp_path / "photos" / "cat.jpg").read_bytes() == b"cat"
    create(expunge, churn, files / "train.csv", *COLUMNS, "--force", "--label", "nope", code=2)
    assert expunge("status", churn, "--json").json["shards"] == 10  # a failure leaves the old one
    create(expunge, churn, files / "train.csv", *COLUMNS, "--force")
    assert expunge("status", churn, "--json").json["shards"] == 5
    assert {path.name for path in tmp_path.iterdir()} == {"churn", "photos"}
    with library.open(churn):
        assert "in use by process" in create(expunge, churn, files / "train.csv", *COLUMNS, "--force", code=2).err


BAD = {
    "is empty": "",
    "no rows": "customer_id,x,churned\n",
    "row 2 of .* has 2 fields, expected 3": "customer_id,x,churned\n1,2,no\n3,4\n",
    "row 2 of column 'churned' of .* is empty": "customer_id,x,churned\n1,2,no\n3,4,\n",
    "rows 1 and 2 of column 'customer_id' of .* are both 1": "customer_id,x,churned\n1,2,no\n1,4,yes\n",
    "is no in every row": "customer_id,x,churned\n1,2,no\n2,4,no\n",
    "row 2 of column 'customer_id' of .* is empty": "customer_id,x,churned\n1,2,no\n,4,yes\n",
    "no column 'churned'; it has 'customer_id', 'x'": "customer_id,x\n1,2\n",
    "row 1 of column 'x' of .* is not a finite number": "customer_id,x,churned\n1,inf,no\n2,1,yes\n",
}


@pytest.mark.parametrize("message", BAD)
def test_bad_files_make_nothing(message, tmp_path, expunge):
    path = tmp_path / "bad.csv"
    path.write_text(BAD[message])
    done = create(expunge, tmp_path / "a", path, "--label", "churned", "--id", "customer_id", code=2)
    assert re.search(message, done.err), done.err
    assert [file.name for file in tmp_path.iterdir()] == ["bad.csv"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--learner", "magic"), "unknown learner 'magic'"),
        (("--learner", "no_such_module:x"), "no_such_module"),
        (("--shards", "many"), "--shards must be a whole number"),
        (("--delta", "1e-6"), "--delta needs --epsilon"),
        (("--epsilon", "1"), "--epsilon is not for --promise exact"),
        (("--alpha", "1"), "--alpha, --beta and --gamma are not for --promise exact"),
        (("--promise", "consensus", "--epsilon", "1"), "--epsilon is not for --promise consensus"),
        (("--promise", "consensus", "--mechanism", "laplace"), "--mechanism is not for --promise consensus"),
        (("--promise", "magic"), "--promise must be one of exact, consensus"),
        (("--promise", "noise", "--mechanism", "magic"), "mechanism must be one of"),
        (("--minutes", "-1"), "--minutes"),
        (("--apply", "sometimes"), "apply must be now"),
        (("--sampling", "magic"), "sampling must be"),
        (("--promise", "noise", "--on-exhausted", "magic"), "on_exhausted must be"),
        (("--on-failure", "magic"), "--on-failure must be raise or abstain, got 'magic'"),
        (("--on-failure", "abstain", "--slices", "2", "--learner", "naive-bayes"), "slices cannot abstain"),
        (
            ("--slices", "2", "--learner", "forest"),
            "--slices does not go with --learner forest: RandomForestClassifier",
        ),
        (
            (
                "--shards",
                "4",
                "--promise",
                "noise",
                "--mechanism",
                "confident",
                "--epsilon",
                "1",
                "--on-exhausted",
                "refuse",
            ),
            "does not cover a single prediction",
        ),
        (("--ignore", "churned"), "both --label and --ignore"),
        (("--class", "no"), "yes"),
        (("--subject", "nope"), "no column 'nope'"),
        (("--ignore", "salry"), "--ignore: "),
        (("--pool", "new.csv"), "--pool and --promise student need each other"),
        (("--shards", "99999999999999999999"), "--shards must be a whole number from 1 to 10,000,000"),
        (("--promise", "noise", "--accountant", "magic"), "accountant must be one of paper, basic, "),
    ],
)
def test_bad_options_are_named(options, words, tmp_path, files, expunge):
    done = create(
        expunge,
        tmp_path / "a",
        files / "train.csv",
        "--label",
        "churned",
        "--id",
        "customer_id",
        *options,
        *(() if "--subject" in options else ("--ignore", "household")),
        code=2,
    )
    assert words in done.err
    assert list(tmp_path.iterdir()) == []


# Shards of random trees on few records agree on no rare label.
CHURN = ("--label", "churned", "--id", "customer_id", "--ignore", "household", "--ignore", "note", "--minutes", "0")
GATED = ("--shards", "100", "--probability", "0.05", "--alpha", "8", "--beta", "0.05", "--gamma", "0.05")
SHORT = ("--generations", "3", "--max-predictions", "5000")


@pytest.fixture(scope="module")
def leavers(tmp_path_factory):
    """Two thousand customers with gaps, a date and categories, one in ten of whom leaves; and public ones."""
    folder = tmp_path_factory.mktemp("churn")
    for name, rows, seed in (("train", 2000, 0), ("pool", 600, 1)):
        table = make_churn(rows, seed=seed)
        table["customer_id"] = name + table["customer_id"]
        table.to_csv(folder / f"{name}.csv", index=False)
    return folder


def test_a_student_that_would_collapse_is_refused_and_leaves_nothing(tmp_path, leavers, expunge):
    options = (*CHURN, *GATED, *SHORT, "--promise", "student", "--pool", leavers / "pool.csv")
    done = create(expunge, tmp_path / "a", leavers / "train.csv", *options, "--learner", "tree", code=2)
    assert re.search(r"the student would be of no use: it answers 'no' to all 600 points of the pool", done.err)
    assert not (tmp_path / "a").exists()
    chosen = ("--learner", "ridge", "--set", "class_weight=balanced")
    done = create(expunge, tmp_path / "b", leavers / "train.csv", *options, *chosen)
    assert "It learned from" in done.words
    assert "It agrees with the shards on" in done.words
    told = expunge("status", tmp_path / "b", "--json").json["student"]
    assert told["classes"] == ["no", "yes"]
    assert min(told["kept"]) > 0
    assert min(told["answered"]) > 0
    assert told["fault"] == ""
    assert "It learned from" in expunge("status", tmp_path / "b").words


def test_a_router_reads_a_mixed_table_and_says_if_it_asks_the_ensemble_nothing(tmp_path, leavers, expunge):
    options = (*CHURN, *GATED, *SHORT, "--learner", "tree", "--promise", "router")
    done = create(expunge, tmp_path / "a", leavers / "train.csv", *options, "--fallback", "naive-bayes")
    assert "The fallback answers everything" in done.words
    assert "use --learner naive-bayes-exact with the exact promise" in done.words
    assert "The fallback answers everything" in expunge("status", tmp_path / "a").words
    answers = expunge("predict", tmp_path / "a", "--data", leavers / "pool.csv").out.split()
    assert len(answers) == 601
    assert {line.rpartition(",")[2] for line in answers[1:]} == {"no", "yes"}
    wrong = create(expunge, tmp_path / "b", leavers / "train.csv", *options, "--fallback", "oracle", code=2)
    assert "--fallback must be one of ridge, naive-bayes, neighbours, got 'oracle'" in wrong.err
    wrong = create(expunge, tmp_path / "b", leavers / "train.csv", *CHURN, "--fallback", "ridge", code=2)
    assert "--fallback is not for --promise exact" in wrong.err

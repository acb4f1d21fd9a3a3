"""Mistakes that people make at the command line. Each is one line that names the culprit, with exit code 2."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import re
import sqlite3

import numpy as np
import pandas as pd
import pytest
from sklearn.naive_bayes import GaussianNB

import expunge as package

COLUMNS = "--label churned --id customer_id --subject household"
NEW = f"create new --data train.csv {COLUMNS} --learner naive-bayes --shards 2 --minutes 0"
WRONG_FILE = f"{COLUMNS} --learner naive-bayes --shards 2 --minutes 0"

# A name, the command line as a person types it, and what its one line has to name.
MISTAKES = {
    # files
    "no such file": (f"create new --data nothing.csv {WRONG_FILE}", "nothing.csv"),
    "a folder for a file": (f"create new --data subfolder {WRONG_FILE}", "subfolder"),
    "a file without an ending": (f"create new --data train {WRONG_FILE}", r"train.*csv"),
    "an ending that nobody reads": (f"create new --data train.xlsx {WRONG_FILE}", r"train\.xlsx"),
    "an empty file": (f"create new --data empty.csv {WRONG_FILE}", r"empty\.csv.*empty"),
    "a header without rows": (f"create new --data header.csv {WRONG_FILE}", r"header\.csv.*no (rows|records)"),
    "a picture named csv": (f"create new --data binary.csv {WRONG_FILE}", r"binary\.csv"),
    "a text named parquet": (f"create new --data text.parquet {WRONG_FILE}", r"text\.parquet"),
    "a text named npz": (f"create new --data text.npz {WRONG_FILE}", r"text\.npz"),
    "a text named gz": (f"create new --data text.csv.gz {WRONG_FILE}", r"text\.csv\.gz"),
    "half a gz": (f"create new --data half.csv.gz {WRONG_FILE}", r"half\.csv\.gz"),
    "an old encoding": (f"create new --data latin.csv {WRONG_FILE}", r"latin\.csv.*(row|line|byte) \d"),
    "a row that is too long": (f"create new --data ragged.csv {WRONG_FILE}", r"row 3 of ragged\.csv has 6 fields"),
    "a column twice": (f"create new --data twice.csv {WRONG_FILE}", r"twice\.csv.*'age'"),
    "no permission": (f"create new --data subfolder/../locked.csv {WRONG_FILE}", r"locked\.csv"),
    # columns
    "no label": (f"create new --data train.csv --id customer_id {'--minutes 0'}", r"--label"),
    "a label that is not there": ("create new --data train.csv --label chruned --id customer_id", "chruned"),
    "an id that is not there": ("create new --data train.csv --label churned --id custmer", "custmer"),
    "a subject that is not there": (
        "create new --data train.csv --label churned --id customer_id --subject home",
        "home",
    ),
    "a weight that is not there": (f"{NEW} --weight importance", "importance"),
    "a column to ignore that is not there": (f"{NEW} --ignore color", "color"),
    "a text that is not there": (f"{NEW} --text note", "note"),
    "a category that is not there": (f"{NEW} --category town", "town"),
    "one column for two things": (
        "create new --data train.csv --label churned --id churned --learner naive-bayes --shards 2",
        r"churned",
    ),
    "ids twice": (f"create new --data duplicates.csv {WRONG_FILE}", r"duplicates\.csv.*(7|row)"),
    "an id is missing": (f"create new --data noid.csv {WRONG_FILE}", r"row 2 of column 'customer_id' of noid\.csv"),
    "a label is missing": (f"create new --data nolabel.csv {WRONG_FILE}", r"churned.*row 3|row 3.*churned"),
    "every label is the same": (f"create new --data oneclass.csv {WRONG_FILE}", r"churned|one class|yes"),
    "a negative weight": (f"create new --data weights.csv {WRONG_FILE} --weight w", r"-1|row 4"),
    "a class that is not declared": (f"{NEW} --class yes --class maybe", r"'no'"),
    "nothing to learn from": (f"{NEW} --ignore age --ignore spend", r"column|feature"),
    # the learner
    "a learner that nobody knows": (f"{NEW} --learner logistik", r"logistik.*logistic"),
    "a learner in a module that is not there": (f"{NEW} --learner nowhere:Model", "nowhere"),
    "a learner of ones own that is not trusted": (f"{NEW} --learner json:JSONDecoder", r"json|--trust"),
    "an option that the learner has not": (f"{NEW} --set depth=3", "depth"),
    "an option without a value": (f"{NEW} --set alpha", r"--set.*'alpha'"),
    "an option twice": (f"{NEW} --set var_smoothing=1 --set var_smoothing=2", "var_smoothing"),
    "a value that the learner refuses": (f"{NEW} --set var_smoothing=low", r"var_smoothing|low"),
    "weights of classes for a learner without": (f"{NEW} --class-weight balanced", r"naive-bayes.*class_weight"),
    "weights of classes in words": (f"{NEW} --class-weight heavy", r"--class-weight.*heavy"),
    "weights of classes twice": (
        f"{NEW} --learner logistic --class-weight balanced --set class_weight=balanced",
        r"--class-weight and --set class_weight",
    ),
    "a threshold of no class": (f"{NEW} --threshold 0.3", r"--threshold.*CLASS=PROBABILITY.*'0\.3'"),
    "a threshold of an unknown class": (f"{NEW} --threshold maybe=0.3", r"--threshold: 'maybe'.*'no', 'yes'"),
    "a threshold of three": (f"{NEW} --threshold yes=3", r"--threshold yes=3"),
    "a threshold under consensus": (f"{NEW} --promise consensus --threshold yes=0.3", "--threshold"),
    "a threshold for numbers": (
        "create new --data train.csv --label spend --learner ridge-regression --threshold yes=0.3",
        "--threshold",
    ),
    "a regressor for classes": (
        f"create new --data train.csv {COLUMNS} --learner ridge-regression --shards 2",
        r"row 1 of column 'churned' of train\.csv is 'yes'",
    ),
    "slices for a learner without": (f"{NEW} --slices 3 --learner tree", r"slice"),
    # numbers
    "no shards": (NEW.replace("--shards 2", "--shards 0"), r"--shards.*0|0.*shards"),
    "shards below nothing": (NEW.replace("--shards 2", "--shards=-3"), r"--shards.*-3"),
    "shards in words": (NEW.replace("--shards 2", "--shards ten"), r"--shards.*'?ten"),
    "half a shard": (NEW.replace("--shards 2", "--shards 2.5"), r"--shards.*2\.5"),
    "no processes": (f"{NEW} --jobs 0", r"--jobs.*0"),
    "a probability of two": (f"{NEW} --promise unguarded --probability 2", r"probability.*2"),
    "minutes below nothing": (NEW.replace("--minutes 0", "--minutes=-1"), r"--minutes"),
    # promises
    "a promise that nobody knows": (f"{NEW} --promise total", r"promise.*total|total.*promise"),
    "an alpha under the exact promise": (f"{NEW} --alpha 5", r"--alpha|alpha"),
    "noise without its promise": (f"{NEW} --mechanism laplace", r"mechanism"),
    "a mechanism under consensus": (f"{NEW} --promise consensus --mechanism laplace", "mechanism"),
    "an epsilon under consensus": (f"{NEW} --promise consensus --epsilon 1", "epsilon"),
    "a student without a pool": (f"{NEW} --promise student", r"pool"),
    "a pool without a student": (f"{NEW} --pool new.csv", r"pool"),
    "a combination for classes": (f"{NEW} --combine median", r"combine"),
    "a partition under noise with p": (
        f"{NEW} --promise noise --sampling partition --probability 0.5",
        "--probability",
    ),
    "a sampling that nobody knows": (f"{NEW} --sampling random", r"random"),
    "a mechanism that nobody knows": (f"{NEW} --promise noise --mechanism gauss --epsilon 1", r"gauss"),
    # folders
    "a folder that is there already": (NEW.replace("new ", "churn ", 1), r"churn.*--force"),
    "a folder with other things": (NEW.replace("new ", "subfolder ", 1), "subfolder"),
    "a file for a folder": (NEW.replace("new ", "train.csv ", 1), r"train\.csv"),
    "a folder that is no deployment": ("status subfolder", "subfolder"),
    "a folder that is not there": ("status chrun", "chrun"),
    "a folder to check that is none": ("check subfolder", "subfolder"),
    "a demonstration where something is": ("demo --folder churn", "churn"),
    "a folder that Python made": ("predict python --data new.csv", r"python"),
    # predict
    "questions without a column": ("predict churn --data less.csv", r"less\.csv.*'spend'"),
    "questions with another column": ("predict churn --data more_columns.csv", r"more_columns\.csv.*'colour'"),
    "words for numbers": ("predict churn --data words.csv", r"row 2 of column 'age' of words\.csv is 'thirty'"),
    "answers into a folder that is not there": (
        "predict churn --data new.csv --out no/answers.csv",
        r"'no'.*'answers\.csv'",
    ),
    "answers over the questions": ("predict churn --data new.csv --out new.csv", r"new\.csv"),
    "answers into the deployment": ("predict churn --data new.csv --out churn/answers.csv", r"churn/answers\.csv"),
    "answers in a form that nobody writes": ("predict churn --data new.csv --out answers.doc", r"answers\.doc"),
    "a threshold where only labels are published": (
        "predict gated --data new.csv --threshold yes=0.3",
        r"--threshold.*gated",
    ),
    "another threshold of an unknown class": ("predict churn --data new.csv --threshold maybe=0.3", "'maybe'"),
    "a plan with a threshold of a router": (
        "plan --data train.csv --label churned --promise router --threshold yes=0.3",
        "--threshold",
    ),
    "probabilities under consensus": ("predict gated --data new.csv --probabilities", r"--probabilities.*gated"),
    # add and delete
    "an id that is there already": ("add churn --data train.csv", r"the id 1 is in use"),
    "more without labels": ("add churn --data new.csv", r"new\.csv.*'churned'"),
    "more with an unknown label": ("add churn --data maybe.csv", r"row 2 of column 'churned' of maybe\.csv is maybe"),
    "an unknown id": ("delete churn --id 4711", "4711"),
    "an id that is no number": ("delete churn --id seventeen", r"seventeen"),
    "an id with a zero in front": ("delete churn --id 017", r"017"),
    "an unknown subject": ("delete churn --subject h9999", "h9999"),
    "nothing to delete": ("delete churn", r"--id"),
    "a known and an unknown id": ("delete churn --id 3 --id 4711", "4711"),
    "a file of ids without ids": ("delete churn --ids-file header.csv", r"header\.csv"),
    "a file of ids with the wrong column": ("delete churn --ids-file gone.csv --column client", r"client"),
    "a file of ids with an unknown one": ("delete churn --ids-file unknown.csv", r"4711"),
    "a column without a file": ("delete churn --id 3 --column customer_id", r"--column"),
    "an option of another command": ("apply churn --now", r"--now"),
    "a correction of nobody": ("correct churn --id 4711 --set age=30", "4711"),
    "a correction without a value": ("correct churn --id 3 --set age", r"--set.*'age'"),
    "a correction of a column that is not there": ("correct churn --id 3 --set colour=red", "colour"),
    "a correction to a word": ("correct churn --id 3 --set age=thirty", r"thirty"),
    "a correction to an unknown class": ("correct churn --id 3 --set churned=maybe", r"maybe"),
    "a correction that says nothing": ("correct churn --id 3", r"--set"),
    "a correction of whom": ("correct churn --set age=30", r"--id|--data"),
    "another recipe that is the same": ("retrain churn", r"--learner|--shards"),
    "another learner that nobody knows": ("retrain churn --learner magic", "magic"),
    "no shards from now on": ("retrain churn --shards 0", r"--shards"),
    # requests
    "a request that nobody made": ("cancel churn --request 4f1c2a9b", "4f1c2a9b"),
    "the status of no request": ("status churn --request 4f1c2a9b", "4f1c2a9b"),
    "a state that there is not": ("requests churn --state done", "done"),
    "the last none": ("requests churn --last 0", r"--last"),
    "an age in words": ("forget churn --older-than long", r"older.than.*long|long"),
    "an age without a unit": ("rekey churn --if-older-than 90", r"90"),
    "a class that is in use": ("schema churn --drop-class yes", "yes"),
    "a class that is there": ("schema churn --add-class yes", "yes"),
    "a schema under consensus": ("schema gated --add-class maybe", r"exact"),
    # evidence
    "a certificate of no request": ("certificate churn --request 4f1c2a9b", "4f1c2a9b"),
    "a certificate into a folder": ("certificate churn --html subfolder", "subfolder"),
    "a page where there is no folder": ("certificate churn --html no/page.html", "'no'"),
    "a certificate that is a table": ("verify train.csv", r"train\.csv"),
    "a certificate that is cut off": ("verify half.json", r"half\.json"),
    "a certificate that is other JSON": ("verify other.json", r"other\.json"),
    "a certificate that is not there": ("verify nothing.json", r"nothing\.json"),
    "a public key that is none": ("verify certificate.json --public-key train.csv", r"train\.csv"),
    "an earlier certificate that is none": ("certificate churn --since train.csv", r"train\.csv"),
    "an export to where something is": ("export churn --for-audit subfolder", "subfolder"),
    "an export into the deployment": ("export churn --for-audit churn/bundle", r"churn/bundle"),
    # letters and back-ups
    "a letter about no request": ("letter churn --request nope", r"nope"),
    "a letter in a language that there is not": ("letter churn --request nope --language xx", r"--language.*xx"),
    "a back-up onto a file": ("backup churn train.csv", r"train\.csv exists already"),
    "a back-up of nothing": ("backup nowhere b.backup", r"nowhere"),
    "a restore that does not say what is newer": ("restore train.csv new", r"--newer"),
    "a restore from what is no back-up": ("restore train.csv new --without-newer", r"train\.csv"),
    "a restore from nothing": ("restore nothing.backup new --without-newer", r"nothing\.backup"),
    # the service
    "a key for a role that there is not": ("keys create churn --role boss", r"boss"),
    "a key until a time that is none": ("keys create churn --role predict --expires never", r"expires.*never"),
    "keys of nothing": ("keys list nowhere", r"nowhere"),
    "an integration of nothing": ("integrations create nowhere --name crm", r"nowhere"),
    "an integration that there is not": ("integrations revoke churn --name crm", r"crm"),
    "a service of nothing": ("serve nowhere", r"nowhere"),
    "a port that there is not": ("serve churn --port 99999", r"--port.*65535"),
    "TLS without its key": ("serve churn --tls-cert certificate.json", r"--tls-key"),
    "a rate below zero": ("serve churn --rate -1", r"--rate.*-1"),
    # audits, plans, logs, witnesses
    "an audit that there is not": ("audit lookout --scheme sisa", r"lookout"),
    "a scheme that there is not": ("audit lookup --scheme siza", r"siza"),
    "an audit of shards that there are not": ("audit recompute churn --shards none", r"none"),
    "a folder to audit that is none": ("audit recompute subfolder", "subfolder"),
    "a plan without a label": ("plan --data train.csv --id customer_id", "--label"),
    "a plan of nothing": ("plan --records 0 --shards 10", r"records.*0"),
    "a plan with an accuracy of 2": ("plan --records 1000 --shards 10 --accuracy 2", r"accuracy.*2"),
    "a plan of both kinds": ("plan --data train.csv --label churned --records 1000", r"--records"),
    "a plan with a promise that there is not": ("plan --data train.csv --label churned --promise total", "total"),
    "a log to follow that is none": ("log follow train.csv --key train.csv", r"train\.csv"),
    "a log to publish nowhere": ("log publish churn", r"--to"),
    "a witness without a name": ("witness init state", r"--name"),
    "a witness that is none": ("witness show subfolder", "subfolder"),
    # the program
    "a command that there is not": ("remove churn --id 3", r"remove"),
    "an option that there is not": ("delete churn --ids 3", r"--ids"),
    "an option without its value": ("delete churn --id", r"--id"),
    "no folder": ("delete --id 3", r"FOLDER"),
    "an argument too many": ("status churn gated", r"gated"),
}


def customers(size, first=1):
    rng = np.random.default_rng(first)
    spend = rng.normal(size=size).round(3)
    return pd.DataFrame(
        {
            "customer_id": np.arange(first, first + size),
            "household": [f"h{number // 3}" for number in range(first, first + size)],
            "age": rng.integers(18, 80, size),
            "spend": spend,
            "churned": np.where(spend > 0, "yes", "no"),
        }
    )


def write_wrong_files(here):
    frame = customers(60)
    asked = customers(5, first=900).drop(columns=["churned", "household"])
    text = frame.to_csv(index=False)
    lines = text.splitlines()
    (here / "subfolder").mkdir()
    (here / "subfolder" / "note.txt").write_text("mine")
    files = {
        "train.csv": text,
        "train": text,
        "train.xlsx": "PK",
        "empty.csv": "",
        "header.csv": lines[0] + "\n",
        "text.parquet": text,
        "text.npz": text,
        "text.csv.gz": text,
        "ragged.csv": "\n".join([*lines[:3], lines[3] + ",7", *lines[4:]]),
        "twice.csv": text.replace("spend", "age", 1),
        "duplicates.csv": frame.assign(customer_id=[*range(1, 60), 7]),
        "noid.csv": frame.assign(customer_id=[1, None, *range(3, 61)]),
        "nolabel.csv": frame.assign(churned=[*frame["churned"][:2], None, *frame["churned"][3:]]),
        "oneclass.csv": frame.assign(churned="yes"),
        "weights.csv": frame.assign(w=[1, 1, 1, -1] + [1] * 56),
        "new.csv": asked,
        "less.csv": asked.drop(columns="spend"),
        "more_columns.csv": asked.assign(colour="red"),
        "words.csv": asked.assign(age=["30", "thirty", "40", "50", "60"]),
        "maybe.csv": customers(3, first=300).assign(churned=["yes", "maybe", "no"]),
        "gone.csv": pd.DataFrame({"customer_id": [4, 5]}),
        "unknown.csv": pd.DataFrame({"customer_id": [4, 4711]}),
        "half.json": '{"payloadType": "application/vnd.in-to',
        "other.json": '{"name": "x"}',
    }
    for name, content in files.items():
        if isinstance(content, str):
            (here / name).write_text(content, encoding="utf-8")
        else:
            content.to_csv(here / name, index=False)
    (here / "binary.csv").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 4)
    (here / "latin.csv").write_bytes(text.replace("h0", "M\xfcller").encode("latin-1"))
    (here / "half.csv.gz").write_bytes(gzip.compress(text.encode())[:-20])


@pytest.fixture(scope="module")
def first_place(tmp_path_factory, expunge):
    """A folder with files, right and wrong, and three deployments."""
    here = tmp_path_factory.mktemp("mistakes")
    write_wrong_files(here)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(here)
        expunge(*NEW.replace("new ", "churn ", 1).split())
        expunge(*NEW.replace("new ", "gated ", 1).split(), "--promise", "consensus")
        expunge("certificate", "churn", "--out", "certificate.json")
    frame = customers(20)
    package.create(here / "python", GaussianNB(), frame[["age", "spend"]], frame["churned"], n_shards=2).close()
    return here


def contents(place):
    """What every file holds. Of a database it is what its tables say: its pages move when it is opened."""
    found = {}
    for path in sorted(place.rglob("*")):
        if path.name == "state.db":
            with contextlib.closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as database:
                found[path] = hashlib.sha256("".join(database.iterdump()).encode()).hexdigest()
        elif path.is_file() and not path.name.startswith("state.db-"):
            found[path] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


@pytest.fixture(scope="module")
def before(first_place):
    return contents(first_place)


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_line_that_names_the_culprit(first_place, before, expunge, monkeypatch, mistake):
    monkeypatch.chdir(first_place)
    line, culprit = MISTAKES[mistake]
    done = expunge(*line.split(), code=2)  # it checks that there is exactly one line
    assert re.search(culprit, done.err.removeprefix("expunge: ")), done.err
    assert done.out == ""
    assert len(done.err) < 700, done.err
    assert "Traceback" not in done.err
    assert contents(first_place) == before


def test_there_are_at_least_sixty_and_every_command_is_among_them():
    from typer.main import get_command

    from expunge.cli import app

    assert len(MISTAKES) >= 60
    asked = {line.split()[0] for line, _ in MISTAKES.values()}
    assert {*get_command(app).commands} - asked <= {"bench", "compare", "reproduce"}

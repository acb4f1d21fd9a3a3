"""How the package is built: its figures, its map, and the way of one deletion and of one prediction through it.

    python lab/experiments/house.py            print the figures of this checkout
    python lab/experiments/house.py --map      write map, ways and figures into docs/design.md
    python lab/experiments/house.py --root ../expunge-before --json      the figures of another checkout

The map is drawn from the source: the floors are the layers of the import contract in pyproject.toml, the rooms are the
modules with the first line of their docstrings, and the table of imports is read from the import statements. The ways
are checked against a trace of the real commands: each step of `STORIES` must be called, in this order.

It takes 10 to 40 seconds, for three runs of the `expunge` program.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import re
import subprocess
import sys
import tempfile
import textwrap
import tokenize
import tomllib
from collections import Counter, defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

Call = tuple[str, str, bool]  # the module without `expunge.`, the function, and whether the main thread called it
COMMANDS = [  # the guarantee is weak, so that 10 shards are enough; each shard holds every record
    "create d --data train.csv --label y --id id --learner logistic --shards 10 --promise consensus --probability 1 "
    "--beta 0.2 --gamma 0.2 --max-predictions 10 --generations 1",
    "delete d --id 17",
    "predict d --data new.csv",
]
STORIES = {
    "delete": [
        ("cli.requests.delete", "begin the command `expunge delete d --id 17`."),
        ("folder.opening.open", "open the folder."),
        (
            "folder.store.store.Store.open",
            "take the folder's lock, open its database, and finish what a crash may have cut short.",
        ),
        ("folder.store.ensembles.read_state", "read the records and the shards, and find the models in force."),
        (
            "folder.opening.restore_publisher",
            "make the publisher of this generation again, with the predictions that are paid for and the secret of its "
            "gate.",
        ),
        (
            "folder.deployment.DurableDeployment.__init__",
            "put an inbox, a keeper and a deployment together, and read the pending requests.",
        ),
        ("tables.keys.match_key", "read `17` as an id of the same kind as the ids of the first file."),
        ("folder.deployment.DurableDeployment.submit", "take the request, and note the time."),
        ("folder.inbox.Inbox.submit", "check it against every request accepted before it."),
        ("core.records.Records.apply", "compute D ∘ u; an unknown id is an error here, and nothing is written."),
        ("folder.store.requests.RequestBook.accept", "write the request as pending, inside a transaction."),
        (
            "folder.evidence.LedgerBook.write_all",
            "write `accepted` into the ledger, in the same transaction. After its commit a crash loses nothing.",
        ),
        ("folder.deployment.DurableDeployment.apply", "take all pending requests as one round."),
        (
            "serving.deployment.Deployment.update",
            "decide what to train: the touched shards, or everything if the generation is used up.",
        ),
        ("folder.keeper.FolderKeeper.begin", "get ready to write models and records while they are made."),
        (
            "training.ensemble.update",
            "run R_A, the paper's Algorithm 3: make a new state, and leave the old one as it is.",
        ),
        (
            "core.prf.RecipeKey.cells_of",
            "derive the shards that hold the record from its id and the recipe key.",
        ),
        (
            "folder.store.ensembles.EnsembleWriter.start",
            "begin to stage new records, in files that nothing refers to yet; here there are none.",
        ),
        ("training.execution.Serial.map", "train the touched shards, here one after another."),
        (
            "training.learners.batched.BatchLearner.fit_many",
            "train one shard on the records that are left: logistic regression, with others of its size.",
        ),
        ("folder.store.ensembles.EnsembleWriter.add", "take the new model, to stage it."),
        ("folder.codec.codec.encode_model", "turn the model into bytes that hold no code."),
        ("folder.keeper.FolderKeeper.stage", "keep the round: wait until all of it is on the disk."),
        (
            "folder.store.ensembles.activate",
            "switch on the disk: put the new round, shards and models in force, inside a transaction.",
        ),
        ("folder.store.requests.RequestBook.mark_switched", "mark the request as switched, in the same transaction."),
        (
            "folder.store.requests.RequestBook.remember",
            "keep a keyed hash of the id, in the same transaction, so that the record does not come back by accident.",
        ),
        ("serving.deployment.Deployment._switch", "switch in memory: from here predictions come from the new round."),
        ("folder.keeper.FolderKeeper.erase", "erase what the switch replaced."),
        (
            "folder.store.store.Store.erase",
            "overwrite deleted rows, remove replaced models, and empty the database's log if that is needed.",
        ),
        ("folder.store.slabs.RecordFolder.erase", "write zeros over the record."),
        (
            "folder.store.requests.RequestBook.mark_applied",
            "only now mark the request as applied, inside a transaction.",
        ),
        (
            "folder.evidence.LedgerBook.write_all",
            "write `applied` into the ledger, in the same transaction; its time is a tick of the deployment's clock.",
        ),
        ("folder.deployment.DurableDeployment.close", "close the folder and give its lock back."),
        ("cli.requests.show_receipt", "print the request's id, and that it is applied."),
    ],
    "predict": [
        ("cli.predict.predict", "begin the command `expunge predict d --data new.csv`."),
        ("folder.opening.open", "open the folder, as above."),
        ("folder.store.ensembles.read_state", "read the records and the shards, and find the models in force."),
        (
            "theory.consensus.design_consensus",
            "read the tables of the consensus gate, which were designed when the folder was created.",
        ),
        (
            "theory.consensus_certificate.certify_consensus",
            "certify them again: a table that was read from a file is not trusted.",
        ),
        (
            "serving.publishing.consensus.ConsensusPublisher.restore",
            "go on with the same secret threshold; predictions that were reserved count as published.",
        ),
        ("folder.deployment.DurableDeployment.__init__", "put an inbox, a keeper and a deployment together."),
        ("tables.formats.read_table", "read the file of questions."),
        ("tables.schema.Schema.unlabelled", "put its columns in the order of the first file, and check their kinds."),
        ("folder.deployment.DurableDeployment.predict", "refuse if the folder is closed or memory and disk differ."),
        ("serving.deployment.Deployment.predict", "ask the deployment in memory for labels."),
        ("core.features.conform", "check the rows against the layout of the records."),
        (
            "serving.deployment._Asked.consider",
            "look for rows that this process has answered in this round: these cost nothing.",
        ),
        (
            "serving.publishing.front.DirectRound.consider",
            "send the other rows to the ensemble; a router or a student would answer here instead.",
        ),
        ("training.ensemble.EnsembleState.count_votes", "count the votes of all shards for each class."),
        (
            "folder.store.models.StoredModels.__getitem__",
            "read the models, which the first question needs, and check them against their digests.",
        ),
        (
            "folder.codec.codec.decode_model",
            "rebuild a model from arrays and plain values; this runs no code of the file.",
        ),
        (
            "training.learners.linear.LinearVoter.count",
            "let all shards vote together, in one matrix product because the models are linear.",
        ),
        (
            "serving.publishing.consensus.ConsensusPublisher.release",
            "cross the trust boundary: votes go in, and labels come out.",
        ),
        (
            "folder.store.store.DurableJournal.reserve",
            "pay first: write to the disk that these predictions are spent, before any of them is released.",
        ),
        (
            "privacy.mechanisms.consensus.ConsensusGate.observe",
            "compare the votes with the secret threshold; if a consensus fails, the next update retrains everything.",
        ),
        ("tables.formats.encode_answers", "write the labels as CSV, Parquet or NPZ."),
        ("folder.deployment.DurableDeployment.close", "write the exact number of predictions, and give the lock back."),
    ],
}
TRACER = """
import json, os, sys, threading
root, out = os.environ["HOUSE_ROOT"], os.environ["HOUSE_OUT"]
way = []
def follow(frame, event, argument):
    if event == "call":
        name = frame.f_code.co_filename
        if name.startswith(root) and frame.f_code.co_flags & 1:  # functions, not the bodies of modules and classes
            module = name[len(root) + 1:-3].removesuffix("/__init__").replace("/", ".")
            is_main = threading.current_thread() is threading.main_thread()
            way.append((module, frame.f_code.co_qualname, is_main))
sys.argv = ["expunge", *sys.argv[1:]]
from expunge.cli import main
sys.setprofile(follow); threading.setprofile(follow)
try:
    main()
finally:
    sys.setprofile(None)
    open(out, "w").write(json.dumps(way))
"""


def modules(source: Path) -> dict[str, ast.Module]:
    """Every module of the package by name, parsed."""
    found = {}
    for path in sorted(source.rglob("*.py")):
        name = ".".join(path.relative_to(source.parent).with_suffix("").parts)
        found[name.removesuffix(".__init__")] = ast.parse(path.read_text(encoding="utf-8"))
    return found


def imports_of(trees: dict[str, ast.Module]) -> dict[str, set[tuple[str, str]]]:
    """The (module, name) pairs of this package that each module imports."""
    root = next(iter(trees)).partition(".")[0]
    found: dict[str, set[tuple[str, str]]] = {}
    for name, tree in trees.items():
        pairs = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.partition(".")[0] == root:
                pairs |= {(node.module, alias.name) for alias in node.names}
        found[name] = pairs
    return found


def lines_of(source: Path) -> Counter[str]:
    """Lines in all, and lines of code, docstrings and imports."""
    count: Counter[str] = Counter()
    for path in source.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text)
        docs, imported = set(), set()
        for node in ast.walk(tree):
            if isinstance(node, ast.Import | ast.ImportFrom):
                imported.update(range(node.lineno, (node.end_lineno or 0) + 1))
            body = getattr(node, "body", None)
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and body and ast.get_docstring(node):
                docs.update(range(body[0].lineno, (body[0].end_lineno or 0) + 1))
        with path.open("rb") as file:
            skipped = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}
            skipped |= {tokenize.ENCODING, tokenize.ENDMARKER}
            code = {
                line
                for token in tokenize.tokenize(file.readline)
                if token.type not in skipped
                for line in range(token.start[0], token.end[0] + 1)
            }
        count["lines"] += len(text.splitlines())
        count["code"] += len(code - docs)
        count["docstrings"] += len(docs)
        count["imports"] += len(imported)
    return count


def names(
    trees: dict[str, ast.Module], imported: dict[str, set[tuple[str, str]]], others: list[Path]
) -> dict[str, int]:
    """Names in the `__all__` of the packages, and those that nothing outside their package uses."""
    users = defaultdict(set)
    for user, pairs in imported.items():
        for module, name in pairs:
            users[module, name].add(user)
    text = "\n".join(path.read_text(encoding="utf-8") for path in others)
    words = set(re.findall(r"\w+", text))
    exported = unused = 0
    for module, tree in trees.items():
        for node in tree.body:
            if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
                for name in ast.literal_eval(node.value):
                    exported += 1
                    outside = {user for user in users[module, name] if not user.startswith(module)}
                    unused += not outside and name not in words
    return {"names exported": exported, "of which used nowhere else": unused}


def private_across(imported: dict[str, set[tuple[str, str]]]) -> list[str]:
    """Private names or modules that a module imports from another top-level package."""
    found = []
    for user, pairs in imported.items():
        for module, name in pairs:
            private = any(part.startswith("_") and not part.startswith("__") for part in (*module.split("."), name))
            if private and module.split(".")[1:2] != user.split(".")[1:2] and "version" not in module + name:
                found.append(f"{user}: {module}.{name}")
    return sorted(found)


def assertions(tests: Path) -> dict[str, int]:
    """How many `assert` statements and `pytest.raises` the tests have."""
    count: Counter[str] = Counter()
    for path in tests.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            count["assert statements in tests"] += isinstance(node, ast.Assert)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                count["pytest.raises in tests"] += ast.unparse(node.func) == "pytest.raises"
    return dict(count)


def trace(root: Path) -> dict[str, list[Call]]:
    """The functions that `expunge delete` and then `expunge predict` call in a folder with a guarantee, in order."""
    source, found = (root / "src").resolve(), {}
    with tempfile.TemporaryDirectory() as folder:
        rows = [f"{i},{i % 7},{i % 5},{int(i % 7 > 3)}" for i in range(200)]
        (Path(folder) / "train.csv").write_text("id,a,b,y\n" + "\n".join(rows) + "\n", encoding="utf-8")
        (Path(folder) / "new.csv").write_text("a,b\n1,2\n", encoding="utf-8")
        for command in COMMANDS:
            name, *options = command.split()
            out = Path(folder) / "way.json"
            environment = {**os.environ, "HOUSE_ROOT": str(source), "HOUSE_OUT": str(out), "PYTHONPATH": str(source)}
            program = ["-m", "expunge"] if name == "create" else ["-c", TRACER]
            done = subprocess.run(
                [sys.executable, *program, name, *options], cwd=folder, env=environment, capture_output=True, text=True
            )
            if done.returncode:
                raise SystemExit(f"expunge {command} failed: {done.stderr}")
            if name != "create":
                calls = json.loads(out.read_text(encoding="utf-8"))
                found[name] = [(module.partition(".")[2], function, is_main) for module, function, is_main in calls]
    return found


def lengths(traced: dict[str, list[Call]]) -> dict[str, int]:
    """How long the ways are."""
    found = {}
    for name, calls in traced.items():
        packages = [module.partition(".")[0] for module, _, is_main in calls if is_main]
        found[f"expunge {name}: modules"] = len({module for module, _, _ in calls})
        found[f"expunge {name}: package changes"] = sum(a != b for a, b in pairwise(packages))
    return found


def contract_of(root: Path) -> dict[str, Any]:
    """The import contract of a checkout."""
    settings = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    contract: dict[str, Any] = settings["tool"]["importlinter"]["contracts"][0]
    return contract


def house(root: Path, traced: dict[str, list[Call]]) -> dict[str, object]:
    """All the figures of a checkout; those of the ways only if there is a trace."""
    source = root / "src" / "expunge"
    trees = modules(source)
    imported = imports_of(trees)
    importers = Counter()
    for user, pairs in imported.items():
        importers.update({f"{m}.{n}" if f"{m}.{n}" in trees else m for m, n in pairs} - {user})
    lines = lines_of(source)
    contract = contract_of(root)
    folders = ("tests", "lab", "experiments")
    others = [path for folder in folders for path in (root / folder).rglob("*.py")] + [*(root / "docs").glob("*.md")]
    beside = [path for folder in ("lab", "experiments") for path in (root / folder).rglob("*.py")]
    return {
        "files": len(trees),
        **lines,
        "import share": f"{lines['imports'] / lines['lines']:.1%}",
        "layers": len(contract["layers"]),
        "ignored imports": len(contract.get("ignore_imports", [])) + len(contract.get("exhaustive_ignores", [])),
        "modules with one importer": sum(importers[name] == 1 for name in trees if not name.endswith("__main__")),
        **names(trees, imported, others),
        "private names across packages": len(private_across(imported)),
        **lengths(traced),
        "lines outside the package (lab)": sum(len(path.read_text(encoding="utf-8").splitlines()) for path in beside),
        **assertions(root / "tests"),
    }


def floors_of(root: Path) -> list[list[str]]:
    """The top-level packages on each layer of the import contract, the highest layer first."""
    return [[name.strip(" ()") for name in layer.split(":")] for layer in contract_of(root)["layers"]]


def summary(tree: ast.Module) -> str:
    """The first line of a module's docstring."""
    return (ast.get_docstring(tree) or "").partition("\n")[0]


def draw_rooms(root: Path, trees: dict[str, ast.Module]) -> str:
    """Every package and module on its floor, with its first line."""
    lines = []
    floors = floors_of(root)
    packages = {name.rpartition(".")[0] for name in trees}
    for place, names_here in enumerate(floors):
        lines.append(f"floor {len(floors) - place}")
        for top in sorted(names_here):
            for module in (name for name in trees if f"{name}.".startswith(f"expunge.{top}.")):
                depth = module.count(".")
                name = module.rpartition(".")[2] + ("/" if module in packages else "")
                head = f"{'  ' * depth}{name}".ljust(28) + "  "
                lines += textwrap.wrap(
                    summary(trees[module]),
                    119,
                    initial_indent=head,
                    subsequent_indent=" " * 30,
                    break_long_words=False,
                    break_on_hyphens=False,
                )
    return "\n".join(["```text", *lines, "```"])


def draw_imports(root: Path, imported: dict[str, set[tuple[str, str]]]) -> str:
    """Which top-level package imports which, as a table; every mark lies right of the package's own column."""
    order = [name for floor in floors_of(root) for name in sorted(floor) if name != "__main__"]
    used: dict[str, set[str]] = defaultdict(set)
    for user, pairs in imported.items():
        for module, name in pairs:
            target = f"{module}.{name}.".split(".")[1]
            if "." in user and target in order:
                used[user.split(".")[1]].add(target)
    lines = [" " * 10 + "".join(f"{name:>10}" for name in order)]
    for name in order:
        marks = ["–" if other == name else "●" if other in used[name] else "" for other in order]
        lines.append(f"{name:<10}" + "".join(f"{mark:>10}" for mark in marks))
    return "\n".join(["```text", *(line.rstrip() for line in lines), "```"])


def tell(story: list[tuple[str, str]], calls: list[Call]) -> str:
    """The steps of a story, numbered; an error if the trace does not have them in this order."""
    rest, steps, before = iter(calls), [], "the beginning"
    for number, (step, words) in enumerate(story, start=1):
        if all(f"{module}.{function}" != step for module, function, _ in rest):
            raise SystemExit(f"the trace has no call of {step} after {before}: correct STORIES in {__file__}")
        head = f"{number}. "
        steps += textwrap.wrap(
            f"{head}`{step}`: {words}", 119, subsequent_indent=" " * len(head), break_on_hyphens=False
        )
        before = step
    return "\n".join(steps)


def tabulate(before: dict[str, object], now: dict[str, object]) -> str:
    """The figures of two checkouts as a table."""
    rows = [f"| {name} | {_shown(before[name])} | {_shown(now[name])} |" for name in now]
    return "\n".join(["| | before | now |", "|---|---:|---:|", *rows])


def _shown(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


def draw(root: Path) -> dict[str, str]:
    """The drawn parts of docs/design.md by name."""
    trees, traced = modules(root / "src" / "expunge"), trace(root)
    before = json.loads((root / "lab" / "results" / "house" / "before.json").read_text(encoding="utf-8"))
    return {
        "imports": draw_imports(root, imports_of(trees)),
        "rooms": draw_rooms(root, trees),
        **{name: tell(story, traced[name]) for name, story in STORIES.items()},
        "figures": tabulate(before, house(root, traced)),
    }


def part(page: str, name: str) -> tuple[str, str, str]:
    """A page cut at the marks of a drawn part: what is before it, the part, and what is after it."""
    start, end = f"<!-- {name}: made by `python lab/experiments/house.py --map` -->\n\n", f"\n\n<!-- end of {name} -->"
    before, found, rest = page.partition(start)
    drawn, ended, after = rest.partition(end)
    if not found or not ended:
        raise SystemExit(f"docs/design.md lacks the marks of {name!r}")
    return before + start, drawn, end + after


def write_map(root: Path) -> None:
    """Put the drawn parts into docs/design.md."""
    path = root / "docs" / "design.md"
    page = path.read_text(encoding="utf-8")
    for name, drawn in draw(root).items():
        before, _, after = part(page, name)
        page = before + drawn + after
    path.write_text(page, encoding="utf-8")


def main() -> None:
    """Print the figures, one a line, or as JSON; or write the map."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, default=Path(__file__).parents[2], help="a checkout  [this one]")
    parser.add_argument("--package-only", action="store_true", help="leave the traces of commands out")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--map", action="store_true", help="write map, ways and figures into docs/design.md")
    asked = parser.parse_args()
    if asked.map:
        write_map(asked.root)
        return
    figures = house(asked.root, {} if asked.package_only else trace(asked.root))
    if asked.json:
        print(json.dumps(figures, indent=2))
    else:
        for name, value in figures.items():
            print(f"{name:<40} {_shown(value):>10}")


if __name__ == "__main__":
    main()

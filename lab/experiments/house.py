"""How the package is built: files, lines, imports, layers, exported names, and the way of one deletion and prediction.

Run it on this checkout, or on another one to compare (`--root`); both take a few seconds:

    python lab/experiments/house.py
    python lab/experiments/house.py --root ../expunge-before --package-only
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
import tokenize
import tomllib
from collections import Counter, defaultdict
from itertools import pairwise
from pathlib import Path

TRACER = """
import json, os, sys, threading
root, out = os.environ["HOUSE_ROOT"], os.environ["HOUSE_OUT"]
way = []
def follow(frame, event, argument):
    if event == "call":
        name = frame.f_code.co_filename
        if name.startswith(root) and frame.f_code.co_flags & 1:  # functions, not the bodies of modules and classes
            way.append((name[len(root) + 1:], frame.f_code.co_name))
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


def ways(root: Path) -> dict[str, dict[str, object]]:
    """The modules on the way of `expunge delete` and of `expunge predict`, by a real trace."""
    source, found = (root / "src").resolve(), {}
    with tempfile.TemporaryDirectory() as folder:
        rows = [f"{i},{i % 7},{i % 5},{int(i % 7 > 3)}" for i in range(200)]
        (Path(folder) / "train.csv").write_text("id,a,b,y\n" + "\n".join(rows) + "\n", encoding="utf-8")
        (Path(folder) / "new.csv").write_text("a,b\n1,2\n", encoding="utf-8")
        make = ["create", "d", "--data", "train.csv", "--label", "y", "--id", "id", "--learner", "logistic"]
        commands = {
            "create": [*make, "--shards", "10"],
            "predict": ["predict", "d", "--data", "new.csv"],
            "delete": ["delete", "d", "--id", "17"],
        }
        for name, command in commands.items():
            out = Path(folder) / "way.json"
            environment = {**os.environ, "HOUSE_ROOT": str(source), "HOUSE_OUT": str(out), "PYTHONPATH": str(source)}
            subprocess.run(
                [sys.executable, "-c", TRACER, *command], cwd=folder, env=environment, check=True, capture_output=True
            )
            if name == "create":
                continue
            calls = [tuple(one) for one in json.loads(out.read_text(encoding="utf-8"))]
            files = [file for file, _ in calls]
            packages = [file.split("/")[1] for file in files]
            found[name] = {
                "modules": len(set(files)),
                "package changes": sum(a != b for a, b in pairwise(packages)),
                "calls": len(calls),
            }
    return found


def house(root: Path, *, package_only: bool) -> dict[str, object]:
    """All the figures of a checkout."""
    source = root / "src" / "expunge"
    trees = modules(source)
    imported = imports_of(trees)
    importers = Counter()
    for user, pairs in imported.items():
        importers.update({f"{m}.{n}" if f"{m}.{n}" in trees else m for m, n in pairs} - {user})
    lines = lines_of(source)
    settings = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    contract = settings["tool"]["importlinter"]["contracts"][0]
    folders = ("tests", "lab", "experiments")
    others = [path for folder in folders for path in (root / folder).rglob("*.py")] + [*(root / "docs").glob("*.md")]
    figures: dict[str, object] = {
        "files": len(trees),
        **lines,
        "import share": f"{lines['imports'] / lines['lines']:.1%}",
        "layers": len(contract["layers"]),
        "ignored imports": len(contract.get("ignore_imports", [])) + len(contract.get("exhaustive_ignores", [])),
        "modules with one importer": sum(importers[name] == 1 for name in trees if not name.endswith("__main__")),
        **names(trees, imported, others),
        "private names across packages": len(private_across(imported)),
    }
    if not package_only:
        for name, way in ways(root).items():
            figures |= {f"expunge {name}: {what}": value for what, value in way.items()}
    return figures


def main() -> None:
    """Print the figures, one a line, or as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, default=Path(__file__).parents[2], help="a checkout  [this one]")
    parser.add_argument("--package-only", action="store_true", help="leave the traces of commands out")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    figures = house(asked.root, package_only=asked.package_only)
    if asked.json:
        print(json.dumps(figures, indent=2))
    else:
        for name, value in figures.items():
            print(f"{name:<40} {value:>10}" if isinstance(value, str) else f"{name:<40} {value:>10,}")


if __name__ == "__main__":
    main()

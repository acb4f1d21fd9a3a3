"""`expunge log`: show a deployment's log, publish it, have it cosigned, and follow a published one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from expunge.cli.app import DefaultGroup, app
from expunge.cli.folders import refuse_inside, settle
from expunge.cli.output import AsJson, Folder, complain, console, show_json
from expunge.core.errors import InputError, ParameterError
from expunge.core.words import plural, utc

if TYPE_CHECKING:
    from expunge.evidence import Checkpoint, NoteKey, Publication

_ALARM_EXIT = 1
_MOST_ENTRIES = 2**30  # bytes of all entries


class _LogGroup(DefaultGroup):
    """`expunge log FOLDER` is short for `expunge log show FOLDER`."""

    default = "show"


_commands = typer.Typer(cls=_LogGroup, no_args_is_help=True)
app.add_typer(_commands, name="log")

WitnessKey = Annotated[
    Path | None,
    typer.Option("--witness-key", metavar="FILE", help="The witness's key, one line: the file `witness.key`."),
]


@_commands.callback()
def log() -> None:
    """Show a deployment's log, publish it, have a witness cosign it, and check a published one.

    `expunge log churn/` shows the signed checkpoint.

    `expunge log publish churn/ --to churn.log` publishes it.

    `expunge log follow churn.log --key churn.key --kept copy.log` checks that nothing was taken back.
    """


@_commands.command()
def show(folder: Folder, as_json: AsJson = False) -> None:
    """Show the signed checkpoint of the whole log, after every entry was checked against it.

    Example: `expunge log churn/`
    """
    from expunge.folder import open_view

    settle(folder)
    with open_view(folder) as view:
        checkpoint, cosigned, key = view.checkpoint(), view.cosigned(), view.log_key
    if not as_json:
        print(checkpoint, end="")
        return
    show_json(
        {
            "folder": str(folder),
            "origin": checkpoint.origin,
            "size": checkpoint.size,
            "root": checkpoint.root.hex(),
            "key": str(key),
            "cosigned_size": None if cosigned is None else cosigned.size,
            "cosigned_by": [] if cosigned is None else _others(cosigned),
            "checkpoint": str(checkpoint),
        }
    )


@_commands.command()
def key(folder: Folder) -> None:
    """Print the key that checkpoints are checked with, as one line, for witnesses and for those who follow the log.

    Example: `expunge log key churn/ > churn.key`
    """
    from expunge.folder import open_view

    settle(folder)
    with open_view(folder) as view:
        print(view.log_key)


@_commands.command()
def entries(folder: Folder) -> None:
    """Print all entries of the log, one a line as they were hashed. They tell nothing about people.

    Example: `expunge log entries churn/ > entries.txt`
    """
    from expunge.folder import open_view

    settle(folder)
    with open_view(folder) as view:
        for entry in view.entries():
            print(entry.content.decode())


@_commands.command()
def publish(
    folder: Folder,
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="PLACE",
            help="A file, a URL that takes GET and PUT, or a folder of a git repository, for a commit.",
            show_default=False,
        ),
    ],
    as_json: AsJson = False,
) -> None:
    """Publish the checkpoint, with the proof that it continues what was published before.

    What is published only grows, so anyone who kept an earlier copy can check that nothing was taken back. A log that
    does not continue what is there is refused. Publishing the same twice does nothing.

    Example: `expunge log publish churn/ --to churn.log`
    """
    from expunge.evidence.outlets import find_outlet
    from expunge.folder import open_view

    settle(folder)
    if not to.startswith(("http://", "https://")):
        refuse_inside(folder, Path(to))
    outlet = find_outlet(to)
    before = _parsed(outlet.read(), to)
    with open_view(folder) as view:
        after = view.publish(before)
    outlet.write(after)  # also if nothing is new: a commit may have been cut short
    new, last = len(after.steps) - len(before.steps), after.last
    assert last is not None
    if as_json:
        show_json({"place": to, "origin": last.origin, "size": last.size, "new": new, "published": len(after.steps)})
    elif new:
        _tell(f"Published the checkpoint of {_entries(last)} to {to}.")
    else:
        _tell(f"Nothing is new: {to} has the checkpoint of {_entries(last)} already.")


@_commands.command()
def witness(
    folder: Folder,
    witness_key: WitnessKey = None,
    url: Annotated[str | None, typer.Option(metavar="URL", help="Send the checkpoint to the witness there.")] = None,
    request: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write what the witness needs to a file instead.")
    ] = None,
    since: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=0,
            help="With --request: how many entries the witness has cosigned.  [default: as in the kept checkpoint]",
        ),
    ] = None,
    cosignature: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Keep the cosigned checkpoint that the witness made.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Have a witness cosign the checkpoint, and keep its cosignature in the folder.

    A witness cosigns only what continues everything that it cosigned before: see `expunge witness`. No other process
    may have the folder open while the cosignature is kept. If the witness refuses because the log is forked, the exit
    code is 1.

    Example: `expunge log witness churn/ --url https://witness.example --witness-key witness.key`
    """
    from expunge.core.files import write_whole
    from expunge.evidence import load_note_key
    from expunge.folder import open_view
    from expunge.folder.evidence import keep_cosigned

    if sum(each is not None for each in (url, request, cosignature)) != 1:
        raise ParameterError("give one of --url, --request and --cosignature")
    if since is not None and request is None:
        raise ParameterError("--since goes with --request")
    settle(folder)
    if request is not None:
        refuse_inside(folder, request)
        with open_view(folder) as view:
            kept = view.cosigned()
            made = view.submission(since if since is not None else 0 if kept is None else kept.size)
        write_whole(request, str(made).encode())
        _tell(f"Wrote {request}. The witness runs `expunge witness cosign STATE {request}`.")
        return
    if witness_key is None:
        raise ParameterError("--witness-key is needed, to check the cosignature with")
    by = load_note_key(witness_key)
    if not by.is_witness:
        raise InputError(f"{witness_key} holds the key of a log, and not of a witness")
    if url is not None:
        cosigned = _cosigned_at(url, folder, by)
    else:
        assert cosignature is not None
        cosigned = _cosigned_in(cosignature, folder, by)
    keep_cosigned(folder, cosigned)
    at = cosigned.cosigned_at(by)
    assert at is not None
    if as_json:
        show_json({"origin": cosigned.origin, "size": cosigned.size, "witness": by.name, "cosigned_at": utc(at)})
    else:
        _tell(f"{by.name} cosigned the checkpoint of {_entries(cosigned)} at {utc(at)}.")


@_commands.command()
def follow(
    source: Annotated[
        str,
        typer.Argument(metavar="PLACE", help="A file, a URL, or a folder of a git repository.", show_default=False),
    ],
    key: Annotated[
        Path, typer.Option(metavar="FILE", help="The log's key, from `expunge log key`.", show_default=False)
    ],
    kept: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Your copy: compared with what is published, and then replaced by it."),
    ] = None,
    entries: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="All entries, from `expunge log entries`: check and count them."),
    ] = None,
    witness_key: WitnessKey = None,
    as_json: AsJson = False,
) -> None:
    """Check a published log without its operator: that it is signed, and that nothing was taken back.

    Keep a copy (`--kept`) and run this again and again. The exit code is 1 if what is published now does not continue
    your copy; then both are kept, and they prove it. With --witness-key it is also 1 if the witness did not cosign the
    latest checkpoint.

    Example: `expunge log follow https://example.com/churn.log --key churn.key --kept copy.log`
    """
    from expunge.core.files import write_whole
    from expunge.evidence import load_note_key
    from expunge.evidence.outlets import FileOutlet, find_outlet

    log_key, by = load_note_key(key), None if witness_key is None else load_note_key(witness_key)
    text = find_outlet(source).read()
    found, last = _parsed(text, source), None
    if found.last is None:
        raise InputError(f"nothing is published at {source}")
    before = None if kept is None else _parsed(FileOutlet(kept).read(), str(kept))
    if before is not None:
        before.require_signed(log_key)
        last = before.last
    try:
        found.require_signed(log_key)
    except InputError as error:
        _alarm(f"{source}: {error}")
    if kept is not None:
        if last is not None and not found.holds(last):
            other = kept.with_name(f"{kept.name}.forked")
            write_whole(other, text.encode())
            _alarm(
                f"the log was forked or cut: the checkpoint of {_entries(last)} in {kept} is not among those at "
                f"{source}. Both are signed with the log's key: keep {kept} and {other}"
            )
        write_whole(kept, text.encode())
    at = None if by is None else found.last.cosigned_at(by)
    if by is not None and at is None:
        _alarm(f"{source}: the latest checkpoint, of {_entries(found.last)}, is not cosigned by {by.name}")
    counts = {} if entries is None else _counts(entries, found.last)
    if as_json:
        show_json(
            {
                "place": source,
                "origin": found.last.origin,
                "size": found.last.size,
                "events": counts,
                "published": len(found.steps),
                "kept_size": None if last is None else last.size,
                "cosigned_at": None if at is None else utc(at),
            }
        )
        return
    since = "" if last is None else f" since your copy, of {_entries(last)}"
    times = plural(len(found.steps), "checkpoint")
    _tell(f"{found.last.origin}: {_entries(found.last)}, {times} published, nothing was taken back{since}.")
    if counts:
        told = ", ".join(f"{count:,} {event}" for event, count in counts.items())
        _tell(f"The entries in {entries} are those that were signed: {told}.")
    if by is not None and at is not None:
        _tell(f"{by.name} cosigned the latest checkpoint at {utc(at)}.")


def _cosigned_at(url: str, folder: Path, by: NoteKey) -> Checkpoint:
    """Ask a witness over HTTP."""
    from expunge.evidence.outlets import ForkRefused, submit
    from expunge.evidence.witness import add_cosignatures
    from expunge.folder import open_view

    try:
        with open_view(folder) as view:
            kept = view.cosigned()
            sent, answer = submit(url, view.submission, since=0 if kept is None else kept.size)
    except ForkRefused as refused:
        _alarm(str(refused))
    return add_cosignatures(sent.checkpoint, answer, by)


def _cosigned_in(file: Path, folder: Path, by: NoteKey) -> Checkpoint:
    """Read what a witness made offline, and add it to the cosignatures that are kept of the same checkpoint."""
    from expunge.evidence import Checkpoint
    from expunge.evidence.outlets import FileOutlet
    from expunge.evidence.witness import add_cosignatures
    from expunge.folder import open_view

    text = FileOutlet(file).read()
    if not text:
        raise InputError(f"there is no file {file}, or it is empty")
    try:
        found = Checkpoint.parse(text)
        with open_view(folder) as view:
            kept = view.cosigned()
        others = kept if kept is not None and kept.note == found.note else found
        return add_cosignatures(others, text.partition("\n\n")[2], by)
    except InputError as error:
        raise InputError(f"{file}: {error}") from None


def _counts(file: Path, checkpoint: Checkpoint) -> dict[str, int]:
    """Check that a file holds the entries of a checkpoint, perhaps with later ones, and count them by event."""
    from collections import Counter

    from expunge.core.files import read_bounded
    from expunge.evidence import Tree, hash_leaf, read_canonical

    try:
        lines = read_bounded(file, most=_MOST_ENTRIES).split(b"\n")[: checkpoint.size]
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error.strerror or error}") from None
    tree = Tree(map(hash_leaf, lines))
    if len(tree) < checkpoint.size or tree.root() != checkpoint.root:
        _alarm(
            f"{file} does not hold the entries that the published checkpoint of {_entries(checkpoint)} was signed for"
        )
    return dict(Counter(str(read_canonical(line)["event"]) for line in lines))


def _parsed(text: str, source: str) -> Publication:
    from expunge.evidence import Publication

    try:
        return Publication.parse(text)
    except InputError as error:
        raise InputError(f"{source}: {error}") from None


def _others(checkpoint: Checkpoint) -> list[str]:
    return [each.name for each in checkpoint.signatures if each.name != checkpoint.origin]


def _entries(checkpoint: Checkpoint) -> str:
    return f"{checkpoint.size:,} {'entry' if checkpoint.size == 1 else 'entries'}"


def _alarm(line: str) -> NoReturn:
    complain(line)
    raise typer.Exit(_ALARM_EXIT)


def _tell(line: str) -> None:
    console.print(line, markup=False, soft_wrap=True)

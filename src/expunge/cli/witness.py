"""`expunge witness`: a small program that cosigns the logs of others, and refuses a log that is forked."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from expunge.cli.app import Interrupted, app
from expunge.cli.output import AsJson, complain, console, show_json
from expunge.core.words import utc

_FORKED_EXIT = 1
_commands = typer.Typer(no_args_is_help=True)
app.add_typer(_commands, name="witness")

State = Annotated[
    Path, typer.Argument(metavar="STATE", help="The witness's folder.", show_default=False, file_okay=False)
]


@_commands.callback()
def witness() -> None:
    """Cosign the logs of others: one history each, and never a second one.

    `expunge witness init state/ --name witness.example` makes a witness.

    `expunge witness trust state/ --key churn.key` lets it cosign a log.

    `expunge witness serve state/ --port 8765` answers over HTTP.
    """


@_commands.command()
def init(
    state: State,
    name: Annotated[
        str, typer.Option(metavar="NAME", help="Its name in cosignatures, such as a host's.", show_default=False)
    ],
) -> None:
    """Make a witness: its folder, with a new key. Its public key is in the folder's file `witness.key`.

    Example: `expunge witness init state/ --name witness.example`
    """
    from expunge.evidence.witness import Witness

    made = Witness.create(state, name=name)
    _tell(f"Made the witness {made.key.name}. Its public key is in {state / 'witness.key'}:")
    _tell(str(made.key))


@_commands.command()
def trust(
    state: State,
    key: Annotated[
        Path, typer.Option(metavar="FILE", help="The log's key, from `expunge log key`.", show_default=False)
    ],
) -> None:
    """Cosign a log from now on. Get its key from its operator by a way that you trust.

    Example: `expunge witness trust state/ --key churn.key`
    """
    from expunge.evidence import load_note_key
    from expunge.evidence.witness import Witness

    log = load_note_key(key)
    is_new = Witness(state).trust(log)
    _tell(f"{log.name} is cosigned from now on." if is_new else f"{log.name} is known already.")


@_commands.command()
def cosign(
    state: State,
    request: Annotated[
        Path,
        typer.Argument(
            metavar="REQUEST", help="The file that `expunge log witness --request` wrote.", show_default=False
        ),
    ],
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The cosigned checkpoint.  [default: standard output]")
    ] = None,
) -> None:
    """Cosign a checkpoint offline. If the log is forked, both checkpoints are kept, and the exit code is 1.

    Example: `expunge witness cosign state/ request.txt --out cosigned.txt`
    """
    from expunge.core.files import write_whole
    from expunge.evidence import Submission
    from expunge.evidence.outlets import FileOutlet
    from expunge.evidence.witness import Refused, Witness

    submission = Submission.parse(FileOutlet(request).read())
    try:
        cosigned = Witness(state).cosign(submission)
    except Refused as refused:
        if not refused.is_fork:
            raise
        complain(f"REFUSED: {refused}")
        raise typer.Exit(_FORKED_EXIT) from None
    if out is None:
        print(cosigned, end="")
    else:
        write_whole(out, str(cosigned).encode())
        _tell(f"Wrote {out}: the checkpoint of {cosigned.size:,} entries of {cosigned.origin}, cosigned.")


@_commands.command()
def serve(
    state: State,
    port: Annotated[int, typer.Option(metavar="N", min=0, max=65535, help="Where to listen; 0: a free port.")] = 8765,
    trust_new: Annotated[
        bool,
        typer.Option(
            "--trust-new",
            help="Take new logs that ask for a part in their first key: `expunge create --witness`. Anyone who reaches "
            "the port can add one.",
        ),
    ] = False,
) -> None:
    """Answer over HTTP on this machine (`POST /add-checkpoint` of C2SP tlog-witness) until Ctrl-C.

    For the Internet put a web server with TLS before it.

    Example: `expunge witness serve state/ --port 8765`
    """
    from expunge.evidence.witness import Witness
    from expunge.evidence.witness_server import WitnessServer

    found = Witness(state)
    try:
        with WitnessServer(found, port=port, report=complain, trusts_new=trust_new) as server:
            print(f"{found.key.name} listens at {server.url}", flush=True)
            server.serve_forever()
    except KeyboardInterrupt:
        raise Interrupted("stopped") from None


@_commands.command()
def show(state: State, as_json: AsJson = False) -> None:
    """List the logs that it cosigns, with the last checkpoint of each, and what it refused.

    Example: `expunge witness show state/`
    """
    from expunge.evidence.witness import Witness

    found = Witness(state)
    rows = [
        {
            "origin": each.key.name,
            "size": each.size,
            "cosigned_at": None if each.last is None else utc(each.last.cosigned_at(found.key) or 0),
        }
        for each in found.logs()
    ]
    refused = [str(each) for each in found.refused()]
    if as_json:
        show_json({"name": found.key.name, "key": str(found.key), "logs": rows, "refused": refused})
        return
    _tell(str(found.key))
    for row in rows:
        at = "not cosigned yet" if row["cosigned_at"] is None else f"{row['size']:,} entries at {row['cosigned_at']}"
        _tell(f"{row['origin']}: {at}")
    for each in refused:
        _tell(f"REFUSED, a fork: {each}")


def _tell(line: str) -> None:
    console.print(line, markup=False, soft_wrap=True)

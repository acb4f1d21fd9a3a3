"""`expunge backup` and `expunge restore`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from expunge.cli.app import Interrupted, app
from expunge.cli.folders import importable_from_here, settle
from expunge.cli.output import AsJson, Engine, Folder, Jobs, Trust, console, progress, show_json
from expunge.core.errors import InputError
from expunge.core.words import plural

_SHOWN = 20


@app.command()
def backup(
    folder: Folder,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The new file.", show_default=False)],
    log_only: Annotated[
        bool,
        typer.Option("--log-only", help="Only the log, the requests and the hashes of what was deleted: often, small."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Write a deployment as of one moment to a file, also while another process serves it.

    The file holds people's records, models and keys, and deletions do not reach it: keep it as you keep the folder, and
    no longer than you must. With --log-only it holds none of them; give it to `expunge restore --newer`.

    Example: `expunge backup churn/ monday.backup`
    """
    from expunge.folder import back_up

    settle(folder)
    found = back_up(folder, file, log_only=log_only)
    if as_json:
        show_json({"file": str(file), "entries": found.entries, "at": found.at, "has_records": found.has_records})
        return
    _tell(f"Wrote {file}: {found.name}, with {found.entries:,} entries of its log, the last of {found.at}.")
    if found.has_records:
        _tell(
            "Deletions that come later do not reach it: `expunge restore` takes them out, if it is given what is newer."
        )
    else:
        _tell("It has no records: `expunge restore BACKUP FOLDER --newer` takes from it what was deleted.")


@app.command()
def restore(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The back-up.", show_default=False)],
    folder: Folder,
    newer: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH", help="What is newer: the lost folder, a later back-up, or one made with --log-only."
        ),
    ] = None,
    without_newer: Annotated[
        bool,
        typer.Option(
            "--without-newer", help="There is nothing newer: what was deleted later has to be asked for again."
        ),
    ] = False,
    jobs: Jobs = None,
    executor: Engine = None,
    trust: Trust = None,
    as_json: AsJson = False,
) -> None:
    """Make a folder from a back-up, and take out what was deleted or corrected later before it serves anybody.

    The log goes on as one history, says that the deployment was restored, and everything is trained again with a new
    key. Requests that are pending are applied. The folder appears when all of this is done, or not at all.

    Example: `expunge restore monday.backup churn/ --newer log.backup`
    """
    from expunge.folder import restore as restored_from

    if (newer is None) != without_newer:
        raise InputError(
            "a back-up does not know what was deleted after it: give --newer, or say --without-newer"
            if newer is None
            else "--newer and --without-newer exclude each other"
        )
    if trust:
        importable_from_here()
    try:
        with progress("training everything again", 1) as advance:
            found = restored_from(
                file,
                folder,
                newer=newer,
                without_newer=without_newer,
                trust=tuple(trust or ()),
                n_jobs=jobs,
                executor=executor,
            )
            advance(1)
    except KeyboardInterrupt:
        raise Interrupted("interrupted; nothing was restored") from None
    if as_json:
        told: dict[str, Any] = {name: getattr(found, name) for name in ("known_until", "is_continued", "num_records")}
        told |= {name: list(getattr(found, name)) for name in ("deleted", "changed", "lost")}
        show_json({"folder": str(folder), "back_up": {"entries": found.back_up.entries, "at": found.back_up.at}} | told)
        return
    _tell(f"Restored {folder}: {plural(found.num_records, 'record')}, trained again with a new key.")
    if found.is_continued:
        _tell(
            f"It is known what was asked for until {found.known_until}. What came after that has to be asked for again."
        )
    else:
        _tell(
            f"What was asked for after the back-up ({found.back_up.at}) is not known: it has to be asked for again. "
            "The log of this folder does not continue what was published since."
        )
    _list("were deleted after the back-up, and have been taken out", found.deleted)
    _list(
        "were corrected, or deleted and added again, after the back-up, and have been taken out: add them again as "
        "they are now (expunge add)",
        found.changed,
    )
    _list("were pending, and what they asked for is lost; they are cancelled and have to be made again", found.lost)


def _list(what: str, names: Sequence[Any]) -> None:
    if names:
        shown = ", ".join(map(str, names[:_SHOWN])) + (
            f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else ""
        )
        _tell(f"{len(names):,} {what}: {shown}")


def _tell(line: str) -> None:
    console.print(line, markup=False, soft_wrap=True)

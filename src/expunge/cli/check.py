"""`expunge check`."""

from __future__ import annotations

import typer

from expunge.cli.app import app
from expunge.cli.output import AsJson, Folder, complain, console, progress, show_json

_DAMAGED = 1  # exit code


@app.command()
def check(folder: Folder, as_json: AsJson = False) -> None:
    """Read everything in a deployment's folder, and say what is damaged and what can be done about it.

    Nothing is changed, and no model is loaded. Another process may be serving the folder. The exit code is 0 if
    everything is as it was written, and 1 if something is not.

    Example: `expunge check churn/`
    """
    from expunge.folder.checkup import check as read_all
    from expunge.folder.checkup import count_steps

    with progress("checking", count_steps(folder)) as advance:
        found = read_all(folder, advance=advance)
    if as_json:
        facts = {"folder": str(folder), "sound": found.is_sound, "checked": found.checked}
        show_json(facts | {"damage": list(found.damage)})
    else:
        told = ", ".join(f"{number:,} {_one(what) if number == 1 else what}" for what, number in found.checked.items())
        verdict = "everything is as it was written" if found.is_sound else "it is damaged"
        console.print(f"{folder}: {verdict}. Checked: {told}.", markup=False, soft_wrap=True)
    for line in found.damage:
        complain(line)
    if not found.is_sound:
        raise typer.Exit(_DAMAGED)


def _one(what: str) -> str:
    return f"{what.removesuffix('ies')}y" if what.endswith("ies") else what.removesuffix("s")

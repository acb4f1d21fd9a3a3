"""`expunge certificate`."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from expunge.cli.app import app
from expunge.cli.folders import refuse_inside, settle
from expunge.cli.output import Folder, console
from expunge.core.errors import InputError


@app.command()
def certificate(
    folder: Folder,
    request: Annotated[
        str | None, typer.Option(metavar="REQUEST", help="The request it is about.  [default: the whole deployment]")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The certificate (JSON).  [default: standard output]")
    ] = None,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="The same as a page for people, to print.")] = None,
) -> None:
    """Issue a signed certificate about a request, or about the whole deployment; anybody can verify it offline.

    Example: `expunge certificate churn/ --request REQUEST --out certificate.json --html certificate.html`
    """
    from expunge.core.files import Draft
    from expunge.evidence import render_page
    from expunge.folder import look

    out = None if out == Path("-") else out
    if html == Path("-"):
        raise InputError("--html needs the name of a file, and got '-'")
    refuse_inside(folder, out, html)
    if out is not None and html is not None and out.resolve() == html.resolve():
        raise InputError(f"--out and --html are both {str(out)!r}; give each a file of its own")
    settle(folder)
    with ExitStack() as stack:
        drafts = {path: stack.enter_context(Draft(path)) for path in (out, html) if path is not None}
        with look(folder) as view:
            issued = view.certificate(request)
        if out is not None:
            drafts[out].finish(issued.to_json())
        elif html is None:
            print(issued.to_json().decode(), end="")
        if html is not None:
            drafts[html].finish(render_page(issued).encode())
    for path in drafts:
        console.print(f"Wrote {path}.", markup=False, soft_wrap=True)
    if out is not None:
        console.print(f"`expunge verify {out}` checks it, on any machine.", markup=False, soft_wrap=True)

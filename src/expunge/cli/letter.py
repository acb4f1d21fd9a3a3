"""`expunge letter`: a reply to the person who made a request, as text or HTML, in a language that is a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from expunge.cli.app import app
from expunge.cli.folders import refuse_inside, settle
from expunge.cli.output import Folder, console
from expunge.core.errors import InputError


@app.command()
def letter(
    folder: Folder,
    request: Annotated[str, typer.Option(metavar="REQUEST", help="The request it is about.", show_default=False)],
    language: Annotated[str, typer.Option(help="en or de.")] = "en",
    template: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A template of your own (TOML), instead of --language.")
    ] = None,
    to: Annotated[str | None, typer.Option(metavar="NAME", help="Whom it goes to.")] = None,
    sender: Annotated[str, typer.Option("--from", metavar="NAME", help="Who writes it.")] = "",
    reference: Annotated[str, typer.Option(metavar="TEXT", help="Your own reference.")] = "",
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help=".txt, or .html to print.  [default: text to standard output]")
    ] = None,
    show_template: Annotated[
        bool, typer.Option("--show-template", help="Print the template of the language, to copy and change.")
    ] = False,
) -> None:
    """Write a reply to the person who made a request: what was done, when, what that means, and what it does not.

    It says what the request's certificate says, in the words of a template, and no more. In a template these are filled
    in: {recipient}, {sender}, {reference}, {request}, {name}, {fingerprint}, {accepted}, {applied}, {cancelled},
    {deleted}, {corrected}, {added}.

    Example: `expunge letter churn/ --request REQUEST --to "Ann Lee" --from "Example Ltd" --out reply.html`
    """
    from expunge.core.files import write_whole
    from expunge.evidence.letter import read_template, write_letter
    from expunge.folder import open_view

    text = read_template(language, path=template)
    if show_template:
        print(text, end="")
        return
    if out is not None and out.suffix not in (".txt", ".html"):
        raise InputError(f"{str(out)!r} must end in .txt or .html")
    refuse_inside(folder, out)
    settle(folder)
    with open_view(folder) as view:
        issued = view.certificate(request)
    source = "the template" if template is None else str(template)
    made = write_letter(issued, text, source=source, recipient=to or "", sender=sender, reference=reference)
    if out is None:
        print(made.to_text(), end="")
        return
    write_whole(out, (made.to_html() if out.suffix == ".html" else made.to_text()).encode())
    console.print(f"Wrote {out}.", markup=False, soft_wrap=True)

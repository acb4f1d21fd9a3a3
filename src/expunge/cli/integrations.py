"""`expunge integrations`: other systems that send erasure requests, and are told when one is done."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from expunge.cli.app import app
from expunge.cli.folders import settle
from expunge.cli.output import AsJson, Folder, complain, console, show_json, show_table
from expunge.core.checks import quoted
from expunge.core.errors import InputError, MissingExtraError

_commands = typer.Typer(no_args_is_help=True)
app.add_typer(_commands, name="integrations")
Name = Annotated[str, typer.Option(metavar="NAME", help="What to call it.", show_default=False)]


@_commands.callback()
def integrations() -> None:
    """Other systems that send erasure requests to the service, by OpenDSR or webhooks, and are told when one is done.

    `expunge integrations create churn/ --name crm` makes one, and prints its key and its secret, once.
    """


@_commands.command()
def create(
    folder: Folder,
    name: Name,
    identity: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TYPE[:FORM]",
            help="What it calls the column of the people, such as email; email:sha256 if the column holds hashes. "
            "Repeatable.  [default: controller_customer_id]",
        ),
    ] = None,
    callback: Annotated[
        list[str] | None,
        typer.Option(metavar="URL", help="Who may be told: a webhook, or the host of OpenDSR's callbacks. Repeatable."),
    ] = None,
    rate: Annotated[
        float | None, typer.Option(metavar="N", help="Requests a second, on average.  [default: as the service says]")
    ] = None,
    jwt_issuer: Annotated[str | None, typer.Option(metavar="URL", help="Accept webhooks with its JWTs too.")] = None,
    jwt_audience: Annotated[str | None, typer.Option(metavar="TEXT", help="Whom the JWTs must be for.")] = None,
    jwt_keys: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The issuer's keys (JWKS).  [default: fetched from it]")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Make an integration, and print its key (for OpenDSR) and its secret (for webhooks). They are shown this once.

    A service that runs knows it within two seconds. docs/integrations.md shows what it can send.

    Example: `expunge integrations create churn/ --name crm --identity email --callback https://crm.example.com/`
    """
    from expunge.folder.store.database import require_deployment

    IntegrationFile, Issuer = _classes()
    if (jwt_issuer is None) != (jwt_audience is None):
        raise InputError("--jwt-issuer and --jwt-audience need each other")
    if jwt_keys is not None and jwt_issuer is None:
        raise InputError("--jwt-keys needs --jwt-issuer")
    settle(folder)
    require_deployment(folder)
    issuer = None
    if jwt_issuer is not None and jwt_audience is not None:
        issuer = Issuer(url=jwt_issuer, audience=jwt_audience, keys=jwt_keys)
    key, made = IntegrationFile(folder).create(
        name, identities=identity or (), callbacks=callback or (), issuer=issuer, rate=rate
    )
    if as_json:
        show_json({"name": made.name, "key": key, "secret": made.secret, "webhook": f"/v1/webhooks/{made.name}"})
        return
    print(f"key {key}\nsecret {made.secret}")
    complain(f"both are shown this once; webhooks go to /v1/webhooks/{made.name}, OpenDSR to /opendsr")


@_commands.command(name="list")
def show(folder: Folder, as_json: AsJson = False) -> None:
    """List the integrations: what they may send, whom they may have told, and what has come of it.

    Example: `expunge integrations list churn/`
    """
    from expunge.folder.inspection import open_view

    IntegrationFile, _ = _classes()
    settle(folder)
    with open_view(folder) as view:
        counts = view.petition_counts
    names = ("requests", "waiting", "given_up")
    rows: list[dict[str, Any]] = [
        {**each.to_dict(), **dict(zip(names, counts.get(each.name, (0, 0, 0)), strict=True))}
        for each in IntegrationFile(folder).read()
    ]
    if as_json:
        show_json({"integrations": rows})
    elif not rows:
        console.print("There are no integrations.")
    else:
        columns = ("name", "state", "identities", "callbacks", *names)
        cells = [
            [", ".join(row[each]) if isinstance(row[each], list | tuple) else str(row[each]) for each in columns]
            for row in rows
        ]
        show_table(None, columns, cells)


@_commands.command()
def requests(
    folder: Folder,
    name: Annotated[str | None, typer.Option(metavar="NAME", help="Of this integration alone.")] = None,
    limit: Annotated[int, typer.Option(metavar="N", min=1, help="At most so many.")] = 100,
    as_json: AsJson = False,
) -> None:
    """List what integrations asked for, newest first: their ids, and the requests that these became.

    Example: `expunge integrations requests churn/ --name crm`
    """
    from expunge.folder.inspection import open_view

    IntegrationFile, _ = _classes()
    settle(folder)
    with open_view(folder) as view:
        known = {*view.petition_counts, *(each.name for each in IntegrationFile(folder).read())}
        if name is not None and name not in known:
            raise InputError(f"there is no integration {quoted(name)}; `expunge integrations list` shows them")
        rows = [
            {
                "integration": petition.sender,
                "id": petition.id,
                "received_at": petition.received_at,
                "request": request.request,
                "state": request.public_state,
                "deletions": request.deletions,
            }
            for petition, request in view.petitions(name, limit=limit)
        ]
    if as_json:
        show_json({"requests": rows})
    elif not rows:
        console.print("There are no requests of integrations.")
    else:
        show_table(None, tuple(rows[0]), [[str(each) for each in row.values()] for row in rows])


@_commands.command()
def revoke(folder: Folder, name: Name, as_json: AsJson = False) -> None:
    """End an integration for good. What it asked for stays; it is told nothing more.

    Example: `expunge integrations revoke churn/ --name crm`
    """
    from expunge.folder.store.database import require_deployment

    IntegrationFile, _ = _classes()
    settle(folder)
    require_deployment(folder)
    ended = IntegrationFile(folder).revoke(name)
    if as_json:
        show_json(ended.to_dict())
    else:
        console.print(f"Integration {ended.name}: revoked.", markup=False)


def _classes() -> tuple[Any, Any]:
    try:
        from expunge.service.bearer import Issuer
        from expunge.service.integrations import IntegrationFile
    except ImportError as error:
        raise MissingExtraError(f"integrations need an extra: pip install 'expunge[service]' ({error})") from None
    return IntegrationFile, Issuer

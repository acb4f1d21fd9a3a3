"""`expunge serve` and `expunge keys`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from expunge.cli.app import app
from expunge.cli.folders import importable_from_here, settle
from expunge.cli.output import AsJson, Engine, Folder, Trust, complain, console, require_jobs, show_json, show_table
from expunge.core.errors import InputError, MissingExtraError
from expunge.core.words import utc

_NEEDS = "the service needs an extra: pip install 'expunge[service]'"


@app.command()
def serve(
    folder: Folder,
    host: Annotated[str, typer.Option(metavar="ADDRESS", help="Where to listen.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(metavar="N", min=0, max=65535, help="The port; 0: a free one.")] = 8437,
    tls_cert: Annotated[Path | None, typer.Option(metavar="FILE", help="The certificate for TLS (PEM).")] = None,
    tls_key: Annotated[Path | None, typer.Option(metavar="FILE", help="Its key (PEM).")] = None,
    max_body: Annotated[int, typer.Option(metavar="BYTES", min=1, help="The most bytes of a body.")] = 64 << 20,
    max_rows: Annotated[int, typer.Option(metavar="N", min=1, help="The most rows of a batch.")] = 1_000_000,
    rate: Annotated[
        float | None,
        typer.Option(metavar="N", help="Requests a second of each caller whose key does not say.  [default: no limit]"),
    ] = None,
    allow_unguarded: Annotated[
        bool,
        typer.Option("--allow-unguarded", help="Serve also if nothing guards what is published; every answer says so."),
    ] = False,
    jobs: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="Train in so many processes.  [default: all cores but one]", callback=require_jobs
        ),
    ] = None,
    executor: Engine = None,
    patience: Annotated[
        float, typer.Option(metavar="SECONDS", min=0, help="At the end, how long a round that is being made may take.")
    ] = 30.0,
    oidc_issuer: Annotated[str | None, typer.Option(metavar="URL", help="Accept its OIDC tokens too.")] = None,
    oidc_audience: Annotated[str | None, typer.Option(metavar="TEXT", help="Whom the tokens must be for.")] = None,
    oidc_claim: Annotated[str, typer.Option(metavar="NAME", help="The claim with the role.")] = "role",
    oidc_role: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=ROLE", help="The role that a name in the claim stands for; repeatable."),
    ] = None,
    oidc_keys: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The issuer's keys (JWKS).  [default: fetched from it]")
    ] = None,
    public_url: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Where other systems find it, if a server before it answers there."),
    ] = None,
    trace_inside: Annotated[
        bool,
        typer.Option("--trace-inside", help="Under (α,β,γ): traces tell how long things take, for the operator alone."),
    ] = False,
    log_requests: Annotated[
        bool, typer.Option("--log-requests/--no-log-requests", help="Write a line for each request to standard error.")
    ] = True,
    replica: Annotated[
        bool,
        typer.Option("--replica", help="Answer predictions beside the process that serves the folder without this."),
    ] = False,
    lease: Annotated[
        float, typer.Option(metavar="SECONDS", help="Of a replica: how long it answers without having followed.")
    ] = 10.0,
    trust: Trust = None,
) -> None:
    """Serve predictions, updates and evidence over HTTP until Ctrl-C. Make keys first: `expunge keys create`.

    Only this machine can reach it, unless --host says otherwise. With --replica it answers predictions alone, in any
    number of processes beside the one without; docs/replicas.md says what holds. The extra `service` is needed.

    Example: `expunge serve churn/ --port 8437`
    """
    try:
        from expunge.service.about import longer_than_a_tick
        from expunge.service.application import Limits, make_app
        from expunge.service.bearer import Issuer
        from expunge.service.integrations import read_url
        from expunge.service.replica import make_replica
        from expunge.service.server import Listening, run
        from expunge.service.signing import Signer
    except ImportError as error:
        raise MissingExtraError(f"{_NEEDS} ({error})") from None

    if (tls_cert is None) != (tls_key is None):
        raise InputError("--tls-cert and --tls-key need each other")
    if rate is not None and not rate > 0:
        raise InputError(f"--rate must be above 0, got {rate:g}")
    if (oidc_issuer is None) != (oidc_audience is None):
        raise InputError("--oidc-issuer and --oidc-audience need each other")
    if public_url is not None and read_url(public_url) is None:
        raise InputError(f"--public-url begins with https://, got {public_url!r:.80}")
    issuer = None
    if oidc_issuer is not None and oidc_audience is not None:
        pairs = [each.partition("=") for each in oidc_role or []]
        if any(not mark for _, mark, _ in pairs):
            raise InputError("--oidc-role must be NAME=ROLE")
        roles = {name: role for name, _, role in pairs} or None
        issuer = Issuer(url=oidc_issuer, audience=oidc_audience, claim=oidc_claim, roles=roles, keys=oidc_keys)
    listening = Listening(host=host, port=port, certificate=tls_cert, key=tls_key)
    if trust:
        importable_from_here()
    limits = Limits(body=max_body, rows=max_rows, rate=rate, patience=patience)
    common: dict[str, Any] = {"trust": tuple(trust or ()), "limits": limits, "allow_unguarded": allow_unguarded}
    if replica:
        service: Any = make_replica(folder, lease=lease, log_requests=log_requests, **common)
    else:
        settle(folder)
        common["signer"] = None if tls_key is None or tls_cert is None else Signer.of_files(tls_key, tls_cert)
        common["public_url"] = None if public_url is None else public_url.rstrip("/")
        common["traces_inside"] = trace_inside
        service = make_app(folder, jobs=jobs, executor=executor, log_requests=log_requests, issuer=issuer, **common)
    if not listening.is_local and tls_cert is None:
        complain(f"keys travel in clear to {host}: give --tls-cert and --tls-key, or put a server with TLS before it")
    if not replica and (slow := longer_than_a_tick(service.deployment)) is not None:
        complain(slow)
    if not len(service.keys):
        complain(f"no key opens anything yet: `expunge keys create {folder} --role predict` makes one")

    def announce(url: str) -> None:
        service.listens_at(url)
        print(f"{folder} is served at {url}", flush=True)

    run(service, listening, announce=announce)
    if service.failure is not None:
        raise service.failure


_commands = typer.Typer(no_args_is_help=True)
app.add_typer(_commands, name="keys")


@_commands.callback()
def keys() -> None:
    """The keys of the service: who may do what, until when, and how often.

    `expunge keys create churn/ --role predict` makes one and prints it, once.
    """


@_commands.command()
def create(
    folder: Folder,
    role: Annotated[
        str,
        typer.Option(metavar="ROLE", help="What it may do: predict, update, auditor or operator.", show_default=False),
    ],
    expires: Annotated[
        str | None, typer.Option(metavar="TIME", help="How long it lasts: 90d, 12h, 30m.  [default: for ever]")
    ] = None,
    rate: Annotated[
        float | None, typer.Option(metavar="N", help="Requests a second, on average.  [default: as the service says]")
    ] = None,
    note: Annotated[str, typer.Option(metavar="TEXT", help="What it is for.")] = "",
    as_json: AsJson = False,
) -> None:
    """Make a key and print it. It is shown this once: only a hash of it is kept.

    A service that runs knows the key within two seconds.

    Example: `expunge keys create churn/ --role predict --expires 90d`
    """
    from expunge.service.access import KeyFile

    _require_deployment(folder)
    text, made = KeyFile(folder).create(role, expires=expires, rate=rate, note=note)
    if as_json:
        show_json({"key": text, **made.to_dict(utc(time.time()))})
        return
    print(text)
    until = f", until {made.expires_at}" if made.expires_at else ""
    complain(f"this key for {made.role!r} is shown this once{until}; its id is {made.id}")


@_commands.command(name="list")
def show(folder: Folder, as_json: AsJson = False) -> None:
    """List the keys: their ids, and not the keys themselves.

    Example: `expunge keys list churn/`
    """
    from expunge.service.access import KeyFile

    _require_deployment(folder)
    now = utc(time.time())
    rows: list[dict[str, Any]] = [each.to_dict(now) for each in KeyFile(folder).read()]
    if as_json:
        show_json({"keys": rows})
    elif not rows:
        console.print("There are no keys.")
    else:
        columns = ("id", "role", "state", "created_at", "expires_at", "rate", "note")
        show_table(None, columns, [[_cell(row[name]) for name in columns] for row in rows])


def _cell(value: Any) -> str:
    if value is None:
        return "–"
    return f"{value:g}" if isinstance(value, float) else str(value)


@_commands.command()
def revoke(
    folder: Folder,
    id: Annotated[str, typer.Option(metavar="ID", help="The key's id.", show_default=False)],
    as_json: AsJson = False,
) -> None:
    """End a key for good. A service that runs refuses it within two seconds.

    Example: `expunge keys revoke churn/ --id 4f1c2a9b03d7`
    """
    from expunge.service.access import KeyFile

    _require_deployment(folder)
    ended = KeyFile(folder).revoke(id)
    if as_json:
        show_json(ended.to_dict(utc(time.time())))
    else:
        console.print(f"Key {ended.id}: revoked.", markup=False)


def _require_deployment(folder: Path) -> None:
    from expunge.folder.store.database import require_deployment

    settle(folder)
    require_deployment(folder)

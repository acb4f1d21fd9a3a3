"""The command line: `expunge COMMAND`. Each command registers itself on `app`.

Another package adds a command through the entry-point group `expunge.commands`. The name of the entry is the command.
The entry points to a function or to a `typer.Typer` group.
"""

try:
    from importlib import import_module
    from importlib.metadata import entry_points

    from typer import Typer

    from expunge.cli.app import app, main

    _names = (
        "demo plan create predict requests desk letter rekey status check schema certificate backup log witness export "
        "audit serve integrations"
    )
    for _name in _names.split():  # `expunge --help` lists the commands in this order
        import_module(f"expunge.cli.{_name}")
    for _entry in entry_points(group="expunge.commands"):
        _command = _entry.load()
        if isinstance(_command, Typer):
            app.add_typer(_command, name=_entry.name)
        else:
            app.command(_entry.name)(_command)
except KeyboardInterrupt:  # `main` is not loaded yet, so it cannot handle Ctrl-C
    import sys

    sys.stderr.write("expunge: interrupted\n")
    raise SystemExit(130) from None

__all__ = ["app", "main"]

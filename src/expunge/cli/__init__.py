"""The command line: `expunge COMMAND`, one module a command, each of which registers itself on `app`."""

try:
    from expunge.cli.app import app, main
    from expunge.cli.commands import demo
except KeyboardInterrupt:  # loading takes a moment, in which the program cannot speak for itself yet
    import sys

    sys.stderr.write("expunge: interrupted\n")
    raise SystemExit(130) from None

__all__ = ["app", "demo", "main"]

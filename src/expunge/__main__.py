"""`python -m expunge` is the `expunge` program."""

from expunge.cli import main

main()

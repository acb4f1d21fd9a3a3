"""The commands that the lab adds to `expunge`, registered as entry points of the group `expunge.commands`."""

import expunge.cli  # noqa: F401  first, because it loads the commands of this package in turn

"""The commands that the lab adds to `expunge`, registered as entry points of the group `expunge.commands`."""

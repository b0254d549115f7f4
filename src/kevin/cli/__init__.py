"""The `kevin` command. Heavy modules are imported inside the commands, so that `kevin --help` answers at once."""

from kevin.cli.entry import main

__all__ = ["main"]

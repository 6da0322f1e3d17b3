"""The `gossamer` command. An error that a user can fix prints one line on stderr and gives exit code 2."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from gossamer import commands
from gossamer.commands.exits import guarded, leave
from gossamer.system.errors import UserError
from gossamer.system.version import __version__


def main() -> int:
    """Run the `gossamer` command; returns its exit code."""
    return guarded(lambda: _main(sys.argv[1:]))


def _main(words: Sequence[str]) -> int:
    try:
        sys.path.append(os.getcwd())  # so that module:factory finds the user's module; last, so that it hides no other
    except FileNotFoundError:
        raise UserError("the current directory has been removed; change to another one") from None
    if not words:
        raise UserError(f"no command; use one of {', '.join(commands.COMMANDS)}; see gossamer --help")
    if words[0] in ("-h", "--help"):
        print(commands.overview())
    elif words[0] == "--version":
        print(f"gossamer {__version__}")
    else:
        return commands.run(words[0], words[1:])
    return 0


def run() -> None:
    """Entry point of the installed command."""
    leave(main())


if __name__ == "__main__":
    run()

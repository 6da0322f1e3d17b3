"""The `gossamer` command: what goes wrong through a user's value gets one line on stderr and exit code 2."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence

from gossamer import commands
from gossamer.errors import UserError
from gossamer.version import __version__

BAD_VALUE = 2
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EROFS, errno.ENOTDIR)


def main() -> int:
    """The `gossamer` command; its exit code."""
    sys.path.insert(0, os.getcwd())  # so that module:factory finds the user's module, as `python -m` would
    try:
        return _main(sys.argv[1:])
    except KeyboardInterrupt:
        print("gossamer: ended at once; the last checkpoint is kept", file=sys.stderr)
        return 130
    except OSError as error:
        if error.errno not in NO_ROOM:
            return _told(error)
        where = f" ({error.filename})" if error.filename else ""
        print(
            f"gossamer: cannot write{where}: {error.strerror}; free some room or give another directory",
            file=sys.stderr,
        )
        return BAD_VALUE
    except Exception as error:
        return _told(error)


def _main(words: Sequence[str]) -> int:
    if not words:
        raise UserError(f"give a command: {', '.join(commands.COMMANDS)}; see gossamer --help")
    if words[0] in ("-h", "--help"):
        print(commands.overview())
    elif words[0] == "--version":
        print(f"gossamer {__version__}")
    else:
        commands.run(words[0], words[1:])
    return 0


def _told(error: Exception) -> int:
    """Exit code 2 after one line, for an error that a user can do something about; others keep their traceback."""
    if not isinstance(error, UserError):
        from gossamer.envs.base import MissingExtra, UnknownEnv, UnsupportedSpace
        from gossamer.exchange import LayoutMismatch
        from gossamer.launch.ray.errors import HostFailed
        from gossamer.learner import NonFiniteLoss

        if not isinstance(
            error, UnknownEnv | MissingExtra | UnsupportedSpace | NonFiniteLoss | LayoutMismatch | HostFailed
        ):
            raise error
    print("gossamer:", *str(error).split(), file=sys.stderr)  # on one line, whatever torch put into it
    return BAD_VALUE


def run() -> None:
    """Entry point of the installed command."""
    sys.exit(main())


if __name__ == "__main__":
    run()

"""The command line: `serve`, `connect` and `ensure`. Every import costs start time, so each command imports its own."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    pass

_FLAGS = {
    "serve": ("--socket", "--state", "--workdir", "--listen", "--idle-exit", "--foreground"),
    "ensure": ("--socket", "--state", "--workdir", "--listen", "--idle-exit"),
    "connect": ("--socket",),
    "check": (),
    "resume": ("--state",),
}


def _fail(message: str) -> int:
    sys.stderr.write(f"workspaced guest: {message}\n")
    return 2


def main(arguments: list[str]) -> int:
    """Returns the exit code."""
    if not arguments or arguments[0] not in _FLAGS:
        return _fail("the commands are serve, connect and ensure")
    command = arguments[0]
    options: dict[str, str] = {}
    rest = iter(arguments[1:])
    for name in rest:
        if name not in _FLAGS[command]:
            return _fail(f"{command} has no option {name}")
        value = "yes" if name == "--foreground" else next(rest, None)
        if value is None:
            return _fail(f"{name} needs a value")
        options[name] = value
    for name in _FLAGS[command]:
        if name in ("--socket", "--state", "--workdir") and name not in options:
            return _fail(f"{command} needs {name}")
    if command == "check":
        from .upgrade import check

        return check()
    if command == "connect":
        from .bridge import connect

        return connect(options["--socket"])
    from . import daemon

    commands = {"serve": daemon.serve, "ensure": daemon.ensure, "resume": daemon.resume}
    return commands[command](options)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

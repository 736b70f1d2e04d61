"""The root of the command: its global options, its commands, and how it ends."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, NoReturn

import click

from . import (
    acquire,
    completion,
    copy,
    doctor,
    execute,
    forward,
    initialize,
    mcp,
    offload,
    processes,
    serve,
    skill,
    token,
    tools,
    top,
    workspaces,
)
from .arguments import SHARED_OPTIONS, version_text
from .failure import Failure, describe, interrupted, report
from .session import Session

EXIT_CODES = """\b
Exit codes:
  0    done
  1    failed
  2    the command line is wrong
  3    the server, or the workspace's sandbox, cannot be reached
  4    no such workspace, process or file
  5    not allowed: no token, an unknown one, or one without the scope
  130  interrupted by Ctrl-C
exec and attach end with the exit code of the program: 128 + N when signal N
ended it, 124 when its --timeout did, 125 when its end was not seen, 126 when
it could not be started, 127 when it was not found.
"""


class Root(click.Group):
    """Turns every error into one line (or JSON) on standard error and a documented exit code."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = "workspaced",
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        """Run, and exit; without ``standalone_mode`` return the exit code, or raise what click raises."""
        arguments = list(sys.argv[1:] if args is None else args)
        if not standalone_mode:
            return super().main(arguments, prog_name, complete_var, standalone_mode=False, **extra)
        as_json = _asks_for_json(arguments)
        try:
            code = super().main(arguments, prog_name, complete_var, standalone_mode=False, **extra)
        except click.exceptions.Exit as exit:
            code = exit.exit_code
        except click.Abort:
            code = 130
        except KeyboardInterrupt:
            code = interrupted()
        except BrokenPipeError:
            _exit(141)
        except (Exception, BaseExceptionGroup) as error:
            failure = describe(error)
            if failure is None:
                raise
            report(failure, as_json=as_json)
            code = failure.exit_code
        return _exit(code if isinstance(code, int) else 0)


def _asks_for_json(arguments: list[str]) -> bool:
    """Whether ``--json`` was given, known even when the rest cannot be parsed."""
    own = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return "--json" in own


def _exit(code: int) -> NoReturn:
    """Exit, with what is buffered written; a reader that has gone away is told by 141 and not by a traceback."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BrokenPipeError:
            # What is left in the buffer would raise again when the interpreter closes the stream.
            sys.stdout = open("/dev/null", "w", encoding="utf-8")  # noqa: PTH123, SIM115
            code = 141
        except OSError as error:
            report(Failure(f"standard output cannot be written: {error.strerror}"), as_json=False)
            code = code or 1
    sys.exit(code)


@click.group(
    cls=Root,
    params=SHARED_OPTIONS(hidden=False),
    epilog=EXIT_CODES,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.version_option(version=version_text(), message="%(version)s")
@click.pass_context
def main(context: click.Context) -> None:
    """Agent workspaces: isolated, persistent places with files, running processes and ports.

    A workspace is named by its ID, a process in it by its own, a file as ID:PATH.
    """
    context.ensure_object(Session)


for command in (
    serve.serve,
    token.token,
    initialize.init,
    acquire.acquire,
    workspaces.ls,
    workspaces.inspect,
    execute.execute,
    processes.ps,
    processes.attach,
    processes.logs,
    processes.kill,
    copy.cp,
    forward.forward,
    top.top,
    tools.tools,
    tools.call,
    mcp.mcp,
    skill.skill,
    offload.offload,
    workspaces.close,
    workspaces.reset,
    workspaces.rm,
    doctor.doctor,
    completion.completion,
):
    main.add_command(command)

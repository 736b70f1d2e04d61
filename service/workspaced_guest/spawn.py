"""Starting one child: vfork and exec, with its error told apart from the program's own exit."""

from __future__ import annotations

import _posixsubprocess
import errno
import os
import resource
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

_MAX_REPORT = 4096


class SpawnError(Exception):
    """The program could not be started; `errno` says why, `of_cwd` that its directory is the reason."""

    def __init__(self, number: int, of_cwd: bool) -> None:
        super().__init__(os.strerror(number))
        self.errno = number
        self.of_cwd = of_cwd


class Limits:
    """The guest needs many file descriptors; its children get the limit that the guest was started with."""

    def __init__(self) -> None:
        self._own = self._childs = resource.getrlimit(resource.RLIMIT_NOFILE)
        soft, hard = self._childs
        wanted = 65536 if hard == resource.RLIM_INFINITY else min(hard, 65536)
        if soft == resource.RLIM_INFINITY or soft >= wanted:
            return
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (ValueError, OSError):
            # A sandbox may forbid it: then the guest has as many as it was given.
            return
        self._own = (wanted, hard)

    def lower(self) -> None:
        """Before the fork."""
        if self._own is not self._childs:
            resource.setrlimit(resource.RLIMIT_NOFILE, self._childs)

    def restore(self) -> None:
        """After it."""
        if self._own is not self._childs:
            resource.setrlimit(resource.RLIMIT_NOFILE, self._own)

    def inherited(self) -> list[int]:
        """What `lower` gives."""
        return list(self._childs)


class Child:
    """What `spawn` needs to know; file descriptors are the child's ends and stay the caller's to close."""

    __slots__ = ("arguments", "cwd", "env", "gid", "groups", "preexec", "stderr", "stdin", "stdout", "uid")

    def __init__(self, arguments: list[str], cwd: str, env: dict[bytes, bytes]) -> None:
        self.arguments = [os.fsencode(argument) for argument in arguments]
        self.cwd = cwd
        self.env = env
        self.stdin = -1
        self.stdout = -1
        self.stderr = -1
        self.uid: int | None = None
        self.gid: int | None = None
        self.groups: list[int] | None = None
        self.preexec: Callable[[], None] | None = None


def spawn(child: Child, limits: Limits) -> int:
    """Starts the child as leader of a session of its own and returns its pid.

    Every file descriptor of the guest is close-on-exec, so nothing else is inherited. Raises SpawnError; then there is
    no child.
    """
    report, report_write = os.pipe()
    try:
        try:
            limits.lower()
            pid = _fork_exec(child, report, report_write)
        finally:
            limits.restore()
            os.close(report_write)
        error = b""
        # Some interpreters write it in pieces.
        while piece := os.read(report, _MAX_REPORT):
            error += piece
    finally:
        os.close(report)
    if not error:
        return pid
    os.waitpid(pid, 0)
    raise _spawn_error(error)


def _fork_exec(child: Child, report: int, report_write: int) -> int:
    arguments: list[Any] = [
        child.arguments,
        _candidates(child.arguments[0], child.env),
        False,
        (),
        child.cwd,
        [name + b"=" + value for name, value in child.env.items()],
        child.stdin,
        -1,
        -1,
        child.stdout,
        -1,
        child.stderr,
        report,
        report_write,
        True,
        True,
    ]
    if sys.version_info >= (3, 11):
        arguments.append(-1)
    arguments += [child.gid, child.groups, child.uid, -1, child.preexec]
    if (3, 11) <= sys.version_info < (3, 14):
        arguments.append(True)
    fork_exec: Callable[..., int] = _posixsubprocess.fork_exec
    try:
        return fork_exec(*arguments)
    except OSError as error:
        raise SpawnError(error.errno or errno.EAGAIN, False) from None


def _candidates(program: bytes, env: dict[bytes, bytes]) -> list[bytes]:
    if b"/" in program:
        return [program]
    path = env.get(b"PATH", b"/usr/local/bin:/usr/bin:/bin")
    return [os.path.join(directory or b".", program) for directory in path.split(b":")]


def _spawn_error(report: bytes) -> SpawnError:
    # Written by the child as b"OSError:<errno in hex>:<where>".
    _, _, rest = report.partition(b":")
    number, _, where = rest.partition(b":")
    try:
        code = int(number, 16)
    except ValueError:
        code = 0
    return SpawnError(code or errno.EPERM, where.startswith(b"noexec"))

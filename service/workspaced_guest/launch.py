"""From a spec to a child: its user, environment, pipes or terminal, and in what words it is said that it can't be."""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import termios

from .fault import Fault, shorten
from .proctree import ID_VARIABLE
from .spawn import Child, SpawnError, spawn

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable

    from .account import Account
    from .guest import Guest
    from .spec import Spec


class Launch:
    """One start of one process. `user` and `cwd` are what it will have.

    After `run`, `pid` is the child and `fds` the guest's ends, which are the caller's to close: those of standard
    output, standard error unless they are merged and, with `stdin`, standard input; of a terminal its master, twice.
    """

    def __init__(self, guest: Guest, process_id: str, spec: Spec) -> None:
        self._guest = guest
        self._id = process_id
        self._spec = spec
        self._account = _account(spec.user) if spec.user else None
        self.user = self._account.name if self._account is not None else guest.user
        self.cwd = os.path.normpath(os.path.join(guest.workdir, spec.cwd))
        self.pid = 0
        self.fds: list[int] = []

    def run(self) -> None:
        """Starts the child. Raises SpawnError, OSError; `fault` tells what to make of them. Nothing is left then."""
        child = Child(self._spec.arguments, self.cwd, self._environment())
        account = self._account
        if account is not None and not account.own:
            child.uid, child.gid, child.groups = account.uid, account.gid, account.groups()
        ours: list[int] = []
        theirs: list[int] = []
        try:
            if self._spec.pty is not None:
                _open_terminal(child, self._spec.pty, ours, theirs)
            else:
                self._open_pipes(child, ours, theirs)
            child.preexec = _before_exec(self._spec, child)
            self.pid = spawn(child, self._guest.limits)
        except BaseException:
            for fd in ours:
                os.close(fd)
            raise
        finally:
            for fd in theirs:
                os.close(fd)
        self.fds = ours

    def fault(self, error: SpawnError | OSError) -> Fault:
        """Why the process does not run, for who wanted it."""
        number = error.errno or 0
        if isinstance(error, SpawnError) and number in (errno.EPERM, errno.EINVAL):
            # What can't be run or entered is refused with other numbers.
            if self._spec.nice < 0:
                message = f"the guest may not start a process with a nice value of {self._spec.nice}"
                return Fault("PERMISSION_DENIED", "PERMISSION_DENIED", message, nice=self._spec.nice)
            if self._account is not None and not self._account.own:
                return self._account.not_permitted()
        command = shorten(self._spec.arguments[0])
        of_cwd = isinstance(error, SpawnError) and error.of_cwd
        what = f"the directory {shorten(self.cwd)}" if of_cwd else command
        return Fault(
            "FAILED_PRECONDITION",
            "PROCESS_START_FAILED",
            f"{what}: {os.strerror(number)}",
            errno=errno.errorcode.get(number, str(number)),
            command=command,
        )

    def _environment(self) -> dict[bytes, bytes]:
        env = dict(self._guest.child_env)
        account = self._account
        if account is not None and not account.own:
            names = (b"HOME", b"USER", b"LOGNAME", b"SHELL")
            values = (account.home, account.name, account.name, account.shell or "/bin/sh")
            env.update(zip(names, map(os.fsencode, values)))
        if self._spec.pty is not None:
            env.setdefault(b"TERM", b"xterm-256color")
        for name, value in self._spec.env.items():
            if value is None:
                env.pop(name, None)
            else:
                env[name] = value
        env[ID_VARIABLE] = self._id.encode()
        return env

    def _open_pipes(self, child: Child, ours: list[int], theirs: list[int]) -> None:
        for name in ("stdout",) if self._spec.merge else ("stdout", "stderr"):
            reading, writing = os.pipe()
            ours.append(reading)
            theirs.append(writing)
            setattr(child, name, writing)
        if self._spec.merge:
            child.stderr = child.stdout
        if self._spec.stdin:
            reading, writing = os.pipe()
            ours.append(writing)
            theirs.append(reading)
            child.stdin = reading
        else:
            child.stdin = self._guest.null


def set_size(terminal: int, cols: int, rows: int) -> None:
    """The window size of a terminal; its program gets SIGWINCH."""
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))


def _open_terminal(child: Child, size: tuple[int, int], ours: list[int], theirs: list[int]) -> None:
    master, slave = os.openpty()
    ours.append(master)
    theirs.append(slave)
    set_size(master, *size)
    if child.uid is not None:
        os.fchown(slave, child.uid, -1)
    ours.append(os.dup(master))
    child.stdin = child.stdout = child.stderr = slave


def _account(name: str) -> Account:
    # Few processes have one, and the module reads the user database.
    from .account import Account

    return Account(name)


def _before_exec(spec: Spec, child: Child) -> Callable[[], None] | None:
    # Without one the child is made by vfork, which is much cheaper.
    if spec.pty is None and not spec.nice:
        return None
    uid, gid, groups = child.uid, child.gid, child.groups
    if spec.nice:
        # Once it is another user, a process may not lower its nice value.
        child.uid = child.gid = child.groups = None

    def prepare() -> None:
        if spec.nice:
            os.nice(spec.nice)
            if uid is not None and gid is not None and groups is not None:
                os.setgroups(groups)
                os.setresgid(gid, gid, gid)
                os.setresuid(uid, uid, uid)
        if spec.pty is not None:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    return prepare

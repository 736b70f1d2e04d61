"""Starting the daemon: in the foreground, in the background, or only when none answers."""

from __future__ import annotations

import fcntl
import os
import sys

from . import log

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable

    from .guest import Configuration


def serve(options: dict[str, str]) -> int:
    """`serve`: in the foreground, or as a daemon that is ready when this returns."""
    os.makedirs(options["--state"], mode=0o700, exist_ok=True)
    if "--foreground" in options:
        # Whoever started it in the foreground reads the same word there.
        return _run(options, os.dup(1))
    return _start(options)


def ensure(options: dict[str, str]) -> int:
    """`ensure`: starts the daemon if none answers, then is the bridge to it."""
    from . import bridge

    state = options["--state"]
    connection = bridge.dial(options["--socket"])
    if connection is None:
        os.makedirs(state, mode=0o700, exist_ok=True)
        lock = os.open(os.path.join(state, "ensure.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
        connection = bridge.dial(options["--socket"])
        if connection is None:
            status = _start(options)
            if status:
                return status
            connection = bridge.dial(options["--socket"])
        os.close(lock)
    if connection is None:
        sys.stderr.write("workspaced guest: the daemon does not answer\n")
        return 1
    return bridge.carry(connection)


def _start(options: dict[str, str]) -> int:
    """Forks the daemon and waits until it accepts; its failure is our status, told on standard error."""
    ready, ready_write = os.pipe()
    if os.fork() == 0:
        os.close(ready)
        os.setsid()
        if os.fork() != 0:
            os._exit(0)
        status = 1
        try:
            _detach(options["--state"], ready_write)
            status = _run(options, ready_write)
        except BaseException:  # noqa: BLE001  (reported; a forked child must not return into its parent's code)
            sys.excepthook(*sys.exc_info())
        finally:
            sys.stderr.flush()
            os._exit(status)
    os.close(ready_write)
    os.wait()
    answer = os.read(ready, 4096)
    os.close(ready)
    if answer == b"ready\n":
        return 0
    sys.stderr.write(f"workspaced guest: {answer.decode('utf-8', 'replace').strip() or 'the daemon ended at once'}\n")
    return 1


def _run(options: dict[str, str], ready: int) -> int:
    from .server import AlreadyRunning, serve

    def tell(answer: bytes) -> None:
        os.write(ready, answer + b"\n")
        os.close(ready)

    try:
        configuration = _configuration(options)
        serve(configuration, bundle_hash(), lambda: _ready(configuration.state_dir, tell))
    except AlreadyRunning:
        # Someone else was faster; it answers, or the next dial says that it does not.
        tell(b"ready")
    except (OSError, ValueError) as error:
        sys.stderr.write(f"workspaced guest: {error}\n")
        tell(str(error).encode("utf-8", "replace"))
        return 1
    return 0


def _configuration(options: dict[str, str]) -> Configuration:
    from .guest import Configuration

    idle = options.get("--idle-exit")
    workdir = os.path.abspath(options["--workdir"])
    os.makedirs(workdir, exist_ok=True)
    return Configuration(
        os.path.abspath(options["--socket"]),
        os.path.abspath(options["--state"]),
        workdir,
        None if idle is None else float(idle),
        options.get("--listen"),
    )


def _detach(state: str, keep: int) -> None:
    """Lets go of the terminal and of every file descriptor but `keep`."""
    path = os.path.join(state, "guest.log")
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    null = os.open(os.devnull, os.O_RDWR)
    try:
        file = os.open(path, flags, 0o600)
    except OSError:
        # Something that is no log lies there: better a guest without one than none.
        file = null
    os.dup2(null, 0)
    os.dup2(null, 1)
    os.dup2(file, 2)
    log.own_file()
    for name in os.listdir("/proc/self/fd"):
        fd = int(name)
        if fd > 2 and fd != keep:
            try:
                os.close(fd)
            except OSError:
                # The directory's own file descriptor is closed by now.
                continue
    os.chdir("/")


def resume(options: dict[str, str]) -> int:
    """`resume`: the second half of an upgrade, in the process of the former program."""
    from .upgrade import resume as take_over

    _remove_other_bundles(options["--state"])
    return take_over(options["--state"], bundle_hash())


def bundle_hash() -> str:
    """The sha256 of the zipapp that runs; empty when it runs from a directory."""
    from .digest import sha256_of

    archive = _archive()
    return sha256_of(archive) if archive else ""


def _archive() -> str:
    return str(getattr(globals().get("__loader__"), "archive", ""))


def _remove_other_bundles(state: str) -> None:
    # Only the one living guest of a state directory comes here; modules are loaded from its own bundle alone.
    own = os.path.basename(_archive())
    for name in os.listdir(state):
        if name.startswith("guest-") and name.endswith(".pyz") and name != own:
            _unlink(os.path.join(state, name))


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except OSError as error:
        log.write(f"{path} stays: {error.strerror}")


def _ready(state: str, tell: Callable[[bytes], None]) -> None:
    _remove_other_bundles(state)
    tell(b"ready")

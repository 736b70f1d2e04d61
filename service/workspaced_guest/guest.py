"""The guest itself: what all channels share, and the operations on the guest."""

from __future__ import annotations

import os
import sys
import time

from . import log
from .fault import Fault
from .loop import Loop
from .proctree import ID_VARIABLE, KEY_VARIABLE
from .spawn import Limits
from .state import read_regular
from .wire import VERSION, WINDOW

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

    from .channel import Channel
    from .loop import Timer
    from .processes import Processes
    from .server import Listener
    from .stream import Handler, Stream

    Params = dict[str, Any]

CAPABILITIES = ["process", "pty", "file", "watch", "dial", "pipe", "upgrade"]
_MAX_CHANNELS = 16


class Configuration:
    """What the command line says; paths are absolute."""

    def __init__(
        self, socket: str, state_dir: str, workdir: str, idle_exit: float | None = None, listen: str | None = None
    ) -> None:
        self.socket = socket
        self.state_dir = state_dir
        self.workdir = workdir
        self.idle_exit = idle_exit
        self.listen = listen


class Guest:
    """Owns the loop, the processes and the channels."""

    def __init__(self, configuration: Configuration, bundle: str = "") -> None:
        self.configuration = configuration
        self.workdir = configuration.workdir
        self.state_dir = configuration.state_dir
        self.bundle = bundle
        self.token = self._read_token()
        self.key = self._read_key()
        self.instance = os.urandom(16).hex()
        self.start_time = time.time()
        self.loop = Loop()
        self.limits = Limits()
        self.null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        self.threads = 0
        self.stopping = False
        self.listener: Listener | None = None
        self.lock = -1
        self.channels: set[Channel] = set()
        self.child_env = self._child_env()
        self.user, self.home = _who()
        self._idle_timer: Timer | None = None
        self._operations: dict[str, Handler] = {}
        self.processes: Processes = _processes(self)

    def start_operation(self, operation: str, stream: Stream, params: Params) -> None:
        """Hands an OPEN to its handler. Raises Fault."""
        if self.stopping:
            raise Fault("UNAVAILABLE", "GUEST_STOPPING", "the guest is stopping")
        handler = self._operations.get(operation)
        if handler is None:
            handler = self._load(operation)
        handler(self, stream, params)

    def admit(self, channel: Channel) -> bool:
        """Counts a channel that has proved the token; False when there are too many."""
        if len(self.channels) >= _MAX_CHANNELS:
            return False
        self.channels.add(channel)
        if self._idle_timer is not None:
            self._idle_timer.cancel()
            self._idle_timer = None
        return True

    def channel_closed(self, channel: Channel) -> None:
        """The channel has gone."""
        self.channels.discard(channel)
        self.check_idle()

    def hello(self) -> Params:
        """The payload of the guest's HELLO."""
        return {
            "version": VERSION,
            "instance": self.instance,
            "bundle": self.bundle,
            "python": platform_version(),
            "pid": os.getpid(),
            "uid": os.geteuid(),
            "user": self.user,
            "home": self.home,
            "workdir": self.workdir,
            "window": WINDOW,
            "capabilities": CAPABILITIES,
            "start_time": self.start_time,
        }

    def check_idle(self) -> None:
        """Ends the guest some time after the last channel and the last running process have gone."""
        seconds = self.configuration.idle_exit
        if seconds is None or self.channels or self.processes.running or self._idle_timer is not None:
            return
        self._idle_timer = self.loop.call_later(seconds, self._on_idle)

    def log(self, message: str) -> None:
        """One line to the log."""
        log.write(message)

    def end(self, reason: str, then: Callable[[], None] | None = None) -> None:
        """Says GOAWAY everywhere and, once that is sent, leaves the loop or calls `then`."""
        self.stopping = True
        if self.listener is not None:
            self.listener.pause()
        for channel in list(self.channels):
            channel.go_away(reason)
        self._end_when_quiet(then or self.loop.stop)

    def _end_when_quiet(self, then: Callable[[], None]) -> None:
        # Channels close themselves as soon as GOAWAY is out, after 2 s at the latest.
        if self.channels:
            self.loop.call_later(0.005, self._end_when_quiet, then)
        else:
            then()

    def _on_idle(self) -> None:
        self._idle_timer = None
        if not self.channels and not self.processes.running:
            self.end("IDLE")

    def _load(self, operation: str) -> Handler:
        # A module is compiled when the first of its operations is asked for: most guests need few of them.
        family = operation.partition(".")[0]
        table: dict[str, Handler] = {}
        if family in ("process", "pipe"):
            from .processes import PROCESS_OPS

            table = PROCESS_OPS
        elif family == "file":
            from .files import FILE_OPS

            table = FILE_OPS
        elif family == "offload":
            from .offload import OFFLOAD_OPS

            table = OFFLOAD_OPS
        elif family == "port":
            from .ports import PORT_OPS

            table = PORT_OPS
        elif family == "skill":
            from .skills import SKILL_OPS

            table = SKILL_OPS
        elif family == "tool":
            from .tools import TOOL_OPS

            table = TOOL_OPS
        elif family == "guest":
            from .guestops import GUEST_OPS

            table = GUEST_OPS
        self._operations.update(table)
        handler = table.get(operation)
        if handler is None:
            raise Fault("UNIMPLEMENTED", "OPERATION_UNKNOWN", f"no operation {operation[:64]}")
        return handler

    def _read_token(self) -> str:
        token = read_regular(os.path.join(self.state_dir, "token"), 4096).decode("ascii").strip()
        if len(token) < 16:
            raise ValueError("the token file holds no token of at least 16 characters")
        return token

    def _read_key(self) -> str:
        path = os.path.join(self.state_dir, "key")
        try:
            return _checked_key(read_regular(path, 64))
        except FileNotFoundError:
            key = os.urandom(16).hex()
        except (OSError, ValueError) as error:
            log.write(f"{path} is made anew: {error}")
            key = os.urandom(16).hex()
        temporary = path + ".new"
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        try:
            descriptor = os.open(temporary, flags, 0o600)
            with open(descriptor, "w", encoding="ascii") as file:
                file.write(key)
            os.rename(temporary, path)
        except OSError as error:
            # Only after this guest has been killed is it missed, to find what is left of its processes.
            log.write(f"{path} is not kept: {error}")
        return key

    def _child_env(self) -> dict[bytes, bytes]:
        env = dict(os.environb)
        env[KEY_VARIABLE] = self.key.encode()
        env.pop(ID_VARIABLE, None)
        return env


def _checked_key(content: bytes) -> str:
    key = content.decode("ascii")
    if len(bytes.fromhex(key)) != 16:
        raise ValueError("no key of 16 bytes")
    return key


def _processes(guest: Guest) -> Processes:
    from .processes import Processes

    return Processes(guest)


def _who() -> tuple[str, str]:
    import pwd

    try:
        entry = pwd.getpwuid(os.geteuid())
    except KeyError:
        # Containers run with numbers that no passwd file names.
        return str(os.geteuid()), os.environ.get("HOME", "/")
    return entry.pw_name, entry.pw_dir


def platform_version() -> str:
    """The interpreter's version as "3.11.2"."""
    return ".".join(map(str, sys.version_info[:3]))

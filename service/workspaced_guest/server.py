"""The listening socket, and the life of the daemon."""

from __future__ import annotations

import fcntl
import os
import signal
import socket

from .channel import Channel
from .guest import Guest
from .loop import READ

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable

    from .guest import Configuration
    from .loop import Timer

_BACKLOG = 64
_MAX_WAITING = 16
_SOCKET_BUFFER = 1 << 20
_MAX_PATH = 100
_RETRY_SECONDS = 0.25


class AlreadyRunning(Exception):
    """Another guest owns the state directory."""


class Listener:
    """Accepts channels; at most 16 that have not proved the token wait at once."""

    def __init__(self, guest: Guest, listening: socket.socket, web: socket.socket | None = None) -> None:
        self._guest = guest
        self.socket = listening
        self.web = web
        self._waiting: set[Channel] = set()
        self._retry: Timer | None = None
        for sock in (listening, web):
            if sock is not None:
                sock.setblocking(False)
        self.unpause()

    def _on_ready(self, events: int) -> None:
        connection = self._accept(self.socket)
        if connection is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SOCKET_BUFFER)
            self._waiting.add(Channel(self._guest, connection))

    def _on_web_ready(self, events: int) -> None:
        from .websocket import WebSocketConnection

        assert self.web is not None
        connection = self._accept(self.web)
        if connection is None:
            return
        try:
            channel = Channel(self._guest, WebSocketConnection(self._guest.loop, connection))
        except OSError:
            # It has gone already.
            connection.close()
            return
        self._waiting.add(channel)

    def _accept(self, listening: socket.socket) -> socket.socket | None:
        try:
            connection, _ = listening.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return None
        except OSError as error:
            # No file descriptor or memory is left. Who waits would be reported again at once, and for ever.
            self._guest.log(f"accept: {error}")
            self._forget()
            self._retry = self._guest.loop.call_later(_RETRY_SECONDS, self.unpause)
            return None
        self._waiting = {channel for channel in self._waiting if channel.waiting}
        if len(self._waiting) >= _MAX_WAITING:
            connection.close()
            return None
        return connection

    def pause(self) -> None:
        """Accepts nobody; who connects meanwhile waits for `unpause`, also across an exec. Idempotent."""
        self._forget()
        for channel in self._waiting:
            if channel.waiting:
                channel.close()
        self._waiting.clear()

    def unpause(self) -> None:
        """Accepts again."""
        self._retry = None
        self._guest.loop.add(self.socket.fileno(), READ, self._on_ready)
        if self.web is not None:
            self._guest.loop.add(self.web.fileno(), READ, self._on_web_ready)

    def close(self) -> None:
        """Takes no more channels."""
        self._forget()
        self.socket.close()
        if self.web is not None:
            self.web.close()

    def _forget(self) -> None:
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        self._guest.loop.remove(self.socket.fileno())
        if self.web is not None:
            self._guest.loop.remove(self.web.fileno())


def serve(configuration: Configuration, bundle: str, ready: Callable[[], None]) -> None:
    """Runs the guest until it is told to end; `ready` is called when it accepts. Raises AlreadyRunning, OSError."""
    lock = take_lock(configuration.state_dir)
    guest = Guest(configuration, bundle)
    guest.processes.recover()
    web = None if configuration.listen is None else _listen_web(configuration.listen)
    listener = Listener(guest, listen(configuration.socket), web)
    run(guest, listener, lock, ready)


def run(guest: Guest, listener: Listener, lock: int, ready: Callable[[], None]) -> None:
    """The rest of a guest's life."""
    guest.listener = listener
    guest.lock = lock
    _stop_ignoring()
    for number in (signal.SIGTERM, signal.SIGINT):
        guest.loop.on_signal(number, lambda: _stop_by_signal(guest))
    guest.loop.on_signal(signal.SIGHUP, lambda: None)
    guest.check_idle()
    ready()
    guest.loop.run()
    listener.close()
    _unlink(guest.configuration.socket)
    os.close(lock)


def _stop_ignoring() -> None:
    # A shell lets what it starts in the background ignore signals, and programs would inherit that from the guest.
    pythons = (signal.SIGPIPE, signal.SIGXFSZ)  # which every child gets back by itself
    for number in signal.valid_signals():
        if number not in pythons and signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)


def listen(path: str) -> socket.socket:
    """A listening Unix socket that only this user can connect to; replaces what a dead guest left."""
    _unlink(path)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    mask = os.umask(0o177)
    directory = -1
    try:
        if len(os.fsencode(path)) > _MAX_PATH:
            directory = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            listening.bind(f"/proc/self/fd/{directory}/{os.path.basename(path)}")
        else:
            listening.bind(path)
    except BaseException:
        listening.close()
        raise
    finally:
        os.umask(mask)
        if directory >= 0:
            os.close(directory)
    listening.listen(_BACKLOG)
    return listening


def _listen_web(address: str) -> socket.socket:
    try:
        from . import websocket
    except ImportError as error:
        # A run from a directory has no `websockets`, an interpreter without zlib can't read what the bundle carries.
        raise ValueError(f"--listen {address}: {error}") from None
    return websocket.listen(address)


def take_lock(state_dir: str) -> int:
    """The lock that one living guest holds; the kernel gives it back however the guest ends."""
    os.makedirs(state_dir, mode=0o700, exist_ok=True)
    descriptor = os.open(os.path.join(state_dir, "guest.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise AlreadyRunning(state_dir) from None
    return descriptor


def _stop_by_signal(guest: Guest) -> None:
    if guest.stopping:
        return
    from .processes import stop_all

    guest.stopping = True
    stop_all(guest, "WORKSPACE_STOPPED", 5.0, lambda stopped: guest.end("STOPPED"))


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        return

"""The `port.` operations: dialling TCP from inside the workspace, and who listens."""

from __future__ import annotations

import errno
import os
import socket
import struct

from . import params as read
from .fault import Fault, invalid, shorten
from .loop import READ, WRITE
from .proctree import ID_VARIABLE, KEY_VARIABLE
from .spec import check_id
from .stream import blocking

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .guest import Guest
    from .loop import Timer
    from .receiver import Payload
    from .stream import BlockingStream, Handler, Stream

    Params = dict[str, Any]
    Address = tuple[int, Any]  # family, socket address

_CHUNK_BYTES = 64 * 1024
_DIAL_SECONDS = 10.0
_LISTEN = "0A"
# A page of the longest entries fits one frame.
_PAGE_LIMIT = 500
_MAX_ENVIRONMENT = 1 << 20


def dial(guest: Guest, stream: Stream, params: Params) -> None:
    """Connect to a TCP port and carry bytes both ways until both ends have ended.

    Cancellation and a lost channel reset the connection. Names are looked up in a thread, everything else is on the
    loop.
    """
    host = read.text(params, "host", "", limit=255) or "127.0.0.1"
    port = read.integer(params, "port", low=1, high=65535)
    timeout = read.number(params, "timeout", _DIAL_SECONDS, low=0.001, high=3600)
    tunnel = _Tunnel(guest, stream, host, port, timeout)
    literal = _literal(host, port)
    if literal is not None:
        tunnel.connect([literal])
    else:
        tunnel.look_up()


class _Tunnel:
    """One connection and its stream. All methods run on the loop."""

    def __init__(self, guest: Guest, stream: Stream, host: str, port: int, timeout: float) -> None:
        from collections import deque

        self._guest = guest
        self._loop = guest.loop
        self._stream = stream
        self._host = host
        self._port = port
        self._socket: socket.socket | None = None
        self._addresses: list[Address] = []
        self._error: OSError | None = None
        self._connected = False
        self._reading = False  # whether the loop waits for bytes from the socket
        self._registered = False
        self._outgoing: deque[memoryview] = deque()
        self._client_ended = False
        self._peer_ended = False
        self._shut = False
        self._timer: Timer | None = self._loop.call_later(timeout, self._timed_out)
        stream.on_close = self._cancelled
        stream.on_data = self._on_data
        stream.on_end = self._on_end
        stream.on_writable = self._update

    def look_up(self) -> None:
        """Find the host's addresses in a thread."""
        import threading

        thread = threading.Thread(target=self._look_up, daemon=True)
        try:
            thread.start()
        except RuntimeError:
            self._fail(Fault("RESOURCE_EXHAUSTED", "LIMIT_REACHED", "no thread could be started"))

    def _look_up(self) -> None:
        try:
            found = socket.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError):
            fault = Fault(
                "FAILED_PRECONDITION",
                "HOST_NOT_FOUND",
                f"{shorten(self._host)}: no such host",
                host=shorten(self._host),
            )
            self._loop.call_threadsafe(self._fail, fault)
            return
        addresses = [(int(family), address) for family, _, _, _, address in found]
        self._loop.call_threadsafe(self.connect, addresses)

    def connect(self, addresses: list[Address]) -> None:
        """Try the addresses one after the other."""
        if self._stream.closed:
            return
        self._addresses = addresses
        self._connect_next()

    def _connect_next(self) -> None:
        while self._addresses:
            family, address = self._addresses.pop(0)
            try:
                self._socket = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
                number = self._socket.connect_ex(address)
            except OSError as error:
                self._drop_socket()
                self._error = error
                continue
            if number in (0, errno.EINPROGRESS):
                self._loop.add(self._socket.fileno(), WRITE, self._on_connecting)
                self._registered = True
                return
            self._drop_socket()
            self._error = OSError(number, os.strerror(number))
        self._fail(self._refused())

    def _on_connecting(self, events: int) -> None:
        assert self._socket is not None
        number = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if number:
            self._drop_socket()
            self._error = OSError(number, os.strerror(number))
            self._connect_next()
            return
        self._stop_timer()
        self._connected = True
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        host, port = self._socket.getpeername()[:2]
        self._loop.remove(self._socket.fileno())
        self._registered = False
        self._stream.message({"connected": {"host": host, "port": port}})
        self._flush()

    def _on_data(self, data: Payload) -> None:
        self._outgoing.append(memoryview(data))
        if self._connected:
            self._flush()

    def _on_end(self) -> None:
        self._client_ended = True
        if self._connected:
            self._flush()

    def _on_ready(self, events: int) -> None:
        # What is waited for may have changed between the events of one round.
        if events & ~WRITE and not self._peer_ended:
            self._receive(hung_up=bool(events & ~(READ | WRITE)))
        if self._socket is not None and events & ~READ:
            self._flush()

    def _receive(self, hung_up: bool) -> None:
        assert self._socket is not None
        if not self._stream.writable and not hung_up:
            self._update()
            return
        if not self._stream.writable:
            # Hung up with bytes to come: epoll would report it again and again until they are read.
            self._unregister()
            return
        try:
            data = self._socket.recv(_CHUNK_BYTES)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._broken(error)
            return
        if data:
            self._stream.send(data)
            self._update()
            return
        self._peer_ended = True
        self._stream.end()
        self._update()
        self._finish_if_over()

    def _flush(self) -> None:
        assert self._socket is not None
        while self._outgoing:
            try:
                sent = self._socket.send(self._outgoing[0])
            except (BlockingIOError, InterruptedError):
                break
            except OSError as error:
                self._broken(error)
                return
            self._stream.grant(sent)
            if sent == len(self._outgoing[0]):
                self._outgoing.popleft()
            else:
                self._outgoing[0] = self._outgoing[0][sent:]
        if self._client_ended and not self._outgoing and not self._shut:
            self._shut = True
            try:
                self._socket.shutdown(socket.SHUT_WR)
            except OSError as error:
                self._broken(error)
                return
        self._update()
        self._finish_if_over()

    def _update(self) -> None:
        """Wait for what can be dealt with now, and for nothing else."""
        if self._socket is None or not self._connected:
            return
        wanted = 0
        if not self._peer_ended and self._stream.writable:
            wanted |= READ
        if self._outgoing:
            wanted |= WRITE
        descriptor = self._socket.fileno()
        if not wanted:
            self._unregister()
        elif self._registered:
            self._loop.modify(descriptor, wanted)
        else:
            self._loop.add(descriptor, wanted, self._on_ready)
            self._registered = True

    def _unregister(self) -> None:
        if self._registered and self._socket is not None:
            self._loop.remove(self._socket.fileno())
            self._registered = False

    def _finish_if_over(self) -> None:
        if self._peer_ended and self._shut:
            self._drop_socket()
            self._stop_timer()
            self._stream.result({})

    def _broken(self, error: OSError) -> None:
        message = f"the connection to {self._name()} broke: {error.strerror}"
        self._fail(Fault("ABORTED", "CONNECTION_BROKEN", message, errno=_errno_name(error)))

    def _timed_out(self) -> None:
        self._timer = None
        message = f"{self._name()} did not answer in time"
        self._fail(Fault("FAILED_PRECONDITION", "PORT_REFUSED", message, errno="ETIMEDOUT", port=self._port))

    def _refused(self) -> Fault:
        error = self._error or OSError(errno.EADDRNOTAVAIL, os.strerror(errno.EADDRNOTAVAIL))
        message = f"{self._name()}: {error.strerror}"
        return Fault("FAILED_PRECONDITION", "PORT_REFUSED", message, errno=_errno_name(error), port=self._port)

    def _fail(self, fault: Fault) -> None:
        self._drop_socket()
        self._stop_timer()
        self._outgoing.clear()
        self._stream.fail(fault)

    def _cancelled(self) -> None:
        if self._socket is not None and self._connected and not (self._peer_ended and self._shut):
            # A reset, so that the other side does not take half a message for a whole one.
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self._drop_socket()
        self._stop_timer()
        self._outgoing.clear()

    def _drop_socket(self) -> None:
        connection = self._socket
        if connection is not None:
            self._unregister()
            self._socket = None
            connection.close()

    def _stop_timer(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()

    def _name(self) -> str:
        return f"{shorten(self._host)}:{self._port}"


_RESET = struct.pack("ii", 1, 0)


def _errno_name(error: OSError) -> str:
    return errno.errorcode.get(error.errno or 0, str(error.errno))


def _literal(host: str, port: int) -> Address | None:
    """The address that `host` is written as, or None when it is a name. `localhost` is a name: it may be ::1."""
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, host)
        except (OSError, UnicodeError):
            continue
        return (family, (host, port) if family == socket.AF_INET else (host, port, 0, 0))
    return None


def list_ports(guest: Guest, stream: BlockingStream, params: Params) -> Params:
    """A page of the listening TCP sockets, by port and address; reads only.

    Pid only where it may be seen, process id only of processes of this guest. Sockets that share a port are one entry.
    """
    size = read.integer(params, "page_size", _PAGE_LIMIT, high=_PAGE_LIMIT) or _PAGE_LIMIT
    after = _page_start(read.text(params, "page_token", "", limit=64))
    listening: dict[int, tuple[int, str]] = {}  # socket inode → port, address
    for name in ("tcp", "tcp6"):
        listening.update(parse_table(_read_table(name)))
    wanted = sorted({place for place in listening.values() if place > after})
    page = wanted[:size]
    shown = set(page)
    owners: dict[tuple[int, str], int] = {}
    for inode, pid in _owners(stream, {inode for inode, place in listening.items() if place in shown}).items():
        place = listening[inode]
        owners[place] = min(pid, owners.get(place, pid))
    ports: list[Params] = []
    for place in page:
        entry: Params = {"port": place[0], "address": place[1]}
        owner = owners.get(place)
        if owner is not None:
            entry["pid"] = owner
            process_id = _process_id(owner, guest.key)
            if process_id is not None:
                entry["process_id"] = process_id
        ports.append(entry)
    token = f"{page[-1][0]} {page[-1][1]}" if len(wanted) > size else ""
    return {"ports": ports, "next_page_token": token}


def _page_start(token: str) -> tuple[int, str]:
    if not token:
        return -1, ""
    port, _, address = token.partition(" ")
    if not (port.isascii() and port.isdigit()):
        raise invalid("page_token is not one that was given out", field="page_token")
    return int(port), address


def _read_table(name: str) -> str:
    try:
        with open(f"/proc/net/{name}", encoding="ascii") as table:
            return table.read()
    except FileNotFoundError:
        return ""  # a kernel without IPv6


def parse_table(table: str) -> dict[int, tuple[int, str]]:
    """The listening sockets in the text of /proc/net/tcp or tcp6: inode to port and address."""
    found: dict[int, tuple[int, str]] = {}
    for line in table.splitlines()[1:]:
        fields = line.split()
        if len(fields) < 10 or fields[3] != _LISTEN:
            continue
        address, _, port = fields[1].partition(":")
        found[int(fields[9])] = (int(port, 16), _address(address))
    return found


def _address(text: str) -> str:
    # 32-bit words in the byte order of the machine.
    import sys

    raw = bytes.fromhex(text)
    if sys.byteorder == "little":
        raw = b"".join(raw[index : index + 4][::-1] for index in range(0, len(raw), 4))
    return socket.inet_ntop(socket.AF_INET if len(raw) == 4 else socket.AF_INET6, raw)


def _owners(stream: BlockingStream, inodes: set[int]) -> dict[int, int]:
    """The lowest pid that holds each socket, as far as /proc shows it to us."""
    owners: dict[int, int] = {}
    for pid in sorted(int(name) for name in os.listdir("/proc") if name.isdigit()):
        stream.check()
        try:
            descriptors = os.listdir(f"/proc/{pid}/fd")
        except OSError:
            continue  # gone, or another user's
        for descriptor in descriptors:
            inode = _socket_inode(f"/proc/{pid}/fd/{descriptor}")
            if inode in inodes:
                owners.setdefault(inode, pid)
    return owners


def _socket_inode(link: str) -> int:
    """The inode of the socket that a link in /proc stands for; 0 for anything else, or when it is closed by now."""
    try:
        target = os.readlink(link)
    except OSError:
        return 0
    return int(target[8:-1]) if target.startswith("socket:[") else 0


def _process_id(pid: int, key: str) -> str | None:
    try:
        with open(f"/proc/{pid}/environ", "rb", buffering=0) as file:
            environment = file.read(_MAX_ENVIRONMENT) or b""
    except OSError:
        return None
    values = dict(item.partition(b"=")[::2] for item in environment.split(b"\0"))
    if values.get(KEY_VARIABLE) != key.encode() or ID_VARIABLE not in values:
        return None
    try:
        return check_id(values[ID_VARIABLE].decode("ascii", "replace"))
    except Fault:
        # A program may have put there what it liked.
        return None


PORT_OPS: dict[str, Handler] = {
    "port.dial": dial,
    "port.list": blocking(list_ports),
}

"""file.watch: changes of a file or tree as they happen, by inotify, or by polling where inotify can't."""

from __future__ import annotations

import os
import select
import stat
import threading

from . import inotify, snapshot
from . import params as read
from .fault import Fault
from .paths import Place, join_shown, resolve
from .stream import blocking
from .watchtree import RootGone, WatchTree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .guest import Guest
    from .stream import BlockingStream

    Params = dict[str, Any]

_POLL_SECONDS = 1.0
# Changes are gathered so long, so that both halves of a rename, and the many writes of one file, come together.
_GATHER_SECONDS = 0.01
_EVENTS_PER_MESSAGE = 200
_MESSAGE_BYTES = 128 * 1024


def _watch(guest: Guest, stream: BlockingStream, params: Params) -> Params:
    recursive = read.boolean(params, "recursive")
    wake = _Wake()
    try:
        stream.on_cancel(wake.set)
        with resolve(guest.workdir, params.get("path"), params.get("root")) as place:
            place.lstat()
            root = _Root(place)
            try:
                return _follow(stream, wake, root, recursive)
            finally:
                root.close()
    finally:
        wake.close()


watch_files = blocking(_watch)


class _Root:
    """The watched entry by its directory and name, also where the path gave no name."""

    def __init__(self, place: Place) -> None:
        self.shown = place.shown
        self.name = place.name
        self.directory = os.dup(place.directory)
        if place.name != ".":
            return
        path = os.readlink(f"/proc/self/fd/{place.directory}")
        if path == "/":
            return
        above = os.open("..", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=place.directory)
        os.close(self.directory)
        self.directory = above
        self.name = os.path.basename(path)

    def close(self) -> None:
        os.close(self.directory)

    def shown_path(self, path: str) -> str:
        return self.shown if path == "." else join_shown(self.shown, path)


class _Wake:
    """A descriptor that becomes readable when the client has gone."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._closed = False
        self.descriptor, self._write = os.pipe()

    def set(self) -> None:
        with self._lock:
            if not self._closed:
                os.write(self._write, b"\0")

    def close(self) -> None:
        with self._lock:
            self._closed = True
            os.close(self.descriptor)
            os.close(self._write)


def _follow(stream: BlockingStream, wake: _Wake, root: _Root, recursive: bool) -> Params:
    try:
        tree = WatchTree(root.directory, root.name, recursive, stream.check)
    except OSError as error:
        if error.errno not in inotify.UNAVAILABLE:
            raise
        return _poll(stream, wake, root, recursive)
    try:
        stream.message({"ready": True, "mode": "inotify"})
        return _follow_events(stream, wake, root, tree)
    except OSError as error:
        if error.errno not in inotify.UNAVAILABLE:
            raise
    finally:
        tree.close()
    # A new directory did not fit into the limits any more; what happened in it meanwhile was not seen.
    return _poll(stream, wake, root, recursive, missed=True)


def _follow_events(stream: BlockingStream, wake: _Wake, root: _Root, tree: WatchTree) -> Params:
    while True:
        _wait(stream, wake, tree.descriptor, None)
        _wait(stream, wake, None, _GATHER_SECONDS)
        try:
            changes = tree.changes()
        except RootGone as gone:
            _send(stream, root, gone.args[0])
            return {}
        _send(stream, root, changes)
        if tree.overflowed:
            tree.overflowed = False
            stream.message({"overflow": True})


def _poll(stream: BlockingStream, wake: _Wake, root: _Root, recursive: bool, missed: bool = False) -> Params:
    seen = snapshot.take(root.directory, root.name, recursive, stream.check)
    of_directory = stat.S_ISDIR(seen["."][1])
    if missed:
        stream.message({"overflow": True})
    else:
        stream.message({"ready": True, "mode": "poll"})
    while True:
        _wait(stream, wake, None, _POLL_SECONDS)
        try:
            now = snapshot.take(root.directory, root.name, recursive, stream.check)
        except FileNotFoundError:
            if of_directory:
                _send(stream, root, [{"kind": "deleted", "path": ".", "type": "directory"}])
                return {}
            now = {}
        except Fault as fault:
            if fault.reason != "TREE_CHANGED":
                raise
            continue
        if of_directory and now["."][0] != seen["."][0]:
            _send(stream, root, [{"kind": "deleted", "path": ".", "type": "directory"}])
            return {}
        _send(stream, root, snapshot.compare(seen, now))
        seen = now


def _wait(stream: BlockingStream, wake: _Wake, descriptor: int | None, seconds: float | None) -> None:
    """Sleep until the descriptor is readable or the time is over. Raises StreamCancelled."""
    poller = select.poll()
    poller.register(wake.descriptor, select.POLLIN)
    if descriptor is not None:
        poller.register(descriptor, select.POLLIN)
    poller.poll(None if seconds is None else seconds * 1000)
    stream.check()


def _send(stream: BlockingStream, root: _Root, changes: list[Params]) -> None:
    events: list[Params] = []
    size = 0
    for change in changes:
        event = dict(change)
        event["path"] = root.shown_path(event["path"])
        if "to" in event:
            event["to"] = root.shown_path(event["to"])
        events.append(event)
        size += 100 + 6 * (len(event["path"]) + len(event.get("to", "")))
        if len(events) >= _EVENTS_PER_MESSAGE or size >= _MESSAGE_BYTES:
            stream.message({"events": events})
            events = []
            size = 0
    if events:
        stream.message({"events": events})

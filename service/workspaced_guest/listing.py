"""file.list: pages of a directory, or of all that is below it.

Order is by path, component by component, by bytes. A page token names the last path of the page before, so that
paging goes on right there whatever was made or removed meanwhile: an entry that exists all the time is listed once.
Nothing is kept between pages, and memory is bounded by the size of a page and the depth of the tree, not by the size
of a directory.
"""

from __future__ import annotations

import errno
import heapq
import os
import stat

from . import params as read
from . import wire
from .fault import from_os_error, invalid
from .filestat import describe_entry
from .glob import Glob
from .parts import is_part
from .paths import join_shown, resolve
from .tree import TreeCursor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from .guest import Guest
    from .stream import BlockingStream

    Params = dict[str, Any]

PAGE_LIMIT = 1000
# RESULT is one frame of at most 256 KiB; the last entry, its token and a directory that may not be read come on top.
_PAGE_BYTES = 128 * 1024
# Names of one directory that are sorted at a time.
_BLOCK = 4096
# A path longer than this could not be used in another call.
_PATH_BYTES = 4095


def list_files(guest: Guest, stream: BlockingStream, params: Params) -> Params:
    """One page of a listing; reads only."""
    page_size = read.integer(params, "page_size", PAGE_LIMIT, low=0) or PAGE_LIMIT
    token = read.text(params, "page_token", "")
    pattern = read.optional_text(params, "glob")
    depth = read.integer(params, "max_depth", 0)
    recursive = read.boolean(params, "recursive")
    glob = Glob(pattern) if pattern else None
    if not recursive and glob is None:
        depth = 1
    with resolve(guest.workdir, params.get("path"), params.get("root")) as place:
        status = place.lstat()
        if not stat.S_ISDIR(status.st_mode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        page = _Page(stream, place.given, place.shown, min(page_size, PAGE_LIMIT), depth, glob)
        cursor = TreeCursor(place.open_directory())
        try:
            page.fill(cursor, _after(token))
        finally:
            cursor.close()
    result: Params = {"entries": page.entries, "next_page_token": page.token}
    if page.denied:
        result["denied"] = page.denied
    return result


class _Level:
    """A directory on the way down: the names still to come, and what of the glob is left to match."""

    __slots__ = ("names", "states")

    def __init__(self, names: Iterator[str], states: frozenset[int]) -> None:
        self.names = names
        self.states = states


class _Page:
    def __init__(
        self, stream: BlockingStream, given: str, shown: str, size: int, depth: int, glob: Glob | None
    ) -> None:
        self.stream = stream
        self.given = given
        self.shown = shown
        self.size = size
        self.depth = depth
        self.glob = glob
        self.entries: list[Params] = []
        self.denied: list[str] = []
        self.token = ""
        self.room = _PAGE_BYTES
        self.trail: list[str] = []

    def fill(self, cursor: TreeCursor, after: list[str]) -> None:
        """Walk on from `after`, the components of the last path listed, until the page is full."""
        levels = [_Level(sorted_names(self.stream, cursor, _first(after)), self._start())]
        self._descend_again(cursor, levels, after)
        while levels:
            level = levels[-1]
            name = next(level.names, None)
            if name is None:
                levels.pop()
                if levels:
                    cursor.up()
                    self.trail.pop()
                continue
            self._visit(cursor, levels, name)
            if self.token:
                return

    def _start(self) -> frozenset[int]:
        return self.glob.start if self.glob is not None else frozenset()

    def _descend_again(self, cursor: TreeCursor, levels: list[_Level], after: list[str]) -> None:
        # What is below the path listed last comes next, then what follows it in its directory, and so on upwards.
        for index, name in enumerate(after):
            states = levels[-1].states
            if self.glob is not None:
                states = self.glob.step(states, name)
            if not self._goes_on(states, "/".join(after[: index + 1])):
                return
            try:
                cursor.down(name)
            except OSError:
                # A file, a link, unreadable (which that page said), or gone: go on behind it.
                return
            self.trail.append(name)
            bound = after[index + 1] if index + 1 < len(after) else None
            levels.append(_Level(sorted_names(self.stream, cursor, bound), states))

    def _visit(self, cursor: TreeCursor, levels: list[_Level], name: str) -> None:
        states = levels[-1].states
        path = "/".join([*self.trail, name])
        if self.glob is not None:
            states = self.glob.step(states, name)
            if not states:
                return
        try:
            entry = describe_entry(cursor.directory, name, join_shown(self.shown, path))
        except FileNotFoundError:
            return
        except PermissionError:
            # Names can be read in this directory, and nothing else.
            if not self.trail:
                raise
            self._deny(join_shown(self.shown, "/".join(self.trail)))
            return
        if self.glob is None or self.glob.matches(states):
            self.entries.append(entry)
            self.room -= len(wire.encode_json(entry)) + 1
        is_directory = entry["type"] == "directory" and self._goes_on(states, path)
        if is_directory:
            try:
                cursor.down(name)
            except PermissionError:
                self._deny(entry["path"])
            except (FileNotFoundError, NotADirectoryError):
                pass  # replaced since it was looked at; the entry tells what it was
            except OSError as error:
                raise from_os_error(error, entry["path"]) from error
            else:
                self.trail.append(name)
                levels.append(_Level(sorted_names(self.stream, cursor, None), states))
        if len(self.entries) >= self.size or self.room <= 0:
            self.token = _token(path)

    def _deny(self, path: str) -> None:
        if path not in self.denied:
            self.denied.append(path)
            self.room -= len(wire.encode_json({"": path}))

    def _goes_on(self, states: frozenset[int], path: str) -> bool:
        if self.depth and len(self.trail) + 1 >= self.depth:
            return False
        if len(os.fsencode(path)) + 2 > _PATH_BYTES:
            return False
        return self.glob is None or self.glob.goes_on(states)


def sorted_names(stream: BlockingStream, cursor: TreeCursor, after: str | None) -> Iterator[str]:
    """Names behind `after` in the directory where the cursor is at each step, sorted, a block at a time.

    Temporary parts of uploads are left out.
    """
    bound = None if after is None else os.fsencode(after)
    while True:
        stream.check()
        with os.scandir(cursor.directory) as found:
            keys = (os.fsencode(entry.name) for entry in found)
            block = heapq.nsmallest(_BLOCK, (key for key in keys if bound is None or key > bound))
        for key in block:
            name = os.fsdecode(key)
            if not is_part(name):
                yield name
        if len(block) < _BLOCK:
            return
        bound = block[-1]


def _first(after: list[str]) -> str | None:
    return after[0] if after else None


def _token(path: str) -> str:
    return os.fsencode(path).hex()


def _after(token: str) -> list[str]:
    """The components of the last path of the page before. Raises ARGUMENT_INVALID for what is no token of ours."""
    if not token:
        return []
    try:
        path = os.fsdecode(bytes.fromhex(token))
    except ValueError:
        raise invalid("page_token is not one that was given out", field="page_token") from None
    parts = path.split("/")
    if any(part in ("", ".", "..") or "\0" in part for part in parts):
        raise invalid("page_token is not one that was given out", field="page_token")
    return parts

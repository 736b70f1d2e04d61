"""The directories that one inotify instance watches, and what its events say about the tree."""

from __future__ import annotations

import os
import stat

from . import inotify
from .parts import is_part
from .tree import TreeCursor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

    Change = dict[str, Any]

_SUBDIRECTORY = inotify.CONTENT
_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class RootGone(Exception):
    """What was watched is no longer there."""


class WatchTree:
    """Watches a directory (with all below, if recursive) or a file by its name in its directory.

    Paths in changes are relative to the directory; `.` stands for the root itself.
    """

    def __init__(self, parent: int, name: str, recursive: bool, check: Callable[[], None]) -> None:
        """`parent` is the directory of the root and stays the caller's. Raises OSError."""
        self._check = check
        self._recursive = recursive
        self._name = name
        self._parent = parent
        self._events = inotify.Inotify()
        self._places: dict[int, tuple[int, str]] = {}  # watch → watch of its parent, name
        self._root_watch = -1
        self._top = -1
        self.overflowed = False
        try:
            self._parent_watch = self._watch_parent()
            status = os.stat(name, dir_fd=parent, follow_symlinks=False)
            if stat.S_ISDIR(status.st_mode):
                self._top = os.open(name, _FLAGS, dir_fd=parent)
                self._root_watch = self._events.add(self._top, inotify.CONTENT)
                self._places[self._root_watch] = (-1, "")
                if recursive:
                    self._add_below("")
        except BaseException:
            self.close()
            raise

    @property
    def descriptor(self) -> int:
        """Readable when there are changes."""
        return self._events.descriptor

    def close(self) -> None:
        """End the watch; again is harmless."""
        top, self._top = self._top, -1
        if top >= 0:
            os.close(top)
        if self._events.descriptor >= 0:
            self._events.close()
            self._events.descriptor = -1

    def changes(self) -> list[Change]:
        """What happened since, in order; empty when nothing did. Sets `overflowed` when something was missed.

        Raises RootGone, and OSError when the limits of inotify are reached.
        """
        batch = _Batch()
        for watch, mask, cookie, name in self._events.read():
            if mask & inotify.OVERFLOW:
                self.overflowed = True
            elif watch == self._parent_watch and self._root_watch != watch:
                self._of_parent(batch, mask, cookie, name)
            elif mask & inotify.IGNORED:
                self._places.pop(watch, None)
            elif mask & inotify.UNMOUNT and watch == self._root_watch:
                batch.gone = True
            elif name and watch in self._places:
                self._of_entry(batch, watch, mask, cookie, name)
        for source in batch.unpaired():
            self._forget(source)
        if self.overflowed and self._recursive and self._top >= 0 and not batch.gone:
            self._add_below("")
        if batch.gone:
            raise RootGone(batch.changes)
        return batch.changes

    def _watch_parent(self) -> int:
        # Tells that the root is removed or renamed, which the root itself doesn't while we hold it open.
        mask = inotify.DELETE | inotify.MOVED_FROM | inotify.ONLYDIR
        status = os.stat(self._name, dir_fd=self._parent, follow_symlinks=False)
        if not stat.S_ISDIR(status.st_mode):
            mask = inotify.CONTENT
        try:
            return self._events.add(self._parent, mask)
        except PermissionError:
            if mask == inotify.CONTENT:
                raise
            return -1  # not allowed to look: the root's end shows when the client looks

    def _of_parent(self, batch: _Batch, mask: int, cookie: int, name: str) -> None:
        if name != self._name:
            if self._top < 0 and mask & inotify.MOVED_FROM:
                batch.from_part[cookie] = is_part(name)
            return
        if self._top >= 0:
            batch.gone = True
            batch.add("deleted", ".", "directory")
        elif mask & (inotify.DELETE | inotify.MOVED_FROM):
            batch.add("deleted", ".", "file")
        elif mask & inotify.MOVED_TO:
            batch.add("modified" if batch.from_part.get(cookie) else "created", ".", self._type("."))
        else:
            batch.add("created" if mask & inotify.CREATE else "modified", ".", self._type("."))

    def _of_entry(self, batch: _Batch, watch: int, mask: int, cookie: int, name: str) -> None:
        path = self._path(watch, name)
        is_directory = bool(mask & inotify.ISDIR)
        if mask & inotify.MOVED_FROM:
            batch.moved_from(cookie, path, is_directory, hidden=is_part(name))
        elif is_part(name):
            return
        elif mask & inotify.MOVED_TO:
            self._moved_to(batch, watch, cookie, path, name, is_directory)
        elif mask & inotify.CREATE:
            batch.add("created", path, self._type(path, is_directory))
            if is_directory:
                self._entered(batch, path)
        elif mask & inotify.DELETE:
            batch.add("deleted", path, "directory" if is_directory else "file")
        elif not is_directory or mask & inotify.ATTRIB:
            batch.add("modified", path, self._type(path, is_directory))

    def _moved_to(self, batch: _Batch, watch: int, cookie: int, path: str, name: str, is_directory: bool) -> None:
        source = batch.take_move(cookie)
        kind = self._type(path, is_directory)
        if source is None:
            batch.add("created", path, kind)
            if is_directory:
                self._entered(batch, path)
        elif source == "":
            batch.add("modified", path, kind)  # a part has replaced the file
        else:
            batch.changes.append({"kind": "moved", "path": source, "to": path, "type": kind})
            moved = self._find(source) if is_directory else None
            if moved is not None:
                self._places[moved] = (watch, name)
            elif is_directory:
                self._entered(batch, path)

    def _entered(self, batch: _Batch, path: str) -> None:
        if self._recursive:
            self._add_below(path, batch)

    def _add_below(self, path: str, batch: _Batch | None = None) -> None:
        """Watch a directory and all below it; with `batch`, report what is found there, since it came unseen."""
        cursor = TreeCursor(os.dup(self._top))
        try:
            watch = self._root_watch
            for name in path.split("/") if path else ():
                cursor.down(name)
                watch = self._add(cursor.directory, watch, name)
            self._walk(cursor, watch, path, batch)
        except (FileNotFoundError, NotADirectoryError):
            return  # gone again; its end is an event of its own
        except PermissionError:
            return  # what may not be read can't be watched, as it can't be listed
        finally:
            cursor.close()

    def _walk(self, cursor: TreeCursor, watch: int, path: str, batch: _Batch | None) -> None:
        levels = [(watch, path, iter(os.listdir(cursor.directory)))]
        while levels:
            watch, path, names = levels[-1]
            name = next(names, None)
            if name is None:
                levels.pop()
                if levels:
                    cursor.up()
                continue
            if is_part(name):
                continue
            self._check()
            below = f"{path}/{name}" if path else name
            try:
                status = os.stat(name, dir_fd=cursor.directory, follow_symlinks=False)
                is_directory = stat.S_ISDIR(status.st_mode)
                if batch is not None:
                    batch.add("created", below, self._type(below, is_directory))
                if is_directory:
                    cursor.down(name)
                    levels.append((self._add(cursor.directory, watch, name), below, iter(os.listdir(cursor.directory))))
            except (FileNotFoundError, NotADirectoryError, PermissionError):
                continue

    def _add(self, directory: int, parent_watch: int, name: str) -> int:
        watch = self._events.add(directory, _SUBDIRECTORY)
        self._places[watch] = (parent_watch, name)
        return watch

    def _forget(self, path: str) -> None:
        """End the watches of a directory that left the tree, and of all below it."""
        gone = self._find(path)
        if gone is None:
            return
        below = [watch for watch in self._places if self._is_below(watch, gone)]
        for watch in below:
            self._events.remove(watch)
            del self._places[watch]

    def _is_below(self, watch: int, top: int) -> bool:
        while watch != -1:
            if watch == top:
                return True
            watch = self._places.get(watch, (-1, ""))[0]
        return False

    def _find(self, path: str) -> int | None:
        name = path.rpartition("/")[2]
        for watch, (above, called) in self._places.items():
            if called == name and above != -1 and self._path(watch) == path:
                return watch
        return None

    def _path(self, watch: int, name: str = "") -> str:
        parts = [name] if name else []
        while watch != self._root_watch and watch in self._places:
            watch, called = self._places[watch]
            parts.append(called)
        return "/".join(reversed(parts))

    def _type(self, path: str, is_directory: bool = False) -> str:
        from .filestat import type_of

        if is_directory:
            return "directory"
        directory, name = (self._parent, self._name) if path == "." else (self._top, path)
        try:
            return type_of(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode)
        except OSError:
            return "file"  # gone again, and no directory: most likely


class _Batch:
    """Changes in order, without repetitions, with renames paired."""

    def __init__(self) -> None:
        self.changes: list[Change] = []
        self.gone = False
        self.from_part: dict[int, bool] = {}
        self._last: dict[str, str] = {}
        self._moves: dict[int, tuple[Change, bool]] = {}

    def add(self, kind: str, path: str, type_name: str) -> None:
        last = self._last.get(path)
        if (kind == "modified" and last in ("created", "modified")) or (kind == "created" and last == "created"):
            return
        self._last[path] = kind
        self.changes.append({"kind": kind, "path": path, "type": type_name})

    def moved_from(self, cookie: int, path: str, is_directory: bool, hidden: bool) -> None:
        change = {"kind": "deleted", "path": path, "type": "directory" if is_directory else "file"}
        if not hidden:
            self.changes.append(change)
            self._last[path] = "deleted"
        self._moves[cookie] = (change, hidden)

    def take_move(self, cookie: int) -> str | None:
        """The path that was renamed; empty for a part, None when it came from elsewhere."""
        found = self._moves.pop(cookie, None)
        if found is None:
            return None
        change, hidden = found
        if hidden:
            return ""
        self.changes = [kept for kept in self.changes if kept is not change]
        return str(change["path"])

    def unpaired(self) -> list[str]:
        """Directories that were renamed to somewhere else."""
        moves = self._moves.values()
        return [str(change["path"]) for change, hidden in moves if not hidden and change["type"] == "directory"]

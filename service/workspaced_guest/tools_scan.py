"""The program behind tool.search: walks, matches, writes what it found, and then a NUL and the result as JSON."""

from __future__ import annotations

import errno
import heapq
import json
import os
import re
import resource
import stat
import time

from .fault import Fault
from .glob import Glob
from .parts import is_part
from .paths import join_shown, shown_path
from .tools_ignore import Ignore, above
from .tools_read import SAMPLE_BYTES, is_binary

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    Params = dict[str, Any]
    Found = tuple[str, str, os.stat_result]  # path, shown path, status

_MEMORY_BYTES = 1 << 30
_OUTPUT_BYTES = 128 * 1024
_ENTRIES = 2_000_000
_DIRECTORY_ENTRIES = 250_000
_CHUNK_BYTES = 1 << 20
_MULTILINE_BYTES = 16 << 20
_COLUMNS = 500


def main(text: str) -> None:
    """Answer one request."""
    request = json.loads(text)
    seconds = int(request["seconds"]) + 2
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    output = Output()
    try:
        result = answer(request, output)
    except MemoryError:
        result = {"stopped": "memory"}
    output.write(b"\0" + json.dumps(result).encode())
    output.flush()


class Output:
    """What was found, as bytes; never more than 128 KiB before it says that it is full."""

    def __init__(self) -> None:
        self.full = False
        self._room = _OUTPUT_BYTES
        self._buffer = bytearray()

    def line(self, text: str) -> None:
        """A line, unless there is no room for it."""
        data = text.encode("utf-8", "surrogateescape").replace(b"\0", b"\xe2\x90\x80") + b"\n"
        self._room -= len(data)
        if self._room < 0:
            self.full = True
            return
        self.write(data)

    def write(self, data: bytes) -> None:
        """Bytes as they are."""
        self._buffer += data

    def flush(self) -> None:
        """Let it be seen, whatever becomes of this program."""
        buffer, self._buffer = self._buffer, bytearray()
        while buffer:
            del buffer[: os.write(1, buffer)]


def answer(request: Params, output: Output) -> Params:
    """Search; the result without what went to the output."""
    walk = _Walk(request)
    if walk.problem:
        return {"problem": walk.problem}
    result = _Grep(request, walk, output).run() if request["pattern"] is not None else _glob(request, walk, output)
    if walk.stopped or walk.cut:
        result["stopped"] = walk.stopped or "entries"
    if walk.unreadable:
        result["unreadable"] = walk.unreadable
    return result


class _Walk:
    """The files below a path, by path; links are not followed."""

    def __init__(self, request: Params) -> None:
        self.stopped = ""
        self.problem = ""
        self.unreadable = 0
        self.cut = False
        self.ends = time.monotonic() + request["seconds"]
        self._entries = 0
        self._include = request["include_ignored"]
        workdir = request["workdir"]
        self.root = os.path.normpath(os.path.join(workdir, request["path"]))
        self.shown = shown_path(workdir, self.root)
        self._globs = []
        try:
            self._globs = [Glob(pattern) for pattern in request["globs"]]
        except Fault as fault:
            self.problem = fault.message
        try:
            self.status = os.stat(self.root)
        except OSError as error:
            self.problem = "missing" if isinstance(error, FileNotFoundError) else str(error.strerror)
            return
        self._ignore, self._parts = (Ignore(), []) if self._include else above(self.root, workdir)

    def late(self) -> bool:
        """Whether the time is up, or enough was looked at."""
        if not self.stopped:
            if time.monotonic() > self.ends:
                self.stopped = "time"
            elif self._entries > _ENTRIES:
                self.stopped = "entries"
        return bool(self.stopped)

    def files(self) -> Iterator[Found]:
        """The one file, or those below the directory that match a glob."""
        if not stat.S_ISDIR(self.status.st_mode):
            yield self.root, self.shown, self.status
            return
        starts = [glob.start for glob in self._globs]
        below = self._below(self._ignore, self.root, self._parts)
        levels = [(self._names(self.root), self.root, self.shown, starts, below, self._parts)]
        while levels and not self.late():
            names, directory, shown, states, ignore, parts = levels[-1]
            entry = next(names, None)
            if entry is None:
                levels.pop()
                continue
            name, is_directory = entry
            path = os.path.join(directory, name)
            here = [*parts, name]
            if not self._include and ignore.ignores(here, is_directory):
                continue
            following = [glob.step(state, name) for glob, state in zip(self._globs, states)]
            entry_shown = join_shown(shown, name)
            if is_directory:
                if not self._globs or any(glob.goes_on(state) for glob, state in zip(self._globs, following)):
                    below = self._below(ignore, path, here)
                    levels.append((self._names(path), path, entry_shown, following, below, here))
            elif not self._globs or any(glob.matches(state) for glob, state in zip(self._globs, following)):
                try:
                    yield path, entry_shown, os.lstat(path)
                except FileNotFoundError:
                    continue

    def _below(self, ignore: Ignore, directory: str, parts: list[str]) -> Ignore:
        return ignore if self._include else ignore.within(directory, len(parts))

    def _names(self, directory: str) -> Iterator[tuple[str, bool]]:
        found: list[tuple[bytes, bool]] = []
        try:
            with os.scandir(directory) as entries:
                for entry in entries:
                    self._entries += 1
                    if len(found) >= _DIRECTORY_ENTRIES:
                        self.cut = True
                        break
                    if not is_part(entry.name):
                        found.append((os.fsencode(entry.name), entry.is_dir(follow_symlinks=False)))
                    if not self._entries % 1000 and self.late():
                        break
        except OSError:
            self.unreadable += 1
        found.sort()
        return ((os.fsdecode(name), is_directory) for name, is_directory in found)


def _glob(request: Params, walk: _Walk, output: Output) -> Params:
    count = 0

    def keys() -> Iterator[tuple[int, bytes]]:
        nonlocal count
        for _, shown, status in walk.files():
            count += 1
            yield -status.st_mtime_ns, os.fsencode(shown)

    if not stat.S_ISDIR(walk.status.st_mode):
        return {"problem": "not a directory"}
    found = 0
    for _, name in heapq.nsmallest(request["limit"], keys()):
        output.line(os.fsdecode(name))
        found += not output.full
    return {"shown": found, "count": count}


class _Grep:
    def __init__(self, request: Params, walk: _Walk, output: Output) -> None:
        self.walk = walk
        self.output = output
        self.mode: str = request["mode"]
        self.before = request["before"]
        self.after = request["after"]
        self.multiline = request["multiline"]
        self.left: int = request["limit"]
        self.pattern = request["pattern"]
        self.flags = re.IGNORECASE if request["ignore_case"] else 0
        if self.multiline:
            self.flags |= re.MULTILINE | re.DOTALL
        self.literal = not self.flags and re.escape(self.pattern) == self.pattern
        self.files = 0
        self.matches = 0
        self.skipped = 0

    def run(self) -> Params:
        """Search file by file until the limit."""
        try:
            self.search = re.compile(self.pattern, self.flags)
        except (re.error, RecursionError, OverflowError) as error:
            return {"invalid": str(error)}
        more = False
        for path, shown, status in self.walk.files():
            if self.left <= 0 or self.output.full:
                more = True
                break
            if stat.S_ISREG(status.st_mode):
                try:
                    self._file(path, shown)
                except OSError:
                    self.walk.unreadable += 1
                self.output.flush()
        more = more or self.left < 0 or self.output.full
        return {"files": self.files, "matches": self.matches, "more": more, "skipped": self.skipped}

    def _file(self, path: str, shown: str) -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            sample = os.read(descriptor, SAMPLE_BYTES)
            whole = len(sample) < SAMPLE_BYTES and not os.read(descriptor, 1)
            if not sample or is_binary(sample):
                return
            os.lseek(descriptor, 0, os.SEEK_SET)
            if not self.multiline:
                self._lines(shown, iter((sample,)) if whole else _pieces(descriptor))
                return
            content = sample if whole else _read_up_to(descriptor, _MULTILINE_BYTES + 1)
            if len(content) > _MULTILINE_BYTES:
                self.skipped += 1
            else:
                self._whole(shown, content.decode("utf-8", "replace"))
        finally:
            os.close(descriptor)

    def _lines(self, shown: str, pieces: Iterator[bytes]) -> None:
        """Line by line, with what is around a match."""
        group = _Group(self, shown)
        search = self.search.search
        number = 0
        for piece in pieces:
            text = piece.decode("utf-8", "replace")
            if self.literal and self.pattern not in text and not group.wants:
                number += text.count("\n")
                group.forget()
                continue
            for line in text[:-1].split("\n") if text.endswith("\n") else text.split("\n"):
                number += 1
                line = line.removesuffix("\r")
                found = search(line)
                if not group.line(number, line, found):
                    group.end()
                    return
            if self.walk.late():
                break
        group.end()

    def _whole(self, shown: str, text: str) -> None:
        lines = text.split("\n")
        matched: dict[int, re.Match[str]] = {}
        position = number = 0
        for match in self.search.finditer(text):
            number += text.count("\n", position, match.start())
            position = match.start()
            last = number + text.count("\n", position, max(position, match.end() - 1))
            for covered in range(number, min(last, len(lines) - 1) + 1):
                matched.setdefault(covered, match)
            if self.mode == "files":
                break
        group = _Group(self, shown)
        for index, line in enumerate(lines):
            if index not in matched and not self.before and not self.after:
                continue
            if not group.line(index + 1, line.rstrip("\r"), matched.get(index)):
                break
        group.end()


class _Group:
    """What is told of one file."""

    def __init__(self, grep: _Grep, shown: str) -> None:
        self._grep = grep
        self._shown = shown
        self._kept: list[tuple[int, str]] = []
        self._last = 0
        self._count = 0
        self.wants = 0

    def line(self, number: int, line: str, found: re.Match[str] | None) -> bool:
        """Take one line; False when no more are wanted of this file."""
        grep = self._grep
        if found is None:
            if self.wants:
                self.wants -= 1
                self._tell(number, line, "-", 0)
            elif grep.before and grep.mode == "content":
                self._kept.append((number, line))
                del self._kept[: -grep.before]
            return grep.left >= 0 and not grep.output.full
        self._count += 1
        grep.matches += 1
        if grep.mode != "content":
            return grep.mode == "count"
        if grep.left <= 0:
            grep.left = -1
            return False
        for earlier in self._kept:
            self._tell(*earlier, "-", 0)
        self._kept = []
        grep.left -= 1
        self._tell(number, line, ":", found.start() if not grep.multiline else 0)
        self.wants = grep.after
        return not grep.output.full

    def forget(self) -> None:
        """Lines follow that were not looked at one by one."""
        self._kept = []

    def end(self) -> None:
        """No more lines come."""
        if not self._count:
            return
        grep = self._grep
        grep.files += 1
        if grep.mode != "content":
            grep.left -= 1
            grep.output.line(self._shown if grep.mode == "files" else f"{self._shown}:{self._count}")

    def _tell(self, number: int, line: str, mark: str, position: int) -> None:
        grep = self._grep
        if (grep.before or grep.after) and self._last != number - 1 and (self._last or grep.files):
            grep.output.line("--")
        self._last = number
        if len(line) > _COLUMNS:
            start = max(0, position - 100)
            line = (
                ("…" if start else "") + line[start : start + _COLUMNS] + ("…" if start + _COLUMNS < len(line) else "")
            )
        grep.output.line(f"{self._shown}{mark}{number}{mark}{line}")


def _read_up_to(descriptor: int, count: int) -> bytes:
    """What follows in the file, at most `count` bytes."""
    found = bytearray()
    while len(found) < count and (data := os.read(descriptor, min(_CHUNK_BYTES, count - len(found)))):
        found += data
    return bytes(found)


def _pieces(descriptor: int) -> Iterator[bytes]:
    """The file in pieces of whole lines; a line that is larger than a piece is cut. Holes are skipped."""
    rest = b""
    while True:
        position = os.lseek(descriptor, 0, os.SEEK_CUR)
        try:
            os.lseek(descriptor, position, os.SEEK_DATA)
        except OSError as error:
            # Nothing but a hole follows; or the file system knows no holes.
            os.lseek(descriptor, 0 if error.errno == errno.ENXIO else position, 2 if error.errno == errno.ENXIO else 0)
        data = os.read(descriptor, _CHUNK_BYTES)
        if not data:
            if rest:
                yield rest
            return
        data = rest + data
        end = data.rfind(b"\n") + 1
        if not end and len(data) > _CHUNK_BYTES:
            end = len(data)
        rest = data[end:]
        if end:
            yield data[:end]

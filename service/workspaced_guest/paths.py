"""From the path that a caller gave to one directory entry.

A path is resolved once, to a `Place`: an open descriptor of the directory that holds the entry, and the entry's name.
Everything that follows works on the pair, so that nobody can swap a directory of the path between the check and the
use.

With a `root` the walk is done by hand, a component at a time, without letting the kernel follow a link: what leads
out of the root is refused, also while somebody else renames directories below it.
"""

from __future__ import annotations

import errno
import os
import stat

from .fault import Fault, from_os_error, invalid, printable, shorten

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType
    from typing import Any

    from typing_extensions import Self

PATH_LIMIT_BYTES = 4095
LINK_LIMIT = 40
OPEN_DIRECTORY = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC


def check_path(value: Any, field: str = "path") -> str:
    """Return `value` if it can be a path at all: text, not empty, no NUL, at most 4,095 bytes."""
    if not isinstance(value, str):
        raise invalid(f"{field} must be text", field=field)
    if not value:
        raise invalid(f"{field} is empty", field=field)
    if "\0" in value:
        raise invalid(f"{field} holds a NUL byte", field=field)
    try:
        size = len(value.encode("utf-8", "surrogateescape"))
    except UnicodeEncodeError:
        raise invalid(f"{field} holds a lone surrogate", field=field) from None
    if size > PATH_LIMIT_BYTES:
        raise invalid(f"{field} is longer than {PATH_LIMIT_BYTES} bytes", field=field)
    return value


class Place:
    """One directory entry, which need not exist. Owns the descriptor of the directory; close it, or use it in `with`.

    `name` is `"."` where the path is a directory without a name to change: `/`, `.`, `a/..`, or the root itself.
    """

    __slots__ = ("directory", "given", "must_be_directory", "name", "shown")

    def __init__(self, directory: int, name: str, given: str, shown: str, must_be_directory: bool) -> None:
        self.directory = directory
        self.name = name
        self.given = given
        self.shown = shown  # what the answer calls it: relative to the workdir when inside
        self.must_be_directory = must_be_directory

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
        if isinstance(value, OSError):
            raise from_os_error(value, self.given) from value

    def close(self) -> None:
        """Close the directory; again is harmless."""
        directory, self.directory = self.directory, -1
        if directory >= 0:
            os.close(directory)

    def lstat(self) -> os.stat_result:
        """What is there, a link not followed. Raises OSError."""
        status = os.stat(self.name, dir_fd=self.directory, follow_symlinks=False)
        if self.must_be_directory and not stat.S_ISDIR(status.st_mode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        return status

    def peek(self) -> os.stat_result | None:
        """As `lstat`, or None when nothing is there."""
        try:
            return self.lstat()
        except FileNotFoundError:
            return None

    def require_name(self) -> None:
        """Refuse a path that ends in a directory without a name, where an entry is to be made, moved or removed."""
        if self.name == ".":
            raise invalid(f"{shorten(self.given)}: the path must end in a name", field="path")

    def open_file(self, flags: int = os.O_RDONLY) -> int:
        """Open the regular file that is there. Anything else is refused without being opened, so that a FIFO
        does not block and a device is not touched."""
        require_file(self.lstat(), self.given)
        flags |= os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
        descriptor = os.open(self.name, flags, dir_fd=self.directory)
        try:
            require_file(os.fstat(descriptor), self.given)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def open_directory(self) -> int:
        """Open the directory that is there, for reading its names."""
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        return os.open(self.name, flags, dir_fd=self.directory)


def require_file(status: os.stat_result, given: str) -> None:
    """Refuse what is not a regular file."""
    if stat.S_ISDIR(status.st_mode):
        raise from_os_error(IsADirectoryError(errno.EISDIR, "is a directory"), given)
    if not stat.S_ISREG(status.st_mode):
        raise from_os_error(OSError(errno.ENXIO, "not a regular file"), given)


def resolve(
    workdir: str, path: Any, root: Any = None, *, follow: bool = True, parents: bool = False, field: str = "path"
) -> Place:
    """Find the entry that `path` names.

    `path` is relative to `workdir` or absolute; with `root` (itself relative to `workdir` or absolute) it is relative
    to the root and cannot leave it. `follow` says whether a link in the last place is resolved; a link to nothing
    leads to where the file would be. `parents` makes missing directories on the way, the root included. Raises Fault.
    """
    given = check_path(path, field)
    try:
        if root is None:
            return _resolve_open(workdir, given, follow, parents)
        return _resolve_below(workdir, check_path(root, "root"), given, follow, parents)
    except OSError as error:
        raise from_os_error(error, given) from error


def shown_path(workdir: str, absolute: str) -> str:
    """An absolute path as answers name it: relative to the workdir when inside, `.` for the workdir itself."""
    if absolute == workdir:
        return "."
    prefix = workdir.rstrip("/") + "/"
    return absolute.removeprefix(prefix)


def join_shown(directory: str, name: str) -> str:
    """The shown path of an entry below a shown directory."""
    return name if directory == "." else os.path.join(directory, name)


def _resolve_open(workdir: str, given: str, follow: bool, parents: bool) -> Place:
    head, name, must_be_directory = _split(given)
    directory = _open_directory(os.path.join(workdir, head), parents)
    try:
        links = 0
        while follow and name != ".":
            try:
                target = os.readlink(name, dir_fd=directory)
            except OSError as error:
                if error.errno in (errno.EINVAL, errno.ENOENT):
                    break
                raise
            links += 1
            if links > LINK_LIMIT:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
            head, name, slash = _split(target)
            must_be_directory = must_be_directory or slash
            following = os.open(head or ".", OPEN_DIRECTORY, dir_fd=directory)
            os.close(directory)
            directory = following
        return Place(directory, name, given, _shown(workdir, workdir, given, directory, name), must_be_directory)
    except BaseException:
        os.close(directory)
        raise


def _resolve_below(workdir: str, root: str, given: str, follow: bool, parents: bool) -> Place:
    root_path = os.path.join(workdir, root)
    root_directory = _open_directory(root_path, parents)
    try:
        walk = _Walk(root_directory, os.path.realpath(root_path), given)
    except BaseException:
        os.close(root_directory)
        raise
    try:
        walk.push(given)
        name = walk.run(follow, parents)
        directory = walk.take()
    finally:
        walk.close()
    try:
        base = os.path.normpath(root_path)
        return Place(directory, name, given, _shown(workdir, base, given, directory, name), walk.must_be_directory)
    except BaseException:
        os.close(directory)
        raise


class _Walk:
    """A walk below a root that never lets the kernel follow a link or a `..`.

    A `..` goes back by walking anew from the root over the names so far: were the directory asked for its parent, a
    rename meanwhile could lead out. Names already walked are real directories; one that has become a link since is
    refused.
    """

    def __init__(self, root: int, real_root: str, given: str) -> None:
        self.root = root
        self.real_root = real_root
        self.given = given
        self.current = os.dup(root)
        self.trail: list[str] = []
        self.pending: list[str] = []
        self.must_be_directory = False

    def push(self, path: str) -> None:
        """Put the components of `path`, from here on, before what is still to walk."""
        if path.startswith("/"):
            path = self._below_root(path)
            self._enter(os.dup(self.root))
            self.trail = []
        parts = [part for part in path.split("/") if part not in ("", ".")]
        if not self.pending and path.endswith(("/", "/.")):
            self.must_be_directory = True
        self.pending.extend(reversed(parts))

    def run(self, follow: bool, parents: bool) -> str:
        """Walk to the last component and return its name; the directory is `current`."""
        links = 0
        while self.pending:
            part = self.pending.pop()
            if part == "..":
                self._up()
                continue
            last = not self.pending
            if last and not follow:
                return part
            try:
                entry = os.open(part, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self.current)
            except FileNotFoundError:
                if last:
                    return part
                if not parents:
                    raise
                _make_directory(part, self.current)
                entry = os.open(part, OPEN_DIRECTORY | os.O_NOFOLLOW, dir_fd=self.current)
            kind = stat.S_IFMT(os.fstat(entry).st_mode)
            if kind == stat.S_IFLNK:
                try:
                    target = os.readlink("", dir_fd=entry)
                finally:
                    os.close(entry)
                links += 1
                if links > LINK_LIMIT:
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
                self.push(target)
            elif last:
                os.close(entry)
                return part
            elif kind == stat.S_IFDIR:
                self._enter(entry)
                self.trail.append(part)
            else:
                os.close(entry)
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        return "."

    def take(self) -> int:
        """Hand the current directory over to the caller."""
        current, self.current = self.current, -1
        return current

    def close(self) -> None:
        """Close what the walk holds."""
        os.close(self.root)
        if self.current >= 0:
            os.close(self.current)

    def _enter(self, directory: int) -> None:
        os.close(self.current)
        self.current = directory

    def _up(self) -> None:
        if not self.trail:
            raise self._escapes()
        self.trail.pop()
        self._enter(os.dup(self.root))
        for name in self.trail:
            self._enter(os.open(name, OPEN_DIRECTORY | os.O_NOFOLLOW, dir_fd=self.current))

    def _below_root(self, path: str) -> str:
        """What is left of an absolute path below the root's real path; escapes if it is elsewhere."""
        wanted = [part for part in path.split("/") if part not in ("", ".")]
        prefix = [part for part in self.real_root.split("/") if part]
        if wanted[: len(prefix)] != prefix:
            raise self._escapes()
        rest = "/".join(wanted[len(prefix) :])
        return rest + "/" if path.endswith("/") else rest

    def _escapes(self) -> Fault:
        return Fault(
            "PERMISSION_DENIED",
            "PATH_ESCAPES",
            f"{shorten(self.given)}: leads out of its root directory",
            path=printable(self.given),
        )


def _split(path: str) -> tuple[str, str, bool]:
    """Directory part, name, and whether the path insists on a directory by a slash at its end."""
    stripped = path.rstrip("/")
    if not stripped:
        return ("/" if path else "", ".", False)
    head, name = os.path.split(stripped)
    if name in (".", ".."):
        return (stripped, ".", False)
    return (head, name, stripped != path)


def _open_directory(path: str, parents: bool) -> int:
    try:
        return os.open(path, OPEN_DIRECTORY)
    except FileNotFoundError:
        if not parents:
            raise
    try:
        os.makedirs(path, exist_ok=True)
    except FileExistsError:
        # A component is there and is no directory.
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR)) from None
    return os.open(path, OPEN_DIRECTORY)


def _make_directory(name: str, directory: int) -> None:
    try:
        os.mkdir(name, dir_fd=directory)
    except FileExistsError:
        return


def _shown(workdir: str, base: str, given: str, directory: int, name: str) -> str:
    parts = given.split("/")
    if ".." in parts:
        # A `..` behind a link is not what the text suggests: ask the kernel where we are.
        absolute = os.path.normpath(os.path.join(os.readlink(f"/proc/self/fd/{directory}"), name))
        return shown_path(os.path.realpath(workdir), absolute)
    absolute = os.path.normpath(os.path.join(base, given))
    return shown_path(workdir, "/" + absolute.lstrip("/"))

"""Written by generate_sync.py from workspaced.files; do not edit."""

from __future__ import annotations

import os

from workspaced import files as twin
from workspaced.file_content import Data
from workspaced.file_info import FileChange, FileInfo, WatchOverflow, WatchReady
from workspaced.files import Transferred

from .portal import call
from .stream import Stream


class Files:
    """Moves and lists the files of a workspace. Paths are absolute, or relative to the workspace's directory.

    All methods raise :class:`FileNotFound` only when the sandbox said so; one that cannot be asked is
    :class:`Unreachable`. Cancellation of a write leaves the old file as it was.
    """

    def __init__(self, asynchronous: twin.Files) -> None:
        self._twin = asynchronous

    def write(
        self,
        path: str,
        data: Data,
        *,
        mode: int | None = None,
        create_only: bool = False,
        if_match: str = "",
        parents: bool = True,
        sha256: str = "",
        hashed: bool = True,
        sync: bool = True,
        progress: Transferred | None = None,
    ) -> FileInfo:
        """Write a file as a whole: it replaces the old one at once, when all is there and on disk (``sync``).

        ``if_match`` is the SHA-256 that the present content must have (:class:`ContentChanged`), ``sha256`` the one
        that the new content must have (:class:`HashMismatch`); ``create_only`` refuses a path that exists
        (:class:`FileExists`). The answer has ``sha256`` unless ``hashed`` is false, which saves a fifth of the work of
        a large file. Bytes and strings go on where they were when a connection breaks; an iterator gives its bytes
        once, so that it is :class:`Unavailable` then, and nothing was written.
        """
        return call(
            self._twin.write(
                path,
                data,
                mode=mode,
                create_only=create_only,
                if_match=if_match,
                parents=parents,
                sha256=sha256,
                hashed=hashed,
                sync=sync,
                progress=progress,
            )
        )

    def upload(
        self,
        source: str | os.PathLike[str],
        path: str,
        *,
        mode: int | None = None,
        parents: bool = True,
        hashed: bool = True,
        sync: bool = True,
        progress: Transferred | None = None,
    ) -> FileInfo:
        """Copy a local file into the workspace, with its permission bits unless ``mode`` is given. Goes on over broken
        connections. ``hashed`` and ``sync`` as in :meth:`write`. Raises :class:`OSError` for the local side.
        """
        return call(
            self._twin.upload(source, path, mode=mode, parents=parents, hashed=hashed, sync=sync, progress=progress)
        )

    def download(
        self, path: str, destination: str | os.PathLike[str], *, progress: Transferred | None = None
    ) -> FileInfo:
        """Copy a file of the workspace to a local path, which is replaced at once when all is there."""
        return call(self._twin.download(path, destination, progress=progress))

    def read(self, path: str, *, offset: int = 0, limit: int | None = None) -> bytes:
        """Read a file, or ``limit`` bytes of it from ``offset``."""
        return call(self._twin.read(path, offset=offset, limit=limit))

    def read_stream(self, path: str, *, offset: int = 0, limit: int | None = None) -> Stream[bytes]:
        """The bytes of a file in chunks of at most 256 KiB. A broken connection is repaired; should the file have
        changed meanwhile, :class:`ContentChanged` is raised.
        """
        return Stream(self._twin.read_stream(path, offset=offset, limit=limit))

    def stat(self, path: str, *, follow: bool = True, sha256: bool = False) -> FileInfo:
        """What is known of a file; with ``follow=False`` of a link itself, with ``sha256`` the hash of its content."""
        return call(self._twin.stat(path, follow=follow, sha256=sha256))

    def exists(self, path: str) -> bool:
        """Whether a path exists; a link counts even when what it leads to does not."""
        return call(self._twin.exists(path))

    def list(self, path: str = "", *, recursive: bool = False, glob: str = "", max_depth: int = 0) -> list[FileInfo]:
        """The entries of a directory, sorted by path; links are not followed. ``glob`` matches paths relative to
        ``path``, ``**`` crosses directories; ``max_depth`` 0 is any.
        """
        return call(self._twin.list(path, recursive=recursive, glob=glob, max_depth=max_depth))

    def remove(self, path: str, *, recursive: bool = False, allow_missing: bool = False, if_match: str = "") -> int:
        """Remove a file, a link (never its target) or, with ``recursive``, a directory; returns how many went."""
        return call(self._twin.remove(path, recursive=recursive, allow_missing=allow_missing, if_match=if_match))

    def move(self, source: str, destination: str, *, overwrite: bool = False) -> FileInfo:
        """Move a file or directory to a new path. Not repeated when a connection breaks: it may have happened."""
        return call(self._twin.move(source, destination, overwrite=overwrite))

    def copy(
        self,
        source: str,
        destination: str,
        *,
        recursive: bool = False,
        overwrite: bool = False,
        timeout: float | None = None,
    ) -> FileInfo:
        """Copy a file, or with ``recursive`` a directory. A failed or cancelled copy leaves nothing."""
        return call(self._twin.copy(source, destination, recursive=recursive, overwrite=overwrite, timeout=timeout))

    def mkdir(self, path: str, *, parents: bool = False, mode: int | None = None, exist_ok: bool = False) -> FileInfo:
        """Make a directory. :class:`FileExists` without ``exist_ok``."""
        return call(self._twin.mkdir(path, parents=parents, mode=mode, exist_ok=exist_ok))

    def watch(self, path: str = ".", *, recursive: bool = False) -> Stream[FileChange | WatchReady | WatchOverflow]:
        """Changes of a file or directory: :class:`WatchReady` first, and again after a broken connection, when
        changes may have been missed; :class:`WatchOverflow` when they came too fast. Ends when it is closed.
        """
        return Stream(self._twin.watch(path, recursive=recursive))

"""Files and programs of a workspace, as AgentScope's own tools and routers use them."""

from __future__ import annotations

import posixpath
import signal
from collections.abc import AsyncIterator

from agentscope.tool import BackendBase, DirEntry, ExecResult

from workspaced import errors
from workspaced.enums import ExitReason
from workspaced.file_info import FileInfo
from workspaced.process_info import Exit, Output
from workspaced.workspace import Workspace

_MISSING = (errors.FileNotFound, errors.NotADirectory)


class AgentScopeBackend(BackendBase):
    """The files by FileService, and programs as processes of the workspace. Nothing here needs a shell or GNU tools.

    A workspace that cannot be reached is :class:`Unavailable`, never a missing file, an exit code or an empty list.
    """

    def __init__(self, workspace: Workspace, workdir: str) -> None:
        self._workspace = workspace
        self._workdir = workdir

    async def exec_shell(
        self, command: list[str], *, cwd: str | None = None, timeout: float | None = None
    ) -> ExecResult:
        """Run a program; ``timeout`` in seconds ends its whole process tree, and the exit code is -1 then.

        It is 127 for a program that cannot be started, and 128 and the signal's number for one that a signal ended.
        """
        output = {"stdout": bytearray(), "stderr": bytearray()}
        try:
            async with self._workspace.exec(
                command, cwd=cwd or "", timeout=timeout, disconnect_policy="kill"
            ) as process:
                async for event in process:
                    if isinstance(event, Output):
                        output[event.stream] += event.data
                ended = await process.wait()
        except errors.ProcessStartFailed as error:
            return ExecResult(127, b"", error.message.encode())
        if ended.reason is ExitReason.TIMED_OUT:
            return ExecResult(-1, bytes(output["stdout"]), b"timed out")
        return ExecResult(_code(ended), bytes(output["stdout"]), bytes(output["stderr"]))

    async def read_file(self, path: str) -> bytes:
        """The whole file. Raises :class:`FileNotFoundError`."""
        try:
            return await self._workspace.files.read(path)
        except _MISSING as error:
            raise FileNotFoundError(error.message) from error

    async def write_file(self, path: str, data: bytes) -> None:
        """Replace the file at once; directories on the way are made."""
        await self._workspace.files.write(path, data)

    async def write_stream(self, path: str, stream: AsyncIterator[bytes]) -> None:
        """The same for chunks; a stream that fails leaves the old file."""
        await self._workspace.files.write(path, stream)

    async def read_stream(self, path: str, chunk_size: int = 1 << 20) -> AsyncIterator[bytes]:
        """The file in chunks of at most ``chunk_size`` bytes. Raises :class:`FileNotFoundError`."""
        try:
            async with self._workspace.files.read_stream(path) as chunks:
                async for chunk in chunks:
                    for start in range(0, len(chunk), chunk_size):
                        yield chunk[start : start + chunk_size]
        except _MISSING as error:
            raise FileNotFoundError(error.message) from error

    async def getcwd(self) -> str:
        """The directory of the workspace."""
        return self._workdir

    async def file_exists(self, path: str) -> bool:
        """Whether there is a file or a directory; a link counts when what it leads to exists."""
        return await self._info(path) is not None

    async def is_dir(self, path: str) -> bool:
        """Whether there is a directory."""
        info = await self._info(path)
        return info is not None and info.is_dir

    async def list_dir(self, path: str, *, recursive: bool = False) -> list[str]:
        """Names of the entries; with ``recursive`` the paths of all files below. Empty when there is none."""
        found = await self._list(path, recursive=recursive)
        if recursive:
            return [self.abspath(info.path, cwd=self._workdir) for info in found if info.is_file]
        return [posixpath.basename(info.path) for info in found]

    async def scandir(self, path: str) -> list[DirEntry]:
        """The entries with size and time. Empty when there is none."""
        return [_entry(info) for info in await self._list(path)]

    async def stat(self, path: str) -> DirEntry | None:
        """One entry, or None."""
        info = await self._info(path)
        return None if info is None else _entry(info)

    async def stat_mtime(self, path: str) -> float | None:
        """When it was changed, in seconds since 1970, or None."""
        entry = await self.stat(path)
        return None if entry is None else entry.mtime

    async def delete_path(self, path: str) -> None:
        """Remove a file or a directory with all that is in it; nothing when there is none."""
        await self._workspace.files.remove(path, recursive=True, allow_missing=True)

    async def _info(self, path: str) -> FileInfo | None:
        try:
            return await self._workspace.files.stat(path)
        except _MISSING:
            return None

    async def _list(self, path: str, *, recursive: bool = False) -> list[FileInfo]:
        try:
            return await self._workspace.files.list(path, recursive=recursive)
        except _MISSING:
            return []


def _code(ended: Exit) -> int:
    if ended.exit_code is not None:
        return ended.exit_code
    try:
        return 128 + signal.Signals[f"SIG{ended.signal}"]
    except KeyError:
        return -1  # how it ended is not known


def _entry(info: FileInfo) -> DirEntry:
    return DirEntry(
        name=posixpath.basename(info.path.rstrip("/")),
        is_dir=info.is_dir,
        size_bytes=info.size if info.is_file else None,
        mtime=info.modify_time.timestamp() if info.modify_time is not None else None,
    )

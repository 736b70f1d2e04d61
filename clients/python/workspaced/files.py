"""The files of a workspace."""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from pathlib import Path
from typing import Any

import grpc

from . import errors
from .backoff import Backoff
from .connection import Connection
from .file_codec import packed
from .file_content import Content, Data, PathContent, content_of
from .file_info import FileChange, FileInfo, WatchOverflow, WatchReady
from .first_status import upload
from .spec import new_id
from .stream import Stream
from .v1 import file_pb2

_First = list[FileInfo]
_DISCARD_SECONDS = 5.0
Transferred = Callable[[int, int | None], None]
"""Called with the bytes done and the bytes there are (``None``: unknown)."""


class Files:
    """Moves and lists the files of a workspace. Paths are absolute, or relative to the workspace's directory.

    All methods raise :class:`FileNotFound` only when the sandbox said so; one that cannot be asked is
    :class:`Unreachable`. Cancellation of a write leaves the old file as it was.
    """

    def __init__(self, connection: Connection, workspace_id: str) -> None:
        self._connection = connection
        self._workspace_id = workspace_id

    async def write(
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
        header = file_pb2.WriteFileHeader(
            workspace_id=self._workspace_id, path=path, mode=mode, create_only=create_only, if_match=if_match,
            parents=parents, sha256=sha256, no_sync=not sync, no_hash=not hashed,
        )  # fmt: skip
        return await self._write(header, content_of(data), progress)

    async def upload(
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
        connections. ``hashed`` and ``sync`` as in :meth:`write`. Raises :class:`OSError` for the local side."""
        local = Path(source)
        content = await asyncio.to_thread(PathContent, local)
        if mode is None:
            mode = (await asyncio.to_thread(local.stat)).st_mode & 0o7777
        header = file_pb2.WriteFileHeader(
            workspace_id=self._workspace_id, path=path, mode=mode, parents=parents, no_hash=not hashed, no_sync=not sync
        )
        return await self._write(header, content, progress)

    async def download(
        self, path: str, destination: str | os.PathLike[str], *, progress: Transferred | None = None
    ) -> FileInfo:
        """Copy a file of the workspace to a local path, which is replaced at once when all is there."""
        target = Path(destination)
        first: _First = []
        descriptor, name = await asyncio.to_thread(tempfile.mkstemp, dir=target.parent, prefix=f".{target.name}.")
        try:
            with os.fdopen(descriptor, "wb", buffering=0) as file:
                done = 0
                async with Stream(self._read(path, 0, None, first)) as chunks:
                    async for chunk in chunks:
                        await asyncio.to_thread(file.write, chunk)
                        done += len(chunk)
                        if progress is not None:
                            progress(done, max(done, first[0].size))
                os.fchmod(file.fileno(), first[0].mode & 0o777)
            await asyncio.to_thread(Path(name).replace, target)
        except BaseException:
            Path(name).unlink()  # noqa: ASYNC240 (one system call, and it has to happen under cancellation too)
            raise
        return first[0]

    async def read(self, path: str, *, offset: int = 0, limit: int | None = None) -> bytes:
        """Read a file, or ``limit`` bytes of it from ``offset``."""
        async with self.read_stream(path, offset=offset, limit=limit) as chunks:
            return b"".join([chunk async for chunk in chunks])

    def read_stream(self, path: str, *, offset: int = 0, limit: int | None = None) -> Stream[bytes]:
        """The bytes of a file in chunks of at most 256 KiB. A broken connection is repaired; should the file have
        changed meanwhile, :class:`ContentChanged` is raised."""
        return Stream(self._read(path, offset, limit, []))

    async def stat(self, path: str, *, follow: bool = True, sha256: bool = False) -> FileInfo:
        """What is known of a file; with ``follow=False`` of a link itself, with ``sha256`` the hash of its content."""
        request = file_pb2.StatFileRequest(
            workspace_id=self._workspace_id, path=path, no_follow=not follow, hash=sha256
        )
        response = await self._connection.unary(self._connection.files.StatFile, request)
        return FileInfo.from_proto(response.info)

    async def exists(self, path: str) -> bool:
        """Whether a path exists; a link counts even when what it leads to does not."""
        try:
            await self.stat(path, follow=False)
        except errors.FileNotFound:
            return False
        return True

    async def list(
        self, path: str = "", *, recursive: bool = False, glob: str = "", max_depth: int = 0
    ) -> list[FileInfo]:
        """The entries of a directory, sorted by path; links are not followed. ``glob`` matches paths relative to
        ``path``, ``**`` crosses directories; ``max_depth`` 0 is any."""
        found: list[FileInfo] = []
        token = ""
        while True:
            request = file_pb2.ListFilesRequest(
                workspace_id=self._workspace_id, path=path, recursive=recursive, glob=glob, max_depth=max_depth,
                page_size=1000, page_token=token,
            )  # fmt: skip
            response = await self._connection.unary(self._connection.files.ListFiles, request)
            found += map(FileInfo.from_proto, response.files)
            token = response.next_page_token
            if not token:
                return found

    async def remove(
        self, path: str, *, recursive: bool = False, allow_missing: bool = False, if_match: str = ""
    ) -> int:
        """Remove a file, a link (never its target) or, with ``recursive``, a directory; returns how many went."""
        request = file_pb2.RemoveFileRequest(
            workspace_id=self._workspace_id, path=path, recursive=recursive, allow_missing=allow_missing,
            if_match=if_match,
        )  # fmt: skip
        method = self._connection.files.RemoveFile
        if allow_missing:
            return (await self._connection.unary(method, request)).removed
        return (await self._connection.once(method, request, timeout=self._connection.timeout)).removed

    async def move(self, source: str, destination: str, *, overwrite: bool = False) -> FileInfo:
        """Move a file or directory to a new path. Not repeated when a connection breaks: it may have happened."""
        request = file_pb2.MoveFileRequest(
            workspace_id=self._workspace_id, source=source, destination=destination, overwrite=overwrite
        )
        response = await self._connection.once(
            self._connection.files.MoveFile, request, timeout=self._connection.timeout
        )
        return FileInfo.from_proto(response.info)

    async def copy(
        self, source: str, destination: str, *, recursive: bool = False, overwrite: bool = False,
        timeout: float | None = None,
    ) -> FileInfo:  # fmt: skip
        """Copy a file, or with ``recursive`` a directory. A failed or cancelled copy leaves nothing."""
        request = file_pb2.CopyFileRequest(
            workspace_id=self._workspace_id, source=source, destination=destination, recursive=recursive,
            overwrite=overwrite,
        )  # fmt: skip
        response = await self._connection.once(self._connection.files.CopyFile, request, timeout=timeout)
        return FileInfo.from_proto(response.info)

    async def mkdir(
        self, path: str, *, parents: bool = False, mode: int | None = None, exist_ok: bool = False
    ) -> FileInfo:
        """Make a directory. :class:`FileExists` without ``exist_ok``."""
        request = file_pb2.MakeDirectoryRequest(
            workspace_id=self._workspace_id, path=path, parents=parents, mode=mode, exist_ok=exist_ok
        )
        method = self._connection.files.MakeDirectory
        if exist_ok:
            return FileInfo.from_proto((await self._connection.unary(method, request)).info)
        response = await self._connection.once(method, request, timeout=self._connection.timeout)
        return FileInfo.from_proto(response.info)

    def watch(self, path: str = ".", *, recursive: bool = False) -> Stream[FileChange | WatchReady | WatchOverflow]:
        """Changes of a file or directory: :class:`WatchReady` first, and again after a broken connection, when
        changes may have been missed; :class:`WatchOverflow` when they came too fast. Ends when it is closed."""
        return Stream(self._watch(path, recursive))

    async def _watch(self, path: str, recursive: bool) -> AsyncGenerator[FileChange | WatchReady | WatchOverflow, None]:
        request = file_pb2.WatchFilesRequest(workspace_id=self._workspace_id, path=path, recursive=recursive)
        repair = _Repair(self._connection)
        while True:
            call = self._connection.files.WatchFiles(request, metadata=self._connection.metadata)
            try:
                async for response in call:
                    repair.progress(call)
                    kind = response.WhichOneof("event")
                    if kind == "change":
                        yield FileChange.from_proto(response.change)
                    elif kind == "ready":
                        yield WatchReady(response.ready.polling)
                    elif kind == "overflow":
                        yield WatchOverflow()
                return
            except grpc.aio.AioRpcError as error:
                await repair.pause(errors.from_rpc(error))
            finally:
                call.cancel()

    async def _read(self, path: str, offset: int, limit: int | None, first: _First) -> AsyncGenerator[bytes, None]:
        """``first`` receives what is known of the file."""
        repair = _Repair(self._connection)
        while True:
            request = file_pb2.ReadFileRequest(workspace_id=self._workspace_id, path=path, offset=offset, limit=limit)
            call = self._connection.file_calls.read(request, metadata=self._connection.metadata)
            try:
                async for response in call:
                    if isinstance(response, bytes):
                        repair.progress(call)
                        offset += len(response)
                        limit = None if limit is None else limit - len(response)
                        yield response
                        continue
                    kind = response.WhichOneof("part")
                    if kind == "end":
                        return
                    if kind == "info":
                        info = FileInfo.from_proto(response.info)
                        if not first:
                            first.append(info)
                        elif (info.size, info.modify_time) != (first[0].size, first[0].modify_time):
                            raise errors.ContentChanged(
                                f"{path!r} changed while the connection was down", reason="CONTENT_CHANGED"
                            )
                await repair.pause(errors.Unavailable("the stream ended before the file did"))
            except grpc.aio.AioRpcError as error:
                await repair.pause(errors.from_rpc(error))
            finally:
                call.cancel()

    async def _write(
        self, header: file_pb2.WriteFileHeader, content: Content, progress: Transferred | None
    ) -> FileInfo:
        if content.repeatable:
            header.upload_id = new_id()
        try:
            return await self._write_all(header, content, progress)
        except BaseException:
            if content.repeatable:
                # In the background: a cancelled caller does not wait.
                self._connection.background(self._discard(header))
            raise

    async def _discard(self, header: file_pb2.WriteFileHeader) -> None:
        """Remove what an upload that is given up has left; what cannot be reached removes it after an hour."""
        abandoned = file_pb2.WriteFileHeader(
            workspace_id=header.workspace_id, path=header.path, upload_id=header.upload_id, discard=True
        )
        # Nothing may be left, or the server may be gone.
        with contextlib.suppress(errors.WorkspacedError, asyncio.TimeoutError):
            await asyncio.wait_for(self._send(abandoned, None, 0, None, None), _DISCARD_SECONDS)

    async def _write_all(
        self, header: file_pb2.WriteFileHeader, content: Content, progress: Transferred | None
    ) -> FileInfo:
        repair = _Repair(self._connection)
        offset = 0
        while True:
            header.offset = offset
            try:
                chunks = content.chunks(offset)
                return FileInfo.from_proto((await self._send(header, chunks, offset, content.size, progress)).info)
            except errors.WorkspacedError as error:
                if not content.repeatable:
                    raise
                await repair.pause(error)
            try:
                offset = await self._upload_offset(header)
            except errors.WorkspacedError as error:
                await repair.pause(error)

    async def _upload_offset(self, header: file_pb2.WriteFileHeader) -> int:
        """How much of an upload the workspace has."""
        query = file_pb2.WriteFileHeader()
        query.CopyFrom(header)
        query.query_offset = True
        return (await self._send(query, None, 0, None, None)).next_offset

    async def _send(
        self,
        header: file_pb2.WriteFileHeader,
        chunks: AsyncIterator[bytes] | None,
        done: int,
        size: int | None,
        progress: Transferred | None,
    ) -> file_pb2.WriteFileResponse:
        call = self._connection.file_calls.write(metadata=self._connection.metadata)

        async def requests() -> AsyncGenerator[Any, None]:
            nonlocal done
            yield file_pb2.WriteFileRequest(header=header)
            if chunks is not None:
                async for chunk in chunks:
                    yield packed(chunk)
                    done += len(chunk)
                    if progress is not None:
                        progress(done, size)

        response: file_pb2.WriteFileResponse = await upload(self._connection, call, requests())
        return response


class _Repair:
    """When a call that can go on where it was is made again."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._backoff = Backoff()
        self._lost_at: float | None = None

    def progress(self, call: grpc.aio.Call) -> None:
        """The call works."""
        if self._lost_at is not None:
            self._lost_at = None
            self._backoff.reset()
        self._connection.heard(call)

    async def pause(self, error: errors.WorkspacedError) -> None:
        """Wait before the next attempt, or raise the error when there is none."""
        now = asyncio.get_running_loop().time()
        if self._lost_at is None:
            self._lost_at = now
        limit = self._connection.retry_limit(error, self._connection.resume_timeout)
        delay = self._backoff.next(error.retry_after)
        if limit == 0 or now + delay > self._lost_at + limit:
            raise error from None
        await asyncio.sleep(delay)

"""`cp`: files and directories into a workspace and back."""

from __future__ import annotations

import asyncio
import contextlib
import posixpath
import secrets
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from . import archive
from .archive import Tally
from .arguments import Command
from .failure import Failure
from .output import size, visible
from .session import Session
from .terminal import Input, OutputPipe

if TYPE_CHECKING:
    import workspaced

JOURNAL_BYTES = 16 << 20  # what the workspace keeps of a stream beyond what was read
SHOWN_SKIPPED = 10

Advance = Callable[[int, "int | None"], None]
"""Told the bytes done so far, and all of them where that is known."""


@dataclass(frozen=True)
class Remote:
    """``ID:PATH``."""

    workspace_id: str
    path: str


def parse(text: str) -> Remote | Path:
    """One side of a copy. What begins with ``/`` or ``.`` is local, so ``./a:b`` is a file of that name."""
    workspace_id, colon, path = text.partition(":")
    return Remote(workspace_id, path) if colon and workspace_id and text[0] not in "/." else Path(text)


def goes_into(destination: str) -> bool:
    """Whether a destination names the directory to copy into, instead of the copy itself."""
    return destination == "" or destination.endswith("/") or posixpath.basename(destination) in {".", ".."}


@click.command(cls=Command)
@click.argument("source")
@click.argument("destination")
@click.option("-q", "--quiet", is_flag=True, help="No progress, no summary.")
@click.pass_obj
def cp(session: Session, source: str, destination: str, quiet: bool) -> None:
    """Copy a file or directory into a workspace or out of it. One side is ID:PATH.

    The copy gets the name DESTINATION; a directory that exists is merged into, so that copying again updates it. With a
    `/` at its end, or `.`, DESTINATION is the directory to copy into, as an existing one is for a file. `-` is standard
    input or output.

    Permission bits and symbolic links are kept, owners are not. Of what comes from a workspace, links that lead out
    of the directory are left out and named.
    """
    here, there = parse(source), parse(destination)
    if isinstance(here, Remote) == isinstance(there, Remote):
        raise click.UsageError("one of SOURCE and DESTINATION is ID:PATH, the other a path of this machine")
    tally = Tally()

    async def call() -> None:
        async with session.connect() as client:
            with _progress(session, quiet) as advance:
                if isinstance(there, Remote):
                    await _upload(client.workspace(there.workspace_id), source, there.path, advance, tally)
                elif isinstance(here, Remote):
                    await _download(client.workspace(here.workspace_id), here.path, destination, advance, tally)

    session.run(call)
    if session.json and destination != "-":
        skipped = [{"name": name, "why": why} for name, why in tally.skipped]
        session.printer.document(
            {
                "source": source,
                "destination": destination,
                "files": tally.files,
                "bytes": tally.bytes,
                "skipped": skipped,
            }
        )
    elif not quiet and sys.stderr.isatty():
        count = f"{tally.files} {'file' if tally.files == 1 else 'files'}"
        session.printer.note(f"Copied {count}, {size(tally.bytes)}.")
    if tally.skipped:
        for name, why in tally.skipped[:SHOWN_SKIPPED]:
            session.printer.note(f"workspaced: {visible(name)}: {visible(why)}")
        count = f"{len(tally.skipped)} {'entry' if len(tally.skipped) == 1 else 'entries'}"
        raise Failure(f"{count} could not be copied, the rest was")


async def _upload(workspace: workspaced.Workspace, source: str, path: str, advance: Advance, tally: Tally) -> None:
    local = Path(source)
    if source == "-":
        if goes_into(path):
            raise Failure("standard input needs the name of a file", "write ID:PATH", 2)
        info = await workspace.files.write(path, _counted(Input(sys.stdin.fileno()).chunks(), advance))
        tally.files, tally.bytes = 1, info.size
        return
    if local.is_dir():  # noqa: ASYNC240  (a look at the local disk, before anything is going on)
        name = local.resolve().name  # noqa: ASYNC240
        await _upload_directory(
            workspace, local, posixpath.join(path, name) if goes_into(path) else path, advance, tally
        )
        return
    if not local.exists():  # noqa: ASYNC240
        raise Failure(f"{source}: no such file or directory", exit_code=4)
    if goes_into(path) or await _is_directory(workspace, path):
        path = posixpath.join(path, local.name)
    info = await workspace.files.upload(local, path, progress=advance)
    tally.files, tally.bytes = 1, info.size


async def _download(
    workspace: workspaced.Workspace, path: str, destination: str, advance: Advance, tally: Tally
) -> None:
    if destination == "-":
        pipe = OutputPipe(sys.stdout.fileno())
        async with workspace.files.read_stream(path) as chunks:
            async for chunk in chunks:
                await pipe.write(chunk)
        return
    name = posixpath.basename(path.rstrip("/"))
    name = "" if name in {".", ".."} else name
    local = Path(destination or ".")
    if await _is_directory(workspace, path or "."):
        target = local / name if goes_into(destination) else local
        await _download_directory(workspace, path or ".", target, advance, tally)
        return
    if goes_into(destination) or local.is_dir():  # noqa: ASYNC240
        local.mkdir(parents=True, exist_ok=True)  # noqa: ASYNC240
        local /= name
    info = await workspace.files.download(path, local, progress=advance)
    tally.files, tally.bytes = 1, info.size


async def _is_directory(workspace: workspaced.Workspace, path: str) -> bool:
    """Whether there is a directory. A missing file is none; for reading it is told when it is read."""
    import workspaced

    try:
        return (await workspace.files.stat(path)).is_dir
    except workspaced.FileNotFound:
        return False


async def _upload_directory(
    workspace: workspaced.Workspace, root: Path, path: str, advance: Advance, tally: Tally
) -> None:
    import workspaced

    loop = asyncio.get_running_loop()
    total = await asyncio.to_thread(archive.content_bytes, root)
    async with workspace.exec(
        ["python3", "-c", archive.UNPACK, path], stdin=True, process_id=_process_id(), disconnect_policy="kill"
    ) as process:
        complaints = asyncio.create_task(_complaints(process))

        def write(data: bytes) -> None:
            asyncio.run_coroutine_threadsafe(process.write(data), loop).result()
            advance(min(tally.bytes, total), total)

        try:
            await asyncio.to_thread(archive.pack, root, write, tally)
            await process.close_stdin()
        except (workspaced.StdinClosed, workspaced.ProcessExited):
            # The other end gave up; what it said is more than that it did.
            await _check(process, await complaints, path, Tally())
            raise
        except BaseException:
            complaints.cancel()
            raise
        await _check(process, await complaints, path, tally)


async def _download_directory(
    workspace: workspaced.Workspace, path: str, root: Path, advance: Advance, tally: Tally
) -> None:
    import workspaced

    loop = asyncio.get_running_loop()
    complaints: list[bytes] = []
    total: int | None = None
    done = 0
    async with workspace.exec(
        ["python3", "-c", archive.PACK, path],
        process_id=_process_id(),
        disconnect_policy="kill",
        journal_limit_bytes=JOURNAL_BYTES,
    ) as process:
        pending = bytearray()

        async def more() -> bool:
            """Take the next piece of the stream; False at its end."""
            async for event in process:
                if not isinstance(event, workspaced.Output):
                    continue  # a gap raises, as `gaps` was not set to "yield"
                if event.stream == "stdout":
                    pending.extend(event.data)
                    return True
                complaints.append(event.data)
            return False

        while b"\n" not in pending and await more():
            pass
        header, _, rest = bytes(pending).partition(b"\n")
        if header.isdigit():
            total = int(header)
            pending[:] = rest

            def read(count: int) -> bytes:
                nonlocal done
                if not pending and not asyncio.run_coroutine_threadsafe(more(), loop).result():
                    return b""
                piece = bytes(pending[:count])
                del pending[:count]
                done += len(piece)
                advance(min(done, total or 0), total)
                return piece

            await asyncio.to_thread(archive.unpack, root, read, tally)
            while await more():
                pending.clear()  # the padding behind the archive's end
        await _check(process, b"".join(complaints), path, tally)


def _process_id() -> str:
    return f"cp-{secrets.token_hex(6)}"


async def _complaints(process: workspaced.Process) -> bytes:
    import workspaced

    outputs = [event async for event in process if isinstance(event, workspaced.Output)]
    return b"".join([event.data for event in outputs if event.stream == "stderr"])


async def _check(process: workspaced.Process, complaints: bytes, path: str, tally: Tally) -> None:
    """Tally what the other end could not copy. Raises `Failure` when it could not do its work at all."""
    exit = await process.wait()
    if exit.ok:
        return
    lines = complaints.decode("utf-8", "replace").strip().splitlines()
    if exit.exit_code == 1 and lines and not lines[0].startswith("Traceback") and tally.files:
        tally.skipped += [(name or path, why) for name, _, why in (line.rpartition(": ") for line in lines)]
        return
    raise Failure(f"{path} could not be copied: {lines[-1] if lines else exit.describe()}")


async def _counted(chunks: AsyncIterator[bytes], advance: Advance) -> AsyncIterator[bytes]:
    done = 0
    async for chunk in chunks:
        done += len(chunk)
        advance(done, None)
        yield chunk


@contextlib.contextmanager
def _progress(session: Session, quiet: bool) -> Iterator[Advance]:
    """A bar with bytes and rate on a terminal, else nothing."""
    if quiet or session.json or not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = (
        TextColumn("{task.description}"), BarColumn(), DownloadColumn(binary_units=True), TransferSpeedColumn(),
        TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(*columns, console=session.printer.notes, transient=True) as progress:
        task = progress.add_task("Copying", total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)

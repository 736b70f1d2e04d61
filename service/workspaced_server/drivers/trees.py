"""Removal of directory trees that somebody else filled."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

from workspaced_server.drivers.base import DriverError


async def remove_tree(directory: Path) -> None:
    """Remove ``directory`` and all below it, whatever the modes and the depth; links are not followed."""
    rm = shutil.which("rm") or "/bin/rm"
    if await _call(rm, "-rf", "--one-file-system", "--", str(directory)) == "":
        return
    # A directory without write permission keeps its entries.
    await _call(shutil.which("chmod") or "/bin/chmod", "-R", "u+rwx", "--", str(directory))
    complaint = await _call(rm, "-rf", "--one-file-system", "--", str(directory))
    if complaint:
        raise DriverError(
            "PROVIDER_UNAVAILABLE", f"the workspace's files cannot be removed: {complaint}", retryable=True
        )


async def _call(*argv: str) -> str:
    """Run a program to its end; its complaint if it failed, else an empty string."""
    process = await asyncio.create_subprocess_exec(
        *argv,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    _, complaint = await process.communicate()
    return "" if process.returncode == 0 else complaint[-300:].decode(errors="replace").strip() or "it failed"

"""The conformance driver of the Python client, ``python -m tests.clients.python_driver``; see OPERATIONS.md."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import tests.clients.python_operations  # noqa: F401 (fills the table)
from tests.clients.python_operations.lifecycle import remember_warnings
from tests.clients.python_operations.processes import run_result
from tests.clients.python_operations.registry import OPERATIONS, OWN_DEADLINE, DriverBug, Objects, SourceFailed
from workspaced import CommandFailed, OutputLost, WorkspacedError
from workspaced.client import Client

_LINE_BYTES = 64 << 20


def error_of(error: BaseException) -> dict[str, Any]:
    """ERROR."""
    if isinstance(error, WorkspacedError):
        made: dict[str, Any] = {
            "kind": type(error).__name__,
            "code": error.code,
            "reason": error.reason,
            "message": error.message,
            "metadata": dict(error.metadata),
            "retry_after": error.retry_after,
            "violations": [violation._asdict() for violation in error.violations],
            "request_id": error.request_id,
        }
        if isinstance(error, CommandFailed):
            made["result"] = run_result(error.result)
        if isinstance(error, OutputLost):
            made["start"], made["end"] = error.start, error.end
        return made
    kind, code = "DriverBug", "UNKNOWN"
    if isinstance(error, asyncio.CancelledError):
        kind, code = "Cancelled", "CANCELLED"
    elif isinstance(error, TimeoutError):
        kind, code = "DeadlineExceeded", "DEADLINE_EXCEEDED"
    elif isinstance(error, (ValueError, TypeError)):
        kind, code = "InvalidArgument", "INVALID_ARGUMENT"
    elif isinstance(error, RuntimeError) and "closed" in str(error):
        kind, code = "Closed", "CANCELLED"
    elif isinstance(error, SourceFailed):
        kind = "SourceFailed"
    elif isinstance(error, OSError):
        kind = "OSError"
    message = str(error) if kind != "DriverBug" else repr(error)
    return {
        "kind": kind, "code": code, "reason": "", "message": message, "metadata": {}, "retry_after": None,
        "violations": [], "request_id": "",
    }  # fmt: skip


class Driver:
    """Runs requests as tasks, and prints what comes of them."""

    def __init__(self) -> None:
        self.objects = Objects()
        self._requests: dict[int, asyncio.Task[None]] = {}

    def take(self, line: bytes) -> None:
        """Begin what a line asks for."""
        request = json.loads(line)
        number = request["id"]
        if request["op"] == "cancel":
            task = self._requests.get(request["args"]["id"])
            if task is not None:
                task.cancel()
            self._say({"id": number, "ok": {}})
            return
        task = asyncio.create_task(self._answer(number, request), name=f"driver request {number}")
        self._requests[number] = task
        task.add_done_callback(lambda ended: self._forget(number, ended))

    async def close(self) -> None:
        """Cancel what runs, and close every client."""
        running = list(self._requests.values())
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)
        for client in self.objects.all_of(Client):
            await client.aclose()

    def _forget(self, number: int, task: asyncio.Task[None]) -> None:
        self._requests.pop(number, None)
        if task.cancelled():  # before it began, so that it could not say so itself
            self._say({"id": number, "error": error_of(asyncio.CancelledError())})

    async def _answer(self, number: int, request: dict[str, Any]) -> None:
        try:
            answer = {"id": number, "ok": await self._run(request["op"], request.get("args", {}))}
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 (what came of it is the answer)
            answer = {"id": number, "error": error_of(error)}
        self._say(answer)

    async def _run(self, name: str, args: dict[str, Any]) -> dict[str, Any]:
        operation = OPERATIONS.get(name)
        if operation is None:
            raise DriverBug(f"no operation {name!r}")
        async with asyncio.timeout(None if name in OWN_DEADLINE else args.get("timeout")):
            try:
                return await operation(self.objects, args)
            except KeyError as error:
                raise DriverBug(f"{name} needs {error}") from error

    @staticmethod
    def _say(answer: dict[str, Any]) -> None:
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


async def main() -> None:
    """Read requests until the end of input."""
    driver = Driver()
    remember_warnings(driver.objects.warned)
    loop = asyncio.get_running_loop()
    current = asyncio.current_task()
    assert current is not None
    current.set_name("driver")
    reader = asyncio.StreamReader(_LINE_BYTES)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        driver.take(line)
    await driver.close()


if __name__ == "__main__":
    asyncio.run(main())

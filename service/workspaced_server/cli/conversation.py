"""A process and this terminal: output as it comes, input, signals and resizes on their way, and how it ended."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .failure import Failure
from .output import Printer, data_fields, plain
from .terminal import Input, OutputPipe, Terminal

if TYPE_CHECKING:
    import workspaced

TIMED_OUT = 124
LOST = 125
HANGUP_SIGNALS = (signal.SIGHUP, signal.SIGTERM, signal.SIGQUIT)


@dataclass
class Detached(Exception):
    """This side leaves and the process goes on. ``signal`` is what asked for it."""

    signal: signal.Signals | None


class Conversation:
    """Carries one attachment until the process ends or this side leaves.

    ``forward_input`` sends standard input; ``terminal`` is put into raw mode and gives its size. ``interrupt`` says
    what the first Ctrl-C does without raw mode: it goes to the program, or it detaches. A second one detaches.
    """

    def __init__(
        self,
        process: workspaced.Process,
        printer: Printer,
        *,
        forward_input: bool = False,
        terminal: Terminal | None = None,
        interrupt: bool = True,
        until: int | None = None,
    ) -> None:
        self._process = process
        self._printer = printer
        self._forward_input = forward_input
        self._terminal = terminal
        self._interrupt = interrupt
        self._until = until
        self._interrupted = 0
        self._main: asyncio.Task[object] | None = None
        self._detached: Detached | None = None
        self._side_tasks: set[asyncio.Task[None]] = set()
        self._pipes = {
            "stdout": OutputPipe(sys.stdout.fileno()),
            "stderr": OutputPipe(sys.stderr.fileno()),
        }
        self._pipes["pty"] = self._pipes["stdout"]

    async def carry(self) -> workspaced.Exit | None:
        """Until the end: how the process ended, None when ``until`` was reached before. Raises `Detached`."""
        self._main = asyncio.current_task()
        sys.stdout.flush()
        raw = self._terminal.raw() if self._terminal is not None else nullcontext()
        with raw, self._signals():
            try:
                if self._forward_input:
                    self._aside(self._send_input())
                return await self._receive()
            except asyncio.CancelledError:
                if self._detached is None:
                    raise
                if self._main is not None:
                    self._main.uncancel()
                raise self._detached from None
            except BrokenPipeError:
                raise Detached(None) from None
            finally:
                for task in self._side_tasks:
                    task.cancel()
                await asyncio.gather(*self._side_tasks, return_exceptions=True)

    async def _receive(self) -> workspaced.Exit | None:
        process = self._process
        if self._until is not None and process.offset >= self._until:
            return None
        async for event in process:
            await self._show(event)
            if self._until is not None and process.offset >= self._until:
                return process.exit
        return await process.wait()

    async def _show(self, event: workspaced.Output | workspaced.Gap) -> None:
        import workspaced

        if isinstance(event, workspaced.Gap):
            if self._printer.as_json:
                await self._write_json({"event": "gap", "start": event.start, "end": event.end})
            else:
                await self._pipes["stderr"].write(
                    f"workspaced: {event.end - event.start} bytes of output are no longer kept{self._newline}".encode()
                )
        elif self._printer.as_json:
            line = {"event": "output", "stream": event.stream, "offset": event.offset, **data_fields(event.data)}
            await self._write_json(line)
        else:
            await self._pipes[event.stream].write(event.data)

    async def _write_json(self, value: dict[str, object]) -> None:
        import json

        await self._pipes["stdout"].write(json.dumps(plain(value), ensure_ascii=False).encode() + b"\n")

    @property
    def _newline(self) -> str:
        return "\r\n" if self._terminal is not None else "\n"

    async def _send_input(self) -> None:
        import workspaced

        try:
            async for data in Input(sys.stdin.fileno()).chunks():
                await self._process.write(data)
            await self._process.close_stdin()
        except (workspaced.StdinClosed, workspaced.ProcessExited):
            return  # the program does not want more: as a closed pipe, nothing that its user has to know

    def _aside(self, coroutine: Coroutine[object, object, None]) -> None:
        """Run beside the output."""
        task = asyncio.create_task(coroutine)
        self._side_tasks.add(task)
        task.add_done_callback(self._aside_done)

    def _aside_done(self, task: asyncio.Task[None]) -> None:
        self._side_tasks.discard(task)
        if task.cancelled() or task.exception() is None:
            return
        import workspaced

        error = task.exception()
        # The stream of output tells of a lost connection itself; a signal may meet a process that has just ended.
        if not isinstance(error, (workspaced.Unavailable, workspaced.ProcessExited)):
            self._printer.note(f"workspaced: {error}{self._newline.rstrip(chr(10))}")

    # Signals that this program gets

    @contextmanager
    def _signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        handlers: dict[signal.Signals, Callable[[], None]] = {signal.SIGINT: self._on_interrupt}
        for number in HANGUP_SIGNALS:
            handlers[number] = lambda number=number: self._detach(number)  # type: ignore[misc]
        if self._terminal is not None:
            handlers[signal.SIGWINCH] = self._on_resize
            handlers[signal.SIGTSTP] = self._on_suspend
        for number, handler in handlers.items():
            loop.add_signal_handler(number, handler)
        try:
            yield
        finally:
            for number in handlers:
                loop.remove_signal_handler(number)

    def _on_interrupt(self) -> None:
        self._interrupted += 1
        if self._interrupt and self._interrupted == 1:
            self._aside(self._signal("INT"))
        else:
            self._detach(signal.SIGINT)

    async def _signal(self, name: str) -> None:
        await self._process.signal(name)

    def _on_resize(self) -> None:
        assert self._terminal is not None
        self._aside(self._process.resize(*self._terminal.size()))

    def _on_suspend(self) -> None:
        assert self._terminal is not None
        self._terminal.suspend()
        self._on_resize()

    def _detach(self, number: signal.Signals) -> None:
        if self._detached is None:
            self._detached = Detached(number)
            assert self._main is not None
            self._main.cancel()


async def converse(conversation: Conversation, process: workspaced.Process, printer: Printer, *, came_from: str) -> int:
    """Carry a conversation, say how it ended where the exit code does not, and give this program's exit code.

    ``came_from`` is ``exec`` or ``attach``.
    """
    import workspaced

    back = f"workspaced attach {process.workspace_id} {process.process_id} --offset"
    try:
        exit = await conversation.carry()
    except Detached as detached:
        how = "standard output was closed" if detached.signal is None else "detached"
        printer.note(f"\nworkspaced: {how}, the process goes on. `{back} {process.offset}` comes back to it.")
        if printer.as_json and detached.signal is not None:
            printer.line({"event": "detached", "process_id": process.process_id, "next_offset": process.offset})
        if detached.signal is None:
            # Nothing more can be written there, not even by the interpreter's own flush.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 141
        # Ctrl-C is how one leaves `attach`; anything else ends this program as the signal would have.
        return 0 if came_from == "attach" and detached.signal is signal.SIGINT else 128 + detached.signal
    except workspaced.Unavailable as error:
        raise Failure(
            f"the connection was lost ({error.message})",
            hint=f"the process goes on; `{back} {process.offset}` comes back to it",
            exit_code=3,
            details={"code": error.code, "reason": error.reason, "next_offset": process.offset},
        ) from error
    if exit is None:
        return 0
    if printer.as_json:
        printer.line(
            {"event": "exited", "process_id": process.process_id, "next_offset": process.offset, **plain(exit)}
        )
    elif exit.reason not in ("EXITED", "SIGNALED"):
        printer.note(f"workspaced: the process ended: {exit.describe()}")
    return exit_code(exit)


def exit_code(exit: workspaced.Exit) -> int:
    """This program's exit code for how a process ended, as a shell would have it."""
    if exit.reason == "TIMED_OUT":
        return TIMED_OUT
    if exit.signal is not None:
        number = getattr(signal, f"SIG{exit.signal}", None)
        return 128 + int(number) if number is not None else LOST
    return LOST if exit.exit_code is None else exit.exit_code

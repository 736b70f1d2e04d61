"""A driver program: requests go in, answers come out, in whatever order."""

from __future__ import annotations

import contextlib
import itertools
import json
import subprocess
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

Answer = dict[str, Any]
"""`{"ok": …}` or `{"error": …}`."""


class DriverDied(Exception):
    """The program ended before it answered; its standard error is in the message."""


class Driver:
    """One process that speaks the protocol of OPERATIONS.md. Not for several threads at once."""

    def __init__(self, command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None) -> None:
        self._log = log
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, env=environment
            )
        self._numbers = itertools.count(1)
        self._waiting: dict[int, Future[Answer]] = {}
        self._lock = threading.Lock()
        self._ended = False
        self._reader = threading.Thread(target=self._read, name="driver answers", daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        """The process."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether it can be asked something."""
        return self._process.poll() is None

    def start(self, op: str, args: Mapping[str, Any]) -> Request:
        """Send a request."""
        number = next(self._numbers)
        answer: Future[Answer] = Future()
        with self._lock:
            if self._ended:
                raise DriverDied(self._tail())
            self._waiting[number] = answer
        line = json.dumps({"id": number, "op": op, "args": args}).encode() + b"\n"
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line)
            self._process.stdin.flush()
        except BrokenPipeError:
            raise DriverDied(self._tail()) from None
        return Request(self, number, op, answer)

    def ask(self, op: str, args: Mapping[str, Any] | None = None, within: float = 60) -> Answer:
        """Send a request and wait for its answer."""
        return self.start(op, args or {}).answer(within)

    def do(self, op: str, within: float = 60, **args: Any) -> dict[str, Any]:
        """The result of an operation that has to go well."""
        answer = self.ask(op, args, within)
        assert "ok" in answer, f"{op} {args}: {answer}"
        result: dict[str, Any] = answer["ok"]
        return result

    def close(self, within: float = 20) -> int:
        """End of input; returns the exit code. Kills what does not end."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            return self._process.wait(within)
        finally:
            self.kill()

    def kill(self) -> None:
        """End it at once, if it has not ended. Idempotent."""
        self._process.kill()
        self._process.wait()
        self._reader.join()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):
                pipe.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            answer = json.loads(line)
            with self._lock:
                waiting = self._waiting.pop(answer.pop("id"), None)
            if waiting is not None:
                waiting.set_result(answer)
        with self._lock:
            self._ended = True
            left, self._waiting = list(self._waiting.values()), {}
        for waiting in left:
            waiting.set_exception(DriverDied(self._tail()))

    def _tail(self) -> str:
        return f"the driver ended with {self._process.poll()}:\n{self._log.read_text(errors='replace')[-4000:]}"


class Request:
    """A request that was sent."""

    def __init__(self, driver: Driver, number: int, op: str, answer: Future[Answer]) -> None:
        self._driver = driver
        self._number = number
        self._op = op
        self._answer = answer

    @property
    def done(self) -> bool:
        """Whether it was answered."""
        return self._answer.done()

    def answer(self, within: float = 60) -> Answer:
        """Wait for the answer. Raises :class:`TimeoutError` and :class:`DriverDied`."""
        try:
            return self._answer.result(within)
        except TimeoutError:
            raise TimeoutError(f"{self._op}: no answer within {within} s") from None

    def cancel(self) -> None:
        """Cancel it by the language's own means."""
        self._driver.ask("cancel", {"id": self._number})

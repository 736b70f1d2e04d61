"""Plays one case with one driver."""

from __future__ import annotations

import hashlib
import sys
import time
import uuid
from pathlib import Path
from typing import Any

from tests.clients.data import chunks_of, sha256_of
from tests.clients.driver import Answer, Driver, Request
from tests.clients.expectations import at, filled, mismatch
from tests.clients.stage import Proxy, Server
from tests.clients.vectors import Case
from tests.support.server import ROOT

_WITHIN = 60.0


class CaseFailed(AssertionError):
    """A step did not give what it should."""


class Play:
    """The state of a case that is being played."""

    def __init__(self, case: Case, driver: Driver, server: Server, proxy: Proxy, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._case = case
        self._driver = driver
        self._server = server
        self._proxy = proxy
        self._running: dict[str, Request] = {}
        self._trace: list[str] = []
        self.names: dict[str, Any] = {
            "address": proxy.address,
            "direct": server.process.address,
            "tmp": str(directory),
            "id": f"v-{uuid.uuid4().hex[:12]}",
            "long": "x" * 1000,
            "python": sys.executable,
            "mcp_server": str(ROOT / "tests" / "support" / "mcp_server.py"),
        }

    def run(self) -> None:
        """All of it. Raises :class:`CaseFailed` with the steps so far."""
        case = self._case
        try:
            if case.setup != "none":
                self._do("connect", {"address": "${address}", **case.client})
            if case.setup == "workspace":
                self._do("initialize", {"backend": case.backend, "id": "${id}", **case.workspace})
            for step in case.steps:
                self._step(step)
            self._proxy.assert_all_happened()
        except (AssertionError, TimeoutError, KeyError, IndexError) as error:
            trace = "\n".join(self._trace[-12:])
            raise CaseFailed(f"{case.title}: {type(error).__name__}: {error}\nsteps:\n{trace}") from error

    def clean(self) -> None:
        """Give back what the case made, and see that nothing of it goes on, in the driver or at the server."""
        self._proxy.fault("accept")
        self._proxy.fault("thaw")
        self._proxy.fault({"plan": None})
        for request in self._running.values():
            if not request.done:
                request.cancel()
                request.answer(_WITHIN)
        if self._server.process.process is None:
            self._server.process.start()
        self._driver.ask("release_many")
        if self._case.setup != "none":
            self._driver.ask("close_client")
        if self._case.setup == "workspace":
            self._do("connect", {"address": self._server.process.address, "as": "cleaner"})
            self._do("workspace", {"client": "cleaner", "as": "cleaned", "id": self.names["id"]})
            self._driver.do("ws_delete", ws="cleaned", allow_missing=True)
            self._driver.do("close_client", client="cleaner")
        self._server.wait_until_idle()
        live = self._driver.do("live")
        left = {name: live[name] for name in ("calls", "tasks") if live.get(name)}
        if left:
            raise CaseFailed(f"{self._case.title}: the client leaks {left}: {live}")

    def _step(self, step: dict[str, Any]) -> None:
        if "for" in step:
            [(name, values)] = step["for"].items()
            for value in filled(values, self.names):
                self.names[name] = value
                for inner in step["steps"]:
                    self._step(inner)
        elif "start" in step:
            name = self._filled(step["start"])
            self._running[name] = self._driver.start(step["op"], self._args(step))
            self._trace.append(f"start {name}: {step['op']} {self._args(step)}")
        elif "await" in step:
            name = self._filled(step["await"])
            self._compare(step, name, self._running[name].answer(step.get("within", _WITHIN)))
        elif "cancel" in step:
            self._running[self._filled(step["cancel"])].cancel()
        elif "fault" in step:
            self._trace.append(f"fault {step['fault']}")
            self._fault(filled(step["fault"], self.names))
        elif "check" in step:
            self._check(filled(step["check"], self.names))
        elif "local_file" in step:
            self._local_file(filled(step, self.names))
        elif "eventually" in step:
            self._eventually(step)
        else:
            answer = self._driver.ask(step["op"], self._args(step), step.get("within", _WITHIN))
            self._compare(step, step["op"], answer)

    def _filled(self, name: str) -> str:
        return str(filled(name, self.names))

    def _args(self, step: dict[str, Any]) -> dict[str, Any]:
        args: dict[str, Any] = filled(step.get("args", {}), self.names)
        return args

    def _do(self, op: str, args: dict[str, Any]) -> None:
        self._step({"op": op, "args": args})

    def _eventually(self, step: dict[str, Any]) -> None:
        deadline = time.monotonic() + step["eventually"]
        while True:
            answer = self._driver.ask(step["op"], self._args(step))
            found = self._difference(step, answer)
            if found is None or time.monotonic() > deadline:
                self._compare(step, step["op"], answer)
                return
            time.sleep(0.05)

    def _difference(self, step: dict[str, Any], answer: Answer) -> str | None:
        expected = step.get("error")
        if expected is not None:
            if "error" not in answer:
                return f"went well: {answer['ok']}"
            expected = {"kind": expected} if isinstance(expected, str) else expected
            return mismatch(filled(expected, self.names), answer["error"])
        if "ok" not in answer:
            return f"failed: {answer['error']}"
        return mismatch(filled(step.get("expect", {}), self.names), answer["ok"])

    def _compare(self, step: dict[str, Any], title: str, answer: Answer) -> None:
        self._trace.append(f"{title} {step.get('args', '')} -> {str(answer)[:700]}")
        found = self._difference(step, answer)
        assert found is None, f"{title}{found}"
        for name, path in step.get("save", {}).items():
            self.names[name] = at(answer.get("ok", answer.get("error")), path)

    def _fault(self, kind: str | dict[str, Any]) -> None:
        process = self._server.process
        if kind in ("restart_server", "kill_server", "start_server"):
            assert self._case.server == "fragile", "only a fragile server may be harmed"
            {"restart_server": process.restart, "kill_server": process.kill, "start_server": process.start}[str(kind)]()
        else:
            self._proxy.fault(kind)

    def _check(self, check: str | dict[str, Any]) -> None:
        self._trace.append(f"check {check}")
        if check == "server_idle":
            self._server.wait_until_idle()
        elif check == "faults_happened":
            self._proxy.assert_all_happened()
        elif isinstance(check, dict) and "running" in check:
            assert not self._running[check["running"]].done, f"{check['running']} has ended"
        else:
            raise ValueError(f"no check {check!r}")

    def _local_file(self, step: dict[str, Any]) -> None:
        path = Path(step["local_file"])
        if "data" in step:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("wb") as file:
                for chunk in chunks_of(step["data"]):
                    file.write(chunk)
        elif step.get("is") is None:
            assert not path.exists(), f"{path} exists"
        else:
            with path.open("rb") as file:
                found = hashlib.file_digest(file, "sha256").hexdigest()
            assert found == sha256_of(step["is"]), f"{path} has another content"

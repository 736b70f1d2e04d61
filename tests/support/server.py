"""A real server in a process of its own, which a test may kill, freeze and start again on the same state."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import grpc

ROOT = Path(__file__).resolve().parents[2]


def free_port() -> int:
    """A TCP port of 127.0.0.1 that nobody listens on now."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


@dataclass
class ServerProcess:
    """``workspaced serve`` on a fixed port and state directory.

    ``faults`` is a JSON object for tests.support.faulty_server: seed and rates of faults between server and guest.
    ``credentials`` are what it takes to connect to a server that is configured for TLS.
    """

    state_dir: Path
    port: int = field(default_factory=free_port)
    config: str = ""
    faults: dict[str, object] | None = None
    environment: dict[str, str] = field(default_factory=dict)
    credentials: grpc.ChannelCredentials | None = None
    process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def log_path(self) -> Path:
        return self.state_dir.parent / f"{self.state_dir.name}.log"

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def start(self, timeout: float = 30, ready: Literal["channel", "port"] = "channel") -> None:
        """Start, and wait until a channel stands, or only until the port is open."""
        self.state_dir.mkdir(parents=True, exist_ok=True)
        config = self.state_dir.parent / f"{self.state_dir.name}.toml"
        config.write_text(self.config)
        arguments = ["serve", "--listen", self.address, "--state-dir", str(self.state_dir), "--config", str(config)]
        module = "workspaced_server" if self.faults is None else "tests.support.faulty_server"
        environment = dict(os.environ, PYTHONPATH=os.pathsep.join([str(ROOT), *sys.path]), **self.environment)
        if self.faults is not None:
            environment["WORKSPACED_TEST_FAULTS"] = json.dumps(self.faults)
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", module, *arguments],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                env=environment,
            )
        deadline = time.monotonic() + timeout
        answers = self._channel_stands if ready == "channel" else self._port_is_open
        while not answers():
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise RuntimeError(f"the server did not start:\n{self.log_path.read_text()[-4000:]}")
            time.sleep(0.02)

    def _channel_stands(self) -> bool:
        with self._channel() as channel:
            try:
                grpc.channel_ready_future(channel).result(timeout=0.5)
            except grpc.FutureTimeoutError:
                return False
            return True

    def _port_is_open(self) -> bool:
        with socket.socket() as sock:
            return sock.connect_ex(("127.0.0.1", self.port)) == 0

    def _channel(self) -> grpc.Channel:
        if self.credentials is None:
            return grpc.insecure_channel(self.address)
        return grpc.secure_channel(self.address, self.credentials)

    def kill(self) -> None:
        """End it as by kill -9."""
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
            self.process = None

    def stop(self, timeout: float = 30) -> int:
        """End it by SIGTERM; returns the exit code."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            raise
        self.process = None
        return code

    def restart(self) -> None:
        """Kill and start again."""
        self.kill()
        self.start()

    def freeze(self) -> None:
        """SIGSTOP."""
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT."""
        os.kill(self.pid, signal.SIGCONT)

    def rss_bytes(self) -> int:
        """Resident memory now."""
        return rss_bytes(self.pid)


def rss_bytes(pid: int) -> int:
    """Resident memory of a process in bytes."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise ProcessLookupError(pid)


def open_descriptors(pid: int) -> int:
    """Number of open file descriptors of a process."""
    return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())

"""Images of a Docker engine: pulled when missing, and given python3 once when the caller asks for that."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import threading
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import docker.auth
from docker.utils import parse_repository_tag

from workspaced_server.drivers.base import DriverError, Phase, Progress
from workspaced_server.drivers.docker.engine import Engine, EngineError
from workspaced_server.drivers.docker.options import IDLE, INSTALLATION_LABEL
from workspaced_server.drivers.uninterrupted import uninterrupted

PYTHON_REPOSITORY = "workspaced-python"
_REPORT_SECONDS = 0.1
_INSTALL_SECONDS = 3600
_MISSING = re.compile(r"(?i)not found|manifest unknown|access denied|does not exist|unauthorized|no such image|denied")

# The package manager of each family of distributions; the last line says what came out of it.
_INSTALL = r"""set -e
if command -v apt-get >/dev/null 2>&1; then
  export DEBIAN_FRONTEND=noninteractive
  apt-get update
  apt-get install -y --no-install-recommends python3
  rm -rf /var/lib/apt/lists/*
elif command -v apk >/dev/null 2>&1; then apk add --no-cache python3
elif command -v dnf >/dev/null 2>&1; then dnf install -y python3; dnf clean all
elif command -v microdnf >/dev/null 2>&1; then microdnf install -y python3; microdnf clean all
elif command -v zypper >/dev/null 2>&1; then zypper --non-interactive install python3; zypper clean --all
else echo 'no package manager that is known here: apt-get, apk, dnf, microdnf, zypper' >&2; exit 64
fi
python3 -I -c 'import sys; sys.exit(sys.version_info < (3, 9))'
"""
_HAS_PYTHON = """command -v python3 >/dev/null 2>&1 || exit 127
exec python3 -I -S -c 'import sys; sys.exit(sys.version_info < (3, 9))'"""
_IMAGE_FIELDS = (
    "Entrypoint",
    "Cmd",
    "Env",
    "User",
    "WorkingDir",
    "Labels",
    "ExposedPorts",
    "Volumes",
    "StopSignal",
    "Shell",
)


@dataclass(frozen=True, slots=True)
class Image:
    """An image that the engine has; ``config`` is what containers of it inherit."""

    name: str
    identity: str
    config: Mapping[str, Any]

    @property
    def user(self) -> str:
        """The user that its programs run as; empty is root."""
        return str(self.config.get("User") or "")


class Images:
    """What the driver knows of the engine's images."""

    def __init__(self, engine: Engine, installation: str) -> None:
        self._engine = engine
        self._installation = installation
        self._with_python: set[str] = set()
        self._installing: dict[str, asyncio.Lock] = {}

    async def pull(self, image: str, report: Progress) -> None:
        """Pull ``image``. Cancellation ends the transfer; layers that are complete stay with the engine.

        Raises DriverError IMAGE_NOT_FOUND, ARGUMENT_INVALID, PROVIDER_UNAVAILABLE.
        """
        report(Phase.PULLING_IMAGE, 0.0, image)
        pull = _Pull(image, report, asyncio.get_running_loop())
        step = asyncio.ensure_future(self._engine.call(pull.run))
        try:
            await asyncio.shield(step)
        except asyncio.CancelledError:
            if pull.abort():
                await uninterrupted(_ended(step))
            else:
                step.add_done_callback(_heard)
            raise
        except EngineError as error:
            raise _pull_failed(image, error.text, error.status)
        report(Phase.PULLING_IMAGE, 1.0, image)

    async def find(self, name: str, report: Progress) -> Image:
        """The image of this name, pulled if the engine does not have it. Raises as ``pull``."""
        try:
            return await self._inspect(name)
        except EngineError as error:
            if error.status != 404:
                raise _pull_failed(name, error.text, error.status)
        await self.pull(name, report)
        return await self._inspect(name)

    async def with_python(self, image: Image, report: Progress) -> Image:
        """The image itself when it has python3, else one made from it that has; made once and kept on the engine.

        Making one takes the image's package manager, and a network on which it finds its packages. Raises DriverError
        GUEST_PYTHON_MISSING when it fails.
        """
        if image.identity in self._with_python:
            return image
        short = image.identity.removeprefix("sha256:")[:12]
        lock = self._installing.setdefault(image.identity, asyncio.Lock())
        async with lock:
            if image.identity in self._with_python:
                return image
            if await self._exists(f"{PYTHON_REPOSITORY}:{short}"):
                return await self._inspect(f"{PYTHON_REPOSITORY}:{short}")
            async with self._scratch(image.identity) as container:
                if await self._run(container, _HAS_PYTHON, None) == 0:
                    self._with_python.add(image.identity)
                    return image
                report(Phase.INSTALLING_PYTHON, None, "installing python3 by the image's package manager")
                await self._install(container, report)
                conf = {name: image.config.get(name) for name in _IMAGE_FIELDS}
                # The engine adds the container's labels to those of the image; only an empty one hides its value.
                conf["Labels"] = {**(conf["Labels"] or {}), INSTALLATION_LABEL: ""}
                await self._engine.call(
                    lambda api: api.commit(container, repository=PYTHON_REPOSITORY, tag=short, conf=conf, pause=False)
                )
        report(Phase.INSTALLING_PYTHON, 1.0, "python3 is installed")
        return await self._inspect(f"{PYTHON_REPOSITORY}:{short}")

    async def _inspect(self, name: str) -> Image:
        details = await self._engine.call(lambda api: api.inspect_image(name))
        return Image(name, str(details["Id"]), details.get("Config") or {})

    async def _exists(self, image: str) -> bool:
        try:
            await self._engine.call(lambda api: api.inspect_image(image))
        except EngineError as error:
            if error.status == 404:
                return False
            raise
        return True

    @asynccontextmanager
    async def _scratch(self, image_id: str) -> AsyncIterator[str]:
        """A container of the bare image: nothing of the caller's spec, such as secrets in its environment,
        gets into what is kept.
        """
        name = f"workspaced-install-{image_id.removeprefix('sha256:')[:12]}-{self._installation[:8]}"
        await self._engine.remove_container(name)  # of a server that was killed
        try:
            await self._engine.call(
                lambda api: api.create_container(
                    image_id,
                    name=name,
                    entrypoint=IDLE[:1],
                    command=[*IDLE[1:-1], f"sleep {_INSTALL_SECONDS}"],
                    user="0:0",
                    labels={INSTALLATION_LABEL: self._installation},
                    # Goes by itself should this server be killed now.
                    host_config=api.create_host_config(init=True, security_opt=["no-new-privileges"], auto_remove=True),
                )
            )
            await self._engine.call(lambda api: api.start(name))
            yield name
        finally:
            await uninterrupted(self._engine.remove_container(name))

    async def _install(self, container: str, report: Progress) -> None:
        tail: list[str] = []

        def line(text: str) -> None:
            tail.append(text)
            del tail[:-8]
            report(Phase.INSTALLING_PYTHON, None, text[:200])

        if await self._run(container, _INSTALL, line) != 0:
            text = f"python3 could not be installed in the image: {' / '.join(tail)[-500:]}"
            raise DriverError("GUEST_PYTHON_MISSING", text, option="install_python")

    async def _run(self, container: str, script: str, line: Any) -> int:
        exec_id, stream = await self._engine.execute(container, ["/bin/sh", "-c", f"exec 2>&1; {script}"], user="0:0")
        pending = b""
        try:
            while data := await stream.receive():
                *lines, pending = (pending + data)[-65536:].split(b"\n")
                for text in lines:
                    if line is not None and text.strip():
                        line(text.decode(errors="replace").strip())
        except OSError as error:
            raise DriverError(
                "PROVIDER_UNAVAILABLE", "the connection to the Docker engine broke", retryable=True
            ) from error
        finally:
            await stream.aclose()
        return await exit_code(self._engine, exec_id)


async def exit_code(engine: Engine, exec_id: str) -> int:
    """The exit code of an exec whose streams have ended; the engine notices the end of the process a moment later."""
    for delay in (0.005, 0.02, 0.1, 0.5, 1.0, 0.0):
        found = await engine.call(lambda api: api.exec_inspect(exec_id))
        if found.get("ExitCode") is not None and not found.get("Running"):
            return int(found["ExitCode"])
        await asyncio.sleep(delay)
    raise DriverError("PROVIDER_UNAVAILABLE", "the Docker engine does not tell how a program ended", retryable=True)


class _Pull:
    """The request in its thread. The SDK's own ``pull`` cannot be stopped while nothing arrives."""

    def __init__(self, image: str, report: Progress, loop: asyncio.AbstractEventLoop) -> None:
        self._image = image
        self._report = report
        self._loop = loop
        self._response: Any = None
        self._aborted = threading.Event()

    def run(self, api: Any) -> None:
        repository, tag = parse_repository_tag(self._image)
        registry, _ = docker.auth.resolve_repository_name(repository)
        header = docker.auth.get_config_header(api, registry)
        self._response = api.post(
            f"{api.base_url}/v{api.api_version}/images/create",
            params={"fromImage": repository, "tag": tag or "latest"},
            headers={"X-Registry-Auth": header} if header else {},
            stream=True,
            timeout=(api.timeout, None),
        )
        with self._response as response:
            if self._aborted.is_set():
                return
            if response.status_code != 200:
                raise EngineError(response.status_code, _message(response))
            layers = Layers()
            reported = 0.0
            for event in _lines(response):
                if self._aborted.is_set():
                    return
                if "error" in event:
                    raise EngineError(500, str(event["error"]))
                layers.add(event)
                if time.monotonic() - reported > _REPORT_SECONDS:
                    reported = time.monotonic()
                    self._loop.call_soon_threadsafe(
                        self._report, Phase.PULLING_IMAGE, layers.fraction, f"{self._image}: {layers}"
                    )

    def abort(self) -> bool:
        """Make the thread end, also when it waits for the engine. Called from the loop.

        False when the engine has not answered yet: the thread then ends with the answer, for which nobody should wait.
        """
        self._aborted.set()
        if self._response is None:
            return False
        with contextlib.suppress(ValueError, RuntimeError, OSError):  # it has ended
            self._response.raw.shutdown()
        return True


class Layers:
    """How far the layers of a pull are: half of each is the transfer, half unpacking."""

    def __init__(self) -> None:
        self._parts: dict[str, float] = {}

    def add(self, event: dict[str, Any]) -> None:
        """Take in one line of the engine's progress."""
        layer, status = event.get("id"), str(event.get("status", ""))
        if not layer or status.startswith("Pulling from"):
            return
        detail = event.get("progressDetail") or {}
        part = (detail.get("current") or 0) / detail["total"] if detail.get("total") else 0.0
        known = {"Download complete": 0.5, "Pull complete": 1.0, "Already exists": 1.0}
        if status == "Downloading":
            done = part / 2
        elif status == "Extracting":
            done = 0.5 + part / 2
        else:
            done = known.get(status, 0.0)
        self._parts[layer] = max(self._parts.get(layer, 0.0), min(done, 1.0))

    @property
    def fraction(self) -> float | None:
        """From 0 to 1; None before the engine has named the layers."""
        return sum(self._parts.values()) / len(self._parts) if self._parts else None

    def __str__(self) -> str:
        complete = sum(part >= 1.0 for part in self._parts.values())
        return f"{complete} of {len(self._parts)} layers"


def _lines(response: Any) -> Iterator[dict[str, Any]]:
    for line in response.iter_lines():
        if line:
            event = json.loads(line)
            if isinstance(event, dict):
                yield event


def _message(response: Any) -> str:
    try:
        return str(response.json()["message"])
    except (ValueError, KeyError, TypeError):
        return f"HTTP {response.status_code}"


def _pull_failed(image: str, text: str, status: int) -> DriverError:
    if status == 400 or "invalid reference" in text:
        return DriverError("ARGUMENT_INVALID", f"spec.image {image!r} is not the name of an image", field="spec.image")
    if status == 404 or _MISSING.search(text):
        why = "does not exist, or its registry refuses it"
        return DriverError("IMAGE_NOT_FOUND", f"image {image!r} {why}: {text[:300]}", image=image)
    return DriverError("PROVIDER_UNAVAILABLE", f"image {image!r} cannot be pulled: {text[:300]}", retryable=True)


async def _ended(step: asyncio.Future[None]) -> None:
    await asyncio.wait({step})
    step.exception()


def _heard(step: asyncio.Future[None]) -> None:
    if not step.cancelled():
        step.exception()

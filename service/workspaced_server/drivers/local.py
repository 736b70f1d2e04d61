"""The Local backend: a workspace is a directory of the server's machine, its processes run as the server's user."""

from __future__ import annotations

import asyncio
import getpass
import json
import os
import platform
import pwd
import re
import sys
import weakref
from collections.abc import AsyncIterator, Iterable, Mapping, MutableSequence, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import structlog

from workspaced_server.drivers.base import (
    Availability,
    ByteStream,
    Capabilities,
    DriverError,
    Phase,
    Progress,
    SandboxGone,
    SandboxRef,
    SandboxSpec,
    SandboxState,
    SandboxStatus,
)
from workspaced_server.drivers.cgroups import Cgroups, Limits
from workspaced_server.drivers.config import LocalConfig
from workspaced_server.drivers.leftovers import MARK, kill_marked
from workspaced_server.drivers.streams import connect_unix
from workspaced_server.drivers.trees import remove_tree
from workspaced_server.drivers.uninterrupted import uninterrupted
from workspaced_server.guest import bundle

_log = structlog.get_logger(__name__)

_KEY = re.compile(r"[0-9a-f]{16,64}")
_START_TIMEOUT = 20.0
_LOG_LIMIT = 1 << 20


class LocalDriver:
    """Sandboxes of one directory tree.

    ``<root>/<key>/workspace`` holds the files (unless the caller names a directory), ``<root>/<key>/guest`` the
    guest's state and socket, mode 0700. ``guest/sandbox.json`` is there while the sandbox is provisioned, and absent
    while it is suspended.
    The guest is a daemon in a session of its own and outlives the server.
    """

    name = "local"

    def __init__(self, config: LocalConfig) -> None:
        self._config = config
        self._root = config.root.absolute()
        self._cgroups: Cgroups | None = None
        self._limiter = anyio.CapacityLimiter(8)
        self._starting: weakref.WeakValueDictionary[str, asyncio.Lock] = weakref.WeakValueDictionary()

    async def probe(self) -> Availability:
        """Whether the backend answers now. Never raises."""
        try:
            cgroups = await self._run(self._detect)
            await self._run(self._make_root)
        except OSError as error:
            return Availability(False, f"the directory of local workspaces cannot be used: {error.strerror}")
        return Availability(
            True,
            version=platform.release(),
            capabilities=Capabilities(
                persistence=True,
                limits_cpu="cpu" in cgroups.controllers,
                limits_memory="memory" in cgroups.controllers,
                limits_pids="pids" in cgroups.controllers,
            ),
        )

    async def provision(self, spec: SandboxSpec, report: Progress) -> SandboxRef:
        """Make the directories, or take those there are. Idempotent by key. The guest starts with the first channel."""
        report(Phase.CREATING)
        cgroups = await self._run(self._detect)
        limits = _check(spec, cgroups)
        sandbox = _Sandbox(self._root, spec.key)
        made: list[Path] = []
        try:
            workspace = await self._run(self._make_workspace, sandbox, spec, made)
            record = {
                "workdir": str(workspace),
                "env": dict(spec.env),
                "limits": {"cpu_millis": limits.cpu_millis, "memory_bytes": limits.memory_bytes, "pids": limits.pids},
                "persistent": spec.persistent is not False,
            }
            await self._run(sandbox.write, record, spec.token)
        except BaseException as error:
            await uninterrupted(_remove_trees(reversed(made)))
            if isinstance(error, OSError):
                raise _failed("create the workspace's directory", error) from error
            raise
        report(Phase.STARTING, 1.0)
        return SandboxRef(spec.key, spec.token, str(workspace), persistent=spec.persistent is not False)

    async def open_channel(self, ref: SandboxRef) -> ByteStream:
        """Connect to the guest's socket; start the guest first if nobody listens there."""
        sandbox = _Sandbox(self._root, ref.key)
        with suppress(FileNotFoundError, ConnectionRefusedError):
            return await connect_unix(sandbox.socket)
        lock = self._starting.setdefault(ref.key, asyncio.Lock())
        async with lock:
            with suppress(FileNotFoundError, ConnectionRefusedError):
                return await connect_unix(sandbox.socket)
            return await self._start(sandbox, ref)

    async def status(self, ref: SandboxRef) -> SandboxStatus:
        """What the directories say: a guest that does not run now is started by the next channel."""
        sandbox = _Sandbox(self._root, ref.key)
        try:
            record = await self._run(sandbox.read)
            if record is not None:
                if await self._run(os.path.isdir, record["workdir"]):
                    return SandboxStatus(SandboxState.RUNNING)
                return SandboxStatus(SandboxState.GONE, "its directory was removed")
            if await self._run(os.path.isdir, ref.workdir):
                return SandboxStatus(SandboxState.SUSPENDED)
        except OSError as error:
            raise _failed("read the workspace's state", error) from error
        return SandboxStatus(SandboxState.GONE, "its directory was removed")

    async def renew(self, ref: SandboxRef, until: datetime) -> None:
        """Nothing to do: a directory has no time-to-live."""

    async def suspend(self, ref: SandboxRef) -> None:
        """End what still runs. The files stay, unless the workspace is ephemeral. Idempotent."""
        if not ref.persistent:
            await self.destroy(ref)
            return
        sandbox = _Sandbox(self._root, ref.key)
        await self._end(sandbox)
        try:
            await self._run(sandbox.forget)
        except OSError as error:
            raise _failed("suspend the workspace", error) from error

    async def destroy(self, ref: SandboxRef) -> None:
        """End what still runs and remove the files; a directory that the caller named stays. Idempotent."""
        sandbox = _Sandbox(self._root, ref.key)
        await self._end(sandbox)
        await uninterrupted(remove_tree(sandbox.directory))

    async def list(self) -> AsyncIterator[SandboxRef]:
        """Each directory below the root, for the sweep."""
        try:
            names = await self._run(os.listdir, self._root)
        except FileNotFoundError:
            return
        for name in sorted(names):
            if _KEY.fullmatch(name) is None:
                continue
            sandbox = _Sandbox(self._root, name)
            record = await self._run(sandbox.read) or {}
            yield SandboxRef(
                name, "", record.get("workdir", str(sandbox.files)), persistent=record.get("persistent", True)
            )

    async def aclose(self) -> None:
        """Nothing to release. Guests go on."""

    async def _run(self, function: Any, *args: Any) -> Any:
        return await uninterrupted(anyio.to_thread.run_sync(lambda: function(*args), limiter=self._limiter))

    def _detect(self) -> Cgroups:
        if self._cgroups is None:
            self._cgroups = Cgroups.detect()
        return self._cgroups

    def _make_root(self) -> None:
        self._root.mkdir(mode=0o700, parents=True, exist_ok=True)

    def _make_workspace(self, sandbox: _Sandbox, spec: SandboxSpec, made: MutableSequence[Path]) -> Path:
        self._make_root()
        directory = str(spec.options.get("directory", ""))
        named = self._resolve(directory, spec) if directory else None
        _make(sandbox.directory, made)
        sandbox.state.mkdir(mode=0o700, exist_ok=True)
        workspace = named or sandbox.files
        for parent in [*reversed(workspace.parents), workspace]:
            _make(parent, made)
        if not workspace.is_dir():
            field = "spec.local.directory"
            raise DriverError("ARGUMENT_INVALID", f"{field} is not a directory", field=field)
        return workspace

    def _resolve(self, directory: str, spec: SandboxSpec) -> Path:
        field = "spec.local.directory"
        if not directory.startswith("/") or "\0" in directory:
            raise DriverError("ARGUMENT_INVALID", f"{field} has to be an absolute path", field=field)
        if spec.persistent is False:
            text = f"{field} names a directory that is never deleted, so the workspace cannot be ephemeral"
            raise DriverError("ARGUMENT_INVALID", text, field="spec.persistence")
        resolved = Path(os.path.realpath(directory))
        roots = [Path(os.path.realpath(root)) for root in self._config.allowed_roots]
        # The server's own state is no workspace, even where it lies inside an allowed root.
        own = Path(os.path.realpath(self._root))
        inside = any(resolved.is_relative_to(root) for root in roots)
        if not inside or resolved.is_relative_to(own) or own.is_relative_to(resolved):
            text = f"{field} is not inside a directory that the server's configuration allows (local.allowed_roots)"
            raise DriverError("OPTION_NOT_ALLOWED", text, field=field)
        return resolved

    async def _start(self, sandbox: _Sandbox, ref: SandboxRef) -> ByteStream:
        try:
            record = await self._run(sandbox.read)
            if record is None:
                raise SandboxGone("the workspace is not provisioned")
            if not await self._run(os.path.isdir, record["workdir"]):
                raise SandboxGone("the workspace's directory was removed")
            await self._run(sandbox.write_token, ref.token)
            program = await self._run(self._install_bundle)
            enter = await self._run(self._enter_cgroup, sandbox.key, Limits(**record["limits"]))
            return await self._launch(sandbox, record, program, enter)
        except OSError as error:
            raise _failed("start the guest", error) from error

    def _install_bundle(self) -> Path:
        built = bundle.build()
        target = self._root / ".guest" / f"{built.sha256}.pyz"
        if not target.exists():
            target.parent.mkdir(mode=0o700, exist_ok=True)
            _replace(target, built.data)
        return target

    def _enter_cgroup(self, key: str, limits: Limits) -> Sequence[Path]:
        if not limits.controllers():
            return []
        return [group / "cgroup.procs" for group in self._detect().create(key, limits)]

    async def _launch(
        self, sandbox: _Sandbox, record: Mapping[str, Any], program: Path, enter: Sequence[Path]
    ) -> ByteStream:
        guest = [sys.executable, "-I", str(program), "serve", "--socket", str(sandbox.socket)]
        guest += ["--state", str(sandbox.state), "--workdir", record["workdir"]]
        guest += ["--idle-exit", str(self._config.idle_exit_seconds)]
        # The shell enters the groups before the guest runs, so nothing of it is ever outside.
        script = 'n=$1; shift; while [ "$n" -gt 0 ]; do echo $$ >"$1" || exit 70; shift; n=$((n-1)); done; exec "$@"'
        argv = ["/bin/sh", "-c", script, "sh", str(len(enter)), *map(str, enter), *guest] if enter else guest
        log = await self._run(_open_log, sandbox.log)
        try:
            process = await asyncio.create_subprocess_exec(
                *argv,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=_environment(sandbox.key, record["env"]),
                cwd=record["workdir"],
                start_new_session=True,
            )
        finally:
            os.close(log)
        try:
            with anyio.fail_after(_START_TIMEOUT):
                # It returns when the daemon listens.
                code = await process.wait()
                if code != 0:
                    # What it said names paths of this machine.
                    _log.error("the guest did not start", key=sandbox.key, complaint=sandbox.last_words())
                    raise DriverError("GUEST_START_FAILED", "the guest did not start; the server's log says why")
                return await connect_unix(sandbox.socket)
        except TimeoutError:
            raise DriverError(
                "GUEST_START_FAILED", f"the guest did not start in {_START_TIMEOUT:.0f} s", retryable=True
            )
        finally:
            if process.returncode is None:
                process.kill()
                await uninterrupted(process.wait())

    async def _end(self, sandbox: _Sandbox) -> None:
        def end() -> None:
            kill_marked(sandbox.key)
            self._detect().remove(sandbox.key)

        try:
            await self._run(end)
        except OSError as error:
            raise _failed("end the workspace's processes", error) from error


class _Sandbox:
    """The paths and records of one workspace."""

    def __init__(self, root: Path, key: str) -> None:
        if _KEY.fullmatch(key) is None:
            raise ValueError(f"not a key: {key!r}")
        self.key = key
        self.directory = root / key
        self.files = self.directory / "workspace"
        self.state = self.directory / "guest"
        self.socket = self.state / "guest.sock"
        self.log = self.state / "guest.log"
        self._record = self.state / "sandbox.json"

    def read(self) -> dict[str, Any] | None:
        """The record of a provisioned sandbox; None when there is none."""
        try:
            record: dict[str, Any] = json.loads(self._record.read_bytes())
        except FileNotFoundError:
            return None
        return record

    def write(self, record: Mapping[str, Any], token: str) -> None:
        self.write_token(token)
        _replace(self._record, json.dumps(record).encode())

    def write_token(self, token: str) -> None:
        _replace(self.state / "token", token.encode())

    def forget(self) -> None:
        self._record.unlink(missing_ok=True)
        self.socket.unlink(missing_ok=True)

    def last_words(self) -> str:
        """The end of the guest's log."""
        try:
            return self.log.read_bytes()[-500:].decode(errors="replace").strip() or "it said nothing"
        except OSError as error:
            return f"its log cannot be read: {error.strerror}"


def _check(spec: SandboxSpec, cgroups: Cgroups) -> Limits:
    """Refuse what this backend cannot do; nothing that was asked for is ignored (but the image, as the API says)."""

    def refuse(field: str, why: str) -> DriverError:
        return DriverError("UNSUPPORTED_BY_BACKEND", f"{field}: {why}", field=field, backend="local")

    limits = Limits(spec.cpu_millis, spec.memory_bytes, spec.pids)
    for controller in sorted(limits.controllers() - cgroups.controllers):
        field = {"cpu": "cpu_millis", "memory": "memory_bytes", "pids": "pids"}[controller]
        raise refuse(f"spec.resources.{field}", f"the server may not use the {controller} controller of cgroups")
    if spec.disk_bytes:
        raise refuse("spec.resources.disk_bytes", "the local backend cannot limit disk space")
    if spec.gpus:
        raise refuse("spec.resources.gpus", "the local backend cannot assign GPUs")
    if spec.network != "default":
        raise refuse("spec.network", "the local backend cannot restrict the network")
    if spec.workdir:
        raise refuse("spec.workdir", "a local workspace is where its directory is; use spec.local.directory")
    if spec.user and spec.user not in (getpass.getuser(), str(os.getuid()), f"{os.getuid()}:{os.getgid()}"):
        raise refuse("spec.user", "processes of a local workspace run as the server's user")
    return limits


def _environment(key: str, env: Mapping[str, str]) -> dict[str, str]:
    """What the guest and its processes start with: nothing of the server's but where programs are and who it is."""
    try:
        user = pwd.getpwuid(os.getuid())
        name, home = user.pw_name, user.pw_dir
    except KeyError:
        name, home = str(os.getuid()), "/"
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": home,
        "USER": name,
        "LANG": os.environ.get("LANG", "C.UTF-8"),
        **env,
        MARK: key,
    }


def _make(directory: Path, made: MutableSequence[Path]) -> None:
    try:
        directory.mkdir(mode=0o700)
    except FileExistsError:
        return
    made.append(directory)


def _replace(path: Path, data: bytes) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}")
    try:
        with open(temporary, "xb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            file.write(data)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _open_log(path: Path) -> int:
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    if os.fstat(log).st_size > _LOG_LIMIT:
        os.ftruncate(log, 0)
    return log


async def _remove_trees(directories: Iterable[Path]) -> None:
    for directory in directories:
        await remove_tree(directory)


def _failed(what: str, error: OSError) -> DriverError:
    # The path stays in the log: it is the server's, not the caller's.
    return DriverError("PROVIDER_UNAVAILABLE", f"cannot {what}: {error.strerror or error}", retryable=True)

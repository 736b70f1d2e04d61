"""Puts the guest into a sandbox through nothing but the standard streams of an exec.

The command that :func:`command` returns is run in the sandbox with a pipe for stdin and stdout. :func:`perform` then
hands over what is missing, and the same streams become a channel to the guest. ``docs/guest-protocol.md`` says what
travels.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from workspaced_server.drivers.base import ByteStream, DriverError
from workspaced_server.guest.bundle import Bundle

OLDEST_PYTHON = (3, 9)
_LINE_LIMIT = 16384

# Where python3 is missing, the answer still has the form that perform() reads.
_FIND = """for p in python3 /usr/local/bin/python3 /usr/bin/python3 /usr/libexec/platform-python; do
command -v "$p" >/dev/null 2>&1 && exec "$p" -I -S -c "$0" "$@"
done
echo '{"bootstrap": 1, "python": ""}'
exit 127"""

# Runs inside, perhaps on an old Python: plain syntax. It reads descriptor 0 without a buffer, since what follows the
# bundle is the channel's.
_SCRIPT = r"""
import os, sys
def main(digest, workdir, preferred, mark):
    if sys.version_info < (3, 9):
        for minor in range(30, 8, -1):
            for place in os.environ.get("PATH", "").split(":"):
                path = "%s/python3.%d" % (place, minor)
                if place and os.access(path, os.X_OK):
                    with open("/proc/self/cmdline", "rb") as file:
                        words = [os.fsdecode(word) for word in file.read().split(b"\\0")[1:-1]]
                    os.execv(path, [path] + words)
    import hashlib, json, stat
    os.umask(0o077)
    uid = os.getuid()
    chosen = ""
    why = ""
    for place in (preferred, "/run/workspaced", "/tmp/.workspaced-%d" % uid, "/dev/shm/.workspaced-%d" % uid):
        if not place:
            continue
        try:
            try:
                os.mkdir(place, 0o700)
            except FileExistsError:
                pass
            found = os.lstat(place)
            if not stat.S_ISDIR(found.st_mode) or found.st_uid != uid:
                raise PermissionError(1, "not ours")
            if found.st_mode & 0o77:
                os.chmod(place, 0o700)
            if not os.access(place, os.W_OK | os.X_OK):
                raise PermissionError(30, "not writable")
            chosen = place
            break
        except OSError as error:
            why = why + "%s: %s; " % (place, error.strerror)
    try:
        os.makedirs(workdir, 0o755, exist_ok=True)
    except OSError:
        pass
    if mark:
        try:
            os.close(os.open(mark, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        except OSError:
            pass
    program = "%s/guest-%s.pyz" % (chosen, digest)
    def intact():
        try:
            with open(program, "rb") as file:
                return hashlib.sha256(file.read()).hexdigest() == digest
        except OSError:
            return False
    have = bool(chosen) and intact()
    answer = {"bootstrap": 1, "have": have, "python": "%d.%d.%d" % sys.version_info[:3], "dir": chosen,
              "uid": uid, "gid": os.getgid(), "writable": os.access(workdir, os.W_OK | os.X_OK), "error": why}
    os.write(1, json.dumps(answer).encode() + b"\n")
    def take(size):
        data = b""
        while len(data) < size:
            part = os.read(0, min(size - len(data), 1 << 18))
            if not part:
                sys.exit(1)
            data = data + part
        return data
    line = b""
    while not line.endswith(b"\n"):
        line = line + take(1)
    request = json.loads(line.decode())
    def put(name, data):
        temporary = "%s.%d" % (name, os.getpid())
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(fd, "wb") as file:
            file.write(data)
        os.rename(temporary, name)
    if request["size"]:
        data = take(request["size"])
        if hashlib.sha256(data).hexdigest() != digest:
            sys.exit("the bundle was damaged on its way")
        put(program, data)
    os.makedirs(request["state"], 0o700, exist_ok=True)
    put(request["state"] + "/token", request["token"].encode())
    os.execv(sys.executable, [sys.executable, "-I", "-S", program, "ensure"] + request["args"])
main(*sys.argv[1:5])
"""


@dataclass(frozen=True, slots=True)
class Site:
    """What the sandbox answered: ``directory`` is the guest's own,
    ``writable`` whether its user may write to the workdir.
    """

    directory: str
    python: str
    uid: int
    gid: int
    writable: bool
    have: bool


class BootstrapError(Exception):
    """The command ended, or answered with something else; the message is for the log."""


def command(bundle: Bundle, workdir: str, *, preferred: str = "", mark: str = "") -> list[str]:
    """The argv to run in the sandbox, as the user that the processes of the workspace run as; it needs ``/bin/sh``.

    The guest's files go to the directory ``preferred`` where that is possible. ``mark`` is a file that is made if it
    can be: whoever sees it outside shares a file system with the sandbox.
    """
    return ["/bin/sh", "-c", _FIND, _SCRIPT, bundle.sha256, workdir, preferred, mark]


async def greet(stream: ByteStream) -> Site:
    """Read the sandbox's answer.

    Raises BootstrapError, OSError, and DriverError GUEST_PYTHON_MISSING or GUEST_START_FAILED.
    """
    answer = await _read_line(stream)
    if answer.get("python") == "":
        raise DriverError(
            "GUEST_PYTHON_MISSING",
            "the image has no python3, which the guest needs: use an image that has it, or set install_python",
            option="install_python",
        )
    site = _parse(answer)
    version = tuple(int(part) for part in site.python.split(".")[:2])
    if version < OLDEST_PYTHON:
        raise DriverError(
            "GUEST_PYTHON_MISSING",
            f"the image has python3 {site.python}; the workspace's guest needs 3.9 or newer",
            python=site.python,
        )
    if not site.directory:
        text = f"the workspace's user can write to no directory for the guest ({str(answer.get('error'))[:300]})"
        raise DriverError("GUEST_START_FAILED", text)
    return site


async def hand_over(
    stream: ByteStream,
    site: Site,
    bundle: Bundle,
    token: str,
    *,
    state: str,
    arguments: Sequence[str],
) -> None:
    """Send token, arguments of ``guest.pyz ensure``, and the bundle where it is missing. Raises OSError.

    From then on the stream belongs to the guest.
    """
    data = b"" if site.have else bundle.data
    request = {"size": len(data), "token": token, "state": state, "args": list(arguments)}
    await stream.send(json.dumps(request).encode() + b"\n" + data)


async def perform(
    stream: ByteStream,
    bundle: Bundle,
    token: str,
    arguments: Callable[[Site], Sequence[str]],
) -> Site:
    """Both steps, with the guest's state in the directory that the sandbox chose. Raises as they do."""
    site = await greet(stream)
    await hand_over(stream, site, bundle, token, state=site.directory, arguments=arguments(site))
    return site


async def _read_line(stream: ByteStream) -> dict[str, Any]:
    line = b""
    while b"\n" not in line:
        part = await stream.receive(4096)
        if not part:
            raise BootstrapError(f"the bootstrap ended after {line[-200:]!r}")
        line += part
        if len(line) > _LINE_LIMIT:
            raise BootstrapError(f"the bootstrap's answer is too long: {line[:200]!r}")
    try:
        answer = json.loads(line)
    except ValueError:
        raise BootstrapError(f"the bootstrap's answer is not one line of JSON: {line[:200]!r}")
    if not isinstance(answer, dict) or answer.get("bootstrap") != 1:
        raise BootstrapError(f"not a bootstrap's answer: {line[:200]!r}")
    return answer


def _parse(answer: dict[str, Any]) -> Site:
    directory, python = answer.get("dir"), answer.get("python")
    uid, gid = answer.get("uid"), answer.get("gid")
    writable, have = answer.get("writable"), answer.get("have")
    if (
        not isinstance(directory, str)
        or not re.fullmatch(r"(/[^\0\n]{1,1000})?", directory)
        or not isinstance(python, str)
        or not re.fullmatch(r"\d{1,3}\.\d{1,3}(\.\d{1,3})?", python)
        or not isinstance(uid, int)
        or not isinstance(gid, int)
        or not isinstance(writable, bool)
        or not isinstance(have, bool)
    ):
        raise BootstrapError("the bootstrap's answer has a field of the wrong type")
    return Site(directory, python, uid, gid, writable, have)

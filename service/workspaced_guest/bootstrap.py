"""Puts the guest's zipapp where only an exec with standard streams exists, and becomes `guest.pyz ensure`.

The server passes this file's text to `python3 -I -c` with the arguments: hash of the bundle, workdir and, optionally,
the directory to prefer. It runs before the version of Python is known, so it is plain code
without annotations of newer kinds.
"""

import json
import os
import stat
import sys

_MAX_LINE = 65536
_MAX_BUNDLE = 8 << 20


def _own_directory(path: str) -> bool:
    try:
        if not os.path.isdir(path):
            os.makedirs(path, 0o700)
        found = os.lstat(path)
    except OSError:
        return False
    # A directory that someone else made beforehand in /tmp, or a link, would give our token away.
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        return False
    return os.access(path, os.W_OK | os.X_OK)


def _read_exactly(count: int) -> bytes:
    parts = []
    while count:
        part = os.read(0, min(count, 65536))
        if not part:
            sys.exit("workspaced bootstrap: standard input ended early")
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def _read_line() -> bytes:
    # Byte by byte: what follows the line belongs to others.
    line = b""
    while not line.endswith(b"\n"):
        line += _read_exactly(1)
        if len(line) > _MAX_LINE:
            sys.exit("workspaced bootstrap: the line is too long")
    return line


def _replace(path: str, content: bytes) -> None:
    temporary = f"{path}.{os.getpid()}"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    os.rename(temporary, path)


def main() -> None:
    digest, workdir = sys.argv[1:3]
    uid = os.geteuid()
    candidates = [
        *sys.argv[3:4],
        "/run/workspaced",
        f"/tmp/.workspaced-{uid}",  # noqa: S108  (checked to be ours)
        f"/dev/shm/.workspaced-{uid}",  # noqa: S108
    ]
    directory = next((path for path in candidates if _own_directory(path)), "")
    bundle = os.path.join(directory, "guest-" + digest + ".pyz")
    version = ".".join(map(str, sys.version_info[:3]))
    answer = {"bootstrap": 1, "have": bool(directory) and os.path.exists(bundle), "python": version, "dir": directory}
    os.write(1, json.dumps(answer).encode() + b"\n")
    if not directory:
        sys.exit("workspaced bootstrap: no directory can be written")
    request = json.loads(_read_line().decode())
    if request["size"] > _MAX_BUNDLE:
        sys.exit("workspaced bootstrap: the bundle is too large")
    content = _read_exactly(request["size"])
    if content:
        import hashlib

        if hashlib.sha256(content).hexdigest() != digest:
            sys.exit("workspaced bootstrap: the bundle has another hash")
        _replace(bundle, content)
    if request.get("token"):
        _replace(os.path.join(directory, "token"), request["token"].encode())
    arguments = ["--socket", os.path.join(directory, "guest.sock"), "--state", directory, "--workdir", workdir]
    os.execv(sys.executable, [sys.executable, "-I", bundle, "ensure", *arguments, *request.get("args", [])])


main()

"""Fuzzes the resolution of paths below a root, against the kernel's. Run: python -m tests.fuzz.fuzz_paths [options]"""

from __future__ import annotations

import errno
import os
import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["workspaced_guest"]):
    from workspaced_guest.fault import Fault
    from workspaced_guest.paths import resolve

from tests.support.beneath import BENEATH_WORKS, open_beneath

_NAMES = ["a", "b", "file", "in", "out", "up", "loop", "..", ".", "", "missing", "\udcff", "\0", "x" * 300]
_TARGETS = ["a", "b", "..", "../..", ".", "/", "/etc", "../secret", "a/b/../..", "loop", "missing", "a/", "file", ""]
_NUMBERS = {
    "PATH_ESCAPES": errno.EXDEV,
    "FILE_NOT_FOUND": errno.ENOENT,
    "NOT_A_DIRECTORY": errno.ENOTDIR,
    "LINK_LOOP": errno.ELOOP,
}


def test_one_input(data: bytes) -> None:
    """In any tree with any links, a path leads to what the kernel's own bounded walk finds, or is refused as there."""
    provider = atheris.FuzzedDataProvider(data)
    with tempfile.TemporaryDirectory(prefix="fuzz-paths-", dir="/dev/shm") as name:
        base = Path(os.path.realpath(name))
        (base / "secret").write_text("secret")
        root = base / "root"
        _plant(provider, root)
        for _ in range(provider.ConsumeIntInRange(1, 4)):
            pieces = [provider.PickValueInList(_NAMES) for _ in range(provider.ConsumeIntInRange(0, 8))]
            _check(root, "/".join(pieces), provider.ConsumeBool())


def _plant(provider: atheris.FuzzedDataProvider, root: Path) -> None:
    (root / "a" / "b").mkdir(parents=True)
    (root / "file").write_text("")
    for _ in range(provider.ConsumeIntInRange(0, 6)):
        directory = provider.PickValueInList([root, root / "a", root / "a" / "b"])
        target = provider.PickValueInList(_TARGETS)
        try:
            (directory / provider.PickValueInList(["b", "in", "out", "up", "loop"])).symlink_to(target)
        except (FileExistsError, FileNotFoundError):
            continue


def _check(root: Path, path: str, follow: bool) -> None:
    if "\0" in path or not path:
        _refused(root, path)
        return
    try:
        with resolve(str(root.parent), path, str(root), follow=follow) as place:
            real = str(Path(f"/proc/self/fd/{place.directory}").readlink())
            if not (real + "/").startswith(f"{root}/"):
                raise AssertionError(f"{path!r} leads to {real}")
            status = place.peek()
            found: object = errno.ENOENT if status is None else (status.st_dev, status.st_ino)
    except Fault as fault:
        found = _NUMBERS.get(fault.reason, errno.ENAMETOOLONG)
    # The kernel takes an absolute path to be outside; here it is inside when it names something below the root. It
    # also follows a link before a slash, which here is no directory.
    if path.startswith("/") or (path.endswith(("/", "/.")) and not follow):
        return
    expected = open_beneath(root, path, follow=follow)
    if found != expected:
        raise AssertionError(f"{path!r}, follow {follow}: {found}, and the kernel says {expected}")


def _refused(root: Path, path: str) -> None:
    try:
        resolve(str(root.parent), path, str(root)).close()
    except Fault as fault:
        if fault.reason == "ARGUMENT_INVALID":
            return
        raise
    raise AssertionError(f"{path!r} was taken for a path")


if __name__ == "__main__":
    if not BENEATH_WORKS:
        sys.exit("this kernel has no openat2 to compare with")
    atheris.Setup(sys.argv, test_one_input)
    atheris.Fuzz()

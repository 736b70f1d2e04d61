"""The `skill.` operations: skills of one agent, which are the directories of its partition `skills/<partition>`.

What a front matter means is the server's business; here are bytes, directories, and steps that happen at once. No
link is followed, neither `skills` nor a partition nor anything in it.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import contextmanager, suppress

from . import params as read
from .archive import FILE, Limits, below, entries_of, expand, walk
from .content import CHUNK_BYTES, hash_parameter, new_hash
from .copying import Copier
from .fault import Fault, from_os_error, invalid
from .front import front_of
from .rename import rename_exclusively
from .staging import OPEN_DIRECTORY, Staging, exchange, sweep, sync_tree
from .stream import blocking

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from .archive import Entries
    from .guest import Guest
    from .stream import BlockingStream, Handler

    Params = dict[str, Any]

_SEED = ".seed"
_FILE = "SKILL.md"
MAX_FILE_BYTES = 1024 * 1024
# Of one listing: directories, bytes of front matter, and about how many bytes one MESSAGE has.
_MAX_DIRECTORIES = 2000
_MAX_FRONTS_BYTES = 2 * 1024 * 1024
_MESSAGE_BYTES = 16 * 1024
_MAX_FILES = 1000
_MAX_PATHS_BYTES = 512 * 1024
_ATTEMPTS = 5


def list_skills(guest: Guest, stream: BlockingStream, params: Params) -> Params:
    """Tell every directory of a partition, which is filled from the seed first when it is not there.

    With `seeded` and no seed to fill it from, nothing is done and the answer says `seed_missing`.
    """
    name = _partition_name(params)
    seeded = read.boolean(params, "seeded")
    with _skills(guest) as skills:
        partition = _equip(stream, skills, name, seeded)
        if partition is None:
            return {"seed_missing": True, "truncated": False}
        try:
            return {"seed_missing": False, "truncated": _tell(stream, partition)}
        finally:
            os.close(partition)


def read_skill(guest: Guest, stream: BlockingStream, params: Params) -> Params:
    """Send one skill as it is at one moment: its entry, the paths of its files, and its SKILL.md of at most 1 MiB."""
    name, directory = _partition_name(params), _directory_name(params, "directory")
    with _skills(guest) as skills, _opened(skills, name) as partition:
        for _ in range(_ATTEMPTS):
            with _opened(partition, directory) as skill:
                entry, content = _describe(directory, skill)
                files, truncated = _files(stream, skill)
                if not _is_there(partition, directory, skill):
                    continue  # replaced meanwhile, and perhaps half removed
            stream.message({"skill": entry})
            for start in range(0, len(files), 20):
                stream.message({"files": files[start : start + 20]})
            for start in range(0, len(content), CHUNK_BYTES):
                stream.send(content[start : start + CHUNK_BYTES])
            return {"truncated": truncated}
    raise _changed()


def install_skill(guest: Guest, stream: BlockingStream, params: Params) -> Params:
    """Expand an archive beside the partition, tell what it is, and move it into place as the client then says.

    Whatever goes wrong before that, cancellation included, leaves nothing.
    """
    name = _partition_name(params)
    wanted = read.text(params, "format", "", limit=16)
    sha256 = hash_parameter(params, "sha256")
    limits = _limits(params)
    with _skills(guest) as skills, Staging(skills) as staging:
        tree = staging.make("tree")
        try:
            entries = expand(stream, tree, limits, wanted, sha256)
            wrapper = _wrapper(entries)
            with _opened(tree, wrapper or ".") as top:
                entry, _ = _describe("", top)
                if entry["problem"] == "missing":
                    raise _changed()  # it was just made: a reset removes it
                sync_tree(stream, top)
            stream.message({"skill": entry})
            verdict = stream.receive_item()
            if not isinstance(verdict, dict):
                raise invalid("a message was expected, that says where to install it", field="directory")
            with _opened(skills, name) as partition:
                entries = below(entries, wrapper)
                place = (tree, wrapper) if wrapper else (staging.directory, "tree")
                return _place(stream, partition, place, entries, verdict)
        finally:
            os.close(tree)


def remove_skill(guest: Guest, stream: BlockingStream, params: Params) -> Params:
    """Remove one directory of a partition, at once; whether it was there."""
    name, directory = _partition_name(params), _directory_name(params, "directory")
    with _skills(guest) as skills, _opened(skills, name) as partition, Staging(skills) as staging:
        stream.check()
        try:
            os.rename(directory, "old", src_dir_fd=partition, dst_dir_fd=staging.directory)
        except FileNotFoundError:
            return {"removed": False}
        os.fsync(partition)
        return {"removed": True}


def seed_skills(guest: Guest, stream: BlockingStream, params: Params) -> Params:
    """Make the seed from an archive of skills' directories, unless there is one; whether it was made."""
    limits = _limits(params)
    with _skills(guest) as skills, Staging(skills) as staging:
        tree = staging.make("tree")
        try:
            expand(stream, tree, limits, "", None)
            sync_tree(stream, tree)
        finally:
            os.close(tree)
        try:
            os.rmdir(_SEED, dir_fd=skills)  # AgentScope makes an empty one
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTEMPTY, errno.EEXIST):
                raise
        try:
            rename_exclusively(staging.directory, "tree", skills, _SEED)
        except FileExistsError:
            return {"created": False}
        os.fsync(skills)
        return {"created": True}


def purge_skills(guest: Guest, stream: BlockingStream, params: Params) -> Params:
    """Remove a partition, at once; how many skills it had."""
    name = _partition_name(params)
    with _skills(guest) as skills, Staging(skills) as staging:
        stream.check()
        try:
            os.rename(name, "old", src_dir_fd=skills, dst_dir_fd=staging.directory)
        except FileNotFoundError:
            return {"removed": 0}
        os.fsync(skills)
        try:
            with _opened(staging.directory, "old") as partition:
                return {"removed": sum(map(_has_file, _directories(partition)))}
        except Fault:
            return {"removed": 0}  # it was no directory


def _equip(stream: BlockingStream, skills: int, name: str, seeded: bool) -> int | None:
    """Open a partition, after filling it when it is not there; None when what to fill it with is missing.

    Its existence says that it was filled: what is removed from it does not come back.
    """
    try:
        return os.open(name, OPEN_DIRECTORY, dir_fd=skills)
    except OSError as error:
        if error.errno != errno.ENOENT:
            raise from_os_error(error, f"skills/{name}") from error
    try:
        with _opened(skills, _SEED) as seed:
            empty = not any(not entry.startswith(".") for entry in os.listdir(seed))
    except Fault as fault:
        if fault.reason != "FILE_NOT_FOUND":
            raise
        empty = True
    if empty and seeded:
        return None
    with Staging(skills) as staging:
        if empty:
            os.mkdir("tree", 0o755, dir_fd=staging.directory)
        else:
            Copier(stream, "skills/.seed").copy(skills, _SEED, staging.directory, "tree")
        with _opened(staging.directory, "tree") as tree:
            sync_tree(stream, tree)
        with suppress(FileExistsError):  # another call was as quick
            rename_exclusively(staging.directory, "tree", skills, name)
        os.fsync(skills)
    return os.open(name, OPEN_DIRECTORY, dir_fd=skills)


def _tell(stream: BlockingStream, partition: int) -> bool:
    """Send the entries of a partition in order of their names; whether there were too many."""
    batch: list[Params] = []
    size = fronts = 0
    names = sorted(name for name in os.listdir(partition) if not name.startswith("."))
    truncated = False
    count = 0
    for name in names:
        stream.check()
        entry = _entry(partition, name)
        if entry is None:
            continue
        count += 1
        length = len(entry["front"] or "")
        fronts += length
        if count > _MAX_DIRECTORIES or fronts > _MAX_FRONTS_BYTES:
            truncated = True
            break
        batch.append(entry)
        size += length + 400
        if size > _MESSAGE_BYTES:
            stream.message({"skills": batch})
            batch, size = [], 0
    if batch:
        stream.message({"skills": batch})
    return truncated


def _entry(partition: int, name: str) -> Params | None:
    """What is known of one name of a partition; None when it is no directory."""
    for _ in range(_ATTEMPTS):
        try:
            skill = os.open(name, OPEN_DIRECTORY, dir_fd=partition)
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno not in (errno.ENOTDIR, errno.ELOOP):
                return _problem(name, "unreadable", error)
            return _problem(name, "link") if _leads_to_directory(partition, name) else None
        try:
            entry, _ = _describe(name, skill)
            # Without its file it may be the one that was replaced just now, half removed.
            if entry["problem"] is None or _is_there(partition, name, skill):
                return entry
        finally:
            os.close(skill)
    return None


def _leads_to_directory(partition: int, name: str) -> bool:
    try:
        status = os.stat(name, dir_fd=partition, follow_symlinks=False)
        return stat.S_ISLNK(status.st_mode) and stat.S_ISDIR(os.stat(name, dir_fd=partition).st_mode)
    except OSError:
        return False  # it leads nowhere


def _describe(name: str, skill: int) -> tuple[Params, bytes]:
    """The entry of a skill's directory, and its SKILL.md unless that is too large or can't be read."""
    try:
        descriptor = os.open(_FILE, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=skill)
    except FileNotFoundError:
        return _problem(name, "missing"), b""
    except OSError as error:
        return _problem(name, "not_a_file" if error.errno in (errno.ELOOP, errno.ENXIO) else "unreadable", error), b""
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return _problem(name, "not_a_file"), b""
        content = _head(descriptor, MAX_FILE_BYTES + 1)
    except OSError as error:
        return _problem(name, "unreadable", error), b""
    finally:
        os.close(descriptor)
    too_large = len(content) > MAX_FILE_BYTES
    digest = new_hash()
    digest.update(content)
    front = front_of(content)
    entry = {
        "directory": name,
        "mtime_ns": str(status.st_mtime_ns),
        "size": max(status.st_size, len(content)),
        "sha256": None if too_large else digest.hexdigest(),
        "front": None if front is None else front.decode("utf-8", "surrogateescape"),
        "problem": "too_large" if too_large else None,
        "detail": "",
    }
    return entry, b"" if too_large else content


def _problem(name: str, problem: str, error: OSError | None = None) -> Params:
    return {
        "directory": name,
        "mtime_ns": "0",
        "size": 0,
        "sha256": None,
        "front": None,
        "problem": problem,
        "detail": error.strerror if error is not None else "",
    }


def _head(descriptor: int, size: int) -> bytes:
    parts = []
    while size:
        data = os.read(descriptor, min(size, CHUNK_BYTES))
        if not data:
            break
        parts.append(data)
        size -= len(data)
    return b"".join(parts)


def _files(stream: BlockingStream, skill: int) -> tuple[list[Params], bool]:
    files: list[Params] = []
    size = 0
    for path, kind, place, name in walk(stream, skill):
        if kind == "deep":
            return files, True
        if kind != FILE:
            continue
        try:
            status = os.stat(name, dir_fd=place, follow_symlinks=False)
        except FileNotFoundError:
            continue
        size += len(path)
        if len(files) >= _MAX_FILES or size > _MAX_PATHS_BYTES:
            return files, True
        files.append({"path": path, "size": status.st_size, "executable": bool(status.st_mode & 0o100)})
    return files, False


def _place(
    stream: BlockingStream,
    partition: int,
    source: tuple[int, str],
    entries: Entries,
    verdict: Params,
) -> Params:
    """Move the new directory to where the client wants it: a free name, or the place of the skill `present`."""
    directory = _directory_name(verdict, "directory")
    present = verdict.get("present")
    replace = read.boolean(verdict, "replace")
    if present is None:
        return {"outcome": "installed", "directory": _settle(stream, partition, source, directory)}
    present = _directory_name(verdict, "present")
    with _opened(partition, present) as skill:
        same = entries_of(stream, skill, len(entries)) == entries
    if same or not replace:
        return {"outcome": "same" if same else "taken", "directory": present}
    stream.check()
    exchange(*source, partition, present, "old")
    os.fsync(partition)
    return {"outcome": "replaced", "directory": present}


def _settle(stream: BlockingStream, partition: int, source: tuple[int, str], directory: str) -> str:
    taken = {name.lower() for name in os.listdir(partition)}
    stream.check()
    for number in range(1, 10_000):
        name = directory if number == 1 else f"{directory}-{number}"
        if name.lower() in taken:
            continue
        try:
            rename_exclusively(*source, partition, name)
        except FileExistsError:
            continue
        os.fsync(partition)
        return name
    raise Fault("RESOURCE_EXHAUSTED", "LIMIT_REACHED", f"too many directories are named {directory}-…")


def _wrapper(entries: Entries) -> str:
    """The one directory that an archive wraps its skill in, or nothing. Raises SKILL_INVALID without a SKILL.md."""
    tops = {path.partition("/")[0] for path in entries}
    top = next(iter(tops)) if len(tops) == 1 else ""
    for wrapper, path in (("", _FILE), (top, f"{top}/{_FILE}")):
        if entries.get(path, ("",))[0] in (FILE, "program"):
            return wrapper
    raise Fault(
        "INVALID_ARGUMENT",
        "SKILL_INVALID",
        "the archive has no file SKILL.md, neither at its top nor in the one directory there",
    )


def _directories(partition: int) -> Iterator[int]:
    for name in os.listdir(partition):
        if not name.startswith("."):
            try:
                skill = os.open(name, OPEN_DIRECTORY, dir_fd=partition)
            except OSError:
                continue  # no directory, or none that anybody could list
            try:
                yield skill
            finally:
                os.close(skill)


def _has_file(skill: int) -> bool:
    try:
        return stat.S_ISREG(os.stat(_FILE, dir_fd=skill, follow_symlinks=False).st_mode)
    except OSError:
        return False


def _is_there(partition: int, name: str, skill: int) -> bool:
    """Whether the name still stands for the open directory."""
    try:
        now = os.stat(name, dir_fd=partition, follow_symlinks=False)
    except FileNotFoundError:
        return False
    status = os.fstat(skill)
    return (now.st_dev, now.st_ino) == (status.st_dev, status.st_ino)


@contextmanager
def _skills(guest: Guest) -> Iterator[int]:
    """The directory of all partitions, made when it is not there, without what a killed guest left."""
    work = os.open(guest.workdir, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with suppress(FileExistsError):
            os.mkdir("skills", 0o755, dir_fd=work)
        with _opened(work, "skills") as skills:
            sweep(skills)
            yield skills
    finally:
        os.close(work)


@contextmanager
def _opened(parent: int, name: str) -> Iterator[int]:
    try:
        descriptor = os.open(name, OPEN_DIRECTORY, dir_fd=parent)
    except OSError as error:
        raise from_os_error(error, name) from error
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _partition_name(params: Params) -> str:
    return _directory_name(params, "partition")


def _directory_name(params: Params, field: str) -> str:
    name = read.text(params, field, limit=255)
    if not name or name.startswith(".") or "/" in name or len(os.fsencode(name)) > 255:
        raise invalid(f"{field} must be the name of a directory", field=field)
    return name


def _limits(params: Params) -> Limits:
    return Limits(read.integer(params, "max_bytes", low=1), read.integer(params, "max_members", low=1, high=1_000_000))


def _changed() -> Fault:
    return Fault("ABORTED", "TREE_CHANGED", "the skill was changed or removed meanwhile")


SKILL_OPS: dict[str, Handler] = {
    "skill.list": blocking(list_skills),
    "skill.read": blocking(read_skill),
    "skill.install": blocking(install_skill, messages=True),
    "skill.remove": blocking(remove_skill),
    "skill.seed": blocking(seed_skills, messages=True),
    "skill.purge": blocking(purge_skills),
}

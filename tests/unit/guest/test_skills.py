"""The `skill.` operations on a real guest under each interpreter, and step by step."""

from __future__ import annotations

import io
import os
import shutil
import tarfile
import threading
import zipfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support import skill_archives as archives
from tests.support.guest_client import GuestClient, GuestError, GuestStream, RunningGuest
from tests.support.scripted_stream import ScriptedGuest, ScriptedStream
from workspaced_guest import staging, wire
from workspaced_guest.fault import Fault
from workspaced_guest.skills import install_skill, list_skills, purge_skills, read_skill, remove_skill, seed_skills
from workspaced_guest.stream import StreamCancelled

LIMITS = {"max_bytes": 10_000_000, "max_members": 1000}
END = {"end": True}
FILES = {
    "SKILL.md": archives.skill_md(),
    "a/program": b"#!/bin/sh\n",
    "a/" + "n" * 120: b"long",
    "caf\u00e9": b"\0" * 70_000,
}
HERE: dict[str, Any] = {"directory": "pdf", "present": None, "replace": False}


def say(stream: GuestStream, message: dict[str, Any]) -> None:
    stream.client.send(wire.MESSAGE, stream.id, message)


def install(client: GuestClient, archive: bytes, verdict: dict[str, Any] = HERE, **params: Any) -> dict[str, Any]:
    stream = client.open("skill.install", {"partition": "default", **LIMITS, **params})
    for start in range(0, len(archive), 100_000):
        stream.send(archive[start : start + 100_000])
    say(stream, END)
    entry = stream.until("skill")["skill"]
    assert (entry["front"], entry["problem"]) == ("name: pdf\ndescription: What pdf is for.\n", None)
    say(stream, verdict)
    return stream.result()


def listed(client: GuestClient, partition: str = "default", **params: Any) -> list[dict[str, Any]]:
    stream = client.open("skill.list", {"partition": partition, **params})
    found: list[dict[str, Any]] = []
    while True:
        kind, payload = stream.frame()
        if kind == wire.RESULT:
            assert wire.decode_json(payload) == {"seed_missing": False, "truncated": False}
            return found
        found += wire.decode_json(payload)["skills"]


def test_every_operation(guest: RunningGuest, client: GuestClient) -> None:
    assert listed(client) == []
    packed = {
        "tar.gz": archives.tar(FILES, mode="w:gz"),
        "zip": archives.zip_of(FILES),
        "tar": archives.tar({f"wrapped/{path}": content for path, content in FILES.items()}),
        "windows": archives.windows_zip(FILES),
        "macos": archives.macos_zip(FILES, "pdf"),
    }
    client.call("skill.list", {"partition": "other"})
    for kind, archive in packed.items():
        assert install(client, archive)["outcome"] == "installed"
        (entry,) = listed(client)
        reading = client.open("skill.read", {"partition": "default", "directory": entry["directory"]})
        assert reading.message() == {"skill": entry}
        files = reading.message()["files"]
        assert [(file["path"], file["size"]) for file in files] == sorted((p, len(c)) for p, c in FILES.items())
        assert [file["executable"] for file in files] == [False, False, kind != "windows", False]
        assert reading.frame() == (wire.DATA, FILES["SKILL.md"])
        assert reading.result() == {"truncated": False}
        there = {**HERE, "present": "pdf"}
        if kind != "windows":
            assert install(client, packed["tar"], there) == {"outcome": "same", "directory": "pdf"}
        changed = archives.tar({**FILES, "new": b""})
        assert install(client, changed, there) == {"outcome": "taken", "directory": "pdf"}
        assert install(client, changed, {**there, "replace": True}) == {"outcome": "replaced", "directory": "pdf"}
        assert install(client, changed)["directory"] == "pdf-2"
        for directory in ("pdf", "pdf-2"):
            assert client.call("skill.remove", {"partition": "default", "directory": directory}) == {"removed": True}
        assert client.call("skill.remove", {"partition": "default", "directory": "pdf"}) == {"removed": False}
    with pytest.raises(GuestError) as caught:
        install(client, archives.hostile_skill(archives.tar_member("../evil", b"x")))
    assert (caught.value.reason, caught.value.metadata["member"]) == ("ARCHIVE_UNSAFE", "../evil")
    stream = client.open("skill.list", {"partition": "new", "seeded": True})
    assert stream.result()["seed_missing"]
    seeding = client.open("skill.seed", LIMITS)
    seeding.send(archives.tar({"one/SKILL.md": archives.skill_md("one"), "two/SKILL.md": archives.skill_md("two")}))
    say(seeding, END)
    assert seeding.result() == {"created": True}
    assert [entry["directory"] for entry in listed(client, "new", seeded=True)] == ["one", "two"]
    assert client.call("skill.purge", {"partition": "new"}) == {"removed": 2}
    assert client.call("skill.purge", {"partition": "new"}) == {"removed": 0}
    assert sorted(os.listdir(guest.workdir / "skills")) == [".seed", "default", "other"]


def test_a_guest_that_is_killed_leaves_nothing_for_long(guest: RunningGuest, client: GuestClient) -> None:
    listed(client)
    assert install(client, archives.tar(FILES))["outcome"] == "installed"
    stream = client.open("skill.install", {"partition": "default", **LIMITS})
    stream.send(archives.tar({**FILES, "more": b"x"})[:40_000])
    skills = guest.workdir / "skills"
    while not list(skills.glob(".staging-*/tree/SKILL.md")):
        client.call("guest.info")
    guest.kill()
    assert list(skills.glob(".staging-*/tree/SKILL.md"))
    guest.start()
    with guest.connect() as again:
        assert [entry["directory"] for entry in listed(again)] == ["pdf"]
    assert os.listdir(skills) == ["default"]


def test_messages_and_ends_out_of_order(client: GuestClient) -> None:
    for first in (HERE, None):
        stream = client.open("skill.install", {"partition": "default", **LIMITS})
        if first is None:
            stream.end()
        else:
            say(stream, first)
        with pytest.raises(GuestError) as caught:
            stream.result()
        assert caught.value.reason == "ARGUMENT_INVALID"
    stream = client.open("file.write", {"path": "x"})
    say(stream, END)
    with pytest.raises(GuestError) as caught:
        stream.result()
    assert caught.value.reason == "ARGUMENT_INVALID"


def script(archive: bytes, verdict: dict[str, Any] | None = HERE, **options: Any) -> ScriptedStream:
    pieces: list[bytes | dict[str, Any]] = [archive[at : at + 1000] for at in range(0, len(archive), 1000)]
    return ScriptedStream([*pieces, END, *([] if verdict is None else [verdict])], **options)


def do(stream: ScriptedStream, guest: ScriptedGuest, handler: Any, **params: Any) -> dict[str, Any]:
    return stream.run(handler, guest, **{"partition": "default", **params})


def tree(work: Path) -> list[str]:
    return sorted(str(path.relative_to(work)) for path in work.rglob("*"))


@pytest.mark.parametrize("kind", ["tar.gz", "zip"])
def test_cancelled_at_every_step_leaves_nothing(scripted_guest: ScriptedGuest, work: Path, kind: str) -> None:
    archive = archives.tar(FILES, mode="w:gz") if kind == "tar.gz" else archives.zip_of(FILES)
    do(ScriptedStream(), scripted_guest, list_skills)
    before = tree(work)
    whole = script(archive)
    assert do(whole, scripted_guest, install_skill, **LIMITS)["outcome"] == "installed"
    after = tree(work)
    do(ScriptedStream(), scripted_guest, remove_skill, directory="pdf")
    assert tree(work) == before
    for step in range(1, whole.steps + 1):
        with pytest.raises(StreamCancelled):
            do(script(archive, cancel_at=step), scripted_guest, install_skill, **LIMITS)
        assert tree(work) == before, step
    assert do(script(archive), scripted_guest, install_skill, **LIMITS)["outcome"] == "installed"
    assert tree(work) == after


def test_an_equipping_that_is_cancelled_leaves_nothing(scripted_guest: ScriptedGuest, work: Path) -> None:
    seed = archives.tar({"one/SKILL.md": archives.skill_md("one"), "one/x": b"x"})
    whole = script(seed, None)
    do(whole, scripted_guest, seed_skills, **LIMITS)
    (work / "skills" / ".seed" / ".index").write_text("{}")
    before = tree(work)
    equipping = ScriptedStream()
    do(equipping, scripted_guest, list_skills, seeded=True)
    do(ScriptedStream(), scripted_guest, purge_skills)
    for step in range(1, equipping.steps - 1):
        with pytest.raises(StreamCancelled):
            do(ScriptedStream(cancel_at=step), scripted_guest, list_skills, seeded=True)
        assert [path for path in tree(work) if "staging" in path] == []
    do(ScriptedStream(), scripted_guest, purge_skills)
    assert tree(work) == before
    # A second seed changes nothing, an empty one is none.
    assert do(script(seed, None), scripted_guest, seed_skills, **LIMITS) == {"created": False}
    do(ScriptedStream(), scripted_guest, purge_skills, partition=".seed"[1:])


def test_what_was_removed_does_not_come_back(scripted_guest: ScriptedGuest) -> None:
    seed = archives.tar({"one/SKILL.md": archives.skill_md("one")})
    (Path(scripted_guest.workdir) / "skills" / ".seed").mkdir(parents=True)
    assert do(ScriptedStream(), scripted_guest, list_skills, seeded=True)["seed_missing"]
    assert do(script(seed, None), scripted_guest, seed_skills, **LIMITS) == {"created": True}
    do(ScriptedStream(), scripted_guest, list_skills, seeded=True)
    assert do(ScriptedStream(), scripted_guest, remove_skill, directory="one") == {"removed": True}
    again = ScriptedStream()
    do(again, scripted_guest, list_skills, seeded=True)
    assert again.messages == []


def test_leftovers_are_removed_and_the_living_spared(scripted_guest: ScriptedGuest, work: Path) -> None:
    (work / "skills" / ".staging-left" / "tree").mkdir(parents=True)
    waiting, go = threading.Event(), threading.Event()

    def on_step(step: int) -> None:
        if step == 3:
            waiting.set()
            go.wait(20)

    slow = script(archives.tar(FILES), on_step=on_step)
    thread = threading.Thread(target=do, args=(slow, scripted_guest, install_skill), kwargs=LIMITS)
    do(ScriptedStream(), scripted_guest, list_skills)
    assert os.listdir(work / "skills") == ["default"]
    thread.start()
    assert waiting.wait(20)
    do(ScriptedStream(), scripted_guest, remove_skill, directory="nothing")
    assert [name[:9] for name in sorted(os.listdir(work / "skills"))] == [".staging-", "default"]
    go.set()
    thread.join(20)
    assert sorted(os.listdir(work / "skills")) == ["default"]
    assert os.listdir(work / "skills" / "default") == ["pdf"]


def test_two_steps_where_places_cannot_be_exchanged(
    scripted_guest: ScriptedGuest, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    do(ScriptedStream(), scripted_guest, list_skills)
    do(script(archives.tar(FILES)), scripted_guest, install_skill, **LIMITS)
    monkeypatch.setattr(staging, "SYSCALLS", {})
    verdict = {"directory": "x", "present": "pdf", "replace": True}
    changed = archives.tar({"SKILL.md": archives.skill_md(), "new": b"1"})
    assert do(script(changed, verdict), scripted_guest, install_skill, **LIMITS)["outcome"] == "replaced"
    assert tree(work) == [
        "skills",
        "skills/default",
        "skills/default/pdf",
        *(f"skills/default/pdf/{n}" for n in ("SKILL.md", "new")),
    ]


def test_a_reset_meanwhile(scripted_guest: ScriptedGuest, work: Path) -> None:
    do(ScriptedStream(), scripted_guest, list_skills)

    def on_step(step: int) -> None:
        if step > 5:
            shutil.rmtree(work / "skills", ignore_errors=True)

    with pytest.raises((Fault, OSError)) as caught:
        do(script(archives.tar(FILES), on_step=on_step), scripted_guest, install_skill, **LIMITS)
    assert not isinstance(caught.value, Fault) or caught.value.reason == "FILE_NOT_FOUND"


def test_a_full_disk(small_disk: Path, tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    guest = ScriptedGuest(str(small_disk), str(tmp_path / "state"))
    do(ScriptedStream(), guest, list_skills)
    for archive in (
        archives.tar({**FILES, "big": bytes(2 << 20)}),
        archives.zip_of({**FILES, "b": os.urandom(2 << 20)}),
    ):
        with pytest.raises(OSError, match="No space left"):
            do(script(archive), guest, install_skill, **LIMITS)
        assert tree(small_disk) == ["skills", "skills/default"]
    assert do(script(archives.tar(FILES)), guest, install_skill, **LIMITS)["outcome"] == "installed"


def test_links_are_not_followed(scripted_guest: ScriptedGuest, work: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    (outside / "s").mkdir(parents=True)
    (outside / "s" / "SKILL.md").write_bytes(archives.skill_md())
    work.joinpath("skills").symlink_to(outside)
    for handler, params in ((list_skills, {}), (purge_skills, {"partition": "s"}), (install_skill, LIMITS)):
        with pytest.raises(Fault) as caught:
            do(script(archives.tar(FILES)), scripted_guest, handler, **params)
        assert caught.value.reason == "NOT_A_DIRECTORY"
    work.joinpath("skills").unlink()
    work.joinpath("skills").mkdir()
    work.joinpath("skills", "link").symlink_to(outside)
    for handler, params in ((list_skills, {}), (read_skill, {"directory": "s"}), (remove_skill, {"directory": "s"})):
        with pytest.raises(Fault) as caught:
            do(ScriptedStream(), scripted_guest, handler, partition="link", **params)
        assert caught.value.reason == "NOT_A_DIRECTORY"
    # A purge removes the link itself.
    assert do(ScriptedStream(), scripted_guest, purge_skills, partition="link") == {"removed": 0}
    assert (outside / "s" / "SKILL.md").exists()
    for bad in ("", ".", "..", ".seed", "a/b", "a\0b", "x" * 256):
        with pytest.raises(Fault) as caught:
            do(ScriptedStream(), scripted_guest, list_skills, partition=bad)
        assert caught.value.reason == "ARGUMENT_INVALID"


def test_a_listing_is_bounded(scripted_guest: ScriptedGuest, work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from workspaced_guest import skills

    for number in range(5):
        directory = work / "skills" / "default" / f"s{number}"
        directory.mkdir(parents=True)
        (directory / "SKILL.md").write_bytes(b"---\nname: n\nx: " + b"\x01" * 30_000 + b"\n---\n")
    stream = ScriptedStream()
    assert do(stream, scripted_guest, list_skills) == {"seed_missing": False, "truncated": False}
    assert max(len(wire.encode_json(message)) for message in stream.messages) < wire.MAX_PAYLOAD
    monkeypatch.setattr(skills, "_MAX_DIRECTORIES", 3)
    stream = ScriptedStream()
    assert do(stream, scripted_guest, list_skills)["truncated"]
    assert sum(len(message["skills"]) for message in stream.messages) == 3


NAMES = st.one_of(
    st.text(min_size=1, max_size=30),
    st.lists(
        st.sampled_from(
            ["..", ".", "", "a", "A", "\u00e9", "e\u0301", "C:", "\\", "x" * 300, "SKILL.md", "..\\..", "\0"]
        ),
        min_size=1,
        max_size=6,
    ).map("/".join),
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    names=st.lists(NAMES, max_size=5), links=st.lists(NAMES, max_size=2), kind=st.sampled_from(["tar", "zip", "raw"])
)
def test_no_name_leads_out(
    scripted_guest: ScriptedGuest, work: Path, tmp_path: Path, names: list[str], links: list[str], kind: str
) -> None:
    archive = _packed(names, links, kind)
    (work / "skills" / "default").mkdir(parents=True, exist_ok=True)
    stream = script(archive, cancel_at=None)
    try:
        result = do(stream, scripted_guest, install_skill, **LIMITS)
    except Fault as fault:
        refused = fault.reason
    else:
        refused = "ARCHIVE_UNSAFE"
        top = work / "skills" / "default" / result["directory"]
        for path in top.rglob("*"):
            assert path.resolve().is_relative_to(top.resolve()), path
        do(ScriptedStream(), scripted_guest, remove_skill, directory=result["directory"])
    assert refused in ("ARCHIVE_UNSAFE", "ARCHIVE_INVALID", "SKILL_INVALID")
    assert tree(work) == ["skills", "skills/default"]
    assert sorted(os.listdir(tmp_path)) == ["state", "work"]


def _packed(names: list[str], links: list[str], kind: str) -> bytes:
    if kind == "zip":
        members = [archives.ZipMember(b"SKILL.md", archives.skill_md())]
        members += [archives.ZipMember(name.encode("utf-8", "replace"), b"x") for name in names]
        members += [
            archives.ZipMember(b"l%d" % n, link.encode("utf-8", "replace"), mode=0o120777)
            for n, link in enumerate(links)
        ]
        return archives.raw_zip(members)
    if kind == "raw":
        rows = [archives.tar_member(name[:40], b"x") for name in names]
        rows += [archives.tar_member(f"l{n}", kind=b"2", link=link[:40]) for n, link in enumerate(links)]
        return archives.hostile_skill(*rows)
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT, errors="surrogateescape") as archive:
        for name in ["SKILL.md", *names]:
            member = tarfile.TarInfo(name)
            content = archives.skill_md() if name == "SKILL.md" else b"x"
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
        for number, link in enumerate(links):
            member = tarfile.TarInfo(f"l{number}")
            member.type, member.linkname = tarfile.SYMTYPE, link
            archive.addfile(member)
    return buffer.getvalue()


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_damage_is_told_and_leaves_nothing(scripted_guest: ScriptedGuest, work: Path, data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(["tar", "tar.gz", "zip"]))
    small = {"SKILL.md": archives.skill_md(), "a/b": b"content" * 50}
    whole = archives.zip_of(small) if kind == "zip" else archives.tar(small, mode="w:gz" if kind == "tar.gz" else "w")
    archive = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 4))):
        archive[data.draw(st.integers(0, len(archive) - 1))] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        del archive[data.draw(st.integers(0, len(archive))) :]
    (work / "skills" / "default").mkdir(parents=True, exist_ok=True)
    try:
        result = do(script(bytes(archive)), scripted_guest, install_skill, **LIMITS)
    except Fault as fault:
        refused = fault.reason
    else:
        refused = "ARCHIVE_UNSAFE"
        do(ScriptedStream(), scripted_guest, remove_skill, directory=result["directory"])
    assert refused in ("ARCHIVE_UNSAFE", "ARCHIVE_INVALID", "SKILL_INVALID", "ARCHIVE_TOO_LARGE")
    assert tree(work) == ["skills", "skills/default"]


def test_zips_of_every_kind(scripted_guest: ScriptedGuest, work: Path) -> None:
    do(ScriptedStream(), scripted_guest, list_skills)
    plain = archives.ZipMember(b"SKILL.md", archives.skill_md())
    streamed = io.BytesIO()
    pipe: Any = _Unseekable(streamed)
    with zipfile.ZipFile(pipe, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("SKILL.md", archives.skill_md())
        with archive.open("big", "w", force_zip64=True) as file:
            file.write(b"x" * 1000)
    cases = {
        "cp437": archives.raw_zip([plain, archives.ZipMember(b"caf\x82", b"x")]),
        "comment": archives.raw_zip([plain, archives.ZipMember("caf\u00e9".encode(), b"x")], comment=b"PK\x05\x06 no"),
        "prefix": b"PK\x03\x04 made to extract itself" + archives.raw_zip([plain]),
        "zip64": streamed.getvalue(),
    }
    expected = {"cp437": ["SKILL.md", "caf\u00e9"], "prefix": ["SKILL.md"], "zip64": ["SKILL.md", "big"]}
    for kind, data in cases.items():
        do(script(data), scripted_guest, install_skill, **LIMITS)
        assert sorted(os.listdir(work / "skills/default/pdf")) == expected.get(kind, ["SKILL.md", "caf\u00e9"]), kind
        do(ScriptedStream(), scripted_guest, remove_skill, directory="pdf")


class _Unseekable:
    """A pipe, say: zipfile writes sizes behind the content then."""

    def __init__(self, file: io.BytesIO) -> None:
        self._file = file

    def write(self, data: bytes) -> int:
        return self._file.write(data)

    def flush(self) -> None:
        self._file.flush()

"""Skills on every backend: rules, edits of the agent itself, partitions, seeds, instructions."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest

import workspaced
from tests.conformance.conftest import Make
from tests.conformance.skill_cases import FILES, refusal, run, staging_is_gone
from tests.support import skill_archives as archives
from tests.support.server import ServerProcess
from tests.support.skill_client import SkillClient
from workspaced.v1 import skill_pb2

pytestmark = pytest.mark.anyio

OUT = b"/../../../../etc"


async def test_what_was_announced_is_checked(skills: SkillClient) -> None:
    with pytest.raises(workspaced.WorkspacedError) as caught:
        await skills.add(archives.tar(FILES), sha256="0" * 64)
    assert caught.value.reason == "HASH_MISMATCH"
    assert caught.value.code == "DATA_LOSS"
    with pytest.raises(workspaced.WorkspacedError) as caught:
        await skills.add(archives.tar(FILES), archive_format=skill_pb2.SKILL_ARCHIVE_FORMAT_ZIP)
    assert caught.value.reason == "ARCHIVE_INVALID"
    assert await skills.names() == []


FRONTS: dict[str, tuple[bytes, str]] = {
    "bom": (b"\xef\xbb\xbf" + archives.skill_md("n"), "n"),
    "crlf": (archives.skill_md("n").replace(b"\n", b"\r\n"), "n"),
    "bom-crlf": (b"\xef\xbb\xbf" + archives.skill_md("n").replace(b"\n", b"\r\n"), "n"),
    "blank-lines-first": (b"\n\n" + archives.skill_md("n"), "n"),
    "quoted": (b"---\nname: 'a: b (1)'\ndescription: \"d\"\n---\n", "a: b (1)"),
    "not-ascii": ("---\nname: 文件\ndescription: é\n---\n".encode(), "文件"),
    "folded": (b"---\nname: n\ndescription: >\n  one\n  two\n---\n", "n"),
    "no-end-of-line": (b"---\nname: n\ndescription: d\n---", "n"),
    "missing": (b"# Title\n", "SKILL_INVALID"),
    "unclosed": (b"---\nname: n\ndescription: d\n", "SKILL_INVALID"),
    "empty": (b"---\n---\n", "SKILL_INVALID"),
    "no-name": (b"---\ndescription: d\n---\n", "SKILL_INVALID"),
    "no-description": (b"---\nname: n\n---\n", "SKILL_INVALID"),
    "number-as-name": (b"---\nname: 12\ndescription: d\n---\n", "SKILL_INVALID"),
    "list-as-description": (b"---\nname: n\ndescription: [d]\n---\n", "SKILL_INVALID"),
    "no-mapping": (b"---\n- name\n---\n", "SKILL_INVALID"),
    "no-yaml": (b"---\nname: [\n---\n", "SKILL_INVALID"),
    "empty-name": (b"---\nname: ''\ndescription: d\n---\n", "SKILL_INVALID"),
    "long-name": (b"---\nname: " + b"n" * 65 + b"\ndescription: d\n---\n", "SKILL_INVALID"),
    "control": (b'---\nname: "a\\tb"\ndescription: d\n---\n', "SKILL_INVALID"),
    "long-description": (b"---\nname: n\ndescription: " + b"d" * 1025 + b"\n---\n", "SKILL_INVALID"),
    "latin1": (b"---\nname: caf\xe9\ndescription: d\n---\n", "SKILL_INVALID"),
    "aliases": (b"---\nname: n\ndescription: d\na: &a [x,x]\nb: [*a,*a]\n---\n", "SKILL_INVALID"),
    "object": (b"---\nname: !!python/object/apply:os.system [id]\ndescription: d\n---\n", "SKILL_INVALID"),
    "deep": (b"---\nname: n\ndescription: d\na: " + b"[" * 5000 + b"\n---\n", "SKILL_INVALID"),
    "large-front": (b"---\nname: n\ndescription: d\na: " + b"x" * 40_000 + b"\n---\n", "SKILL_INVALID"),
    "large-file": (archives.skill_md("n") + b"x" * (5 << 20), "SKILL_INVALID"),
}


async def test_front_matter_has_one_rule(ws: workspaced.Workspace, skills: SkillClient) -> None:
    for kind, (content, expected) in FRONTS.items():
        mine = skills.of(kind)
        if expected != "SKILL_INVALID":
            assert (await mine.add(archives.tar({"SKILL.md": content}))).skill.name == expected, kind
            assert (await mine.get(expected)).markdown.encode() == content, kind
            continue
        error = await refusal(mine.add(archives.tar({"SKILL.md": content})))
        assert error.reason == "SKILL_INVALID", (kind, error.message)
        # Written by the agent itself it is no skill either, and seen as the problem that it is.
        await ws.files.write(f"skills/{kind}/mine/SKILL.md", content, parents=True)
        problem = "SKILL_UNREADABLE" if kind == "large-file" else "SKILL_FRONT_MATTER_INVALID"
        assert await mine.problems() == {"mine": problem}, kind
        assert not (await mine.page()).skills, kind


async def test_names_replacing_and_removing(ws: workspaced.Workspace, skills: SkillClient) -> None:
    first = await skills.add(archives.tar({"SKILL.md": archives.skill_md("PDF files!"), "a": b"1"}))
    assert first.skill.path.endswith("/skills/default/PDF-files")
    again = await skills.add(archives.tar({"x/SKILL.md": archives.skill_md("PDF files!"), "x/a": b"1"}))
    assert (again.existing, again.replaced, again.skill) == (True, False, first.skill)
    other = archives.tar({"SKILL.md": archives.skill_md("PDF files!"), "a": b"2"})
    with pytest.raises(workspaced.WorkspacedError) as caught:
        await skills.add(other)
    assert (caught.value.code, caught.value.reason) == ("ALREADY_EXISTS", "SKILL_EXISTS")
    replaced = await skills.add(other, replace=True)
    assert (replaced.existing, replaced.replaced, replaced.skill.path) == (False, True, first.skill.path)
    assert await run(ws, "cat skills/default/PDF-files/a") == "2"
    # A name that differs only in case is the same name.
    lower = archives.tar({"SKILL.md": archives.skill_md("pdf FILES!")})
    with pytest.raises(workspaced.WorkspacedError) as caught:
        await skills.add(lower)
    assert caught.value.metadata["name"] == "PDF files!"
    # Another name whose directory would be the same gets another directory.
    await skills.add(archives.tar({"SKILL.md": archives.skill_md("pdf?files")}))
    assert await skills.names() == ["PDF files!", "pdf?files"]
    assert (await skills.get("pdf?files")).skill.path.endswith("/skills/default/pdf-files-2")
    with pytest.raises(workspaced.WorkspacedError) as caught:
        await skills.remove("pdf FILES!")
    assert caught.value.reason == "SKILL_NOT_FOUND"
    assert not await skills.remove("pdf FILES!", allow_missing=True)
    assert await skills.remove("PDF files!")
    assert await skills.names() == ["pdf?files"]
    with pytest.raises(workspaced.WorkspacedError) as caught:
        await skills.get("PDF files!")
    assert caught.value.reason == "SKILL_NOT_FOUND"
    await staging_is_gone(ws)


async def test_what_the_agent_edits_is_seen_at_once(ws: workspaced.Workspace, skills: SkillClient) -> None:
    await skills.add(archives.tar({"SKILL.md": archives.skill_md("one")}))
    await run(ws, "sed -i 's/name: one/name: two/' skills/default/one/SKILL.md")
    assert await skills.names() == ["two"]
    await run(
        ws,
        "mkdir skills/default/hand; cd skills/default/hand; "
        "printf -- '---\\nname: hand\\ndescription: d\\n---\\n' > SKILL.md",
    )
    assert await skills.names() == ["hand", "two"]
    await run(ws, "cp -r skills/default/hand skills/default/zcopy; mkdir skills/default/bare skills/default/.hidden")
    await run(ws, "touch skills/default/.index skills/default/a-file; ln -s /etc skills/default/link")
    await run(ws, "ln -s ../hand skills/default/hand/inside; mkfifo skills/default/bare2 2>/dev/null; true")
    await run(ws, "mkdir skills/default/odd; ln -s ../hand/SKILL.md skills/default/odd/SKILL.md")
    await run(ws, "mkdir skills/default/pipe; mkfifo skills/default/pipe/SKILL.md")
    assert await skills.problems() == {
        "bare": "SKILL_MD_MISSING",
        "link": "SKILL_UNREADABLE",
        "odd": "SKILL_UNREADABLE",
        "pipe": "SKILL_UNREADABLE",
        "zcopy": "SKILL_NAME_DUPLICATE",
    }
    assert [skill.name for skill in (await skills.page()).skills] == ["hand", "two"]
    await run(ws, "rm -r skills/default/hand")
    assert [skill.name for skill in (await skills.page()).skills] == ["hand", "two"], "the copy takes its place"


async def test_a_skill_that_grew_too_large(ws: workspaced.Workspace, skills: SkillClient) -> None:
    await skills.add(archives.tar({"SKILL.md": archives.skill_md("one")}))
    await run(ws, "head -c 5000000 /dev/zero >> skills/default/one/SKILL.md")
    assert await skills.problems() == {"one": "SKILL_UNREADABLE"}
    with pytest.raises(workspaced.WorkspacedError) as caught:
        await skills.get("one")
    assert (caught.value.code, caught.value.reason) == ("FAILED_PRECONDITION", "SKILL_INVALID")
    with pytest.raises(workspaced.WorkspacedError) as caught:
        await skills.add(archives.tar({"SKILL.md": archives.skill_md("one")}))
    assert caught.value.reason == "SKILL_EXISTS"
    assert (await skills.add(archives.tar({"SKILL.md": archives.skill_md("one")}), replace=True)).replaced
    await run(ws, "printf '\\377' >> skills/default/one/SKILL.md")
    with pytest.raises(workspaced.WorkspacedError) as caught:
        await skills.get("one")
    assert caught.value.reason == "SKILL_INVALID"
    assert await skills.remove("one")


async def test_metadata_and_times(skills: SkillClient) -> None:
    text = (
        "---\nname: n\ndescription: d\nlicense: MIT\nversion: 1.5\ndate: 2024-02-30\ntags: [a, 2, true, null]\n"
        "nested: {k: {v: 1}}\nbig: 123456789012345678901234567890\n---\n"
    )
    skill = (await skills.add(archives.tar({"SKILL.md": text.encode()}))).skill
    found = dict(skill.metadata.items())
    assert (found["license"], found["version"], found["date"]) == ("MIT", 1.5, "2024-02-30")
    assert list(skill.metadata.get_or_create_list("tags")) == ["a", 2, True, None]
    assert found["big"] == "123456789012345678901234567890"
    assert skill.sha256 == hashlib.sha256(text.encode()).hexdigest()
    assert abs(skill.update_time.seconds - time.time()) < 600


async def test_agents_have_partitions_of_their_own(ws: workspaced.Workspace, skills: SkillClient) -> None:
    await skills.add(archives.tar({"SKILL.md": archives.skill_md("of nobody")}))
    one, default = skills.of("one"), skills.of("default")
    await one.add(archives.tar({"SKILL.md": archives.skill_md("of one")}))
    assert await default.names() == []
    await default.add(archives.tar({"SKILL.md": archives.skill_md("of default")}))
    assert (await skills.names(), await one.names(), await default.names()) == (
        ["of nobody"], ["of one"], ["of default"],
    )  # fmt: skip
    assert sorted((await run(ws, "ls skills")).split()) == ["%64efault", "default", "one"]
    for bad in ("", "../one", ".seed", "a/b"):
        with pytest.raises(workspaced.WorkspacedError) as caught:
            await skills.of(bad).page()
        assert caught.value.reason == "ARGUMENT_INVALID"
    # A partition that is a link leads nowhere.
    await run(ws, "ln -s /etc skills/two; ln -s one skills/three")
    for agent in ("two", "three"):
        with pytest.raises(workspaced.WorkspacedError) as caught:
            await skills.of(agent).add(archives.tar({"SKILL.md": archives.skill_md("x")}))
        assert caught.value.reason == "NOT_A_DIRECTORY"
    assert await one.names() == ["of one"]


async def test_pages(skills: SkillClient) -> None:
    for name in ("b", "a", "c"):
        await skills.add(archives.tar({"SKILL.md": archives.skill_md(name)}))
    first = await skills.page(page_size=2)
    assert [skill.name for skill in first.skills] == ["a", "b"]
    second = await skills.page(page_size=2, page_token=first.next_page_token)
    assert ([skill.name for skill in second.skills], second.next_page_token) == (["c"], "")
    with pytest.raises(workspaced.WorkspacedError) as caught:
        await skills.page(page_token="?")
    assert caught.value.reason == "ARGUMENT_INVALID"


async def test_many_adds_at_once(skills: SkillClient) -> None:
    same = archives.tar({"SKILL.md": archives.skill_md("same")})
    results = await asyncio.gather(
        *(skills.add(same) for _ in range(5)),
        *(skills.add(archives.tar({"SKILL.md": archives.skill_md(f"s{number}")})) for number in range(10)),
    )
    assert sum(not result.existing for result in results[:5]) == 1
    assert await skills.names() == sorted(["same", *(f"s{number}" for number in range(10))])


async def test_cancelled_anywhere_leaves_nothing(ws: workspaced.Workspace, skills: SkillClient) -> None:
    await skills.add(archives.tar({"SKILL.md": archives.skill_md("kept")}))
    archive = archives.tar({"SKILL.md": archives.skill_md("new"), **{f"f{n}": bytes(20_000) for n in range(100)}})
    began = time.monotonic()
    assert not (await skills.add(archive, chunk=16_384)).existing
    whole = time.monotonic() - began
    await skills.remove("new")
    for part in range(20):
        adding = asyncio.ensure_future(skills.add(archive, chunk=16_384))
        await asyncio.wait([adding], timeout=whole * part / 20)
        if not adding.cancel():
            await skills.remove("new")
            continue
        await asyncio.wait([adding])
        await staging_is_gone(ws)
        # It came too late, or not at all; in between there is nothing.
        names = await skills.names()
        assert names in (["kept"], ["kept", "new"])
        if "new" in names:
            assert len((await skills.get("new")).files) == 101
            await skills.remove("new")
    await staging_is_gone(ws)


async def test_a_reader_sees_the_old_or_the_new(skills: SkillClient) -> None:
    versions = [
        archives.tar({"SKILL.md": archives.skill_md("s") + str(n).encode(), **{f"{n}/{i}": b"" for i in range(60)}})
        for n in (1, 2)
    ]
    await skills.add(versions[0])
    done = asyncio.Event()

    async def read() -> int:
        count = 0
        while not done.is_set():
            found = await skills.get("s")
            version = found.markdown[-1]
            assert [file.path.partition("/")[0] for file in found.files] == [version] * 60 + ["SKILL.md"]
            assert await skills.names() == ["s"]
            count += 1
        return count

    reading = asyncio.ensure_future(read())
    for number in range(10):
        assert (await skills.add(versions[(number + 1) % 2], replace=True)).replaced
    done.set()
    assert await reading


async def test_reset_forgets_skills(ws: workspaced.Workspace, skills: SkillClient) -> None:
    await skills.add(archives.tar({"SKILL.md": archives.skill_md("one")}))
    await ws.files.write("project.txt", b"kept")
    await ws.reset()
    assert await skills.names() == []
    assert await ws.files.read("project.txt") == b"kept"


async def test_reset_while_agents_are_at_work(ws: workspaced.Workspace, skills: SkillClient) -> None:
    done = asyncio.Event()
    archive = archives.tar({"SKILL.md": archives.skill_md("one"), **{f"f{n}": b"x" for n in range(20)}})

    async def work(agent: SkillClient) -> set[str]:
        seen = set()
        while not done.is_set():
            for call in (agent.page, lambda: agent.add(archive), lambda: agent.remove("one", allow_missing=True)):
                try:
                    await call()
                except workspaced.WorkspacedError as error:
                    seen.add(error.reason)
        return seen

    agents = [asyncio.ensure_future(work(skills.of(f"a{n}"))) for n in range(4)]
    for _ in range(10):
        await ws.reset()
    done.set()
    assert set().union(*await asyncio.gather(*agents)) <= {"TREE_CHANGED"}
    await ws.reset()
    assert await skills.of("a0").names() == []
    await staging_is_gone(ws)


async def test_what_a_killed_guest_left_is_removed(ws: workspaced.Workspace, skills: SkillClient) -> None:
    await run(ws, "mkdir -p skills/.staging-0123456789abcdef/tree && touch skills/.staging-0123456789abcdef/tree/x")
    await run(ws, "mkdir -p .skill-staging-x skills/.seed skills/default")
    assert await skills.names() == []
    await skills.add(archives.tar({"SKILL.md": archives.skill_md("one")}))
    assert sorted((await run(ws, "ls -A skills")).split()) == [".seed", "default"]


async def test_two_hundred_skills_in_one_round_trip(ws: workspaced.Workspace, skills: SkillClient) -> None:
    await run(
        ws,
        "mkdir -p skills/default; for n in $(seq 200); do mkdir skills/default/s$n; printf -- "
        "'---\\nname: s%s\\ndescription: |\\n  What it is for, in some words.\\nlicense: MIT\\n---\\n# Title\\n' $n "
        "> skills/default/s$n/SKILL.md; done",
    )
    assert len(await skills.names()) == 200
    took = []
    for _ in range(5):
        began = time.perf_counter()
        await skills.page(page_size=1000)
        took.append(time.perf_counter() - began)
    print(f"200 skills: {min(took) * 1000:.1f} ms, median {sorted(took)[2] * 1000:.1f} ms")
    # The bound of 50 ms is the benchmark's; here a machine may be busy.
    assert min(took) < 1


@pytest.fixture
async def seeded(backend: object, tmp_path: Path) -> AsyncIterator[tuple[workspaced.Client, Path, grpc.aio.Channel]]:
    """A server that has seed skills."""
    root = tmp_path / "seeds"
    for name in ("alpha", "beta"):
        (root / name / "sub").mkdir(parents=True)
        (root / name / "SKILL.md").write_bytes(archives.skill_md(name))
        (root / name / "sub" / "run").write_bytes(b"#!/bin/sh\n")
        (root / name / "sub" / "run").chmod(0o755)
    running = ServerProcess(tmp_path / "state", config=f'seed_skill_roots = ["{root}"]\n')
    running.start()
    try:
        async with (
            workspaced.connect(running.address) as client,
            grpc.aio.insecure_channel(running.address) as channel,
        ):
            yield client, root, channel
    finally:
        assert running.stop() == 0


async def test_seed_skills(
    seeded: tuple[workspaced.Client, Path, grpc.aio.Channel], backend: object, make: Make
) -> None:
    client, root, channel = seeded
    arguments = backend.arguments  # type: ignore[attr-defined]
    ws = await client.initialize(**arguments, seed_skills=[str(root / "alpha"), str(root / "beta")])
    try:
        one, two = SkillClient(channel, ws.id, "one"), SkillClient(channel, ws.id, "two")
        both = await asyncio.gather(*(one.names() for _ in range(5)), *(two.names() for _ in range(5)))
        assert both == [["alpha", "beta"]] * 10
        assert [file.executable for file in (await one.get("alpha")).files] == [False, True]
        # What one changes and removes is its own, and does not come back.
        await one.remove("alpha")
        await run(ws, "sed -i 's/What beta/Mine, what beta/' skills/one/beta/SKILL.md")
        assert await one.names() == ["beta"]
        assert await two.names() == ["alpha", "beta"]
        assert "Mine" not in (await two.get("beta")).markdown
        await one.remove("beta")
        assert await one.names() == []
        assert sorted((await run(ws, "ls -A skills")).split()) == [".seed", "one", "two"]
        await ws.reset()
        assert await one.names() == ["alpha", "beta"]
        # An add is the first that a third agent does.
        three = SkillClient(channel, ws.id, "three")
        await three.add(archives.tar({"SKILL.md": archives.skill_md("own")}))
        assert await three.names() == ["alpha", "beta", "own"]
    finally:
        await ws.delete()
    (root / "bad").mkdir()
    (root / "bad" / "SKILL.md").write_text("no front matter")
    (root / "alpha2").mkdir()
    (root / "alpha2" / "SKILL.md").write_bytes(archives.skill_md("ALPHA"))
    for paths, field in (
        (["/etc"], "spec.seed_skills[0]"),
        ([f"{root}/alpha/../../state"], "spec.seed_skills[0]"),
        (["alpha"], "spec.seed_skills[0]"),
        ([f"{root}/alpha", f"{root}/missing"], "spec.seed_skills[1]"),
        ([f"{root}/bad"], "spec.seed_skills[0]"),
        ([f"{root}/alpha", f"{root}/alpha2"], "spec.seed_skills[1]"),
        ([f"{root}/alpha", f"{root}/alpha"], "spec.seed_skills[1]"),
    ):
        with pytest.raises(workspaced.WorkspacedError) as caught:
            await client.initialize(**arguments, workspace_id="never", seed_skills=paths)
        assert caught.value.reason == "ARGUMENT_INVALID"
        assert field in str(caught.value)
    with pytest.raises(workspaced.WorkspaceNotFound):
        await client.workspace("never").info()


async def test_instructions(ws: workspaced.Workspace, skills: SkillClient, make: Make) -> None:
    workdir = (await ws.info()).workdir
    assert "You have no skills yet" in await skills.instructions()
    await skills.add(archives.tar({"SKILL.md": archives.skill_md("pdf")}))
    text = await skills.instructions("s1")
    assert f"the directory `{workdir}`" in text
    assert f"- **pdf** (`{workdir}/skills/default/pdf/SKILL.md`): What pdf is for." in text
    assert f"`{workdir}/sessions/s1`" in text
    assert "{{" not in text
    own = await make(instructions="In {{ workdir }}: {json} {{{{x}}\n{{skills}}")
    other = SkillClient(skills.channel, own.id)
    await other.add(archives.tar({"SKILL.md": b"---\nname: n\ndescription: '{{workdir}}'\n---\n"}))
    found = await other.instructions()
    assert found.startswith(f"In {(await own.info()).workdir}: {{json}} {{{{x}}}}\n## Skills")
    assert found.endswith("): {{workdir}}")
    broken = await make(instructions="{{nope}}")
    with pytest.raises(workspaced.WorkspacedError) as caught:
        await SkillClient(skills.channel, broken.id).instructions()
    assert (caught.value.code, caught.value.reason) == (
        "FAILED_PRECONDITION", "INSTRUCTIONS_TEMPLATE_INVALID",
    )  # fmt: skip
    assert caught.value.metadata["placeholder"] == "nope"

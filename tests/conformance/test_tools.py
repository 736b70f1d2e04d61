"""Tools: the same texts and the same care for files on every backend."""

from __future__ import annotations

import time

import anyio
import pytest

import workspaced
from workspaced.tools import ToolProcess, ToolResult, ToolText

pytestmark = pytest.mark.anyio


async def say(ws: workspaced.Workspace, name: str, **given: object) -> str:
    """The text of a call; an error begins with `!`."""
    result = await ws.tools.call(name, given)
    return ("!" if result.is_error else "") + result.text


async def test_the_tools_are_listed(ws: workspaced.Workspace) -> None:
    tools = await ws.tools.list()
    assert [tool.name for tool in tools] == ["Bash", "Read", "Write", "Edit", "Glob", "Grep", "Skill"]
    assert {tool.name for tool in tools if tool.read_only} == {"Read", "Glob", "Grep", "Skill"}
    assert all(tool.input_schema["type"] == "object" for tool in tools)


async def test_the_texts_are_these(ws: workspaced.Workspace) -> None:
    assert await say(ws, "Bash", command="echo out; echo err >&2; echo out") == "out\nerr\nout\n[exit code 0]"
    assert await say(ws, "Bash", command="[[ x == x ]] && exit 3") == "![exit code 3]"
    assert await say(ws, "Write", file_path="src/a.py", content="one\ntwo\n") == "Created src/a.py: 2 lines, 8 bytes."
    assert await say(ws, "Read", file_path="src/a.py") == "     1\tone\n     2\ttwo"
    assert await say(ws, "Edit", file_path="src/a.py", old_string="two", new_string="2") == (
        "Edited src/a.py: 1 replacement, in line 2."
    )
    assert await say(ws, "Glob", pattern="**/*.{py,md}") == "src/a.py"
    assert await say(ws, "Grep", pattern="^2$", output_mode="content") == "src/a.py:2:2"
    assert await say(ws, "Read", file_path="none") == (
        "!none does not exist. A relative path starts at the workspace's directory; Glob finds files."
    )
    assert await say(ws, "Skill", skill="none") == "!There is no skill 'none'. There are: none."
    assert await say(ws, "Read", path="x") == (
        "!The input does not fit Read, which was not run. Correct this and call again:\n"
        "- file_path: is required\n"
        "- path: is not known; known are file_path, offset, limit"
    )
    with pytest.raises(workspaced.ToolNotFound):
        await ws.tools.call("Nope")


async def test_paths_start_at_the_workspace(ws: workspaced.Workspace) -> None:
    workdir = (await ws.info()).workdir
    await say(ws, "Write", file_path=f"{workdir}/d/f", content="x")
    assert (await ws.files.read("d/f")) == b"x"
    assert await say(ws, "Read", file_path="d/../d/f") == "     1\tx"
    assert await say(ws, "Glob", pattern=f"{workdir}/d/*") == "d/f"
    assert (await say(ws, "Bash", command="pwd")).splitlines()[0] == workdir
    assert (await say(ws, "Read", file_path="/etc/passwd")).startswith("     1\troot:")


async def test_a_crlf_file_changes_one_line_only(ws: workspaced.Workspace) -> None:
    content = b"".join(b"line %d\r\n" % number for number in range(100))
    await ws.files.write("f", content)
    await say(ws, "Read", file_path="f")
    edited = await say(ws, "Edit", file_path="f", old_string="line 49\nline 50\n", new_string="line 49\nfifty\n")
    assert edited == "Edited f: 1 replacement, in line 50."
    assert await ws.files.read("f") == content.replace(b"line 50\r\n", b"fifty\r\n")


async def test_bytes_that_are_no_utf8_survive_an_edit_elsewhere(ws: workspaced.Workspace) -> None:
    await ws.files.write("f", b"\xef\xbb\xbfcaf\xe9 \xff\xfe\nplain\n")
    assert await say(ws, "Read", file_path="f") == "     1\tcaf\ufffd \ufffd\ufffd\n     2\tplain"
    await say(ws, "Edit", file_path="f", old_string="plain", new_string="einfach")
    assert await ws.files.read("f") == b"\xef\xbb\xbfcaf\xe9 \xff\xfe\neinfach\n"


async def test_a_stale_edit_is_refused_by_content(ws: workspaced.Workspace) -> None:
    await ws.files.write("f", b"value = 1\n")
    for session in ("a", "b"):
        await ws.tools.call("Read", {"file_path": "f"}, session_id=session)
    change = {"file_path": "f", "old_string": "value = 1", "new_string": "value = 2"}
    results = {}

    async def edit(session: str) -> None:
        results[session] = await ws.tools.call("Edit", change, session_id=session)

    async with anyio.create_task_group() as group:
        group.start_soon(edit, "a")
        group.start_soon(edit, "b")
    assert sorted(result.is_error for result in results.values()) == [False, True]
    [refused] = [result.text for result in results.values() if result.is_error]
    assert refused == (
        "f: the file is not what it was when you last read it: somebody has changed it. Read it again, then edit."
        " Nothing was changed."
    )
    # The same size and the same time of change: only the content tells.
    await ws.run("touch -r f stamp; printf 'value = 3\\n' > f; touch -r stamp f")
    [winner] = [session for session, result in results.items() if not result.is_error]
    again = {"file_path": "f", "old_string": "value = 3", "new_string": "value = 4"}
    assert (await ws.tools.call("Edit", again, session_id=winner)).is_error
    await ws.tools.call("Read", {"file_path": "f"}, session_id=winner)
    assert not (await ws.tools.call("Edit", again, session_id=winner)).is_error
    assert await ws.files.read("f") == b"value = 4\n"


async def test_a_log_of_5_gib(ws: workspaced.Workspace) -> None:
    made = await ws.run(
        "printf 'first\\nsecond\\n' > huge.log && truncate -s 5G huge.log"
        " && printf '\\nlast but one\\nlast\\n' >> huge.log"
    )
    assert made.exit_code == 0
    started = time.monotonic()
    assert await say(ws, "Read", file_path="huge.log", limit=2) == (
        "     1\tfirst\n     2\tsecond\n[lines 1 to 2; go on with offset 3]"
    )
    assert await say(ws, "Read", file_path="huge.log", offset=-2) == "    -2\tlast but one\n    -1\tlast"
    assert await say(ws, "Read", file_path="huge.log", offset=4) == "     4\tlast but one\n     5\tlast"
    assert await say(ws, "Grep", pattern="^last$", path="huge.log", output_mode="content") == "huge.log:5:last"
    assert await say(ws, "Edit", file_path="huge.log", old_string="first", new_string="1") == (
        "!huge.log: this is too large for Edit. Use Bash, for example with sed. Nothing was changed."
    )
    assert time.monotonic() - started < 30


async def test_output_streams_while_it_is_made(ws: workspaced.Workspace) -> None:
    seen = ""
    command = "printf '\\303'; sleep 0.2; printf '\\274\\n'; mkfifo gate; cat gate; echo end"
    process_id = ""
    async with ws.tools.stream("Bash", {"command": command}, call_id="c1") as events:
        async for event in events:
            if isinstance(event, ToolProcess):
                process_id = event.process_id
                assert event.call_id == "c1"
            elif isinstance(event, ToolText):
                seen += event.delta
                if seen == "ü\n":
                    assert process_id in [info.process_id for info in await ws.processes()]
                    await ws.run("while [ ! -p gate ]; do sleep 0.05; done; echo through > gate")
            elif isinstance(event, ToolResult):
                assert event.text == "ü\nthrough\nend\n[exit code 0]"
    assert seen == "ü\nthrough\nend\n"


async def test_a_call_is_watched_and_killed_as_a_process(ws: workspaced.Workspace) -> None:
    async with ws.tools.stream("Bash", {"command": "echo here; sleep 100"}) as events:
        async for event in events:
            if isinstance(event, ToolText):
                [info] = await ws.processes()
                process = await ws.attach(info.process_id)
                assert (await anext(aiter(process))).data == b"here\n"
                await process.signal("KILL")
            elif isinstance(event, ToolResult):
                assert (event.text, event.is_error) == ("here\n[killed by KILL]", True)


async def test_cancellation_and_time(ws: workspaced.Workspace) -> None:
    # Leaving the stream cancels the call.
    async with ws.tools.stream("Bash", {"command": "echo on; sleep 1000"}) as events:
        async for event in events:
            if isinstance(event, ToolText):
                break
    with anyio.fail_after(30):
        while await ws.processes(state="running"):
            await anyio.sleep(0.1)
    result = await ws.tools.call("Bash", {"command": "echo on; sleep 1000"}, timeout=0.5)
    assert (result.text, result.state) == ("on\n[stopped after 0.5 s: the time was up]", "interrupted")
    # As long as the caller's time allows, with output all along.
    async with ws.tools.stream("Bash", {"command": "for i in 1 2 3 4 5 6; do echo $i; sleep 1; done"}) as events:
        ticks = [time.monotonic() async for event in events if isinstance(event, ToolText)]
    assert len(ticks) == 6
    assert ticks[-1] - ticks[0] > 4


async def test_in_the_background(ws: workspaced.Workspace) -> None:
    started = time.monotonic()
    result = await ws.tools.call("Bash", {"command": "echo up; sleep 1000", "run_in_background": True})
    assert time.monotonic() - started < 20
    process_id = result.background_process_id
    with anyio.fail_after(20):
        while "up" not in (text := await say(ws, "Read", file_path=f"process:///{process_id}")):
            await anyio.sleep(0.05)
    assert text == f"     1\tup\n[process {process_id} is running]"
    kill = result.text.splitlines()[-1].partition("with: ")[2]
    assert await say(ws, "Bash", command=kill) == "[exit code 0]"
    await (await ws.attach(process_id)).wait()
    assert await say(ws, "Read", file_path=f"process:///{process_id}") == "     1\tup\n[killed by TERM]"


async def test_parallel_calls_do_not_disturb_each_other(ws: workspaced.Workspace) -> None:
    async def one(number: int) -> None:
        assert await say(ws, "Bash", command=f"sleep 0.2; echo {number}") == f"{number}\n[exit code 0]"
        await say(ws, "Write", file_path=f"d/{number}", content=f"n{number}")
        assert "1 replacement" in await say(ws, "Edit", file_path=f"d/{number}", old_string="n", new_string="m")
        assert await say(ws, "Grep", pattern=f"^m{number}$", path="d") == f"d/{number}"

    async with anyio.create_task_group() as group:
        for number in range(10):
            group.start_soon(one, number)


async def test_a_hostile_expression_harms_nobody(ws: workspaced.Workspace) -> None:
    await ws.files.write("f", b"a" * 60 + b"!\n")
    text = ""

    async def hostile() -> None:
        nonlocal text
        text = (await ws.tools.call("Grep", {"pattern": "(a+)+$"}, timeout=2)).text

    async with anyio.create_task_group() as group:
        group.start_soon(hostile)
        for _ in range(10):
            started = time.monotonic()
            assert await say(ws, "Read", file_path="f") == "     1\t" + "a" * 60 + "!"
            assert time.monotonic() - started < 5
    assert text.endswith(
        "[stopped after 2 s, not complete: narrow the search by path or glob, or use a simpler pattern]"
    )
    assert (await ws.run(["pgrep", "-f", "tools_scan"])).exit_code == 1


async def test_links_and_huge_directories(ws: workspaced.Workspace) -> None:
    await ws.run(
        "ln -s /etc out; ln -s . loop; echo x > real; ln -s real link; mkdir many; cd many; seq 20000 | xargs touch"
    )
    assert await say(ws, "Glob", pattern="**/passwd") == "No file matches **/passwd."
    assert await say(ws, "Read", file_path="link") == "     1\tx"
    assert "1 replacement" in await say(ws, "Edit", file_path="link", old_string="x", new_string="y")
    assert await ws.files.read("real") == b"y\n"
    assert (await ws.run("readlink link")).stdout == b"real\n"
    found = (await say(ws, "Glob", pattern="many/*", head_limit=3)).splitlines()
    assert len(found) == 4
    assert found[3] == "[the newest 3 of 20000 files; narrow the pattern, or raise head_limit]"
    assert await say(ws, "Grep", pattern="y", glob="*") == "real"


async def test_what_overflows_is_stored(ws: workspaced.Workspace) -> None:
    result = await ws.tools.call(
        "Bash", {"command": "seq 100000"}, session_id="s", call_id="c", offload_over_bytes=2000
    )
    whole = "".join(f"{number}\n" for number in range(1, 100_001))
    assert result.offloaded.endswith("/sessions/s/tool_result-c.txt")
    assert (await ws.files.read(result.offloaded)).decode().startswith(whole)
    assert len(result.text) < 2300
    assert result.offloaded in result.text
    assert await say(ws, "Grep", pattern="^77777$", path=result.offloaded, output_mode="count") == (
        "sessions/s/tool_result-c.txt:1"
    )


async def test_images_and_binaries(ws: workspaced.Workspace) -> None:
    picture = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 400
    await ws.files.write("p.png", picture)
    result = await ws.tools.call("Read", {"file_path": "p.png"})
    [block] = result.blocks
    assert isinstance(block, workspaced.DataBlock)
    assert (block.media_type, block.data) == ("image/png", picture)
    await ws.files.write("blob", bytes(range(256)))
    assert await say(ws, "Read", file_path="blob") == (
        "!blob is a binary file of 256 bytes and is not shown. Use Bash with a program that knows its format."
    )

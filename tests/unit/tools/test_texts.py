"""The exact texts that the tools give: agents in every language and on every backend get these."""

from __future__ import annotations

import os

import pytest
from google.protobuf.duration_pb2 import Duration

from tests.support.real_guest import RealGuest
from tests.unit.tools.conftest import Caller

pytestmark = pytest.mark.anyio


async def test_bash(caller: Caller) -> None:
    say = caller.text
    assert await say("Bash", command="echo out; echo err >&2; echo out") == "out\nerr\nout\n[exit code 0]"
    assert await say("Bash", command="true") == "[exit code 0]"
    assert await say("Bash", command="printf x; exit 3") == "!x\n[exit code 3]"
    assert await say("Bash", command="kill -KILL $$") == "![killed by KILL]"
    assert (await say("Bash", command="-l; exit 0")).endswith("-l: command not found\n[exit code 0]")
    assert await say("Bash", command="echo a; sleep 60", timeout=0.3) == "!a\n[stopped after 0.3 s: the time was up]"
    assert await say("Bash", command=r"printf 'caf\303\251 \377'") == "café \ufffd\n[exit code 0]"
    assert await say("Bash", command="sleep 300 & echo $! > pid; echo on") == (
        "on\n[what it left running in the background is not waited for]\n[exit code 0]"
    )
    await say("Bash", command="kill $(cat pid)")
    text = await say("Bash", command="yes 1234567 | head -n 10000")
    half = "1234567\n" * 1875
    assert text == f"{half}\n[50000 characters left out here]\n{half}[exit code 0]"


async def test_bash_in_the_background(caller: Caller) -> None:
    answer = await caller.call("Bash", {"command": "echo one; echo two; exit 4", "run_in_background": True})
    process_id = answer.result.background_process_id
    first, second, third = answer.text.split("\n")
    assert first == f"The command runs in the background as process {process_id}."
    assert second == f"Read its output, and whether it has ended, by Read with the file_path process:///{process_id}"
    assert third.startswith("Stop it by Bash with: kill -- -")
    path = f"process:///{process_id}"
    while "is running" in (text := await caller.text("Read", file_path=path)):
        continue
    assert text == "     1\tone\n     2\ttwo\n[exit code 4]"
    assert await caller.text("Read", file_path=path, offset=2) == "     2\ttwo\n[exit code 4]"
    assert await caller.text("Read", file_path=path, offset=-1) == "     2\ttwo\n[exit code 4]"
    assert await caller.text("Read", file_path=path, limit=1) == (
        "     1\tone\n[lines 1 to 1 of 2; go on with offset 2]\n[exit code 4]"
    )
    assert await caller.text("Read", file_path=path, offset=9) == "[2 lines so far]\n[exit code 4]"
    assert (
        await caller.text("Read", file_path="process:///p-none")
        == "!There is no process p-none: it was never started, or ended more than ten minutes ago."
    )
    assert await caller.text("Read", file_path="process:///../x") == (
        "!process_id must match [A-Za-z0-9][A-Za-z0-9._-]{0,127}"
    )


async def test_read(caller: Caller, guest: RealGuest) -> None:
    say = caller.text
    work = guest.workdir
    (work / "f").write_bytes(b"\xef\xbb\xbfone\r\ntwo \xff\r\n\r\nfour")
    assert await say("Read", file_path="f") == "     1\tone\n     2\ttwo \ufffd\n     3\t\n     4\tfour"
    assert await say("Read", file_path="f", offset=2, limit=1) == (
        "     2\ttwo \ufffd\n[lines 2 to 2 of 4; go on with offset 3]"
    )
    assert await say("Read", file_path="f", offset=-1) == "     4\tfour"
    assert await say("Read", file_path="f", offset=5) == "!f has 4 lines: there is no line 5."
    (work / "empty").touch()
    assert await say("Read", file_path="empty") == "[empty is empty]"
    (work / "blob").write_bytes(bytes(range(256)))
    assert await say("Read", file_path="blob") == (
        "!blob is a binary file of 256 bytes and is not shown. Use Bash with a program that knows its format."
    )
    (work / "wide").write_bytes("ü\n".encode("utf-16"))
    assert await say("Read", file_path="wide") == (
        "!wide is a binary file of 6 bytes and is not shown."
        " It looks like UTF-16 text: convert it, for example by iconv -f UTF-16 -t UTF-8."
    )
    (work / "i.gif").write_bytes(b"GIF89a" + bytes(4_000_000))
    assert await say("Read", file_path="i.gif") == (
        "!i.gif is an image of 4000006 bytes; at most 3 MiB can be shown. Make it smaller first."
    )
    assert await say("Read", file_path=".") == "!. is a directory. Glob lists the files in it."
    assert await say("Read", file_path="f/x") == "!f/x: something on the way is not a directory."
    os.mkfifo(work / "fifo")
    assert await say("Read", file_path="fifo") == "!fifo is not a regular file."
    (work / "loop").symlink_to("loop")
    assert await say("Read", file_path="loop") == "!loop: symbolic links lead in a circle."
    assert await say("Read", file_path="no {braces}") == (
        "!no {braces} does not exist. A relative path starts at the workspace's directory; Glob finds files."
    )
    assert (await say("Read", file_path="x" * 5000)).startswith("!path is longer than 4095 bytes")


async def test_write_and_edit(caller: Caller, guest: RealGuest) -> None:
    say = caller.text
    assert await say("Write", file_path="a/f", content="one\ntwo\n") == "Created a/f: 2 lines, 8 bytes."
    assert await say("Write", file_path="a/f", content="x") == "Replaced a/f: 1 line, 1 bytes."
    assert await say("Write", file_path="a", content="x") == "!a is a directory. Glob lists the files in it."
    assert await say("Write", file_path="a/f", content="b\na\nb\n") == "Replaced a/f: 3 lines, 6 bytes."
    edit = {"file_path": "a/f", "old_string": "a", "new_string": "A"}
    assert await say("Edit", **edit) == "Edited a/f: 1 replacement, in line 2."
    assert await say("Edit", **edit) == (
        "!a/f: old_string is not in the file. It must be exact, with white space, and without line numbers."
        " Nothing was changed."
    )
    assert await say("Edit", **{**edit, "old_string": "\ufffd"}) == (
        "!a/f: old_string is not in the file. It must be exact, with white space, and without line numbers."
        " It holds U+FFFD, which Read shows in place of bytes that are not UTF-8: leave those out."
        " Nothing was changed."
    )
    assert await say("Edit", **{**edit, "old_string": "b"}) == (
        "!a/f: old_string is there 2 times. Add lines around it to make it unique, or set replace_all."
        " Nothing was changed."
    )
    assert await say("Edit", **{**edit, "old_string": "b", "replace_all": True}) == (
        "Edited a/f: 2 replacements, the first in line 1."
    )
    assert await say("Edit", **{**edit, "new_string": "a"}) == (
        "!old_string and new_string are the same: there is nothing to change."
    )
    (guest.workdir / "a/f").write_text("A")
    assert await say("Edit", **{**edit, "old_string": "A", "new_string": "B"}) == (
        "!a/f: the file is not what it was when you last read it: somebody has changed it. Read it again, then edit."
        " Nothing was changed."
    )
    (guest.workdir / "new").write_text("A")
    assert await say("Edit", **{**edit, "file_path": "new"}) == (
        "!new: this file has not been read in this session. Read it, then edit. Nothing was changed."
    )


async def test_glob(caller: Caller, guest: RealGuest) -> None:
    say = caller.text
    for index, name in enumerate(("a.py", "b.ts", "c.tsx")):
        (guest.workdir / name).touch()
        os.utime(guest.workdir / name, (index, index))
    assert await say("Glob", pattern="*.{py,ts,tsx}") == "c.tsx\nb.ts\na.py"
    assert await say("Glob", pattern="*.*", head_limit=1) == (
        "c.tsx\n[the newest 1 of 3 files; narrow the pattern, or raise head_limit]"
    )
    assert await say("Glob", pattern="*.rs") == "No file matches *.rs."
    assert await say("Glob", pattern=f"{guest.workdir}/*.py") == "a.py"
    assert await say("Glob", pattern="*", path="none") == (
        "!none does not exist. A relative path starts at the workspace's directory."
    )
    assert await say("Glob", pattern="*", path="a.py") == "!a.py: not a directory."


async def test_grep(caller: Caller, guest: RealGuest) -> None:
    say = caller.text
    (guest.workdir / "a").write_text("one\ntwo\nthree\n")
    (guest.workdir / "b").write_text("two\n" * 3)
    assert await say("Grep", pattern="two") == "a\nb"
    assert await say("Grep", pattern="t.o", output_mode="count") == "a:1\nb:3"
    assert await say("Grep", pattern="TWO", output_mode="content", path="a", context=1, ignore_case=True) == (
        "a-1-one\na:2:two\na-3-three"
    )
    assert await say("Grep", pattern="two", output_mode="content", head_limit=2) == (
        "a:2:two\nb:1:two\n[there may be more: narrow the search, or raise head_limit]"
    )
    assert await say("Grep", pattern="four") == "Nothing matches."
    assert await say("Grep", pattern="two", glob="*.py") == "Nothing matches."
    assert await say("Grep", pattern="(") == (
        "!The regular expression is not valid: missing ), unterminated subpattern at position 0."
    )
    (guest.workdir / "c").write_text("a" * 50 + "!")
    answer = await caller.call("Grep", {"pattern": "one|(a+)+$", "output_mode": "content"}, timeout=Duration(seconds=1))
    assert answer.text == (
        "a:1:one\n[stopped after 1 s, not complete: narrow the search by path or glob, or use a simpler pattern]"
    )


async def test_skill(caller: Caller, guest: RealGuest) -> None:
    assert await caller.text("Skill", skill="none") == "!There is no skill 'none'. There are: none."
    skill = guest.workdir / "skills" / "default" / "tidy"
    skill.mkdir(parents=True)
    text = "---\nname: Tidy\ndescription: d\n---\nDo this."
    (skill / "SKILL.md").write_text(text)
    (skill / "run.sh").touch()
    assert await caller.text("Skill", skill="none") == "!There is no skill 'none'. There are: Tidy."
    lines = (await caller.text("Skill", skill="Tidy")).split("\n", 4)
    assert lines[0].startswith("The skill is in ")
    assert lines[0].endswith("skills/default/tidy; paths in it start there.")
    assert lines[1:] == ["Its other files:", "run.sh", "", text]


async def test_wrong_input(caller: Caller) -> None:
    assert await caller.text("Edit", old_string="", replace_all="yes", more=1) == (
        "!The input does not fit Edit, which was not run. Correct this and call again:\n"
        "- file_path: is required\n"
        "- new_string: is required\n"
        "- more: is not known; known are file_path, old_string, new_string, replace_all\n"
        "- old_string: must not be empty\n"
        '- replace_all: must be of type boolean, not "yes"'
    )
    assert await caller.text("Bash", command="true", timeout=601) == (
        "!The input does not fit Bash, which was not run. Correct this and call again:\n"
        "- timeout: must be at most 600, not 601"
    )

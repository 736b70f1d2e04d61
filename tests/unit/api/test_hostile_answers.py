"""What servicers make of answers that an honest guest would not give: an error of the guest, and never a broken
guarantee.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.fake_guest import FakeGuest
from tests.support.real_guest import Handle
from workspaced.v1 import execution_pb2 as execution_pb
from workspaced.v1 import process_pb2
from workspaced_guest import wire
from workspaced_server.api.attachment import Attachment
from workspaced_server.api.fileinfo import file_change, file_info
from workspaced_server.errors import WorkspacedError
from workspaced_server.offload.layout import describe, location_of
from workspaced_server.processes import exit_of, fingerprint, process

pytestmark = pytest.mark.anyio

EXIT = {"reason": "EXITED", "code": 0, "signal": None, "time": 1.0, "usage": None}
PROCESS = {
    "process_id": "p",
    "pid": 3,
    "state": "running",
    "argv": ["a"],
    "cwd": "/",
    "user": "u",
    "start_time": 1.5,
    "first_offset": 0,
    "next_offset": 0,
    "stdin_open": True,
    "stdin_offset": 0,
    "labels": {},
    "exit": None,
}
STAT = {"path": "a", "type": "file", "size": 1, "mode": 0o644, "mtime_ns": "5", "user": "u", "group": "g"}

_scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(alphabet=st.characters(), max_size=8)
    | st.sampled_from(["EXITED", "file", "\udcff", "\ud800", "-5", "9" * 30, "created"])
)
_values = st.recursive(
    _scalars, lambda v: st.lists(v, max_size=3) | st.dictionaries(st.text(max_size=4), v, max_size=3)
)


def changed(base: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    """The object with some of its fields replaced or gone."""
    keys = st.sampled_from(sorted(base))
    return st.builds(
        lambda changes, gone: {key: value for key, value in (base | changes).items() if key not in gone},
        st.dictionaries(keys, _values | changed_labels, max_size=4),
        st.sets(keys, max_size=2),
    )


changed_labels = st.dictionaries(st.just("workspaced.spec"), st.text(max_size=12), max_size=1)


@settings(max_examples=300)
@given(changed(PROCESS), changed(EXIT), changed(STAT), changed({"kind": "created", "path": "a", "to": "b"}))
def test_conversions_raise_nothing_else(
    process_: dict[str, Any], exit_: dict[str, Any], stat: dict[str, Any], change: dict[str, Any]
) -> None:
    for convert, answer in (
        (process, process_),
        (process, PROCESS | {"exit": exit_}),
        (exit_of, exit_),
        (file_info, stat),
        (file_change, change),
    ):
        try:
            convert(answer).SerializeToString()
        except WorkspacedError as error:
            assert error.reason == "GUEST_ERROR"  # noqa: PT017 - most inputs convert


OFFLOAD = {"kind": "tool_result", "session": "s", "name": "n", "size": 1, "mtime_ns": "5", "tool_call_id": "t"}


@settings(max_examples=300)
@given(changed(OFFLOAD | {"label": "l", "verified": True}))
def test_offloads_raise_nothing_else(entry: dict[str, Any]) -> None:
    workspace = Handle(FakeGuest(), workdir="/w")  # type: ignore[arg-type]
    try:
        offload = describe(workspace, location_of(entry), entry)
        offload.SerializeToString()
        assert offload.path.startswith(("/w/data/", "/w/sessions/"))
    except WorkspacedError as error:
        assert error.reason == "GUEST_ERROR"  # noqa: PT017 - most inputs convert


def test_the_honest_ones_convert() -> None:
    assert process(PROCESS | {"exit": EXIT}).exit.reason == process_pb2.EXIT_REASON_EXITED
    assert file_info(STAT).modify_time.nanos == 5
    with pytest.raises(WorkspacedError):
        exit_of(EXIT | {"code": None})  # neither code nor signal, and not lost: not an exit 0


def test_a_fingerprint_does_not_depend_on_the_order_of_the_environment() -> None:
    names = [f"N{n}" for n in range(50)]
    one = process_pb2.ProcessSpec(shell_command="x", env=dict.fromkeys(names, "v"))
    two = process_pb2.ProcessSpec(shell_command="x", env=dict.fromkeys(reversed(names), "v"))
    assert fingerprint(one) == fingerprint(two)
    assert len({fingerprint(one), fingerprint(one, b"x"), fingerprint(one, b"y")}) == 3
    two.env["N0"] = "w"
    assert fingerprint(one) != fingerprint(two)


class Sink:
    """A call's context that keeps what is written."""

    def __init__(self) -> None:
        self.events: list[execution_pb.ProcessEvent] = []

    async def write(self, message: execution_pb.ExecResponse | bytes) -> None:
        if isinstance(message, bytes):
            message = execution_pb.ExecResponse.FromString(message)
        self.events.append(message.event)


def record(offset: int, data: bytes, tag: int = 1) -> tuple[int, bytes]:
    return wire.DATA, wire.RECORD.pack(tag, offset) + data


def message(value: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    return wire.MESSAGE, value


ENDED = (wire.RESULT, {"exit": EXIT, "next_offset": 0})


async def attach(*frames: tuple[int, Any], follow: bool = True) -> list[execution_pb.ProcessEvent]:
    """The events that come of what the guest says after `started`."""
    guest = FakeGuest()
    channel = await guest.connect()
    wake, sink = asyncio.Event(), Sink()
    try:
        async with channel.open("process.attach", {}, wake=wake) as output:
            attachment = Attachment(
                sink,  # type: ignore[arg-type]
                lambda event: execution_pb.ExecResponse(event=event),
                output,
                wake,
                0,
                follow=follow,
            )
            guest.say(wire.MESSAGE, output.id, {"started": PROCESS})
            for kind, payload in frames:
                guest.say(kind, output.id, payload)
            await attachment.start()
            async with asyncio.timeout(5):
                await attachment.run()
    finally:
        await channel.aclose()
    return sink.events


async def test_records_that_continue_each_other_are_joined_up_to_the_limit() -> None:
    events = await attach(
        record(0, b"a" * 100_000),
        record(100_000, b"b" * 100_000),
        record(200_000, b"c" * 100_000),
        record(300_000, b"e", 2),
        message({"eof": "stdout"}),
        ENDED,
    )
    assert [event.WhichOneof("event") for event in events] == ["started", "output", "output", "output", "eof", "exited"]
    assert [len(event.output.data) for event in events[1:4]] == [200_000, 100_000, 1]
    assert [event.output.offset for event in events[1:4]] == [0, 200_000, 300_000]


async def test_a_gap_moves_on_and_makes_the_exit_incomplete() -> None:
    events = await attach(message({"gap": {"from": 0, "to": 50}}), record(50, b"x"), ENDED)
    assert (getattr(events[1].gap, "from"), events[1].gap.to, events[2].output.offset) == (0, 50, 50)
    assert events[-1].exited.output_incomplete


async def test_without_following_there_may_be_no_exit() -> None:
    events = await attach(record(0, b"x"), (wire.RESULT, {"exit": None, "next_offset": 1}), follow=False)
    assert [event.WhichOneof("event") for event in events] == ["started", "output"]


@pytest.mark.parametrize(
    "frames",
    [
        [record(0, b"abc"), record(2, b"cd")],  # a byte twice
        [record(0, b"abc"), record(4, b"e")],  # a byte skipped
        [record(5, b"x")],
        [record(0, b"x", 9)],
        [(wire.DATA, b"short")],
        [(wire.DATA, wire.RECORD.pack(1, 0) + bytes(wire.MAX_DATA + 1))],
        [message({"gap": {"from": 1, "to": 5}})],
        [message({"gap": {"from": 0, "to": 0}})],
        [message({"gap": {"from": 0}})],
        [message({"gap": 3})],
        [message({"eof": "stdin"})],
        [message({"nonsense": 1})],
        [(wire.RESULT, {"exit": None, "next_offset": 0})],
        [(wire.RESULT, {})],
        [(wire.RESULT, {"exit": {"reason": "EXITED"}})],
        [(wire.RESULT, {"exit": {"reason": "FINE", "code": 0}})],
        [(wire.RESULT, {"exit": {"reason": "EXITED", "code": 256}})],
    ],
)
async def test_a_broken_guarantee_is_an_error_of_the_guest(frames: list[tuple[int, Any]]) -> None:
    with pytest.raises(WorkspacedError) as caught:
        await attach(*frames)
    assert caught.value.reason == "GUEST_ERROR"

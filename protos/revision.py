"""Holds the revision of the API to its content: a contract that changed has a new revision.

    python protos/revision.py check     the contract is what `protos/revisions` records of its revision
    python protos/revision.py record    the same, after adding the line of a new revision

`protos/revisions` has one line a revision: its number and the digest of the contract, comments left out. A line never
changes. The contract is read from the generated Python code, which `protos/check` holds to the protos.
"""

from __future__ import annotations

import hashlib
import sys
from importlib import import_module
from pathlib import Path

from google.protobuf.descriptor_pb2 import FileDescriptorProto

ROOT = Path(__file__).parents[1]
RECORD = ROOT / "protos/revisions"
PROTOS = ROOT / "protos/workspaced/v1"


class RevisionError(Exception):
    """The revision and the contract do not belong together; the text says what to do."""


def current() -> tuple[int, str]:
    """Revision and digest of the contract as it is generated."""
    from workspaced.v1 import options_pb2, server_pb2

    digest = hashlib.sha256()
    for path in sorted(PROTOS.glob("*.proto")):
        module = import_module(f"workspaced.v1.{path.stem}_pb2")
        proto = FileDescriptorProto()
        module.DESCRIPTOR.CopyToProto(proto)
        proto.ClearField("source_code_info")
        proto.options.ClearExtension(options_pb2.api_revision)
        content = proto.SerializeToString(deterministic=True)
        digest.update(f"{path.name} {len(content)}\n".encode())
        digest.update(content)
    return server_pb2.DESCRIPTOR.GetOptions().Extensions[options_pb2.api_revision], digest.hexdigest()


def recorded(text: str) -> dict[int, str]:
    """Digests by revision. Raises :class:`RevisionError` when revisions are missing, repeated or out of order."""
    lines = [line.split() for line in text.splitlines()]
    digests = {int(number): digest for number, digest in lines}
    if list(digests) != list(range(1, len(lines) + 1)):
        raise RevisionError("protos/revisions has one line for each revision, from 1 on and in order")
    return digests


def check(revision: int, digest: str, record: str) -> str:
    """The record with the line of this revision. Raises :class:`RevisionError` when another contract has it."""
    digests = recorded(record)
    newest = max(digests, default=0)
    if revision == newest + 1:
        return f"{record}{revision} {digest}\n"
    if revision != newest:
        raise RevisionError(
            f"the newest revision in protos/revisions is {newest}, and api_revision in "
            f"protos/workspaced/v1/server.proto is {revision}: it must be {newest}, or {newest + 1} for a contract "
            "that changed"
        )
    if digests[revision] != digest:
        raise RevisionError(
            f"the contract is not what revision {revision} of the API was: set api_revision in "
            f"protos/workspaced/v1/server.proto to {revision + 1} and run protos/generate, which records it. (When "
            f"revision {revision} is itself not committed yet, delete its line from protos/revisions and run "
            "protos/generate.)"
        )
    return record


def main(mode: str) -> int:
    """Check, and with ``record`` write; the exit code."""
    text = RECORD.read_text("utf-8")
    revision, digest = current()
    try:
        new = check(revision, digest, text)
    except RevisionError as error:
        print(f"protos/revision.py: {error}", file=sys.stderr)
        return 1
    if new != text and mode != "record":
        print(f"protos/revision.py: revision {revision} is not recorded: run protos/generate", file=sys.stderr)
        return 1
    if new != text:
        RECORD.write_text(new, "utf-8")
    return 0


if __name__ == "__main__":
    if sys.argv[1:] not in (["check"], ["record"]):
        sys.exit("usage: revision.py check | record")
    sys.exit(main(sys.argv[1]))

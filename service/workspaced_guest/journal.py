"""The journal of one process: a sequence of tagged bytes with offsets, kept in memory and in segment files.

Readers pull from it; it never copies bytes to them. Blocks are the unit of spilling and of forgetting.
"""

from __future__ import annotations

import os
import stat
import struct
from bisect import bisect_right
from collections import OrderedDict

from . import log
from .state import make_directory
from .wire import MAX_DATA

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .wire import Buffer

    Chunk = tuple[int, int, Buffer]

MEMORY_LIMIT = 2 << 20
TOTAL_MEMORY_LIMIT = 64 << 20

_BLOCK_BYTES = 1 << 20
_MIN_BLOCK_BYTES = 4096
_BLOCK_CHUNKS = 4096
# What a chunk costs beside its bytes: the tuple, its integers, the header of the bytes object.
_CHUNK_OVERHEAD = 160
_RUN = struct.Struct(">BQI")
_MAX_RUN = 1 << 20
_LOADED_BLOCKS = 8
# A block takes whole places of its journal's file. One has room for a usual block, whose last chunk may go past its
# bound.
_PLACE_EXTRA_BYTES = 1 << 19
_MAX_IOV = 512


class Block:
    """Consecutive chunks; in memory (`chunks`) or in a file (`path` and `position`)."""

    __slots__ = ("charge", "chunks", "end", "path", "position", "start")

    def __init__(self, start: int) -> None:
        self.start = start
        self.end = start
        self.charge = 0
        self.chunks: list[Chunk] | None = []
        self.path = ""
        self.position = 0


class JournalStore:
    """What all journals share: the directory, the memory budget, and a few spilled blocks read back."""

    def __init__(self, directory: str, memory_limit: int = TOTAL_MEMORY_LIMIT) -> None:
        self.directory = directory
        self.memory_limit = memory_limit
        self.memory = 0
        self._journals: set[Journal] = set()
        self._loaded: OrderedDict[tuple[str, int], list[Chunk]] = OrderedDict()

    def clear(self) -> None:
        """Removes what an earlier guest left; its memory is gone, so its journals are.

        What is not ours and can't be removed is logged, and stays.
        """
        make_directory(self.directory)
        for name in os.listdir(self.directory):
            path = os.path.join(self.directory, name)
            try:
                _clear(path)
            except OSError as error:
                log.write(f"{path} stays: {error}")

    def open(self, name: str, limit: int, drop: bool) -> Journal:
        """A new journal; `name` is a checked process id."""
        journal = Journal(self, os.path.join(self.directory, name), limit, drop)
        self._journals.add(journal)
        return journal

    def closed(self, journal: Journal) -> None:
        self._journals.discard(journal)

    def relieve(self) -> None:
        """Brings memory below the budget by spilling the journals that hold most."""
        for journal in sorted(self._journals, key=_memory, reverse=True):
            if self.memory <= self.memory_limit:
                return
            journal.spill_all()

    def load(self, block: Block) -> list[Chunk]:
        """The chunks of a spilled block. Raises OSError or ValueError when the file was damaged by others."""
        place = block.path, block.position
        chunks = self._loaded.get(place)
        if chunks is None:
            chunks = _read_block(block)
            self._loaded[place] = chunks
            if len(self._loaded) > _LOADED_BLOCKS:
                self._loaded.popitem(last=False)
        else:
            self._loaded.move_to_end(place)
        return chunks

    def unload(self, block: Block) -> None:
        """The block is going to be forgotten."""
        self._loaded.pop((block.path, block.position), None)


class Journal:
    """Append on one side, `read` at any kept offset on the other.

    `full` says that the writer should wait; with `drop` it never is, the oldest block is forgotten instead.
    """

    def __init__(self, store: JournalStore, directory: str, limit: int, drop: bool) -> None:
        self._store = store
        self._directory = directory
        self._has_directory = False
        self._path = os.path.join(directory, "segments")
        # Places in the file that forgotten blocks had: to write where pages are already costs half as much.
        self._free: list[int] = []
        self._end = 0
        self.limit = limit
        self.drop = drop
        self.disk_full = False
        self.dropped = False
        self._block_limit = max(_MIN_BLOCK_BYTES, min(_BLOCK_BYTES, limit // 4))
        self._place_bytes = self._block_limit + _PLACE_EXTRA_BYTES
        self._memory_limit = min(MEMORY_LIMIT, limit)
        self._blocks: list[Block] = [Block(0)]
        self._starts: list[int] = [0]
        self.memory = 0
        self.size = 0

    def __len__(self) -> int:
        """The number of blocks, at least one."""
        return len(self._blocks)

    @property
    def first_offset(self) -> int:
        """The oldest byte that is kept."""
        return self._blocks[0].start

    @property
    def next_offset(self) -> int:
        """The offset of the byte that comes next."""
        return self._blocks[-1].end

    @property
    def full(self) -> bool:
        """Whether a writer under the policy "block" has to wait."""
        return not self.drop and (self.size >= self.limit or (self.disk_full and self.memory >= self._memory_limit))

    @property
    def oldest_end(self) -> int:
        """The end of the oldest block: who is past it doesn't need it any more."""
        return self._blocks[0].end

    def append(self, tag: int, data: bytes) -> None:
        """Adds bytes; they are never refused, so look at `full` first."""
        block = self._blocks[-1]
        chunks = block.chunks
        if chunks is None or block.charge >= self._block_limit or len(chunks) >= _BLOCK_CHUNKS:
            block = Block(block.end)
            chunks = block.chunks = []
            self._blocks.append(block)
            self._starts.append(block.start)
        chunks.append((block.end, tag, data))
        block.end += len(data)
        charge = len(data) + _CHUNK_OVERHEAD
        block.charge += charge
        self.size += charge
        self.memory += charge
        self._store.memory += charge
        if self.memory > self._memory_limit and self.limit > self._memory_limit:
            self._spill_oldest()
        if self._store.memory > self._store.memory_limit:
            self._store.relieve()
        if self.drop:
            self._drop()

    def read(self, offset: int, limit: int) -> tuple[int, int, list[Buffer]]:
        """Bytes of one tag from `offset` on, at most `limit` or 256 KiB: (tag, count, buffers); count 0 at the end.

        Raises LookupError when `offset` is not kept (any more), with the first kept offset after it.
        """
        index = bisect_right(self._starts, offset) - 1
        if index < 0:
            raise LookupError(self.first_offset)
        block = self._blocks[index]
        chunks = block.chunks
        if chunks is None:
            try:
                chunks = self._store.load(block)
            except (OSError, ValueError):
                self.dropped = True
                raise LookupError(block.end) from None
        # A tag is below 255, so this finds the chunk without ever comparing bytes.
        position = bisect_right(chunks, (offset, 255)) - 1
        if position < 0 or offset >= block.end:
            return 0, 0, []
        limit = min(limit, MAX_DATA)
        start, tag, data = chunks[position]
        skip = offset - start
        if skip or len(data) > limit:
            data = memoryview(data)[skip : skip + limit]
        buffers: list[Buffer] = [data]
        count = len(data)
        for _, next_tag, data in chunks[position + 1 : position + _MAX_IOV]:
            if next_tag != tag or count + len(data) > limit:
                break
            buffers.append(data)
            count += len(data)
        return tag, count, buffers

    def skip_to(self, offset: int) -> None:
        """Begins an empty journal at `offset`: what was before is not kept."""
        self._blocks = [Block(offset)]
        self._starts = [offset]

    def forget_oldest(self) -> None:
        """Drops the oldest block, whatever the policy; the last one stays."""
        if len(self._blocks) < 2:
            return
        block = self._blocks.pop(0)
        self._starts.pop(0)
        self.size -= block.charge
        if block.chunks is not None:
            self._release(block.charge)
        else:
            self._store.unload(block)
            if block.path == self._path:
                self._free.extend(self._places(block))
            else:
                _unlink(block.path)

    def spill_all(self) -> None:
        """Writes everything to segment files, as far as the disk takes it."""
        while self.memory and self._spill_oldest():
            pass

    def close(self) -> None:
        """Forgets everything and removes the files."""
        self._store.closed(self)
        for block in self._blocks:
            if block.chunks is None:
                self._store.unload(block)
                _unlink(block.path)
        self._free = []
        self._end = 0
        self._release(self.memory)
        end = self.next_offset
        self._blocks = [Block(end)]
        self._starts = [end]
        self.size = 0
        if self._has_directory:
            self._has_directory = False
            _unlink(self._path)
            try:
                os.rmdir(self._directory)
            except OSError:
                # Something that is not ours lies there; the sweep at the next start takes it.
                return

    def snapshot(self) -> dict[str, Any]:
        """Spills all and describes the blocks, for a guest that takes over."""
        self.spill_all()
        blocks = [
            [block.start, block.end, block.charge, os.path.basename(block.path), block.position]
            for block in self._blocks
        ]
        return {"limit": self.limit, "drop": self.drop, "dropped": self.dropped, "blocks": blocks}

    def restore(self, snapshot: dict[str, Any]) -> None:
        """Takes over what `snapshot` described."""
        self.dropped = snapshot["dropped"]
        self._blocks = []
        taken: set[int] = set()
        # An earlier guest had a file for each block and gives no position.
        for start, end, charge, name, *position in snapshot["blocks"]:
            block = Block(start)
            block.end = end
            if name:
                block.charge = charge
                block.chunks = None
                block.path = os.path.join(self._directory, name)
                self._has_directory = True
                if position:
                    block.position = position[0]
                    taken.update(self._places(block))
                self.size += charge
            elif end > start:
                # The disk was full, and the memory of the former program is gone.
                self.dropped = True
                self._blocks.clear()
                block.start = end
            self._blocks.append(block)
        self._starts = [block.start for block in self._blocks]
        self._end = max(taken, default=-self._place_bytes) + self._place_bytes
        self._free = [place for place in range(0, self._end, self._place_bytes) if place not in taken]

    def _drop(self) -> None:
        while len(self._blocks) > 1:
            if self.disk_full and self.memory > self._memory_limit:
                # The room of the oldest segment may be what the next one needs.
                self.forget_oldest()
                self._spill_oldest()
            elif self.size > self.limit:
                self.forget_oldest()
            else:
                return

    def _spill_oldest(self) -> bool:
        for block in self._blocks:
            if block.chunks:
                break
        else:
            return False
        try:
            self._spill(block)
        except OSError:
            self.disk_full = True
            return False
        self.disk_full = False
        return True

    def _spill(self, block: Block) -> None:
        assert block.chunks is not None
        if not self._has_directory:
            os.makedirs(self._directory, mode=0o700, exist_ok=True)
            self._has_directory = True
        buffers, size = _encode_block(block.chunks)
        reuses = bool(self._free) and size <= self._place_bytes
        position = self._free[-1] if reuses else self._end
        # Nobody else has business in that directory, but a program of the same user can put anything there.
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
        try:
            os.lseek(descriptor, position, os.SEEK_SET)
            _write_all(descriptor, buffers)
        except OSError:
            if not self._end:
                os.unlink(self._path)
            raise
        finally:
            os.close(descriptor)
        self._release(block.charge)
        self.size += size - block.charge
        block.charge = size
        block.chunks = None
        block.path = self._path
        block.position = position
        if reuses:
            self._free.pop()
        else:
            self._end = self._places(block)[-1] + self._place_bytes

    def _places(self, block: Block) -> range:
        return range(block.position, block.position + block.charge, self._place_bytes)

    def _release(self, charge: int) -> None:
        self.memory -= charge
        self._store.memory -= charge


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        return


def _clear(path: str) -> None:
    if not stat.S_ISDIR(os.lstat(path).st_mode):
        os.unlink(path)
        return
    for name in os.listdir(path):
        os.unlink(os.path.join(path, name))
    os.rmdir(path)


def _memory(journal: Journal) -> int:
    return journal.memory


def _encode_block(chunks: list[Chunk]) -> tuple[list[Buffer], int]:
    """The runs of a segment file: header and bytes, neighbours of one tag joined under one header."""
    buffers: list[Buffer] = []
    size = 0
    index = 0
    while index < len(chunks):
        start, tag, _ = chunks[index]
        run: list[Buffer] = []
        length = 0
        while (
            index < len(chunks) and chunks[index][1] == tag and (not run or length + len(chunks[index][2]) <= _MAX_RUN)
        ):
            run.append(chunks[index][2])
            length += len(chunks[index][2])
            index += 1
        buffers.append(_RUN.pack(tag, start, length))
        buffers.extend(run)
        size += _RUN.size + length
    return buffers, size


def _write_all(descriptor: int, buffers: list[Buffer]) -> None:
    position = 0
    while position < len(buffers):
        part = buffers[position : position + _MAX_IOV]
        expected = sum(map(len, part))
        written = os.writev(descriptor, part)
        if written < expected:
            # A short write says that the disk is full or a signal came: one plain write tells which.
            rest: Buffer = memoryview(b"".join(part))[written:]
            while len(rest):
                rest = rest[os.write(descriptor, rest) :]
        position += _MAX_IOV


def _read_block(block: Block) -> list[Chunk]:
    descriptor = os.open(block.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        content = os.pread(descriptor, block.charge, block.position)
    finally:
        os.close(descriptor)
    if len(content) < block.charge:
        raise ValueError("a segment that was cut off")
    view = memoryview(content)
    chunks: list[Chunk] = []
    position = 0
    expected = block.start
    while position < len(view):
        if len(view) - position < _RUN.size:
            raise ValueError("a truncated segment")
        tag, start, length = _RUN.unpack_from(view, position)
        position += _RUN.size
        if start != expected or length > len(view) - position:
            raise ValueError("a damaged segment")
        chunks.append((start, tag, view[position : position + length]))
        position += length
        expected = start + length
    if expected != block.end:
        raise ValueError("a segment that ends too early")
    return chunks

"""A cursor in a directory tree that is never led out of it, however deep the tree and whoever changes it meanwhile."""

from __future__ import annotations

import os

from .fault import Fault

# Descriptors that one cursor holds at most; above, a parent is found again by `..` and recognised by its inode.
_HELD = 32
_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class TreeCursor:
    """One open directory of a tree; `down` and `up` move it. Owns its descriptors: `close` it."""

    def __init__(self, top: int) -> None:
        """Take over `top`, a directory open for reading."""
        self.directory = top
        self._above: list[tuple[int, tuple[int, int]]] = []  # (descriptor or -1, device and inode)

    @property
    def depth(self) -> int:
        """How many directories the cursor is below the top."""
        return len(self._above)

    def down(self, name: str) -> None:
        """Enter a directory. A link is not one. Raises OSError, and then has not moved."""
        entered = os.open(name, _FLAGS, dir_fd=self.directory)
        try:
            status = os.fstat(self.directory)
        except BaseException:
            os.close(entered)
            raise
        self._above.append((self.directory, (status.st_dev, status.st_ino)))
        self.directory = entered
        far = len(self._above) - _HELD
        if far > 0:
            descriptor, identity = self._above[far]
            if descriptor >= 0:
                self._above[far] = (-1, identity)
                os.close(descriptor)

    def up(self) -> None:
        """Go back to the parent. Raises Fault when the tree was moved apart meanwhile."""
        descriptor, identity = self._above[-1]
        if descriptor < 0:
            descriptor = os.open("..", _FLAGS, dir_fd=self.directory)
            status = os.fstat(descriptor)
            if (status.st_dev, status.st_ino) != identity:
                os.close(descriptor)
                raise Fault("ABORTED", "TREE_CHANGED", "a directory was moved away during the walk")
        self._above.pop()
        os.close(self.directory)
        self.directory = descriptor

    def close(self) -> None:
        """Close everything; again is harmless."""
        while self._above:
            descriptor, _ = self._above.pop()
            if descriptor >= 0:
                os.close(descriptor)
        directory, self.directory = self.directory, -1
        if directory >= 0:
            os.close(directory)

"""What the operations of the Python driver share: their table, and the objects that requests name."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from workspaced.workspace import Workspace

Args = dict[str, Any]
T = TypeVar("T")


class DriverBug(Exception):
    """The request makes no sense, or the driver does not know the operation."""


class SourceFailed(Exception):
    """What a failing source of `file_write` raises."""


class Objects:
    """What operations made, by the names that requests chose."""

    def __init__(self) -> None:
        self._objects: dict[str, object] = {}
        self.warned: list[str] = []
        self.held: list[Any] = []

    def put(self, args: Mapping[str, Any], default: str, made: object) -> None:
        """Store under the name of `as`."""
        self._objects[args.get("as", default)] = made

    def store(self, name: str, made: object) -> None:
        """Store under a name."""
        self._objects[name] = made

    def get(self, args: Mapping[str, Any], kind: str, cls: type[T]) -> T:
        """What a request names by `kind`. Raises :class:`DriverBug` when it is not there, or something else."""
        name = args.get(kind, kind)
        found = self._objects.get(name)
        if not isinstance(found, cls):
            raise DriverBug(f"{name!r} is no {cls.__name__} but {found!r}")
        return found

    def workspace(self, args: Mapping[str, Any]) -> Workspace:
        """The workspace that a request names."""
        return self.get(args, "ws", Workspace)

    def all_of(self, cls: type[T]) -> list[T]:
        """Every object of a class."""
        return [made for made in self._objects.values() if isinstance(made, cls)]


Operation = Callable[[Objects, Args], Awaitable[dict[str, Any]]]
OPERATIONS: dict[str, Operation] = {}
OWN_DEADLINE: set[str] = set()
"""Operations whose call takes `timeout` itself; the others get theirs from asyncio, as a user would do it."""


def operation(function: Operation) -> Operation:
    """Enter a function into the table under its name."""
    OPERATIONS[function.__name__] = function
    return function


def with_deadline(function: Operation) -> Operation:
    """The same, for a call that has a `timeout` of its own."""
    OWN_DEADLINE.add(function.__name__)
    return operation(function)


def chosen(args: Args, *names: str, **renamed: str) -> Args:
    """The arguments that are there, for the library: those of `names`, and `renamed` as library=request."""
    pairs = {name: name for name in names} | renamed
    return {library: args[name] for library, name in pairs.items() if name in args}


def pty(args: Args) -> Args:
    """`pty` as the library wants it."""
    return {"pty": tuple(args["pty"])} if "pty" in args else {}

"""What a guest says of itself in the handshake."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from workspaced_guest import wire

_MAX_TEXT = 4096


@dataclass(frozen=True, slots=True)
class GuestHello:
    """The fields of HELLO. ``instance`` changes with every start of the guest; ``window`` is in bytes, ``start_time``
    in seconds of the epoch."""

    version: int
    instance: str
    bundle: str
    python: str
    pid: int
    uid: int
    user: str
    home: str
    workdir: str
    window: int
    capabilities: frozenset[str]
    start_time: float

    @classmethod
    def parse(cls, value: Mapping[str, Any]) -> Self:
        """Read what an untrusted guest sent. Raises ProtocolError."""
        version = _integer(value, "version", 1, 1 << 16)
        if version != wire.VERSION:
            raise wire.ProtocolError(f"the guest speaks version {version}")
        capabilities = value.get("capabilities")
        if not isinstance(capabilities, list) or len(capabilities) > 64:
            raise wire.ProtocolError("HELLO without a list of capabilities")
        start_time = value.get("start_time", 0)
        if isinstance(start_time, bool) or not isinstance(start_time, (int, float)) or not 0 <= start_time < 1e11:
            raise wire.ProtocolError("HELLO with a bad start_time")
        return cls(
            version=version,
            instance=_text(value, "instance"),
            bundle=_text(value, "bundle"),
            python=_text(value, "python"),
            pid=_integer(value, "pid", 0, 1 << 31),
            uid=_integer(value, "uid", 0, 1 << 32),
            user=_text(value, "user"),
            home=_text(value, "home"),
            workdir=_text(value, "workdir"),
            window=_integer(value, "window", 1, wire.MAX_CREDIT),
            capabilities=frozenset(item for item in capabilities if isinstance(item, str)),
            start_time=float(start_time),
        )


def _text(value: Mapping[str, Any], name: str) -> str:
    text = value.get(name)
    if not isinstance(text, str) or len(text) > _MAX_TEXT:
        raise wire.ProtocolError(f"HELLO with a bad {name}")
    return text


def _integer(value: Mapping[str, Any], name: str, low: int, high: int) -> int:
    number = value.get(name)
    if isinstance(number, bool) or not isinstance(number, int) or not low <= number <= high:
        raise wire.ProtocolError(f"HELLO with a bad {name}")
    return number

"""The user that a process runs as."""

from __future__ import annotations

import os
import pwd

from .fault import Fault, shorten

_MAX_ID = (1 << 32) - 2


class Account:
    """A user by name, by number, or as `UID:GID`. `own` says that the guest is this user already.

    Raises USER_NOT_FOUND when nobody has the name or number (numbers with a group need not belong to anybody), and
    PERMISSION_DENIED when the guest may not become that user.
    """

    def __init__(self, name: str) -> None:
        self._asked = name
        user, colon, group = name.partition(":")
        entry = _entry(user)
        if entry is not None:
            self.uid = entry.pw_uid
            self.gid = entry.pw_gid
            self.name = entry.pw_name
            self.home = entry.pw_dir
            self.shell = entry.pw_shell
        elif _is_id(user) and (colon or int(user) == os.geteuid()):
            # Containers run with numbers that no passwd file names.
            self.uid = int(user)
            self.gid = os.getegid()
            self.name = user
            self.home = "/"
            self.shell = ""
        else:
            raise _not_found(name, "; a number that nobody has needs a group as well: UID:GID" if _is_id(user) else "")
        self._own_group = not colon
        if colon:
            if not _is_id(group):
                raise _not_found(name, ": the group must be a number")
            self.gid = int(group)
        self.own = self.uid == os.geteuid() and (not colon or self.gid == os.getegid())
        if not self.own and os.geteuid() != 0:
            raise self.not_permitted()

    def not_permitted(self) -> Fault:
        """What to say when the guest may not become this user."""
        message = f"the guest may not run a process as {shorten(self._asked)}"
        return Fault("PERMISSION_DENIED", "PERMISSION_DENIED", message, user=self._asked)

    def groups(self) -> list[int]:
        """The supplementary groups that the process gets: the user's, and none when a group was asked for."""
        return os.getgrouplist(self.name, self.gid) if self._own_group else [self.gid]


def _not_found(name: str, why: str) -> Fault:
    return Fault("NOT_FOUND", "USER_NOT_FOUND", f"no user {shorten(name)}{why}", user=name)


def _entry(user: str) -> pwd.struct_passwd | None:
    try:
        return pwd.getpwuid(int(user)) if _is_id(user) else pwd.getpwnam(user)
    except (KeyError, ValueError):
        return None


def _is_id(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 10 and int(text) <= _MAX_ID

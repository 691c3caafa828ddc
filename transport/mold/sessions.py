"""The name of a session, and the epoch it stands for.

A publisher draws ten random alphanumerics for each of its lives. The epoch of an event is that
name read as a number in base 62: it needs no bytes of its own in any message, and a receiver
that has heard a heartbeat knows it. Names of foreign feeds that are not ten alphanumerics get
an epoch too, by a hash; both fit a signed 64-bit integer.
"""

import secrets
from hashlib import blake2b

from ..errors import ConfigurationError
from .wire import SESSION_BYTES

ALPHANUMERICS = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_DIGITS = {letter: value for value, letter in enumerate(ALPHANUMERICS)}


def new_session() -> bytes:
    """Ten random alphanumerics: 59 bits, so that two publishers never draw the same."""
    return bytes(secrets.choice(ALPHANUMERICS) for _ in range(SESSION_BYTES))


def parse_session(name: str) -> bytes:
    """A session name as on the wire: ASCII, padded with spaces to ten bytes."""
    encoded = name.encode("ascii", errors="replace")
    if not 1 <= len(encoded) <= SESSION_BYTES or not name.isascii():
        raise ConfigurationError(f"session {name!r}: expected 1 to {SESSION_BYTES} ASCII letters")
    return encoded.ljust(SESSION_BYTES)


def show_session(session: bytes) -> str:
    """The session name for people."""
    return session.rstrip(b" ").decode("ascii", errors="backslashreplace")


def epoch_of(session: bytes) -> int:
    """The number by which events of this session name their epoch."""
    epoch = 0
    for letter in session:
        digit = _DIGITS.get(letter)
        if digit is None:
            return int.from_bytes(blake2b(session, digest_size=8).digest(), "big") >> 1
        epoch = epoch * len(ALPHANUMERICS) + digit
    return epoch

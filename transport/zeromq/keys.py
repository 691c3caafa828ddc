"""CURVE keys in files: a pair for each party, the public half for those it talks to.

    NAME.key          the public key: give it to the others
    NAME.key_secret   both keys, readable by its owner alone

The format is that of ZeroMQ's own tools (`zmq.auth` reads it). Whoever binds has a pair, and may
have a list of the public keys it lets in; whoever connects knows the public key of the one who
binds, and has a pair if it is to be known by it.
"""

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import zmq
from zmq import auth

from ..errors import ConfigurationError, LocalError
from .wire import KEY_BYTES

SECRET_MODE = 0o600


@dataclass(frozen=True, slots=True)
class KeyPair:
    """Both halves, in Z85."""

    public: bytes
    secret: bytes = field(repr=False)

    @classmethod
    def random(cls) -> "KeyPair":
        """One that nobody knows: for a party that need not be known."""
        return cls(*zmq.curve_keypair())


@dataclass(frozen=True, slots=True)
class Security:
    """The keys of one publisher or subscriber."""

    own: KeyPair
    server_key: bytes | None = None
    """The public key of the one who binds; None for that one itself."""
    allowed: Mapping[bytes, str] | None = None
    """The public keys that are let in, and their names; None: whoever has the server's key."""


def new_keys(name: str, directory: Path) -> tuple[Path, Path]:
    """Makes a pair and writes it; returns the files, the public one first. Overwrites nothing."""
    if not name or "/" in name or name.startswith(".") or not name.isprintable():
        raise ConfigurationError(f"{name!r} is no name for a key: expected letters and digits")
    public, secret = directory / f"{name}.key", directory / f"{name}.key_secret"
    pair = KeyPair.random()
    lines = ["metadata", "curve", f'    public-key = "{pair.public.decode()}"']
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        _write(secret, [*lines, f'    secret-key = "{pair.secret.decode()}"'], SECRET_MODE)
        _write(public, lines, 0o644)
    except OSError as fault:
        raise LocalError(f"cannot write {fault.filename}: {fault.strerror}") from None
    return public, secret


def _write(path: Path, lines: list[str], mode: int) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    with open(fd, "w", encoding="ascii") as file:
        file.write("\n".join([*lines, ""]))


def load_pair(path: Path) -> KeyPair:
    """Reads a secret file, which only its owner may be able to read."""
    public, secret = _load(path)
    if secret is None:
        raise ConfigurationError(f"{path} has no secret key; give the .key_secret file")
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & 0o077:
        raise LocalError(f"{path} can be read by others (mode {mode:o}): chmod 600 {path}")
    return KeyPair(public, secret)


def load_public(path: Path) -> bytes:
    """Reads the public key of a file of either kind."""
    return _load(path)[0]


def load_allowed(path: Path) -> dict[bytes, str]:
    """Reads the public keys of a directory (`*.key`), or of one file, by name."""
    files = sorted(path.glob("*.key")) if path.is_dir() else [path]
    if not files:
        raise ConfigurationError(f"{path} has no *.key files: nobody would be let in")
    return {load_public(file): file.stem for file in files}


def _load(path: Path) -> tuple[bytes, bytes | None]:
    try:
        public, secret = auth.load_certificate(path)
    except (OSError, ValueError) as fault:
        raise LocalError(f"cannot read a key from {path}: {fault}") from None
    for key in (public, secret):
        if key is not None and len(key) != KEY_BYTES:
            raise LocalError(f"{path} has a key of {len(key)} letters, expected {KEY_BYTES}")
    return public, secret

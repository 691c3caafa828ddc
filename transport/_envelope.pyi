"""The compiled side of `envelope.py`: the usual event, quickly."""

from typing import TypeVar

from onehop.transport.envelope import PlainEncoder as UsualEncoder

WholeT = TypeVar("WholeT")

def decode_usual(whole_type: type[WholeT], data: bytes) -> WholeT | None: ...

__all__ = ["UsualEncoder", "decode_usual"]

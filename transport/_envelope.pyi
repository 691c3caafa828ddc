"""The compiled side of `envelope.py`: the usual event, quickly."""

from collections.abc import Mapping
from typing import Any, TypeVar

WholeT = TypeVar("WholeT")

def is_usual(
    topic: object,
    value: Any,
    key: object,
    headers: Mapping[str, str] | None,
    occurred_at_ns: object,
) -> bool: ...
def decode_usual(whole_type: type[WholeT], data: bytes) -> WholeT | None: ...

"""Requests that begin where a store has nothing.

A ring has no holes, a request server's store may: it was down, the disk was full, nobody had a
message any more. The protocol has no word for that, and silence would keep a requester from what
lies behind the hole. So a request that begins in a hole is

    moved on    to the first number in its range that is here: a packet of that is sent
    put off     while some of its range is expected: silence, the requester asks again
    refused     when all of its range is lost: an empty packet (the form of a heartbeat) with
                the first number behind the hole, as a desk does for what is evicted

Such an empty packet tells the requester that nothing below its number can be had here. It must
not be sent while it is asking for lower numbers too, which may be on their way: only the lowest
number a requester asks for is refused, and only when it has been so for `LOWEST_FOR_S`. By then
it would have asked again for anything lower that it lacks.
"""

from collections import OrderedDict
from dataclasses import dataclass
from typing import Generic

from .requests import AddressT
from .store import Shelf
from .wire import HEADER_BYTES, HEARTBEAT_COUNT, Header, decode_header, encode_header

LOWEST_FOR_S = 0.25
"""Three times the longest wait between two requests for the same message."""
MAX_REQUESTERS = 1024
"""Requesters remembered; beyond it the one longest unheard is forgotten."""


@dataclass(slots=True)
class _Lowest:
    number: int
    since: float
    asked_at: float


class Holes(Generic[AddressT]):
    """Decides over requests that begin in a hole."""

    def __init__(self) -> None:
        self.refused = 0
        """Requests for what will not come."""
        self._lowest: OrderedDict[tuple[AddressT, bytes], _Lowest] = OrderedDict()

    def steer(
        self, data: bytes, shelf: Shelf, address: AddressT, now: float
    ) -> tuple[bytes, bytes | None]:
        """Returns the request to be answered in place of `data`, and the refusal, if it is one."""
        if len(data) != HEADER_BYTES:
            return data, None
        request = decode_header(data)
        stop = min(request.sequence + request.message_count, shelf.next)
        if not shelf.first <= request.sequence < stop:
            return data, None
        here = shelf.first_here(request.sequence)
        if here == request.sequence:
            self._note(address, request, now)
            return data, None
        if here is not None and here < stop:
            count = request.message_count - (here - request.sequence)
            self._note(address, request, now)
            return encode_header(request.session, here, count), None
        was_lowest_for_s = self._note(address, request, now)
        if was_lowest_for_s < LOWEST_FOR_S or not shelf.is_lost(request.sequence, stop):
            return data, None
        self.refused += 1
        behind = shelf.next if here is None else here
        return data, encode_header(request.session, behind, HEARTBEAT_COUNT)

    def _note(self, address: AddressT, request: Header, now: float) -> float:
        """How long this number has been the lowest that `address` asks for."""
        key = address, request.session
        lowest = self._lowest.get(key)
        if lowest is None:
            lowest = self._lowest[key] = _Lowest(request.sequence, now, now)
            if len(self._lowest) > MAX_REQUESTERS:
                self._lowest.popitem(last=False)
        self._lowest.move_to_end(key)
        if request.sequence < lowest.number or now - lowest.asked_at > LOWEST_FOR_S:
            lowest.number, lowest.since = request.sequence, now
        if request.sequence == lowest.number:
            lowest.asked_at = now
            return now - lowest.since
        return 0.0

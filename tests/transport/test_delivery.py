"""An event for one subscriber alone: the event as it was, and where it comes from."""

from onehop.transport.envelope import (
    MAX_DELIVERY_BYTES,
    MAX_EVENT_BYTES,
    MAX_TOPIC_BYTES,
    EventEncoder,
    Whole,
    decode,
    encode_delivery,
)


def test_a_delivery_is_the_event_with_its_origin_in_headers() -> None:
    data = EventEncoder("me").encode("q.x", [1, b"y"], "k", 1, 2, {"own": "header"})
    whole = decode(encode_delivery("q", 2**64 - 1, 3, data))
    assert isinstance(whole, Whole)
    origin = {"onehop-stream": "q", "onehop-sequence": str(2**64 - 1), "onehop-attempt": "3"}
    assert whole == ("q.x", [1, b"y"], "k", "me", 1, 2, {"own": "header", **origin})


def test_the_largest_event_fits_a_delivery() -> None:
    overhead = len(EventEncoder("me").encode("t", bytes(70_000), None, 1, 2, None)) - 70_000
    data = EventEncoder("me").encode("t", bytes(MAX_EVENT_BYTES - overhead), None, 1, 2, None)
    assert len(data) == MAX_EVENT_BYTES
    delivery = encode_delivery("s" * MAX_TOPIC_BYTES, 2**64 - 1, 2**31, data)
    assert len(delivery) <= MAX_DELIVERY_BYTES
    assert isinstance(decode(delivery), Whole)

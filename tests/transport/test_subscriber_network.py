"""A subscriber and what a real network brings: foreign peers, garbage, forgeries, full buffers."""

import json
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest
from loopback import HEADER, Stranger, drops_at, group_of, new_url, take, until, values

from onehop.transport import Loss, open_publisher, open_subscriber
from onehop.transport.envelope import encode_piece
from onehop.transport.multicast import sockets
from onehop.transport.multicast.sockets import SmallBufferWarning

SESSION = b"SESSION001"
open_quick = partial(open_publisher, linger_s=0.0)


# -- foreign peers ---------------------------------------------------------------------------------


@pytest.mark.twin
def test_raw_payload_reads_a_foreign_sender() -> None:
    url = new_url(payload="raw")
    with open_subscriber(url) as events, Stranger(url) as stranger:
        stranger.send_packet(SESSION, 1, b"one", b"", b"three")
        stranger.send_packet(SESSION, 4, bytes(1000))
        received = take(events, 4)

    assert values(received) == [b"one", b"", b"three", bytes(1000)]
    assert [event.sequence for event in received] == [1, 2, 3, 4]
    assert {(event.source, event.topic) for event in received} == {("SESSION001", "")}
    assert all(event.received_at_ns for event in received)


def test_a_foreign_reader_sees_plain_moldudp64_of_a_raw_publisher() -> None:
    url = new_url(payload="raw", session="TENLETTERS")
    with Stranger(url) as stranger:
        stranger.listen()
        with open_quick(url) as publisher:
            assert stranger.hear()[:4] == (b"TENLETTERS", 1, 0, []), "a heartbeat opens it"
            publisher.publish("", b"one")
            assert stranger.hear_message() == (1, [b"one"])
            publisher.publish_many([("", b"two"), ("", b"three")])
            assert stranger.hear_message() == (2, [b"two", b"three"])
        while (packet := stranger.hear())[2] != 0xFFFF:
            assert packet[:4] == (b"TENLETTERS", 4, 0, []), "heartbeats name the next number"
        assert packet[:4] == (b"TENLETTERS", 4, 0xFFFF, [])


def test_requests_for_a_foreign_feed_go_to_where_its_data_comes_from() -> None:
    url = new_url(payload="raw")
    with open_subscriber(url) as events, Stranger(url) as stranger:
        stranger.send_packet(SESSION, 1, b"one")
        stranger.send_packet(SESSION, 4, b"four")
        session, first, count, asker = stranger.take_request()
        stranger.send_packet(SESSION, 2, b"two", b"three", to=asker)

        assert (session, first, count) == (SESSION, 2, 2)
        assert values(take(events, 4)) == [b"one", b"two", b"three", b"four"]
        assert events.ledger.recovered == 2


# -- garbage and forgeries -------------------------------------------------------------------------

GOOD = HEADER.pack(SESSION, 2, 1) + b"\0\3two"


@pytest.mark.twin
@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "short_header"),
        (GOOD[:19], "short_header"),
        (GOOD[:21], "truncated_block"),
        (GOOD[:-1], "truncated_block"),
        (GOOD + b"\0", "trailing_bytes"),
        (HEADER.pack(SESSION, 2, 0) + b"\0", "trailing_bytes"),
        (HEADER.pack(SESSION, 2, 2) + b"\0\3two", "wrong_count"),
        (HEADER.pack(SESSION, 0, 1) + b"\0\3two", "bad_sequence"),
        (HEADER.pack(SESSION, 2**64 - 1, 2) + b"\0\1a\0\1b", "bad_sequence"),
        (bytes(3000), "truncated"),
    ],
)
def test_a_malformed_datagram_is_counted_and_harms_nothing(data: bytes, reason: str) -> None:
    url = new_url(payload="raw")
    with open_subscriber(url) as events, Stranger(url) as stranger:
        stranger.send_packet(SESSION, 1, b"one")
        take(events, 1)
        stranger.send(data)
        stranger.send(GOOD)
        assert values(take(events, 1)) == [b"two"]
        stranger.send_packet(SESSION, 3)
        until(lambda: dict(events.ledger.ignored) == {reason: 1})
        ledger = events.ledger

    assert (ledger.expected, ledger.delivered, ledger.lost_total) == (2, 2, 0)


@pytest.mark.twin
def test_a_message_that_is_no_event_is_lost_as_malformed() -> None:
    url = new_url()
    with open_subscriber(url) as events, open_quick(url) as publisher, Stranger(url) as stranger:
        publisher.publish("t", 1)
        take(events, 1)
        stranger.send_packet(SESSION, 1, b"\xc1")
        (loss,) = [item for item in events.with_losses(0.2) if isinstance(item, Loss)]
        publisher.publish("t", 2)
        assert values(take(events, 1)) == [2]
        ledger = events.ledger

    assert (loss.first, loss.count, loss.reason) == (1, 1, "malformed")
    assert ledger.ignored["bad_messagepack"] == 1
    assert dict(ledger.lost) == {"malformed": 1}


def test_a_reply_from_an_address_that_is_no_server_is_counted_and_not_delivered() -> None:
    url = new_url(payload="raw")
    with open_subscriber(url) as events, Stranger(url) as stranger, Stranger(url) as liar:
        stranger.send_packet(SESSION, 1, b"one")
        stranger.send_packet(SESSION, 3, b"three")
        asker = stranger.take_request()[3]
        liar.send_packet(SESSION, 2, b"forged", to=asker)
        liar.send_packet(SESSION, 3, to=asker)  # forged: nobody has 2 any more
        until(lambda: events.ledger.ignored.get("foreign_reply") == 2)
        assert events.ledger.pending >= 2
        stranger.send_packet(SESSION, 2, b"two", to=asker)
        assert values(take(events, 3)) == [b"one", b"two", b"three"]
        assert events.ledger.lost_total == 0


@pytest.mark.parametrize("paths", [1, 2])
def test_a_reply_that_nobody_waits_for_is_read_and_counted(paths: int) -> None:
    """Left in its socket it would wake every wait to come."""
    group, port = group_of(new_url())
    url = new_url(payload="raw") + (f"&b={group}:{port}" if paths == 2 else "")
    with open_subscriber(url) as events, Stranger(url) as stranger:
        stranger.send_packet(SESSION, 1, b"one")
        stranger.send_packet(SESSION, 3, b"three")
        asker = stranger.take_request()[3]
        stranger.send_packet(SESSION, 2, b"two", to=asker)
        take(events, 3)
        stranger.send(b"junk", asker)
        stranger.send_packet(SESSION, 4)
        assert events.receive(0.05) is None
        until(lambda: events.ledger.ignored.get("short_header") == 1)


def test_an_event_whose_last_pieces_never_came_is_settled_at_close() -> None:
    url = new_url()
    with open_subscriber(url) as events, Stranger(url) as stranger:
        stranger.send_packet(SESSION, 1, encode_piece(0, 3, b"a"), encode_piece(1, 3, b"b"))
        until(lambda: events.ledger.expected == 2)
        assert events.ledger.pending == 2
        events.close()
        (loss,) = events.with_losses()

    assert isinstance(loss, Loss)
    assert (loss.first, loss.count, loss.reason) == (1, 2, "ended")
    assert events.ledger.pending == 0


# -- the kernel ------------------------------------------------------------------------------------

CHILD = """
import json, sys
from onehop.transport import open_subscriber
from onehop.transport.multicast import sockets
sockets.RECEIVE_BUFFER_BYTES = 100_000
with open_subscriber(sys.argv[1]) as events:
    count = int(sys.argv[2])
    stamps = []
    print("open", flush=True)
    for event in events:
        stamps.append(event.received_at_ns)
        if len(stamps) == 1:
            print("first", flush=True)
        if len(stamps) == count:
            break
    print("all", flush=True)
    sys.stdin.readline()
    ledger = events.ledger
    print(json.dumps([ledger.kernel_drops, ledger.delivered, ledger.recovered, ledger.lost_total,
                      stamps[1]]))
"""


@pytest.mark.twin
def test_a_stopped_subscriber_counts_the_kernels_drops_and_recovers_them() -> None:
    url, count = new_url(), 500
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, url, str(count)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    with child, open_quick(url) as publisher, ExitStack() as at_the_end:
        at_the_end.callback(child.kill)
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stdout.readline() == "open\n"
        publisher.publish("t", bytes(1000))
        assert child.stdout.readline() == "first\n"
        child.send_signal(signal.SIGSTOP)
        for _ in range(count - 1):
            publisher.publish("t", bytes(1000))
        assert drops_at(url) > 100
        continued_at_ns = time.time_ns()
        child.send_signal(signal.SIGCONT)
        assert child.stdout.readline() == "all\n"
        drops = drops_at(url)
        child.stdin.write("\n")
        child.stdin.flush()
        kernel_drops, delivered, recovered, lost, stamp = json.loads(child.stdout.readline())

    assert kernel_drops == drops
    assert (delivered, lost) == (count, 0)
    assert 100 < recovered <= drops, "each datagram held one event; heartbeats were dropped too"
    assert stamp < continued_at_ns, "the kernel stamped it when it came, not when it was read"


def test_a_clamped_receive_buffer_warns_once_with_the_sysctl_to_raise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    too_much = int(Path("/proc/sys/net/core/rmem_max").read_text()) + 1
    monkeypatch.setattr(sockets, "RECEIVE_BUFFER_BYTES", too_much)
    monkeypatch.setattr(sockets, "_has_warned", False)
    with (
        pytest.warns(SmallBufferWarning, match=f"net.core.rmem_max={too_much}") as warnings,
        open_subscriber(new_url()),
        open_subscriber(new_url()),
    ):
        pass

    assert len(warnings) == 1

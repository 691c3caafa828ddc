"""A publisher over ZeroMQ: an XPUB socket for everyone, a ROUTER for those who miss something.

Both sockets are used under the publisher's lock only: ZeroMQ's are not safe for two threads at
once. A descriptor of ZeroMQ tells of something once, and a `send` may use that up; so while events
are being sent the service thread looks at the sockets every few milliseconds without being told.

An event goes out at once. Two cases are better off with several events in one message: those that
are published in one turn of an event loop, which leave together at its end; and a flood, more than
`FLOOD` events each within `QUICK_S` of the one before. What is left of a flood when it ends is
sent by the service thread.
"""

import asyncio
import os
import select
import threading
import time
from collections import Counter
from pathlib import Path

import zmq

from ..datagrams import Address
from ..errors import Closed
from ..group_account import GroupSnapshot
from ..mold.requests import RequesterCounts
from ..mold.sessions import epoch_of
from ..publisher import IDLE_S, Publisher, PublisherSnapshot
from .address import Endpoint, ZeroMQAddress
from .doorkeeper import Doorkeeper
from .frames import FrameSender
from .handshakes import Handshakes
from .keys import Security
from .sockets import (
    bind,
    clock_name,
    connect,
    new_context,
    new_socket,
    secure_client,
    secure_server,
)
from .streams import Streams, StreamsOptions
from .wire import stream_of

_running_loop = asyncio._get_running_loop  # None, where get_running_loop raises: half the cost

LOOK_AGAIN_S = IDLE_S
"""How long a newcomer may wait while events are being sent; no event has to wake the service."""
LONGEST_SLEEP_S = 1.0
DRAIN_POLL_S = 0.001
"""How often `drain` looks whether a subscriber has gone on."""
QUICK_S = 0.00005
"""Events closer than this follow each other without a pause."""
FLOOD = 16
"""So many without a pause are a flood; fewer are sent one by one."""
HOLD_S = 0.0001
"""How long a flood is packed before it is sent."""
REST_S = 0.001
"""How long after it the service thread sends what is left of it."""
MOST_AT_ONCE = 256
"""Subscriptions, and requests, that are taken before events get their turn again."""


class ZeroMQPublisher(Publisher):
    """The streams of one source on one pair of sockets."""

    def __init__(
        self,
        url: str,
        address: ZeroMQAddress,
        source: str,
        options: StreamsOptions,
        linger_s: float,
    ) -> None:
        self._streams = Streams(source, options, time.monotonic(), clock_name())
        self._outlet = self._streams.outlet
        super().__init__(
            url, source, epoch_of(self._streams.epoch), linger_s, number=self._outlet.number
        )
        self._waited_for = self._streams.blockers.by_name
        self._room = threading.Condition(self._lock)  # told when a subscriber has gone on
        self._flushing: asyncio.AbstractEventLoop | None = None  # at the end of its turn
        self._published_at = self._packed_at = 0.0
        self._in_a_row = 0
        self._is_holding = False  # the service thread is to send what is packed
        self._has_sent = False  # since the service thread looked
        self._is_busy = False  # something had been sent when it did
        self._context = new_context()
        self._doorkeeper: Doorkeeper | None = None
        self._handshakes = Handshakes()
        self._bound: list[Path] = []
        try:
            self._out = new_socket(self._context, zmq.XPUB, send_hwm=address.hwm)
            self._frames = FrameSender(self._out)
            self._out.setsockopt(zmq.XPUB_VERBOSE, 1)  # who comes back is to be seen too
            self._side = new_socket(self._context, zmq.ROUTER)
            self._side.setsockopt(zmq.ROUTER_HANDOVER, 1)  # who comes back has the same name
            for sock in (self._out, self._side):
                self._handshakes.watch(sock)
            self._open(address)
        except BaseException:
            self._free()
            os.close(self._wake_fd)
            raise
        self._service.start()

    def _open(self, address: ZeroMQAddress) -> None:
        is_binding = address.bind == "publisher"
        security = address.security("publisher")
        self._secure(security, is_binding)
        for endpoint in address.endpoints:
            if is_binding:
                bound = bind(self._out, endpoint)
                self._bound += endpoint.files
                self.url = self.url.replace(
                    endpoint.text.removeprefix("tcp://"), bound.removeprefix("tcp://"), 1
                )
            else:
                connect(self._out, endpoint.text)
        side = address.side(self._streams.epoch.decode())
        where = bind(self._side, side)
        self._bound += side.files
        self._side_address: Address = (side.host or where, 0)
        if side.host:
            port = int(where.rpartition(":")[2])
            self._side_address = (side.host.strip("[]"), port)
            if is_binding:  # known by whatever name a subscriber has for it
                for host in dict.fromkeys(endpoint.host for endpoint in address.endpoints[1:]):
                    if host != side.host:
                        bind(self._side, Endpoint(f"tcp://{host}:{port}", host, port))
                where = f"tcp://*:{port}"
        self._streams.side = where

    def _secure(self, security: Security | None, is_binding: bool) -> None:
        if security is None:
            return
        allowed = security.allowed
        if is_binding:
            secure_server(self._out, security)
        else:
            secure_client(self._out, security, security.server_key)
            if security.server_key is not None:
                allowed = {security.server_key: "subscriber"}  # nobody else has business there
        secure_server(self._side, security)
        self._streams.key = security.own.public
        self._doorkeeper = Doorkeeper(self._context, allowed, Counter())

    @property
    def stats(self) -> PublisherSnapshot:
        """What has been done up to now."""
        with self._lock:
            streams, counts = self._streams, self._streams.desk.counts
            refused = self._handshakes.failed.copy()
            if self._doorkeeper is not None:
                refused.update(dict(self._doorkeeper.refused))  # copied at once
            return PublisherSnapshot(
                source=self.source,
                epoch=self.epoch,
                session=streams.epoch.decode(),
                sent=streams.sent,
                events=self._events,
                requests=counts["requests"],
                requests_served=counts["served"],
                retransmitted=counts["retransmitted"],
                evicted=counts["evicted"],
                ignored_requests=Counter(streams.desk.ignored) + streams.ignored,
                send_errors=self._send_errors,
                ring_first=streams.ring_first,
                ring_bytes=streams.outlet.size_bytes,
                subscribers=len(streams.subscribers),
                disconnected=streams.blockers.disconnected,
                refused=dict(refused),
            )

    @property
    def groups(self) -> dict[str, GroupSnapshot]:
        """The account of each group of subscribers that share the events, by name."""
        with self._lock:
            return {group.terms.group: group.snapshot() for group in self._streams.private.groups}

    @property
    def requesters(self) -> dict[Address, RequesterCounts]:
        """Who asked for how much: the receiver that loses most stands out."""
        with self._lock:
            return self._streams.desk.requesters

    @property
    def address(self) -> Address:
        """Where requests for this publisher's messages go."""
        return self._side_address

    # -- what a transport says -------------------------------------------------------------------

    def _wait_for_room(self, topic: str) -> None:
        streams = self._streams
        if _running_loop() is not None:
            return
        stream = stream_of(topic)
        full = streams.to_wait_for(stream)
        if not full:
            return
        started = time.monotonic()
        self._send_all(started)  # nobody can take what has not been sent
        while full and not self._is_closed:
            now = time.monotonic()
            late = [blocker for blocker in full if now >= started + blocker.timeout_s]
            if late:
                streams.give_up(late)
                self._wake()
            else:
                self._room.wait(min(started + blocker.timeout_s - now for blocker in full))
            full = streams.to_wait_for(stream)
        if self._is_closed:
            raise Closed("the publisher is closed")

    async def drain(self) -> None:
        """Sends what is packed, and waits for subscribers that asked to be waited for."""
        await super().drain()
        started = time.monotonic()
        while True:
            with self._lock:
                full = self._streams.blockers.full()
                late = [b for b in full if time.monotonic() >= started + b.timeout_s]
                if late:
                    self._streams.give_up(late)
                    self._wake()
            if not full or self._is_closed:
                return
            await asyncio.sleep(DRAIN_POLL_S)

    def _send_full(self) -> None:
        if self._outlet.has_messages:
            self._send(self._outlet.take_full())

    def _send_all(self, now: float) -> None:
        self._send(self._outlet.take_all())
        if self._streams.private.groups.by_name:
            for message, subscriber in self._streams.private_messages(now):
                self._reply(bytes.fromhex(subscriber[0]), message)

    def _send_soon(self, now: float) -> None:
        if (loop := _running_loop()) is not None:
            self._send_with_turn(loop)
            return
        is_quick = now - self._published_at < QUICK_S
        self._published_at = now
        self._in_a_row = self._in_a_row + 1 if is_quick else 0
        if self._in_a_row < FLOOD or now - self._packed_at > HOLD_S:
            self._packed_at = now
            self._send_all(now)
            return
        self._send_full()
        if not self._is_holding:
            self._is_holding = True
            self._wake()

    def _send_with_turn(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._flushing is not loop:
            self._flushing = loop
            loop.call_soon(self._flush_turn)
        self._send_full()

    def _flush_turn(self) -> None:
        self._flushing = None
        self.flush()

    def _count_subscribers(self) -> int:
        with self._lock:
            return len(self._streams.subscribers)

    def _fds(self) -> list[int]:
        return [self._out.fileno(), self._side.fileno()]

    def _next_timeout(self) -> float:
        sleep_s = LOOK_AGAIN_S if self._has_sent or self._is_busy else LONGEST_SLEEP_S
        if self._is_holding:
            sleep_s = REST_S
        return min(self._streams.next_timeout(), time.monotonic() + sleep_s)

    def _sleep(self, poll: "select.poll", timeout_s: float) -> list[tuple[int, int]]:
        ready = super()._sleep(poll, timeout_s)
        look_at = time.monotonic() + LOOK_AGAIN_S
        while not ready and self._is_holding:  # as long as the flood goes on it sends itself
            now = time.monotonic()
            if now >= look_at or now >= self._packed_at + REST_S:
                break
            ready = super()._sleep(poll, min(REST_S, look_at - now))
        return ready

    def _end(self, now: float) -> None:
        self._streams.end()
        self._send_all(now)

    def _free(self) -> None:
        if self._doorkeeper is not None:
            self._doorkeeper.close()
        self._handshakes.close()
        for path in self._bound:  # before somebody else can have bound to it
            path.unlink(missing_ok=True)
        self._bound.clear()
        self._context.destroy(linger=int(self._linger_s * 1e3))

    def _send(self, messages: list[bytes]) -> None:
        if not messages:
            return
        self._has_sent = True
        self._frames.send(messages)

    def _answer(self) -> None:
        with self._lock:
            # While events flow it looks again by itself: else each of them would have to wake it.
            self._is_busy, self._has_sent = self._has_sent, False
            now = time.monotonic()
            self._is_holding = self._is_holding and now - self._packed_at < REST_S
            streams = self._streams
            for data in self._take(self._out):
                streams.receive_subscription(data[0] if len(data) == 1 else b"", now)
            for frames in self._take(self._side):
                if len(frames) != 2:
                    streams.ignored["malformed"] += 1
                else:
                    streams.receive_request(frames[1], (frames[0].hex(), 0), now)
            self._room.notify_all()
            streams.handle_timeout(now)
            self._handshakes.look()
            if self._batches or self._is_holding:  # it is being packed; the rest when it ends
                self._send_full()
            else:
                self._send_all(now)
            for reply, requester in streams.private_messages(now) + streams.replies(now):
                self._reply(bytes.fromhex(requester[0]), reply)

    def _take(self, sock: zmq.Socket[bytes]) -> list[list[bytes]]:
        taken: list[list[bytes]] = []
        while len(taken) < MOST_AT_ONCE:
            try:
                taken.append(sock.recv_multipart(zmq.DONTWAIT))
            except zmq.Again:
                return taken
        self._has_sent = True  # there may be more, and nobody will tell
        return taken

    def _reply(self, name: bytes, reply: bytes) -> None:
        self._has_sent = True
        try:
            self._side.send_multipart((name, reply), zmq.DONTWAIT)
        except zmq.ZMQError:
            self._send_errors += 1  # its way is full: it asks again

"""Encryption, authentication, and what happens to those who are not let in."""

import stat
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import zmq
from zmq import auth

from onehop.transport import ConfigurationError, LocalError, open_publisher, open_subscriber
from onehop.transport.zeromq.keys import KeyPair, load_allowed, load_pair, load_public, new_keys

TCP = "zmq+tcp://127.0.0.1:0"
WAIT_S = 10.0


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    for name in ("server", "client", "stranger"):
        new_keys(name, tmp_path)
    (tmp_path / "allowed").mkdir()
    (tmp_path / "allowed" / "client.key").write_bytes((tmp_path / "client.key").read_bytes())
    return tmp_path


def until(holds: Callable[[], bool]) -> None:
    give_up_at = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < give_up_at
        time.sleep(0.001)


def test_files_are_for_their_owner_alone_and_read_by_other_tools(tmp_path: Path) -> None:
    public, secret = new_keys("me", tmp_path / "new" / "directory")

    assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    assert auth.load_certificate(secret) == (load_pair(secret).public, load_pair(secret).secret)
    assert auth.load_certificate(public) == (load_public(secret), None)
    assert load_pair(secret).secret.decode() not in repr(load_pair(secret))
    assert zmq.curve_public(load_pair(secret).secret) == load_public(public)


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    public, secret = new_keys("me", tmp_path)
    before = secret.read_bytes()
    with pytest.raises(LocalError, match=r"cannot write .*me\.key_secret: File exists"):
        new_keys("me", tmp_path)
    assert secret.read_bytes() == before
    assert load_public(public) == load_pair(secret).public


@pytest.mark.parametrize("name", ["", "a/b", ".hidden", "a\nb"])
def test_a_bad_name_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigurationError, match="is no name for a key"):
        new_keys(name, tmp_path)


def test_bad_files_are_one_clear_sentence(keys: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"has no secret key; give the \.key_secret file"):
        load_pair(keys / "server.key")
    (keys / "server.key_secret").chmod(0o640)
    with pytest.raises(LocalError, match=r"can be read by others \(mode 640\): chmod 600"):
        load_pair(keys / "server.key_secret")
    with pytest.raises(LocalError, match="cannot read a key from /no/such"):
        load_public(Path("/no/such"))
    (keys / "odd").write_text('public-key = "short"')
    with pytest.raises(LocalError, match="a key of 5 letters, expected 40"):
        load_public(keys / "odd")
    (keys / "empty").mkdir()
    with pytest.raises(ConfigurationError, match="nobody would be let in"):
        load_allowed(keys / "empty")


def test_events_and_repairs_go_encrypted_to_one_who_is_known(keys: Path) -> None:
    server = f"?key={keys}/server.key_secret&allow={keys}/allowed"
    client = f"?key={keys}/client.key_secret&server_key={keys}/server.key"
    with open_publisher(TCP + server, "me", linger_s=0.0) as publisher:
        publisher.publish_many(("q.x", number) for number in range(100))
        url = publisher.url.partition("?")[0]
        with open_subscriber(url + client, start="first") as subscriber:
            publisher.ready(timeout_s=WAIT_S)
            publisher.publish("q.x", 100)
            found = [subscriber.receive(WAIT_S) for _ in range(101)]
            recovered = subscriber.ledger.recovered
        stats = publisher.stats

    assert [event.value for event in found if event is not None] == list(range(101))
    assert recovered == 100
    assert stats.refused == {}


@pytest.mark.parametrize(
    "how", ["no keys", "a key that is not on the list", "a random key", "another server's key"]
)
def test_others_get_nothing_and_are_named(keys: Path, how: str) -> None:
    server = f"?key={keys}/server.key_secret&allow={keys}/allowed"
    options = {
        "no keys": "",
        "a key that is not on the list": (
            f"?key={keys}/stranger.key_secret&server_key={keys}/server.key"
        ),
        "a random key": f"?server_key={keys}/server.key",
        "another server's key": f"?key={keys}/client.key_secret&server_key={keys}/stranger.key",
    }[how]
    with open_publisher(TCP + server, "me", linger_s=0.0) as publisher:
        publisher.publish("q.x", "secret")
        with open_subscriber(publisher.url.partition("?")[0] + options, start="first") as stranger:
            assert stranger.receive(0.3) is None
            assert stranger.ledger.expected == 0
            if how in ("a key that is not on the list", "a random key"):
                until(lambda: bool(publisher.stats.refused))
            refused = publisher.stats.refused
            assert publisher.stats.subscribers == 0

    named = load_public(keys / "stranger.key").decode()
    if how == "a key that is not on the list":
        ((name, times),) = refused.items()
        assert name == f"refused {named} at 127.0.0.1"
        assert times >= 1


def test_without_a_list_whoever_knows_the_server_is_let_in(keys: Path) -> None:
    with open_publisher(TCP + f"?key={keys}/server.key_secret", "me", linger_s=0.0) as publisher:
        url = publisher.url.partition("?")[0] + f"?server_key={keys}/server.key"
        with open_subscriber(url) as subscriber:
            publisher.ready(timeout_s=WAIT_S)
            publisher.publish("q.x", 1)
            assert subscriber.receive(WAIT_S) is not None


def test_the_other_way_round_the_subscriber_has_the_list(keys: Path) -> None:
    where = f"zmq+ipc://{keys}/in?bind=subscriber"
    server = f"{where}&key={keys}/server.key_secret&allow={keys}/allowed"
    client = f"{where}&key={keys}/client.key_secret&server_key={keys}/server.key"
    stranger = f"{where}&key={keys}/stranger.key_secret&server_key={keys}/server.key"
    with (
        open_subscriber(server, start="first") as subscriber,
        open_publisher(client, "me", linger_s=0.0) as publisher,
        open_publisher(stranger, "liar", linger_s=0.0) as liar,
    ):
        liar.publish("q.x", "a lie")
        publisher.publish("q.x", 1)
        event = subscriber.receive(WAIT_S)
        named = load_public(keys / "stranger.key").decode()
        until(lambda: any(named in reason for reason in subscriber.ledger.ignored))
        recovered = subscriber.ledger.recovered
        with pytest.raises(LocalError, match="0 of 1"):
            liar.ready(timeout_s=0.05)

    assert event is not None
    assert (event.source, event.value) == ("me", 1)
    assert recovered == 1  # from before it was connected: the side channel is encrypted too


@pytest.mark.parametrize(
    ("role", "options", "sentence"),
    [
        ("publisher", "allow=KEYS/allowed", "the publisher binds: give it key="),
        ("publisher", "server_key=KEYS/server.key", "the publisher binds: give it key="),
        ("subscriber", "key=KEYS/client.key_secret", "the subscriber connects: give it server_key"),
        ("subscriber", "allow=KEYS/allowed", "the subscriber connects: give it server_key"),
    ],
)
def test_keys_that_do_not_go_together_are_refused(
    keys: Path, role: str, options: str, sentence: str
) -> None:
    url = "zmq+tcp://127.0.0.1:1?" + options.replace("KEYS", str(keys))
    with pytest.raises(ConfigurationError, match=sentence):
        open_publisher(url) if role == "publisher" else open_subscriber(url)


def test_a_random_pair_is_a_pair() -> None:
    pair = KeyPair.random()

    assert zmq.curve_public(pair.secret) == pair.public

import shutil
import subprocess
from collections.abc import Callable, Iterable, Sequence
from math import sqrt
from pathlib import Path

import pytest

from onehop.transport.datagrams import Address, Received
from onehop.transport.faults import LossyPort, Xorshift
from onehop.transport.lane import NOW, Lane, PythonLane
from onehop.transport.ports import BATCH

FLOORS = Path(__file__).parents[2] / "bench" / "floors"
ORIGIN: Address = ("10.0.0.1", 7400)
SEEDS = (1, 7, 20_260_101, 2**53)
DRAWS_IN_C = """
#include "mold.h"
int main(int argc, char **argv) {
    struct setting settings[] = {{"--seed", "1"}, {"--loss", "0"}, {NULL, NULL}};
    parse_settings(argc, argv, settings);
    struct loss loss = open_loss(settings);
    for (int draw = 0; draw < 10000; draw++) {
        bool is_lost = is_dropped(&loss);
        printf("%" PRIu64 " %d\\n", loss.state >> 11, is_lost);
    }
}
"""


class FakePort:
    """Hands out prepared batches."""

    def __init__(self, batches: Iterable[list[Received]] = ()) -> None:
        self.batches = list(batches)
        self.sent: list[tuple[bytes, Address]] = []
        self.address: Address = ("127.0.0.1", 5)
        self.kernel_drops = 3
        self.truncated = 4
        self.lost_on_purpose = self.refused = 0
        self.trouble = None
        self.tells_once = self.has_more = False
        self.is_closed = False
        self.is_woken = False

    def fileno(self) -> int:
        return 12

    def receive(self) -> list[Received]:
        return self.batches.pop(0) if self.batches else []

    def receive_wait(self, timeout_s: float | None) -> list[Received]:
        return self.receive()

    def spin(self, timeout_s: float) -> list[Received]:
        return self.receive_wait(timeout_s)

    def open_lane(
        self,
        *,
        is_raw: bool,
        topics: tuple[str, ...],
        is_lost: Callable[[], bool] | None = None,
    ) -> Lane:
        return PythonLane(self, is_raw=is_raw, topics=topics, is_lost=is_lost)

    def wake(self) -> None:
        self.is_woken = True

    def send(self, datagrams: Sequence[tuple[bytes, Address]]) -> int:
        self.sent += datagrams
        return len(datagrams)

    def close(self) -> None:
        self.is_closed = True


def batches(count: int) -> list[list[Received]]:
    datagrams: list[Received] = [(b"%d" % number, ORIGIN, number) for number in range(count)]
    return [datagrams[at : at + BATCH] for at in range(0, count, BATCH)]


def kept_numbers(count: int, loss: float, seed: int) -> list[int]:
    port = LossyPort(FakePort(batches(count)), loss, Xorshift(seed))
    return [number for _ in range(count // BATCH + 1) for _, _, number in port.receive()]


def tolerance(chance: float, trials: int) -> float:
    """Five standard deviations of a binomial share."""
    return 5 * sqrt(chance * (1 - chance) / trials)


# -- the generator ---------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
def test_the_same_seed_gives_the_same_numbers(seed: int) -> None:
    one, two, other = Xorshift(seed), Xorshift(seed), Xorshift(seed - 1)
    drawn = [one.random() for _ in range(100)]

    assert drawn == [two.random() for _ in range(100)]
    assert drawn != [other.random() for _ in range(100)]


@pytest.mark.parametrize("seed", [0, *SEEDS])
def test_numbers_are_evenly_spread_over_zero_to_one(seed: int) -> None:
    dice = Xorshift(seed)
    drawn = [dice.random() for _ in range(20_000)]

    assert all(0.0 <= number < 1.0 for number in drawn)
    for tenth in range(10):
        share = sum(tenth <= 10 * number < tenth + 1 for number in drawn) / len(drawn)
        assert share == pytest.approx(0.1, abs=tolerance(0.1, len(drawn)))


@pytest.fixture(scope="module")
def draws_in_c(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("gcc") is None:
        pytest.skip("needs gcc to compile the floors' generator")
    folder = tmp_path_factory.mktemp("draws")
    source, program = folder / "draws.c", folder / "draws"
    source.write_text(DRAWS_IN_C)
    command = ["gcc", "-O2", "-I", str(FLOORS), "-o", str(program), str(source)]
    subprocess.run(command, check=True, timeout=60)
    return program


@pytest.mark.parametrize("seed", [1, 7, 20_260_101, 10**15])  # the floors take seeds up to 1e15
def test_a_c_program_draws_the_same_and_loses_the_same(draws_in_c: Path, seed: int) -> None:
    command = [str(draws_in_c), "--seed", str(seed), "--loss", "0.05"]
    output = subprocess.run(command, check=True, timeout=60, capture_output=True, text=True).stdout
    lines = [line.split() for line in output.splitlines()]
    dice = Xorshift(seed)

    assert len(lines) == 10_000
    assert [int(draw) for draw, _ in lines] == [int(dice.random() * 2**53) for _ in lines]
    kept_in_c = [number for number, (_, is_lost) in enumerate(lines) if is_lost == "0"]
    assert kept_in_c == kept_numbers(10_000, 0.05, seed)


# -- the port that loses ---------------------------------------------------------------------------


@pytest.mark.parametrize("loss", [0.001, 0.02, 0.05, 0.5, 0.99])
def test_the_share_lost_is_the_one_asked_for(loss: float) -> None:
    count = 40_000

    lost = 1 - len(kept_numbers(count, loss, seed=7)) / count

    assert lost == pytest.approx(loss, abs=tolerance(loss, count))


@pytest.mark.parametrize(("loss", "kept"), [(0.0, 1000), (1.0, 0)])
def test_nothing_or_everything_is_lost(loss: float, kept: int) -> None:
    assert len(kept_numbers(1000, loss, seed=7)) == kept


def test_the_same_seed_loses_the_same() -> None:
    assert kept_numbers(1000, 0.1, seed=7) == kept_numbers(1000, 0.1, seed=7)
    assert kept_numbers(1000, 0.1, seed=7) != kept_numbers(1000, 0.1, seed=8)


def test_what_is_lost_is_counted_and_the_rest_is_untouched() -> None:
    everything = [datagram for batch in batches(1000) for datagram in batch]
    port = LossyPort(FakePort(batches(1000)), 0.3, Xorshift(7))

    kept = [datagram for _ in range(20) for datagram in port.receive()]

    assert kept == [datagram for datagram in everything if datagram in set(kept)]
    assert port.lost_on_purpose == 1000 - len(kept) > 0


def test_fewer_than_a_batch_still_means_that_nothing_waits() -> None:
    behind = FakePort(batches(10 * BATCH + 1))
    port = LossyPort(behind, 0.5, Xorshift(7))

    while len(received := port.receive()) >= BATCH:
        assert len(received) < 2 * BATCH

    assert behind.batches == []


def test_a_lane_loses_the_same() -> None:
    port = LossyPort(FakePort(batches(1000)), 0.1, Xorshift(7))
    lane = port.open_lane(is_raw=True, topics=())
    lane.open(b"SESSION   ", ORIGIN, "", 0)
    lane.expect(1)

    # None of these is a packet of the session: what was not lost is handed on as it is.
    kept = [number for _ in range(1000 // BATCH + 1) for _, _, number in lane.read(NOW, 0.0)]

    assert kept == kept_numbers(1000, 0.1, seed=7)
    assert port.lost_on_purpose == 1000 - len(kept)


def test_everything_else_is_that_of_the_port_behind() -> None:
    behind = FakePort()
    port = LossyPort(behind, 1.0, Xorshift(7))

    assert (port.address, port.kernel_drops, port.truncated) == (("127.0.0.1", 5), 3, 4)
    assert port.fileno() == 12
    assert port.send([(b"request", ORIGIN)]) == 1
    assert behind.sent == [(b"request", ORIGIN)]
    port.wake()
    port.close()
    assert (behind.is_woken, behind.is_closed) == (True, True)

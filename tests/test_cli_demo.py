"""`onehop demo`, run as a process."""

import re
import signal

import pytest
from command_line import Finished, onehop, running

SUM = re.compile(
    r"expected ([\d,]+) = delivered ([\d,]+) \+ filtered 0 \+ pending 0 \+ lost ([\d,]+)"
)
VERDICT = re.compile(r"  subscriber [12]: ([\d,]+) sent = ([\d,]+) delivered \+ ([\d,]+) lost")


def check_accounts(done: Finished) -> int:
    """Both ledgers and the verdict are there and agree; returns how many events were sent."""
    assert done.code == 0, done.err
    assert "Traceback" not in done.err
    *_, head, one, other = done.out.splitlines()
    assert head == "every event is accounted for:"
    ledgers = [tuple(map(number, match.groups())) for match in SUM.finditer(done.out)]
    verdicts = [tuple(map(number, match.groups())) for match in VERDICT.finditer(f"{one}\n{other}")]
    assert len(ledgers) == 2
    assert verdicts == ledgers
    sent = {verdict[0] for verdict in verdicts}
    assert len(sent) == 1
    return sent.pop()


def number(text: str) -> int:
    return int(text.replace(",", ""))


def test_it_ends_with_the_ledger_of_each_and_the_verdict() -> None:
    done = onehop("demo", "--seconds", 1, "--rate", 500, "--loss", 0.1)

    assert check_accounts(done) == 500
    assert all(int(recovered) > 10 for recovered in re.findall(r"recovered (\d+)", done.out)[-2:])
    assert "10.0% of its datagrams" in done.out


@pytest.mark.parametrize("signal_number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_it_still_closes_the_account(signal_number: int) -> None:
    with running("demo", "--seconds", 60, "--rate", 500) as command:
        head = [command.out.readline() for _ in range(3)]  # the third tells how it goes
        done = command.finish(signal_number)

    assert head[2].startswith("sent ")
    assert "interrupted: closing the account early" in done.out
    assert 0 < check_accounts(done) < 30_000


def test_help_fits_eighty_columns() -> None:
    for arguments in ([], ["demo"]):
        done = onehop(*arguments, "--help")
        assert done.code == 0
        assert max(map(len, done.out.splitlines())) <= 80

import pytest

pytest_plugins = ["pytester"]


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_ADDOPTS", "-p no:cacheprovider")


def test_a_users_test_sends_and_receives_under_loss(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        from onehop.transport import open_publisher, open_subscriber

        def test_quotes_survive_loss(memory_network):
            network = memory_network(loss=0.05, duplicate=0.05, seed=7)
            with (
                open_subscriber(network.url, start="first") as events,
                open_publisher(network.url, "quotes") as publisher,
            ):
                for number in range(500):
                    publisher.publish("quotes.AAPL", number)
                assert [events.receive(timeout_s=10).value for _ in range(500)] == list(range(500))
                ledger = events.ledger
            assert ledger.is_balanced
            assert (ledger.delivered, ledger.lost_total) == (500, 0)
            assert ledger.recovered > 0
            assert network.counts["lost"] > 0
        """
    )

    result = pytester.runpytest_subprocess("-W", "error")

    result.assert_outcomes(passed=1)


def test_a_test_may_have_several_networks_each_with_its_faults(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        from onehop.transport.memory import Faults

        def test_networks(memory_network):
            calm, rough = memory_network(), memory_network(seed=9, loss=0.5, reorder_s=0.001)
            assert calm.url != rough.url
            assert (calm.seed, calm.faults) == (1, Faults())
            assert (rough.seed, rough.faults) == (9, Faults(loss=0.5, reorder_s=0.001))
        """
    )

    pytester.runpytest_subprocess().assert_outcomes(passed=1)


def test_a_network_is_gone_after_its_test(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import threading
        from onehop.transport.memory import MemoryNetwork

        names = []

        def test_one(memory_network):
            network = memory_network(delay_s=60.0)
            a, b = network.open_port(), network.open_port()
            a.send([(b"never", b.address)])
            names.append(network.name)

        def test_two():
            MemoryNetwork(names[0]).close()  # the name is free again
            assert threading.active_count() == 1
        """
    )

    pytester.runpytest_subprocess("-p", "no:timeout").assert_outcomes(passed=2)


def test_the_report_of_a_failing_test_shows_seed_and_faults(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        def test_fails(memory_network):
            memory_network(seed=12345, loss=0.25)
            assert False

        def test_passes(memory_network):
            memory_network(seed=54321)
        """
    )

    result = pytester.runpytest_subprocess()

    result.assert_outcomes(failed=1, passed=1)
    result.stdout.fnmatch_lines(["memory://network-* seed=12345 {'loss': 0.25}"])
    result.stdout.no_fnmatch_line("*54321*")


def test_a_fault_that_does_not_exist_fails_the_test_by_name(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_typo(memory_network): memory_network(los=0.1)")

    result = pytester.runpytest_subprocess()

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*unexpected keyword argument 'los'*"])


def test_the_fixture_explains_itself(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest_subprocess("--fixtures")

    result.stdout.fnmatch_lines(["memory_network*", "*Makes networks*"])

"""The shape of the package: who may import whom, and what its public face is."""

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest

import onehop.transport
from onehop.transport import mold

PACKAGE = Path(__file__).parent.parent / "src" / "onehop"
FORBIDDEN = {
    "transport": {
        "bench",
        "bridge",
        "cli",
        "commands",
        "config",
        "dashboard",
        "metrics",
        "webhooks",
    },
    "metrics": {"bench", "bridge", "cli", "commands", "webhooks"},
    "webhooks": {"bench", "bridge", "cli", "commands", "metrics"},
    "bridge": {"bench", "cli", "commands", "metrics", "webhooks"},
}
"""Data moves one way; what these folders say to each other they say by events."""
IMPURE = {"asyncio", "logging", "os", "select", "socket", "subprocess", "threading", "time"}
"""What a core has no use for: everything that happens to it is an argument."""
SHARED = {("store.py", "threading.RLock")}
"""The request server's threads share its store: a lock, and nothing that waits or tells time."""


def modules(folder: Path) -> Iterator[Path]:
    yield from sorted(path for path in folder.rglob("*.py*") if path.suffix in (".py", ".pyx"))


def imports(path: Path) -> Iterator[str]:
    """The full names of the modules that a file imports, wherever in it."""
    place = path.relative_to(PACKAGE.parent).with_suffix("").parts
    if path.suffix == ".pyx":
        for line in map(str.split, path.read_text().splitlines()):
            if line[:1] in (["import"], ["from"], ["cimport"]):
                yield line[1]
        return
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = list(place[: -node.level]) if node.level else []
            base += [node.module] if node.module else []
            yield from (".".join([*base, alias.name]) for alias in node.names)


@pytest.mark.parametrize("folder", sorted(FORBIDDEN))
def test_nothing_imports_upwards(folder: str) -> None:
    above = {f"onehop.{name}" for name in FORBIDDEN[folder]}
    wrong = [
        f"{path.relative_to(PACKAGE)} imports {name}"
        for path in modules(PACKAGE / folder)
        for name in imports(path)
        if ".".join(name.split(".")[:2]) in above
    ]

    assert wrong == []


def test_the_cores_do_no_input_or_output_and_have_no_clock() -> None:
    cores = list(modules(PACKAGE / "transport" / "mold"))
    wrong = [
        f"{path.name} imports {name}"
        for path in cores
        for name in imports(path)
        if name.split(".")[0] in IMPURE and (path.name, name) not in SHARED
    ]

    assert len(cores) > 8
    assert wrong == []


def test_the_cores_import_nothing_of_the_shells() -> None:
    shells = {"datagrams", "intake", "lane", "memory", "multicast", "ports", "publisher"}
    wrong = [
        f"{path.name} imports {name}"
        for path in modules(PACKAGE / "transport" / "mold")
        for name in imports(path)
        if name.startswith("onehop.transport.") and name.split(".")[2] in shells
    ]

    assert wrong == []


@pytest.mark.parametrize("package", [onehop.transport, mold])
def test_what_a_folder_exports_is_what_it_says_and_sorted(package: object) -> None:
    names: list[str] = package.__all__  # type: ignore[attr-defined]
    public = {
        name
        for name, value in vars(package).items()
        if not name.startswith("_") and not inspect.ismodule(value)
    }

    assert names == sorted(names)
    assert len(names) == len(set(names))
    assert set(names) == public


@pytest.mark.parametrize("name", onehop.transport.__all__)
def test_everything_public_is_documented_and_typed(name: str) -> None:
    thing = getattr(onehop.transport, name)
    if not (inspect.isclass(thing) or inspect.isfunction(thing)):
        return  # an alias of types
    assert thing.__doc__, f"{name} says nothing of itself"
    assert not thing.__doc__.startswith(f"{name}("), "that is what a dataclass says by itself"
    if inspect.isfunction(thing):
        check_signature(thing)
        return
    for method_name, method in vars(thing).items():
        if isinstance(method, property):
            assert method.__doc__, f"{name}.{method_name}"
            method = method.fget
        if not inspect.isfunction(method) or method.__module__.split(".")[0] != "onehop":
            continue
        if not method_name.startswith("_"):
            assert method.__doc__, f"{name}.{method_name}"
            check_signature(method)


def check_signature(function: object) -> None:
    assert inspect.isfunction(function)
    signature = inspect.signature(function)
    assert signature.return_annotation is not signature.empty, function.__qualname__
    for parameter in signature.parameters.values():
        assert parameter.name == "self" or parameter.annotation is not parameter.empty, parameter


def test_the_types_are_shipped() -> None:
    assert (PACKAGE / "py.typed").exists()
    for compiled in PACKAGE.joinpath("transport").rglob("*.pyx"):
        assert compiled.with_suffix(".pyi").exists(), f"{compiled.name} has no types"

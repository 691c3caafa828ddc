"""The public face is what `__all__` says."""

from types import ModuleType

from onehop.transport import segment_log


def test_all_is_sorted_and_complete() -> None:
    present = [
        name
        for name, value in vars(segment_log).items()
        if not name.startswith("_") and not isinstance(value, ModuleType)
    ]
    assert sorted(segment_log.__all__) == sorted(present)
    assert segment_log.__all__ == sorted(segment_log.__all__, key=_constants_first)


def _constants_first(name: str) -> tuple[bool, str]:
    return (not name.isupper(), name)

"""What can go wrong, split by who has to act.

    OnehopError
    ├── LocalError             you called it wrongly, or this machine cannot do it
    │   ├── ConfigurationError a URL, option or limit that makes no sense
    │   ├── LimitError         a value over a named limit
    │   ├── UnsupportedValue   a value that MessagePack has no form for
    │   ├── LogError           the segment log cannot be opened or written
    │   ├── Lagging            the subscriber is too far behind, and wanted to know
    │   └── Closed             the object has been closed
    │       └── Disconnected   closed by its own overflow policy
    └── RemoteError            the peer broke the protocol
        └── Malformed          bytes that are not what the protocol says

`RemoteError` never leaves a receive loop: there it is counted by its `reason` and dropped.
"""


class OnehopError(Exception):
    """The root of everything this package raises on purpose."""


class LocalError(OnehopError):
    """The caller, or this machine, has to change something."""


class ConfigurationError(LocalError, ValueError):
    """A URL, an option or a combination of them that makes no sense."""


class LimitError(LocalError, ValueError):
    """A value over one of the named limits."""


class UnsupportedValue(LocalError, TypeError):
    """A value that MessagePack has no form for."""


class LogError(LocalError, OSError):
    """The segment log cannot be opened, or the disk refused a write."""

    def __str__(self) -> str:
        return self.strerror or super().__str__()


class Lagging(LocalError):
    """The subscriber is behind `max_age_s` or `max_lag`, and `on_lag` is "raise".

    It can go on reading.
    """


class Closed(LocalError):
    """The publisher or subscriber has been closed."""


class Disconnected(Closed):
    """The subscriber was closed by `on_overflow="disconnect"`."""


class RemoteError(OnehopError):
    """The peer broke the protocol."""


class Malformed(RemoteError, ValueError):
    """Bytes that are not what the protocol says.

    `reason` is a short word of a closed set, used as the name of a counter.
    """

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason

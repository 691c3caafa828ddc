"""Transport URLs: `scheme://where?option=value&…`, checked whole.

multicast://239.255.7.1:7400?interface=127.0.0.1
multicast://[ff15::7]:7400?interface=eth0&b=[ff15::8]:7400
memory://any-name?loss=0.02&seed=7
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from urllib.parse import parse_qsl, urlsplit

from .errors import ConfigurationError

IPAddress = IPv4Address | IPv6Address


@dataclass(frozen=True, slots=True)
class TransportURL:
    """A URL taken apart; options are still text."""

    text: str
    scheme: str
    where: str
    options: Mapping[str, str]

    def only(self, known: Iterable[str]) -> None:
        """Raises unless every option is one of `known`."""
        names = sorted(known)
        for option in self.options:
            if option not in names:
                raise ConfigurationError(
                    f"unknown option {option!r} in {self.text!r}; valid: {', '.join(names)}"
                )

    def number(self, option: str, default: float, least: float, most: float) -> float:
        """An option as a number in bounds."""
        text = self.options.get(option)
        if text is None:
            return default
        try:
            value = float(text)
        except ValueError:
            value = float("nan")
        if not least <= value <= most:
            raise ConfigurationError(
                f"{option}={text} in {self.text!r}: expected a number from {least:g} to {most:g}"
            )
        return value

    def whole(self, option: str, default: int, least: int, most: int) -> int:
        """An option as a whole number in bounds."""
        text = self.options.get(option)
        if text is None:
            return default
        value = int(text) if text.isascii() and text.isdecimal() and len(text) < 20 else least - 1
        if not least <= value <= most:
            raise ConfigurationError(
                f"{option}={text} in {self.text!r}: expected a whole number from {least} to {most}"
            )
        return value


def parse_url(text: str, schemes: Iterable[str]) -> TransportURL:
    """Takes a URL apart; raises on a scheme that is not one of `schemes`."""
    try:
        parts = urlsplit(text)
    except ValueError as fault:  # brackets that are not around an IPv6 address
        raise ConfigurationError(f"{text!r} is no URL: {fault}") from None
    known = sorted(schemes)
    if parts.scheme not in known or "://" not in text:
        raise ConfigurationError(
            f"unknown scheme in {text!r}; valid: {', '.join(name + '://' for name in known)}"
        )
    if parts.fragment or (parts.path not in ("", "/") and parts.netloc):
        raise ConfigurationError(f"{text!r}: nothing may follow the address but ?options")
    pairs = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=False)
    options = dict(pairs)
    if len(options) != len(pairs):
        raise ConfigurationError(f"{text!r}: an option is given twice")
    return TransportURL(text, parts.scheme, parts.netloc or parts.path, options)


def parse_endpoint(text: str, what: str) -> tuple[IPAddress, int]:
    """`IP:PORT` or `[IPv6]:PORT` as a pair."""
    host, _, port = text.rpartition(":")
    is_bracketed = host.startswith("[") and host.endswith("]")
    try:
        address = ip_address(host[1:-1] if is_bracketed else host)
        is_good = is_bracketed == (address.version == 6)
        number = int(port) if port.isascii() and port.isdecimal() and len(port) <= 5 else -1
    except ValueError:
        is_good = False
    if not is_good or not 0 <= number <= 65535:
        raise ConfigurationError(f"{what} {text!r}: expected IP:PORT or [IPv6]:PORT")
    return address, number

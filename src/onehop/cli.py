"""The command line: `onehop COMMAND`. Each command imports what it needs when it runs."""

import importlib
import signal
import warnings
from collections.abc import Sequence

import click

COMMANDS = {
    "bench": "onehop.commands.bench:bench",
    "demo": "onehop.commands.demo:demo",
    "keys": "onehop.commands.keys:keys",
    "publish": "onehop.commands.publish:publish",
    "request-server": "onehop.commands.request_server:request_server",
    "subscribe": "onehop.commands.subscribe:subscribe",
}


class LazyGroup(click.Group):
    """Loads a command's module only when that command is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Every command, sorted."""
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name, imported now."""
        target = COMMANDS.get(cmd_name)
        if target is None:
            return None
        module, _, name = target.partition(":")
        command = getattr(importlib.import_module(module), name)
        assert isinstance(command, click.Command)
        return command


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="onehop")
def root() -> None:
    """Direct messages, honest numbers: publish and subscribe with no broker in between."""


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    click.echo(f"onehop: warning: {message}", err=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command line; what went wrong is one sentence, not a traceback.

    SIGTERM ends a command as Ctrl-C does. Both are set here: a shell that starts a command in the
    background has it ignore Ctrl-C.
    """
    from onehop.transport.errors import LocalError

    warnings.showwarning = _show_warning
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    try:
        root.main(args=arguments, prog_name="onehop")
    except LocalError as fault:
        click.echo(f"onehop: {fault}", err=True)
        raise SystemExit(2) from None
    except OSError as fault:  # standard output on a full disk, for one
        click.echo(f"onehop: {fault.strerror or fault}", err=True)
        raise SystemExit(1) from None

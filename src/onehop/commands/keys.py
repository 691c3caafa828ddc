"""`onehop keys`: key pairs for encrypted connections."""

from pathlib import Path

import click


@click.group(short_help="Make keys for encrypted connections.")
def keys() -> None:
    """Key pairs for encrypted ZeroMQ connections (key=, server_key= and allow= in a URL)."""


@keys.command(short_help="Make a new pair.")
@click.argument("name")
@click.option("--directory", type=click.Path(file_okay=False, path_type=Path), default=Path(),
              show_default=True, help="Where to write the two files.")  # fmt: skip
def new(name: str, directory: Path) -> None:
    """Write NAME.key, to be given to others, and NAME.key_secret, to be kept."""
    from onehop.transport.zeromq.keys import new_keys

    public, secret = new_keys(name, directory)
    click.echo(f"{public}  the public key: give it to those who connect, or who let you in")
    click.echo(f"{secret}  the secret key: for key=, and for nobody else")

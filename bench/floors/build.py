"""Compiles the floor programs on the spot, on the machine whose floor they measure."""

import shutil
import subprocess
from pathlib import Path

SOURCES = Path(__file__).parent
PROGRAMS = ("send", "recv", "mold_recv")
FLAGS = ("-std=c11", "-O2", "-Wall", "-Wextra")


class FloorBuildError(RuntimeError):
    """There is no C compiler, or it refused a program."""


def build(directory: Path) -> dict[str, Path]:
    """Compiles every floor program into `directory`; returns program name -> executable."""
    directory.mkdir(parents=True, exist_ok=True)
    compiler = _find_compiler()
    return {name: _compile(compiler, name, directory) for name in PROGRAMS}


def _find_compiler() -> str:
    for name in ("cc", "gcc", "clang"):
        if path := shutil.which(name):
            return path
    raise FloorBuildError(
        "the floors are C programs and there is no cc, gcc or clang on PATH; "
        "on Debian: apt-get install gcc libc6-dev"
    )


def _compile(compiler: str, name: str, directory: Path) -> Path:
    executable = directory / name
    command = [compiler, *FLAGS, "-o", str(executable), str(SOURCES / f"{name}.c")]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise FloorBuildError(f"{' '.join(command)} failed:\n{result.stderr}")
    return executable

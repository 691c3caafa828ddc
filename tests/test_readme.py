"""Every snippet of the README runs as it stands."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

README = Path(__file__).parent.parent / "README.md"
SNIPPETS = re.findall(r"^```(\w+)\n(.*?)^```$", README.read_text(), re.MULTILINE | re.DOTALL)
PYTHON = [code for language, code in SNIPPETS if language == "python"]
SHELL = [code for language, code in SNIPPETS if language == "sh"]


def run(command: list[str], folder: Path) -> str:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=60, check=False,
        env={**os.environ, "PATH": path},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_the_readme_has_snippets_of_both_kinds_and_no_other() -> None:
    assert {language for language, _ in SNIPPETS} == {"python", "sh"}


@pytest.mark.parametrize("code", PYTHON)
def test_a_python_snippet_runs(code: str, tmp_path: Path) -> None:
    if "def test_" in code:
        (tmp_path / "test_snippet.py").write_text(code)
        assert "1 passed" in run([sys.executable, "-m", "pytest", "-q", "."], tmp_path)
        return
    printed = run([sys.executable, "-c", code], tmp_path)
    assert printed.strip(), "a snippet shows what it does"


@pytest.mark.parametrize("code", SHELL)
def test_a_shell_snippet_runs(code: str, tmp_path: Path) -> None:
    assert '"delivered": 3' in run(["bash", "-euc", code], tmp_path)


def test_the_first_example_prints_what_it_says(tmp_path: Path) -> None:
    printed = run([sys.executable, "-c", PYTHON[0]], tmp_path).splitlines()
    assert printed[0] == "exchange 1 quotes.AAPL 101.5"
    assert printed[1] == "expected 1 = delivered 1 + filtered 0 + pending 0 + lost 0"

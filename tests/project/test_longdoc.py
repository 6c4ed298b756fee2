"""`longdoc` between its shell and its subcommands: pipes, disks, Ctrl-C, extras, completion."""

from __future__ import annotations

import os
import pty
import re
import select
import shlex
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import longdoc
from longdoc import COMMANDS
from models.extras import EXTRAS
from tests.support.bare import bare_longdoc, modules_of_extras

ROOT = Path(__file__).resolve().parents[2]
LONGDOC = [sys.executable, "-m", "longdoc"]
DOCUMENT = "The larvae were fed on sugar and their neurons imaged under a microscope. " * 20


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Documents enough to be at work for a second."""
    return write_documents(tmp_path_factory.mktemp("documents"), 400)


def write_documents(folder: Path, count: int) -> Path:
    """Fill a folder."""
    for number in range(count):
        (folder / f"{number}.txt").write_text(f"{number}. {DOCUMENT}")
    return folder


def shell(line: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """A line of bash in which `longdoc` is ours."""
    return subprocess.run(
        ["bash", "-c", f'longdoc() {{ {shlex.join(LONGDOC)} "$@"; }}\n{line}'],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=ROOT,
        env={**os.environ, "PYTHONUNBUFFERED": "", **variables},  # empty: output is buffered
    )


@pytest.mark.slow
def test_a_reader_that_leaves_ends_the_command_quietly(folder: Path) -> None:
    done = shell(f"longdoc classify --no-progress {folder} | head -n 1; exit ${{PIPESTATUS[0]}}")
    assert done.returncode == 128 + signal.SIGPIPE
    assert len(done.stdout.splitlines()) == 1
    assert done.stderr == ""


@pytest.mark.parametrize("command", ["attentions", "bundles", "--help", "completion bash"])
def test_a_full_disk_is_a_sentence(command: str) -> None:
    done = shell(f"longdoc {command} > /dev/full")
    assert done.returncode == 2
    assert done.stderr.endswith("cannot write the output: No space left on device\n")
    assert len(done.stderr.splitlines()) == 1


def test_a_full_disk_is_a_sentence_for_a_file_too(tmp_path: Path) -> None:
    folder = tmp_path / "closed"
    folder.touch()
    done = shell(f"longdoc report --out {folder}/report.html")
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1


def test_standard_output_may_be_closed() -> None:
    assert shell("longdoc attentions >&-").returncode == 0
    assert shell("longdoc attentions --nonsense 2>&-").returncode == 2


def in_terminal(
    arguments: list[str], interrupt_after: str | None = None, **variables: str
) -> tuple[int, str]:
    """Run with a terminal of 40 columns; press Ctrl-C once a word has appeared there."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(ROOT)
        os.environ.update({"COLUMNS": "40", "TERM": "xterm-256color", **variables})
        os.execv(LONGDOC[0], [*LONGDOC, *arguments])  # noqa: S606
    shown = b""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        if select.select([terminal], [], [], 0.2)[0]:
            try:
                piece = os.read(terminal, 65_536)
            except OSError:  # the terminal is closed once the process has ended
                break
            if not piece:
                break
            shown += piece
        if interrupt_after and interrupt_after.encode() in shown:
            os.write(terminal, b"\x03")
            interrupt_after = None
    _, status = os.waitpid(pid, 0)
    os.close(terminal)
    return os.waitstatus_to_exitcode(status), shown.decode()


@pytest.mark.slow
def test_ctrl_c_ends_with_a_word_and_130(tmp_path: Path) -> None:
    write_documents(tmp_path, 8000)  # not all done when the key arrives, however late that is
    code, shown = in_terminal(["classify", str(tmp_path)], interrupt_after="0.txt")
    assert code == 130
    assert "longdoc classify: interrupted" in shown
    assert "Traceback" not in shown


@pytest.mark.parametrize("name", COMMANDS)
def test_help_works_in_a_narrow_terminal_without_colour(name: str) -> None:
    code, shown = in_terminal([name, "--help"], NO_COLOR="1")
    assert code == 0
    assert "\x1b" not in shown
    assert f"usage: longdoc {name}" in shown


@pytest.mark.slow
def test_progress_is_a_bar_on_a_terminal_and_silent_when_it_is_short(folder: Path) -> None:
    _, shown = in_terminal(["classify", str(folder)])
    assert re.search(r"\d+%\|", shown)
    few = folder / "few"
    few.mkdir()
    shutil.copy(folder / "1.txt", few)
    assert "%" not in shell(f"longdoc classify {few}").stderr


@pytest.mark.parametrize("name", COMMANDS)
def test_help_works_without_any_extra(name: str) -> None:
    done = bare_longdoc(name, "--help")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("usage: longdoc")


@pytest.mark.parametrize(
    ("command", "extra"),
    [(name, each.extra) for name, each in COMMANDS.items() if each.extra]
    + [("bench --quick", "torch")],
)
def test_a_missing_extra_is_named_before_anything_else(
    command: str, extra: str, tmp_path: Path
) -> None:
    """Also before options that are wrong: what they should be cannot be tried yet."""
    done = bare_longdoc(*command.split(), cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert f"-m pip install 'longdoc[{extra}]'" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not list(tmp_path.iterdir())


def test_the_bare_installation_lists_its_attentions_and_bundles() -> None:
    assert "torch" in modules_of_extras()
    assert bare_longdoc("attentions").returncode == 0
    assert bare_longdoc("bundles").returncode == 0


def test_extras_are_those_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    owners = {
        canonicalize_name(owner): module
        for module, found in packages_distributions().items()
        for owner in found
        if not module.startswith("_")
    }
    for extra, modules in EXTRAS.items():
        names = {
            canonicalize_name(Requirement(text).name)
            for text in project["optional-dependencies"][extra]
        }
        told = {
            canonicalize_name(owner)
            for module in modules
            for owner in packages_distributions()[module]
        }
        missing = names - told - {"longdoc"}  # an extra may hold another one
        assert not missing, f"{extra} needs {missing}"
        assert owners.keys() >= told


_COMPLETE = {
    "bash": """
eval "$(longdoc completion bash)"
COMP_WORDS=({words}) COMP_CWORD={last} COMP_LINE={line} COMP_POINT=${{#COMP_LINE}} COMP_TYPE=9
_python_argcomplete longdoc
printf '%s\\n' "${{COMPREPLY[@]}}"
""",
    "zsh": """
autoload -U compinit && compinit -u -d $HOME/dump
eval "$(longdoc completion zsh)"
whence -w _python_argcomplete
""",
    "fish": """
longdoc completion fish | source
complete -C {line}
""",
}


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("longdoc ev", "evaluate"),
        ("longdoc train data.csv --atten", "--attention"),
        ("longdoc train data.csv --attention per", "performer"),
        ("longdoc dashboard --po", "--port"),
    ],
)
@pytest.mark.parametrize("name", ["bash", "fish"])
def test_a_shell_completes(name: str, line: str, offered: str, tmp_path: Path) -> None:
    if shutil.which(name) is None:
        pytest.skip(f"{name} is not installed here")
    words = line.split()
    script = _COMPLETE[name].format(
        words=shlex.join(words), last=len(words) - 1, line=shlex.quote(line)
    )
    assert offered in complete(name, script, tmp_path).split()


def test_zsh_takes_the_script(tmp_path: Path) -> None:
    if shutil.which("zsh") is None:
        pytest.skip("zsh is not installed here")
    assert "_python_argcomplete: function" in complete("zsh", _COMPLETE["zsh"], tmp_path)


def complete(name: str, script: str, home: Path) -> str:
    """What a shell prints, with `longdoc` on its path."""
    program = home / "bin" / "longdoc"
    program.parent.mkdir(exist_ok=True)
    program.write_text(f'#!/bin/sh\nexec {shlex.join(LONGDOC)} "$@"\n')
    program.chmod(0o755)
    done = subprocess.run(
        [name, "-c", script],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=ROOT,
        env={
            **os.environ,
            "HOME": str(home),
            "PATH": f"{program.parent}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
        },
    )
    return done.stdout + done.stderr


def test_a_fault_of_ours_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> int:
        raise ConnectionResetError(104, "a fault of ours")

    monkeypatch.setattr(longdoc, "_run", fail)
    with pytest.raises(ConnectionResetError):
        longdoc.main(["attentions"])

"""What `pip install dist/*.whl` installs: a service that answers, away from the repository."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel's content, made from the source distribution as a release is."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True, timeout=300)
    (wheel,) = folder.glob("*.whl")
    target = folder / "site"
    install = [sys.executable, "-m", "pip", "install", "--no-deps", "--target", str(target)]
    subprocess.run([*install, str(wheel)], check=True, capture_output=True, timeout=120)
    return target


def test_it_serves_the_default_bundle(installed: Path, tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "longdoc", "serve", "--port", "0"],
        stdout=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(installed)},
    )
    assert process.stdout is not None
    try:
        ready = re.search(r"http://[0-9.:]+", process.stdout.readline())
        assert ready
        info = httpx.get(f"{ready[0]}/info", timeout=30).json()
        assert info["model"]
        body = {"input": "Larvae were filmed while sensory neurons fired in bursts."}
        answer = httpx.post(f"{ready[0]}/classify", json=body, timeout=30).json()
        assert answer["results"][0]["label"] in info["labels"]
    finally:
        process.terminate()
        process.stdout.close()
        assert process.wait(30) == 0


def run(installed: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "longdoc", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(installed)},
    )


def test_it_holds_one_bundle_and_says_where_others_come_from(
    installed: Path, tmp_path: Path
) -> None:
    listed = run(installed, tmp_path, "bundles").stdout.splitlines()
    assert len(listed) == 2
    assert listed[1].startswith("elife-nystromformer")
    refused = run(installed, tmp_path, "serve", "--bundle", "imdb-linear")
    assert refused.returncode == 2
    assert "export` make bundles" in refused.stderr


def test_every_import_of_the_commands_is_in_it(installed: Path, tmp_path: Path) -> None:
    code = (
        "import importlib, json, longdoc\n"
        "for each in longdoc.COMMANDS.values(): importlib.import_module(each.module)\n"
        "print(json.dumps(longdoc.__file__))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(installed)},
    )
    assert json.loads(done.stdout).startswith(str(installed))

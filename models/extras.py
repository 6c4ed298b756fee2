"""The optional parts of an installation, and the sentence for one that is missing."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

from models.errors import MissingExtraError

#: Extra of pyproject.toml: the modules that its packages provide.
EXTRAS: dict[str, tuple[str, ...]] = {
    "torch": (
        "torch",
        "sklearn",
        "pyarrow",
        "safetensors",
        "onnx",
        "onnx_ir",
        "onnxscript",
        "matplotlib",
        "PIL",
        "threadpoolctl",
        "zstandard",
    ),
    "dashboard": ("streamlit", "altair", "httpx", "vl_convert"),
    "loadtest": ("httptools", "locust", "psutil"),
    "openvino": ("openvino",),
    "parquet": ("pyarrow",),
    "ray": ("ray", "pyarrow"),
}


def require(extra: str, command: str) -> None:
    """Raise MissingExtraError, which says what to install, when packages of an extra are missing.

    Nothing is imported to find out: PyTorch alone takes seconds.
    """
    missing = [name for name in EXTRAS[extra] if importlib.util.find_spec(name) is None]
    if missing:
        raise MissingExtraError(
            f"{command} needs packages that are not installed ({', '.join(missing)}). Install "
            f"them with: {install_command(extra)}"
        )


def install_command(extra: str) -> str:
    """What to type to add an extra to the environment that runs this."""
    python = Path(sys.executable)
    if python.is_relative_to(Path.cwd()):
        python = Path(os.path.relpath(python))
    return f"{python} -m pip install 'longdoc[{extra}]'"

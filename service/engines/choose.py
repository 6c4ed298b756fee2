"""Which engine serves a bundle, on which device, and why.

ONNX Runtime where the bundle has a valid graph, else PyTorch; CUDA where it works, else the
CPU. What is asked for by name is given or refused, never replaced. Each engine's library is
loaded only when that engine is chosen.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from importlib.metadata import distributions
from typing import cast

from models.bundle import Bundle, Computed, Precision
from models.errors import ConfigError, EngineError
from models.onnx_network import read_network
from service.engines.base import Engine, EngineFactory

ENGINES = ("auto", "onnxruntime", "openvino", "torch")
DEVICES = ("auto", "cpu", "cuda")


@dataclass(frozen=True)
class Opened:
    """An engine, and what opens further ones; None where one serves all threads as well."""

    engine: Engine
    factory: EngineFactory | None = None


def open_engine(
    bundle: Bundle,
    *,
    engine: str = "auto",
    device: str = "auto",
    precision: Precision = "fp32",
    threads: int = 1,
) -> Engine:
    """Open a bundle's engine; a choice that cannot be had raises and says what to change."""
    return open_with_factory(
        bundle, engine=engine, device=device, precision=precision, threads=threads
    ).engine


def open_with_factory(
    bundle: Bundle,
    *,
    engine: str = "auto",
    device: str = "auto",
    precision: Precision = "fp32",
    threads: int = 1,
) -> Opened:
    """Open a bundle's engine, as `open_engine`, and say what opens further ones."""
    for name, value, known in (("engine", engine, ENGINES), ("device", device, DEVICES)):
        if value not in known:
            raise ConfigError(f"{name} must be one of {', '.join(known)}; got {value!r}")
    if threads < 1:
        raise ConfigError(f"threads must be at least 1; got {threads}")
    if engine == "openvino":
        return _open_openvino(bundle, device, precision, threads)
    fault = None if engine == "torch" else graph_fault(bundle, precision)
    if engine == "torch":
        return Opened(_open_torch(bundle, device, precision, threads, "asked for"))
    if fault is None:
        why = "the bundle's graph is valid" if engine == "auto" else "asked for"
        return _open_ort(bundle, device, precision, threads, why)
    if engine == "onnxruntime" or precision != "fp32":
        raise EngineError(f"{bundle.path} cannot serve {precision} from ONNX: {fault}")
    return Opened(_open_torch(bundle, device, precision, threads, f"ONNX cannot serve it: {fault}"))


def graph_fault(bundle: Bundle, precision: Precision | Computed) -> str | None:
    """Why a precision's graph must not serve; None when it may."""
    graph = bundle.graph(precision)
    if graph is None:
        known = ", ".join((*bundle.manifest.graphs, *bundle.manifest.computed)) or "none"
        return f"it was not exported as {precision}, only as: {known}"
    if not graph.valid or graph.file is None:
        return graph.reason
    certificate = bundle.certificate(precision)
    if certificate.get("graph_sha256") != bundle.manifest.files[graph.file].sha256:
        return f"{graph.certificate} is of another graph than {graph.file}"
    for name, digest in _digests(certificate.get("weights_sha256")).items():
        if name not in bundle.manifest.files or bundle.manifest.files[name].sha256 != digest:
            return f"{graph.certificate} is of other weights than {name}"
    return None


def _digests(certified: object) -> dict[str, object]:
    return dict(certified) if isinstance(certified, dict) else {}


def _open_ort(bundle: Bundle, device: str, precision: Precision, threads: int, why: str) -> Opened:
    """The graph on the device asked for; with `auto`, CUDA when the session in truth uses it."""
    _check_onnx_runtime(why)
    import onnxruntime  # noqa: PLC0415

    from service.engines.ort import CUDA, INSTALL_CUDA, OnnxRuntimeFactory  # noqa: PLC0415

    network = read_network(bundle, precision)

    def on(device: str, reason: str) -> Opened:
        factory = OnnxRuntimeFactory(network, device, precision, reason)
        engine = factory.open(threads=threads)
        return Opened(engine, factory if device == "cpu" else None)

    if device == "cpu":
        return on("cpu", f"{why}; the CPU was asked for")
    listed = CUDA in onnxruntime.get_available_providers()
    if device == "cuda":
        if not listed:
            raise EngineError(f"this ONNX Runtime has no CUDA: {INSTALL_CUDA}")
        return on("cuda", f"{why}; CUDA was asked for")
    if not listed:
        return on("cpu", f"{why}; this ONNX Runtime has no CUDA")
    try:
        return on("cuda", f"{why}; CUDA works")
    except EngineError:
        return on("cpu", f"{why}; CUDA is installed but does not start, so the CPU computes")


def _check_onnx_runtime(why: str) -> None:
    """Its two packages share one folder: both at once break each other."""
    if importlib.util.find_spec("onnxruntime") is None:
        raise EngineError(
            f"ONNX Runtime is not installed ({why}): pip install onnxruntime, or "
            "'onnxruntime-gpu[cuda,cudnn]' for a GPU"
        )
    both = ("onnxruntime", "onnxruntime-gpu")
    if all(next(iter(distributions(name=name)), None) is not None for name in both):
        raise EngineError(
            "onnxruntime and onnxruntime-gpu are both installed and overwrite each other's files: "
            "pip uninstall both, then install one of them"
        )


def _open_openvino(bundle: Bundle, device: str, precision: str, threads: int) -> Opened:
    """The fp32 graph, compiled for a CPU, in a precision that was certified for it."""
    if device == "cuda":
        raise EngineError("OpenVINO serves on CPUs; CUDA needs --engine onnxruntime or torch")
    if importlib.util.find_spec("openvino") is None:
        raise EngineError("OpenVINO is not installed: pip install 'longdoc[openvino]'")
    from service.engines.openvino import PRECISIONS, OpenVinoFactory  # noqa: PLC0415

    if precision not in PRECISIONS:
        raise EngineError(
            f"OpenVINO computes in {', '.join(PRECISIONS)}, not in {precision}: choose one of them"
        )
    fault = graph_fault(bundle, cast("Computed", f"openvino-{precision}"))
    if fault is not None:
        raise EngineError(
            f"{bundle.path} cannot serve {precision} from OpenVINO: {fault}. Certify it with "
            f"`longdoc verify {bundle.path} --engine openvino --precision {precision} --add`"
        )
    network = read_network(bundle, "fp32")
    factory = OpenVinoFactory(network, precision, "asked for")
    return Opened(factory.open(threads=threads), factory)


def _open_torch(
    bundle: Bundle, device: str, precision: Precision, threads: int, why: str
) -> Engine:
    if precision != "fp32":
        raise EngineError(f"PyTorch serves fp32 only; {precision} needs --engine onnxruntime")
    if importlib.util.find_spec("torch") is None:
        raise EngineError(f"PyTorch is not installed ({why}): pip install 'longdoc[torch]'")
    from service.engines.pytorch import TorchEngine, cuda_works  # noqa: PLC0415

    cuda = cuda_works()
    if device == "cuda" and not cuda:
        raise EngineError(
            "PyTorch finds no CUDA: install the CUDA driver and a CUDA build of torch, "
            "or use --device cpu"
        )
    chosen = "cuda" if cuda and device != "cpu" else "cpu"
    place = (
        f"{device} was asked for" if device != "auto" else f"CUDA is {'' if cuda else 'not '}there"
    )
    return TorchEngine(
        bundle.tensors(),
        bundle.manifest.config,
        device=chosen,
        threads=threads,
        reason=f"{why}; {place}",
    )

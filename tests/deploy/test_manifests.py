"""The Kubernetes manifests, rendered by Helm itself and held against the published schemas."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from service.settings import Settings

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy" / "helm" / "longdoc"
HELM = Path(sys.executable).with_name("helm")
KUBERNETES = "1.33"
INIT = ("bundle.source=init", "bundle.init.image=registry/contracts:1", "bundle.init.command={cp}")
VOLUME = ("bundle.source=volume", "bundle.volume.claimName=models", "bundle.volume.path=contracts")


def _helm(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([HELM, *arguments], capture_output=True, text=True, check=False)


def _render(*values: str) -> dict[str, dict[str, Any]]:
    """The chart's manifests by kind."""
    chosen = [part for value in values for part in ("--set", value)]
    run = _helm("template", "papers", str(CHART), "--namespace", "texts", *chosen)
    assert run.returncode == 0, run.stderr
    return {manifest["kind"]: manifest for manifest in yaml.safe_load_all(run.stdout) if manifest}


def _pod(manifests: dict[str, dict[str, Any]]) -> dict[str, Any]:
    spec: dict[str, Any] = manifests["Deployment"]["spec"]["template"]["spec"]
    return spec


def _environment(container: dict[str, Any]) -> dict[str, Any]:
    return {entry["name"]: entry.get("value", entry) for entry in container["env"]}


def test_helm_finds_nothing_wrong() -> None:
    run = _helm("lint", "--strict", str(CHART))
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.parametrize(
    "values",
    [
        (),
        INIT,
        VOLUME,
        ("autoscaling.kind=hpa", "apiKeysSecret=keys", "settings.QUEUE_SECONDS=3"),
        ("autoscaling.kind=keda", "serviceMonitor.enabled=true", "service.type=LoadBalancer"),
        ("networkPolicy.enabled=false", "podDisruptionBudget.enabled=false"),
    ],
)
def test_what_is_rendered_fits_the_published_schemas(values: tuple[str, ...]) -> None:
    foreign = {"ScaledObject", "ServiceMonitor"}  # of KEDA and of the Prometheus operator
    for kind, manifest in _render(*values).items():
        if kind not in foreign:
            kubernetes_validate.validate(manifest, KUBERNETES, strict=True)


def test_a_pod_may_write_nothing_and_runs_as_any_user() -> None:
    pod = _pod(_render())
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert "runAsUser" not in pod["securityContext"]
    container = pod["containers"][0]["securityContext"]
    assert container["readOnlyRootFilesystem"] is True
    assert container["capabilities"] == {"drop": ["ALL"]}
    assert pod["automountServiceAccountToken"] is False


def test_a_pod_lives_until_all_is_drained() -> None:
    pod = _pod(_render("drain.delaySeconds=12", "drain.seconds=50"))
    environment = _environment(pod["containers"][0])
    assert environment["LONGDOC_DRAIN_DELAY_SECONDS"] == "12"
    assert environment["LONGDOC_DRAIN_SECONDS"] == "50"
    assert pod["terminationGracePeriodSeconds"] > 12 + 50


def test_variables_of_the_chart_are_settings_of_the_service() -> None:
    manifests = [_render("settings.QUEUE_SECONDS=3", "apiKeysSecret=keys")["Deployment"]]
    manifests += list(yaml.safe_load_all((ROOT / "deploy/kserve/serving-runtime.yaml").read_text()))
    names = set(re.findall(r"LONGDOC_(\w+)", yaml.safe_dump_all(manifests)))
    assert "QUEUE_SECONDS" in names
    known = {name.upper() for name in Settings.__dataclass_fields__}
    assert names <= known


def test_the_bundle_comes_from_where_the_values_say() -> None:
    image = _pod(_render("bundle.name=contracts"))
    assert _environment(image["containers"][0])["LONGDOC_BUNDLE"] == "contracts"
    assert "volumes" not in image

    volume = _pod(_render(*VOLUME))
    assert _environment(volume["containers"][0])["LONGDOC_BUNDLE"] == "/bundle"
    mount = volume["containers"][0]["volumeMounts"][0]
    assert mount == {
        "name": "bundle", "mountPath": "/bundle", "readOnly": True, "subPath": "contracts"
    }  # fmt: skip
    assert volume["volumes"][0]["persistentVolumeClaim"]["claimName"] == "models"

    copied = _pod(_render(*INIT))
    assert copied["initContainers"][0]["image"] == "registry/contracts:1"
    assert copied["volumes"][0]["emptyDir"] == {"sizeLimit": "1Gi"}


def test_autoscalers_follow_predicted_queue_seconds() -> None:
    hpa = _render("autoscaling.kind=hpa", "autoscaling.queueSeconds=0.5")
    metric = hpa["HorizontalPodAutoscaler"]["spec"]["metrics"][0]["pods"]
    assert metric["metric"]["name"] == "longdoc_predicted_queue_seconds"
    assert metric["target"]["averageValue"] == "0.5"
    assert "replicas" not in hpa["Deployment"]["spec"]  # the autoscaler's to choose

    keda = _render("autoscaling.kind=keda")["ScaledObject"]["spec"]
    trigger = keda["triggers"][0]
    assert trigger["metricType"] == "AverageValue"
    assert 'namespace="texts"' in trigger["metadata"]["query"]
    assert keda["scaleTargetRef"]["name"] == "papers-longdoc"


def test_only_this_namespace_comes_in_and_nothing_goes_out() -> None:
    policy = _render()["NetworkPolicy"]["spec"]
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    assert policy["ingress"][0]["from"] == [{"podSelector": {}}]
    assert "egress" not in policy
    assert _render(*INIT)["NetworkPolicy"]["spec"]["policyTypes"] == ["Ingress"]


def test_the_service_finds_the_pods() -> None:
    manifests = _render()
    labels = manifests["Deployment"]["spec"]["template"]["metadata"]["labels"]
    for selector in (
        manifests["Service"]["spec"]["selector"],
        manifests["Deployment"]["spec"]["selector"]["matchLabels"],
        manifests["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"],
    ):
        assert selector.items() <= labels.items()
    ports = {port["name"] for port in _pod(manifests)["containers"][0]["ports"]}
    assert manifests["Service"]["spec"]["ports"][0]["targetPort"] in ports


@pytest.mark.parametrize(
    ("values", "named"),
    [
        (("bundle.source=bucket",), "bundle.source"),
        (("bundle.source=volume",), "bundle.volume.claimName"),
        (("bundle.source=init",), "bundle.init.image"),
        (("autoscaling.kind=vpa",), "autoscaling.kind"),
        (("drain.delaySeconds=soon",), "drain.delaySeconds"),
        (("settings.HOST=0.0.0.0",), "HOST"),
        (("replica=3",), "replica"),
    ],
)
def test_values_that_make_no_sense_are_refused_by_name(values: tuple[str, ...], named: str) -> None:
    chosen = [part for value in values for part in ("--set", value)]
    run = _helm("template", "papers", str(CHART), *chosen)
    assert run.returncode != 0
    assert named in run.stderr


def test_the_serving_runtime_serves_what_the_inference_service_asks_for() -> None:
    runtime = yaml.safe_load((ROOT / "deploy/kserve/serving-runtime.yaml").read_text())["spec"]
    service = yaml.safe_load((ROOT / "deploy/kserve/inference-service.yaml").read_text())["spec"]
    model = service["predictor"]["model"]
    assert model["modelFormat"]["name"] == runtime["supportedModelFormats"][0]["name"]
    assert model["protocolVersion"] in runtime["protocolVersions"]
    container = runtime["containers"][0]
    assert _environment(container)["LONGDOC_BUNDLE"] == "/mnt/models"
    port = container["ports"][0]["containerPort"]
    assert _environment(container)["LONGDOC_PORT"] == str(port)
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "runtime"}}
    kubernetes_validate.validate(
        pod | {"spec": {"containers": runtime["containers"]}}, KUBERNETES, strict=True
    )

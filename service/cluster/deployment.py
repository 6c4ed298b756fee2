"""How Ray Serve is to run the replicas, as an application and as a configuration file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ray import serve
from ray.serve import Application
from ray.serve.config import AutoscalingConfig, AutoscalingPolicy

from models.errors import ConfigError
from service.cluster.replica import Replica
from service.settings import read_settings

NAME = "longdoc"
_REPLICA = "Longdoc"
# Ray queues what a replica has no room for; ours is the queue that knows what a document costs,
# and refuses with an honest Retry-After.
_ALL_AT_ONCE = 10_000
_METRIC_SECONDS = 15.0  # of queue lengths averaged for a decision; Ray collects them every 10
_UP_SECONDS, _DOWN_SECONDS = 5.0, 120.0
_AFTER_DRAIN = 5.0  # seconds that Ray waits beyond the service's own limit


@dataclass(frozen=True)
class Fleet:
    """Replicas: how many, with how many cores each, and the settings of their services."""

    settings: Mapping[str, str] = field(default_factory=dict)
    cores: int = 1
    least: int = 1
    most: int = 1
    queue_seconds: float = 1.0

    def __post_init__(self) -> None:
        if self.cores < 1:
            raise ConfigError(f"--cores must be at least 1; got {self.cores}")
        if not 1 <= self.least <= self.most:
            raise ConfigError(
                f"--replicas must be MIN or MIN:MAX with 1 <= MIN <= MAX; got "
                f"{self.least}:{self.most}"
            )
        if not self.queue_seconds > 0:
            raise ConfigError(f"--scale-above must be more than 0; got {self.queue_seconds}")
        read_settings(self._all_settings)  # a mistake is told before Ray starts anything

    @property
    def _all_settings(self) -> dict[str, str]:
        # A replica uses the cores that Ray sets aside for it, not all that it sees.
        return {**self.settings, "workers": str(self.cores)}

    def options(self) -> dict[str, Any]:
        """The deployment's options by Ray's names."""
        drain = read_settings(self._all_settings).drain_seconds
        chosen: dict[str, Any] = {
            "name": _REPLICA,
            "max_ongoing_requests": _ALL_AT_ONCE,
            "max_queued_requests": -1,
            "graceful_shutdown_timeout_s": drain + _AFTER_DRAIN,
            "health_check_period_s": 5.0,
            "ray_actor_options": {"num_cpus": self.cores},
            "logging_config": {"enable_access_log": False},  # the service writes its own
        }
        if self.least == self.most:
            return {**chosen, "num_replicas": self.least}
        policy = {
            "policy_function": "service.cluster.scaling:ByQueueSeconds",
            "policy_kwargs": {"target_seconds": self.queue_seconds},
        }
        return {
            **chosen,
            "autoscaling_config": {
                "min_replicas": self.least,
                "max_replicas": self.most,
                "upscale_delay_s": _UP_SECONDS,
                "downscale_delay_s": _DOWN_SECONDS,
                "look_back_period_s": _METRIC_SECONDS,
                "policy": policy,
            },
        }

    def application(self) -> Application:
        """The application, for `serve.run`."""
        options = self.options()
        if "autoscaling_config" in options:
            scaling = dict(options["autoscaling_config"])
            scaling["policy"] = AutoscalingPolicy(**scaling["policy"])
            options["autoscaling_config"] = AutoscalingConfig(**scaling)
        deployment = serve.deployment(serve.ingress()(Replica)).options(**options)
        bound: Application = deployment.bind(self._all_settings)
        return bound

    def configuration(self, host: str, port: int) -> dict[str, Any]:
        """The same as `serve deploy` and KubeRay read it."""
        return {
            "proxy_location": "EveryNode",
            "http_options": {"host": host, "port": port},
            "applications": [
                {
                    "name": NAME,
                    "route_prefix": "/",
                    "import_path": "service.cluster.deployment:build",
                    "args": {"cores": self.cores, "settings": dict(self.settings)},
                    "deployments": [self.options()],
                }
            ],
        }


def build(args: Mapping[str, Any]) -> Application:
    """The application from a configuration file's `args`; its `deployments` say how many."""
    settings = {name: str(value) for name, value in args.get("settings", {}).items()}
    return Fleet(settings, cores=int(args.get("cores", 1))).application()

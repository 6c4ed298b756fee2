"""LitServe: its dynamic batching, one worker process per core or one with all cores.

Annotations are not postponed here: LitServe reads that of `encode_response`.
"""

import litserve

from benchmarks.peers.servers.model import ADDRESS, Answer, Model, bundle_path, port, settings


class Classifier(litserve.LitAPI):
    """The steps that LitServe calls in a worker."""

    def setup(self, device: str) -> None:  # noqa: ARG002 - the CPU
        """Load the model."""
        self.model = Model(bundle_path(), settings()["threads"])

    def decode_request(self, request: dict[str, str]) -> str:
        """Take the text out."""
        return request["input"]

    def batch(self, inputs: list[str]) -> list[str]:
        """Texts stay a list: the model pads."""
        return inputs

    def predict(self, x: list[str] | str) -> list[Answer]:
        """Classify a batch, or the one text there is when batching is off."""
        return self.model.classify([x] if isinstance(x, str) else x)

    def unbatch(self, output: list[Answer]) -> list[Answer]:
        """One answer a request."""
        return output

    def encode_response(self, output: Answer | list[Answer]) -> Answer:
        """The answer is JSON already."""
        return output[0] if isinstance(output, list) else output


if __name__ == "__main__":
    given = settings()
    api = Classifier(
        max_batch_size=given["batch"], batch_timeout=given["wait_ms"] / 1000, api_path="/classify"
    )
    server = litserve.LitServer(api, accelerator="cpu", workers_per_device=given["workers"])
    server.run(
        host=ADDRESS,
        port=port(),
        num_api_servers=1,
        log_level="warning",
        generate_client_file=False,
        access_log=False,
    )

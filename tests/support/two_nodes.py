"""A Ray cluster of two nodes on this machine, as a program.

Prints the cluster's address; a line `kill` on standard input kills the second node, the input's
end stops it all.
"""

from __future__ import annotations

import sys

from ray.cluster_utils import Cluster

_CORES = 2  # that each node says it has
_STORE = 200_000_000  # bytes


def main() -> None:
    """Run until standard input ends."""
    cluster = Cluster(
        initialize_head=True,
        head_node_args={"num_cpus": _CORES, "object_store_memory": _STORE},
    )
    second = cluster.add_node(num_cpus=_CORES, object_store_memory=_STORE)
    cluster.wait_for_nodes()
    print(cluster.address, flush=True)
    for line in sys.stdin:
        if line.strip() == "kill":
            cluster.remove_node(second, allow_graceful=False)
            print("killed", flush=True)
    cluster.shutdown()


if __name__ == "__main__":
    main()

"""What the service adds to its graph: overhead, overload, start, memory.

`python -m benchmarks.service` measures and stores; docs/serving-figures.md shows the figures.
How it compares with other servers is measured by `benchmarks.peers`.
"""

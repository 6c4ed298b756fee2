"""The service compared with the servers that its users would otherwise pick.

`make peers` sets up each server's environment, runs the comparison and writes `docs/peers.md`.
`python -m benchmarks.peers --help` lists the single steps.
"""

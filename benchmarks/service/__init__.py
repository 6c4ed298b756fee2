"""Measurements of the service: overhead, mixed lengths, short behind long, overload, cold start.

`python -m benchmarks.service all --out FILE` takes them; `… report FILE` writes them as Markdown.
"""

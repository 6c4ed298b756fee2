"""Requests against a server: arrival schedules, an HTTP client, loops, summaries."""

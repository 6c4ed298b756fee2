"""Locust users and load shapes against a running service."""

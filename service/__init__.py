"""The web service: `POST /classify` and what stands behind it."""

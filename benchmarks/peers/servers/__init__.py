"""One small file per server that is compared. Each runs in the environment of its own framework.

They share `model.py`, which reads a bundle's public files with `tokenizers` and ONNX Runtime, and
import nothing else of this project. What to serve comes in three environment variables:

PEER_BUNDLE    the bundle's folder
PEER_PORT      the port to listen on, at 127.0.0.1
PEER_SETTINGS  the server's settings, as JSON

The working directory is a folder of the server's own, removed when it ends.
"""

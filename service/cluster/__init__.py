"""The service as replicas on a Ray cluster; Ray starts, routes to and replaces them.

replica     one service, as Ray Serve runs it
scaling     how many replicas: by predicted seconds of queued work
deployment  how Ray is to run them, as an application and as a configuration file
"""

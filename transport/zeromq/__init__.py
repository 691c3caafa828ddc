"""Publish and subscribe over ZeroMQ, TCP or Unix sockets, with numbers, repair and replay."""

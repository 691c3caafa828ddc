"""Floors: small C programs that make only the system calls, for our own figures to stand beside."""

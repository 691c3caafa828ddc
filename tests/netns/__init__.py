"""The transport on the real kernel: programs in network namespaces, joined by the bad wire."""

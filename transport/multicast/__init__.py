"""UDP multicast: addresses, sockets, and the request server that outlives a publisher."""

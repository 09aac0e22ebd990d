"""Ports: queues of frames on AF_PACKET, AF_XDP, sockets and memory, one interface over all of them."""

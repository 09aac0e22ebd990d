"""What our gRPC services and their clients share, whichever package they are in."""

"""The collector's feed: state, records and events to subscribers over gRPC, and the client."""

"""What a node's manager and a centre's agent share: a state folder, the server's time, the way to the API."""

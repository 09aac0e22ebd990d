"""The packet manager: assigns packets to consumers, and gives consumers and producers their interfaces."""

"""Drop-in replacement of bmv2's simple_switch_grpc and simple_switch: their options, names and files."""

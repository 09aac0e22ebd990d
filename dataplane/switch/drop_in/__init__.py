"""What makes the switch a drop-in for bmv2's simple_switch_grpc and simple_switch: their options, names and files."""

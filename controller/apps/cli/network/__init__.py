"""Commands of the network: fabrics, ports, paths, jobs and stores of switches."""

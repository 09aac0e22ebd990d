"""Jobs that another system runs: a program that runs beside each of them, and the folders that tell of them."""

"""CPU, accelerator or switch for each operator of a distributed job, decided before it runs, with reasons."""

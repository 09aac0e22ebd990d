"""Chooses the CPU, an accelerator or the switch for each operator of a distributed job before it runs, with reasons."""

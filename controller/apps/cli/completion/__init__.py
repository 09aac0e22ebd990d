"""Completion of commands, options and values in shells.

A shell runs `millrace` at each press of TAB, so nothing here imports a command, Typer or gRPC: commands.txt lists the
commands with their options (`make tables` writes it), and values are looked up where that costs little.
"""

"""Runners' side of a warm process (`running.warm`): handing over to it, and accounting for the imports it has saved."""

"""Packets of live traffic that are explained beside it: which, how many, where that is written."""

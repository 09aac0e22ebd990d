"""Gains adapted on line by fuzzy inference from the error and its change: words, tables of rules, two methods."""

"""Scapy layers for INT and its reports, in the style of Scapy's contrib: each module imports Scapy alone."""

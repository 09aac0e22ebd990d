"""Intents to table entries; twin names with p4/."""

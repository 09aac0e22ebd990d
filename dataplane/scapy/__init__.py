"""Scapy layers for INT and its reports, in the style of Scapy's contrib: each module imports only Scapy."""

try:
    import scapy  # noqa: F401
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "dataplane.scapy needs scapy (GPL-2.0): pip install 'millrace-net[scapy]'", name=error.name
    ) from None

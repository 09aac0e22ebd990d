"""Parts of many commands: options with units, log options, tables, the ready line; each is imported by itself."""

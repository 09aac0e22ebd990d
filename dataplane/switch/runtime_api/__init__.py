"""bmv2's runtime API over Thrift, as used by simple_switch_CLI, p4-utils and their command files.

It works on the same tables, groups and counters as P4Runtime, without arbitration. It needs the library `thrift`.
"""

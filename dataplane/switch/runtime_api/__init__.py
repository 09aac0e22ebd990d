"""bmv2's runtime API over Thrift: what simple_switch_CLI, p4-utils and their command files speak.

It works on the same tables, groups and counters as P4Runtime, without arbitration. It needs the library `thrift`.
"""

"""What P4Runtime writes and packets read: tables, profiles, counters, registers, replication."""

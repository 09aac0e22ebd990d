"""What a program is known to do before code is made: data flow, ranges, validity, fields that need no clearing."""

"""Jobs that switches add up for, by what these report of items: `account` one job in one switch, `accounts` all."""

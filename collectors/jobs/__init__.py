"""Jobs that switches aggregate, by reports of items: `account` is one job in one switch, `accounts` all."""

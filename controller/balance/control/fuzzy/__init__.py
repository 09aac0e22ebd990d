"""Online adaptation of gains by fuzzy inference from the error and its change: words, rule tables, two methods."""

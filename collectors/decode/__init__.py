"""What a report says: hop records, postcards put together, sequence numbers, samples of links."""

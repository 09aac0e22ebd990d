"""Traffic engineering: all demands at once, split over weighted next hops."""

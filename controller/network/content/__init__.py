"""What switches hold of named content."""

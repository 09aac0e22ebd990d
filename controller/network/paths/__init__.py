"""The path server: records, decides, explains."""

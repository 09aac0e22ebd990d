"""The long history: closed files of several collectors in an object store (S3), compacted, and queried in SQL."""

"""Users' files, read with root's rights: below folders that the settings allow, by a separate process."""

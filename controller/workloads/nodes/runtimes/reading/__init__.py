"""Files that users name, read with root's rights: below folders that the settings allow, by a process of their own."""

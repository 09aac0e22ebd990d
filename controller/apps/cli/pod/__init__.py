"""`millrace pod`: pods and groups of pods, from a script to their logs."""

"""`millrace pod`: pods and groups of pods, from a manifest to their logs."""

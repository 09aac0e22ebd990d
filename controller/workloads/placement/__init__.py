"""The workload controller: makes the pods of groups' templates, and replaces those of silent nodes."""

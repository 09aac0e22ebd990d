"""The workload controller: creates the pods of groups' templates, and replaces those of silent nodes."""

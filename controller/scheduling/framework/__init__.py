"""Decisions about subjects and their candidates: filters refuse, scores rank the rest, and each decision is explained.

Pure functions over columns. Pods with nodes and tasks with centres' units are the two kinds of subject.
"""

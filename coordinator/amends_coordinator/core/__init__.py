"""Decides what an event means for a saga: tables, rules, values.

Pure: no await, clock, randomness, wire format, database, or thread; nothing of ours is imported from outside.
"""

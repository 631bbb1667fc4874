"""The public API: thin servicers that validate, map, call the engine, and map errors.

No decision about a saga, and no answer without a reason from the one table of errors.
"""

"""Faults that people met, played with real processes, real gRPC and a real ledger; a journal outside the system
judges.
"""

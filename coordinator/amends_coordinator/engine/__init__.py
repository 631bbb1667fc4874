"""Drives sagas: feeds events to the core, makes its records durable, carries out its effects; knows who serves what.

Tasks and timers, but neither SQL nor gRPC: it knows them through ports only.
"""

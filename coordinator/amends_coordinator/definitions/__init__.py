"""Saga definitions: the checks of registration, descriptor pools, requests built from bindings.

Protobuf and nothing that waits: no network, no database, no loop. The command line uses it too, offline.
"""

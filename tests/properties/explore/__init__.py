"""Explores the real core beside a model of the world: every interleaving of small sagas, breadth first."""

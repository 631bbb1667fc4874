"""Tests that try everything: every event in every state of small sagas, and random long lives of larger ones."""

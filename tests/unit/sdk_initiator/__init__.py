"""The SDK of those who describe, start and follow sagas."""

"""Traces and metrics as a backend sees them: a real OTLP receiver in the test's process."""

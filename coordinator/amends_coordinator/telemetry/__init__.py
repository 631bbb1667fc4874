"""Telemetry adapter; all span, metric and attribute names are in one file here."""

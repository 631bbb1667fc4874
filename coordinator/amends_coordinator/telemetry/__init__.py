"""The telemetry port: logs, and what somebody who looks on is told; every name of a log event and field is in one file.

Nothing here may block, fail, or show a payload.
"""

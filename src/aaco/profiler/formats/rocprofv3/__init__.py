"""Captures of rocprofv3: rocpd databases, CSV, JSON, PC samples."""

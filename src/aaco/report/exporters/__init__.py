"""Sessions as points and samples for Prometheus and OpenTelemetry."""

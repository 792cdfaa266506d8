"""Reports for continuous integration: JUnit, SARIF, GitHub annotations, merge-request comments."""

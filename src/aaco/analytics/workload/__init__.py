"""What a workload already does, as its capture shows it: facts that advice depends on."""

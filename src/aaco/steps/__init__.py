"""The steps of one session: run, import captures, analyze, explain."""

"""Pure comparison of runs: is the change larger than the noise?"""

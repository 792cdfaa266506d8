"""Plants faults in models that run on this machine, records what they look like, learns from it and is judged by it.

    PYTHONPATH=src python -m benchmarks.faults --record FILE [--seconds N]   measure (goes on where FILE ends)
    PYTHONPATH=src python -m benchmarks.faults --train FILE... --into TABLE  likelihoods from recordings
    PYTHONPATH=src python -m benchmarks.faults --score FILE...               how often the answer is right, held out
"""

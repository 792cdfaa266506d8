"""tmp"""
def precisions(change): return []
def rewrite(*a): raise SystemExit(1)

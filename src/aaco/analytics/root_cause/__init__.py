"""Why is it slower: evidence from two sides, likelihoods learnt from planted faults, and the posterior over causes."""

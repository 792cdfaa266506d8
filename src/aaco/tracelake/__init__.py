"""Everything on disk: session tables, manifests, baselines, retention."""

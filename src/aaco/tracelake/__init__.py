"""Everything on disk: tables, documents, manifests, history, bundles."""

"""AMD code objects: their kernels' resources and instructions."""

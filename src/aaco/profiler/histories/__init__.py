"""Histories of measurements that other tools wrote, read into samples of the store: one file per format."""

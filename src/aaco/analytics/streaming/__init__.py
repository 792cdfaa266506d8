"""What a pass over a trace needs: ids of streams, launch links, bitmaps, clocks, overlap with the host's events."""

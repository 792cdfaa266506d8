"""The bars of `aaco fleet`, on fleets of generated bundles with planted changes."""

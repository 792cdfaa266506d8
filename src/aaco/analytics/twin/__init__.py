"""The digital twin: what an inference would take at another batch, in another precision, on another device.

Work is modelled (operators), roofs are measured (or a data sheet's, and then called so), efficiencies are fitted to
what was measured; how far that carries is measured too, by leaving out what is known.
"""

"""The what-if model (digital twin): an inference at another batch, in another precision, on another device.

Work is modelled (operators), roofs are measured (or taken from a data sheet and labelled so), efficiencies are fitted
to measurements. The error of extrapolation is measured too, by leaving measurements out.
"""

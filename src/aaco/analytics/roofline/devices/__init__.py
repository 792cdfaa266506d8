"""What devices can do by their makers' word: rates per compute unit and clock, boards, and what follows for one device.

This is data about hardware, not a measurement of it: what a machine was measured to reach is in calibration/. It is
here, and not there, because the judgement that needs it is pure and because a capture's device is hardly ever this
machine's. A device is identified by architecture, number of compute units and what else the capture says of it; rates
follow from its own units and clock, so a partition of a board is not taken for the board.
"""

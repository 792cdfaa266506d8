"""Engines that serve language models: their steps, the layers of a step, and what a step must compute and move."""

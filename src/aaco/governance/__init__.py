"""Pure comparison: is a change larger than the noise, and since when?"""

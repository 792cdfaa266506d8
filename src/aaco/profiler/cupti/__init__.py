"""AACO's own CUPTI tracer, which runs inside the traced program. formats/nvidia/cupti.py reads what it leaves."""

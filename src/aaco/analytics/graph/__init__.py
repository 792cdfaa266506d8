"""The model's graph: its nodes, what they cost, where they ran, and what the runtime made of them."""

"""XSpace captures of JAX and XLA."""

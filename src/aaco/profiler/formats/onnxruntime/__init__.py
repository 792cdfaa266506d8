"""ONNX Runtime profiles."""

"""What ONNX Runtime calls its execution providers, and the memory of their devices."""

CPU = "CPUExecutionProvider"
# These providers load CUDA's libraries, which a wheel may have put where the dynamic linker does not look.
ON_CUDA = {"CUDAExecutionProvider", "TensorrtExecutionProvider"}
MIGRAPHX = "MIGraphXExecutionProvider"
MEMORY = {**dict.fromkeys(ON_CUDA, "cuda"), MIGRAPHX: "gpu"}

"""cuDNN: convolution engines, normalisation, and attention that it generates."""

from aaco.analytics.kernels.families.terms import KernelLibrary

LIBRARY = KernelLibrary(
    "cudnn", r"cudnn|engines_precompiled|tensorTransform|implicit_convolve|fft2d_|flip_filter|nhwcAddPadding|scudnn_"
             r"|explicit_convolve|winograd_|precomputed_conv|convolve_|generateWinograd|calc_bias_diff|op_generic_tensor"
             r"|op_tensor|softmax_[fb]w_kernel|pooling_[fb]w|im2col4d|col2im4d|conv2d_grouped|conv2d_c1|cask_cudnn"
             r"|(?:dgrad|wgrad|fprop)(?:2d)?_|xmma_|nchwTo|(?:folded)?[nN]hwcTo|elemWiseRNNcell|[A-Z]+_elementWise",
    rules=(
        ("attention", r"sdpa|flash|compute_dot_do_o|convert_dq|mha|attention"),
        ("transpose", r"nchwTo|[Nn]hwcToNchw|Transpose|transpose|tensorTransform"),
        ("copy", r"AddPadding|nhwcRemovePadding|Pad"),
        ("norm", r"bn_[fb]w|batch_?norm|Norm|norm|_bn_|LRN|lrn"),
        ("softmax", r"softmax"),
        ("pooling", r"pool"),
        ("recurrent", r"LSTM|GRU|RNN|rnn|lstm|elem(?:ent)?Wise|persist"),
        ("conv", r"conv|fprop|dgrad|wgrad|fft2d|flip_filter|[Ww]inograd|im2col|col2im|kern_precompute|computeOffsets"
                 r"|scudnn|implicit"),
        ("reduction", r"reduce|bias_diff"),
        ("elementwise", r"op_generic_tensor|op_tensor|activation|scale|addTensor|add_tensor|dropout"),
    ))

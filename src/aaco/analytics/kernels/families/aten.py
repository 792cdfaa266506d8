"""PyTorch's own kernels. Those made for one operator say so; generic launchers say it in the functor they are given."""

from aaco.analytics.kernels.families.terms import UNKNOWN, KernelLibrary

_NORM = (r"[Ll]ayer_?[Nn]orm|[Gg]roup_?[Nn]orm|batch_?norm|RowwiseMoments|[Gg]ammaBeta|GradGammaBeta|FusedParams"
         r"|RMSNorm|cuComputeGradInput|ComputeInternalGradients|renorm|weight_norm|[Ww]elford|instance_norm")
LIBRARY = KernelLibrary(
    "aten", r"at::|c10::|caffe2::|torch::|cunn_|softmax_warp|vectorized_layer_norm|multi_tensor_apply|fused_dropout"
            r"|cuComputePartGradGammaBeta|indexSelect|\w*elementwise_kernel\w*<|reduce_kernel<|distribution_",
    rules=(
        (UNKNOWN, r"spin_kernel"),
        ("norm", _NORM),
        ("softmax", r"[Ss]oft_?[Mm]ax"),
        ("embedding", r"embedding|index(?:Select|Copy|Add|Func|_put|_select|ing_backward|ing_kernel|_elementwise|_copy"
                      r"|_add|_fill)|gather_kernel|scatter|compute_grad_weight|sum_and_scatter|krn_partial"
                      r"|num_of_partial_segments|write_num_of|take|put_kernel|vectorized_gather|EmbeddingBag|renorm"),
        ("copy", r"CatArray|copy_kernel|direct_copy|tril|triu|_pad|pad_kernel|unfold|split_with_sizes"
                 r"|batched_copy|chunk_cat|chunk_cuda|flip|roll_cuda"),
        ("pooling", r"pool|upsample|grid_sampl|interpolate|roi_"),
        ("sort", r"sort|topk|TopK|gatherTopK|sbtopk|mbtopk|radix|bitonic|kthvalue|gatherKth|median|countRadix|unique"
                 r"|flag_kernel|searchsorted|bucketize"),
        ("conv", r"conv|im2col|col2im|vol2col|slow_conv|depthwise"),
        ("reduction", r"^.*::reduce_kernel|scan|cumsum|nll_loss.*forward|nll_loss2d_forward|cdist|histogram|bincount"
                      r"|LpNorm.*leanup|lpnorm_cleanup|mode_|cross_entropy|ctc_loss|multi_?margin"),
        ("transpose", r"transpose|permute|pixel_shuffle|nested_.*pad"),
        ("recurrent", r"lstm|gru_cell|rnn"),
        ("attention", r"attention|attn|transform_bias_rescale_qkv|add_padding|softmax_dropout"),
        ("gemm", r"gemm|matmul|baddbmm|dot_kernel|gemv|int4|tinygemm"),
        ("fill", r"philox|distribution_(?!elementwise)|triu_indices|eye|range_cuda|arange|linspace|logspace|randperm"),
        ("quantize", r"quantize|fake_quant"),
        ("elementwise", r"dropout"),
        ("reduction", r"reduce"),
    ), launchers=r"elementwise_|multi_tensor_apply|gpu_kernel|loop_kernel|launch_", inner=(
        ("norm", _NORM),
        ("softmax", r"[Ss]oft_?[Mm]ax"),
        ("fill", r"^[\d, ]*(?:at::native::)?(?:\(anonymous namespace\)::)?FillFunctor|arange|linspace|random_from_to"
                 r"|random_kernel|uniform_and_transform|normal_and_transform|exponential|bernoulli|cauchy|geometric"
                 r"|log_normal|random_|range_cuda|full_like|eye_|logspace"),
        ("pooling", r"upsample|pool"),
        ("quantize", r"fake_quant|quantize_|dequantize"),
        ("embedding", r"index_kernel|index_put|index_copy|index_fill|gather|scatter|take_"),
        ("copy", r"copy_kernel|flip_kernel|CopyFunctor|\bCopy<|conj_kernel|tril|triu"),
        ("reduction", r"LpNormFunctor|LpMaxFunctor|cross_kernel"),
        ("transpose", r"pixel_shuffle"),
        ("elementwise", r"."),
    ))

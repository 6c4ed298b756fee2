"""The registered attention mechanisms: one declaration each, free of torch.

To add one: write `models/attention/<name>.py`, then register its declaration here. Those that
leave pairs of tokens out stand in `models/sparse_mechanisms.py`.
"""

from __future__ import annotations

from models.registry import AttentionSpec, Parameter, Registry
from models.sparse_mechanisms import SPARSE

ATTENTIONS = Registry()

ATTENTIONS.register(
    AttentionSpec(
        name="softmax",
        title="Softmax",
        paper="Vaswani et al. 2017, Attention Is All You Need",
        formula="sm(q kᵀ / √d) v",
        implementation="models.attention.softmax:SoftmaxAttention",
        cost="n²",
        parameters=(
            Parameter(
                "fused",
                "use the engine's fused kernel; false computes the n × n scores, as the papers "
                "measured it",
                "bool",
                True,
            ),
        ),
    )
)

ATTENTIONS.register(
    AttentionSpec(
        name="linformer",
        title="Linformer",
        paper="Wang et al. 2020, Linformer: Self-Attention with Linear Complexity",
        formula="sm(q (E k)ᵀ / √d) (F v)",
        implementation="models.attention.linformer:LinformerAttention",
        cost="n",
        approximates="softmax",
        max_length="max_length",
        budget="k",
        parameters=(
            Parameter(
                "k",
                "rows that keys and values are projected to",
                "int per layer",
                128,
                low=1,
                sensible=(32, 256),
            ),
            Parameter(
                "max_length",
                "longest document, in tokens: columns of the projections",
                "int",
                4096,
                low=1,
                sensible=(512, 65536),
            ),
            Parameter(
                "sharing",
                "which projections are one: none; headwise (by the heads); key-value (also of "
                "keys and values); layerwise (also of all layers)",
                "choice",
                "headwise",
                choices=("none", "headwise", "key-value", "layerwise"),
            ),
            Parameter(
                "projection",
                "how keys and values are shortened: a learned matrix, or windows of "
                "max_length / k tokens that are averaged, maximised or convolved",
                "choice",
                "linear",
                choices=("linear", "mean", "max", "convolution"),
            ),
        ),
    )
)

ATTENTIONS.register(
    AttentionSpec(
        name="nystromformer",
        title="Nyströmformer",
        paper="Xiong et al. 2021, Nyströmformer: A Nyström-based Algorithm for Approximating "
        "Self-Attention",
        formula="sm(q k̃ᵀ) Z sm(q̃ kᵀ) v + conv(v), Z ≈ sm(q̃ k̃ᵀ)⁺",
        implementation="models.attention.nystromformer:NystromAttention",
        cost="n",
        approximates="softmax",
        budget="landmarks",
        parameters=(
            Parameter(
                "landmarks",
                "segment means that stand for all queries and keys",
                "int",
                64,
                low=1,
                sensible=(32, 256),
            ),
            Parameter(
                "iterations",
                "rounds of the pseudo-inverse; many more diverge in float32",
                "int",
                6,
                low=1,
                high=12,
                sensible=(4, 8),
            ),
            Parameter(
                "conv_kernel",
                "width of the depthwise convolution of the values, odd; 1 leaves it out",
                "int",
                33,
                low=1,
                high=257,
                sensible=(33, 65),
                odd=True,
            ),
        ),
    )
)

ATTENTIONS.register(
    AttentionSpec(
        name="performer",
        title="Performer",
        paper="Choromanski et al. 2020, Rethinking Attention with Performers",
        formula="φ(q) (φ(k)ᵀ v) / (φ(q) Σ φ(k)), φ random features of the softmax kernel",
        implementation="models.attention.performer:PerformerAttention",
        cost="n",
        approximates="softmax",
        budget="features",
        parameters=(
            Parameter(
                "features",
                "random projections; hyperbolic and trigonometric features are twice as many",
                "int",
                128,
                low=1,
                sensible=(64, 512),
            ),
            Parameter(
                "feature_map",
                "positive: exp(Wx − ‖x‖²/2); hyperbolic: also exp(−Wx − ‖x‖²/2); "
                "trigonometric: cos and sin of Wx; relu: relu(Wx), which approximates no softmax",
                "choice",
                "positive",
                choices=("positive", "hyperbolic", "trigonometric", "relu"),
            ),
            Parameter(
                "seed",
                "seed of the random projections, which are stored with the weights",
                "int",
                0,
                low=0,
            ),
        ),
    )
)

ATTENTIONS.register(
    AttentionSpec(
        name="kernelized",
        title="Kernelized attention",
        paper="Chen et al. 2021, Skyformer: Remodel Self-Attention with Gaussian Kernel and "
        "Nyström Method",
        formula="exp(−‖q − k‖² / (2√d)) v",
        implementation="models.attention.kernelized:KernelizedAttention",
        cost="n²",
        normalised=False,
    )
)

ATTENTIONS.register(
    AttentionSpec(
        name="skyformer",
        title="Skyformer",
        paper="Chen et al. 2021, Skyformer: Remodel Self-Attention with Gaussian Kernel and "
        "Nyström Method",
        formula="κ(q,w) D^-½ Z D^-½ κ(w,k) v, Z ≈ (D^-½ (κ(w,w) + γI) D^-½)⁻¹",
        implementation="models.attention.skyformer:SkyformerAttention",
        cost="n",
        approximates="kernelized",
        budget="landmarks",
        normalised=False,
        parameters=(
            Parameter(
                "landmarks",
                "rows taken as landmarks, half of them queries and half keys",
                "int",
                128,
                low=2,
                sensible=(64, 256),
            ),
            Parameter(
                "gamma",
                "added to the landmarks' kernel matrix so that it can be inverted",
                "float",
                0.1,
                low=1e-6,
                high=10.0,
                sensible=(0.01, 0.5),
            ),
            Parameter(
                "iterations",
                "rounds of the inverse; many more diverge in float32",
                "int",
                6,
                low=1,
                high=12,
                sensible=(4, 8),
            ),
        ),
    )
)

ATTENTIONS.register(
    AttentionSpec(
        name="infinite_former",
        title="∞-former",
        paper="Martins et al. 2021, ∞-former: Infinite Memory Transformer",
        formula="softmax inside a segment + E[ψ(t)] Bᵥ, t ~ N(μ, σ²) over the past as a signal",
        implementation="models.attention.infinite_former:InfiniteFormerAttention",
        cost="n",
        approximates="softmax",
        budget="basis",
        parameters=(
            Parameter(
                "segment",
                "tokens read at a time, with softmax attention among them",
                "int",
                512,
                low=1,
                sensible=(256, 1024),
            ),
            Parameter(
                "basis",
                "Gaussian basis functions of the memory, half of each width",
                "int",
                64,
                low=2,
                sensible=(32, 256),
            ),
            Parameter(
                "widths",
                "standard deviations of the basis functions: fine is 0.005 and 0.01, "
                "coarse is 0.01 and 0.05",
                "choice",
                "coarse",
                choices=("fine", "coarse"),
            ),
            Parameter(
                "ridge",
                "penalty of the regression that fits the memory",
                "float",
                1.0,
                low=1e-4,
                high=100.0,
                sensible=(0.5, 1.0),
            ),
            Parameter(
                "samples",
                "points of the old signal that an update keeps",
                "int",
                512,
                low=2,
                sensible=(128, 512),
            ),
            Parameter(
                "tau",
                "share of the memory given to the past at an update",
                "float",
                0.75,
                low=0.01,
                high=0.99,
                sensible=(0.5, 0.75),
            ),
            Parameter(
                "sticky",
                "sample the past where the last segment's attention fell most, not evenly",
                "bool",
                False,
            ),
        ),
    )
)

ATTENTIONS.register(
    AttentionSpec(
        name="linear",
        title="Linear (ELU)",
        paper="Katharopoulos et al. 2020, Transformers are RNNs",
        formula="φ(q) (φ(k)ᵀ v) / (φ(q) Σ φ(k) + 1e-6), φ = elu + 1",
        implementation="models.attention.linear:LinearAttention",
        cost="n",
    )
)

ATTENTIONS.register(
    AttentionSpec(
        name="efficient",
        title="Efficient attention",
        paper="Shen et al. 2018, Efficient Attention: Attention with Linear Complexities",
        formula="ρ(q) (ρ(k)ᵀ v), softmax of q over its features, of k over the positions",
        implementation="models.attention.efficient:EfficientAttention",
        cost="n",
    )
)

for spec in SPARSE:
    ATTENTIONS.register(spec)

"""What every registered mechanism promises, whatever it computes."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from models.attention import create_attention, create_layers
from models.errors import ConfigError, ShapeError
from models.mechanisms import ATTENTIONS
from models.registry import AttentionSpec
from tests.contract.variants import HEAD_DIM, HEADS, VARIANTS, Variant

LENGTHS = (1, 2, 3, 17, 63, 64, 65, 100, 257, 1000, pytest.param(4099, marks=pytest.mark.slow))

SEEDED = [spec.name for spec in ATTENTIONS if "seed" in (p.name for p in spec.parameters)]

each_variant = pytest.mark.parametrize("variant", VARIANTS, ids=str)


def random_documents(
    batch: int,
    n: int,
    seed: int = 0,
    dtype: torch.dtype = torch.float32,
    head_dim: int = HEAD_DIM,
) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    shape = (3, batch, HEADS, n, head_dim)
    q, k, v = torch.randn(shape, generator=generator).to(dtype)
    return q, k, v


def mask_of(*lengths: int, n: int | None = None) -> Tensor:
    return torch.arange(n or max(lengths))[None] < torch.tensor(lengths)[:, None]


def relative_error(got: Tensor, wanted: Tensor) -> float:
    return float((got - wanted).abs().max() / wanted.abs().max())


@each_variant
@pytest.mark.parametrize("n", LENGTHS)
@torch.no_grad()
def test_a_document_depends_on_itself_alone(variant: Variant, n: int) -> None:
    attention = variant.build()
    q, k, v = random_documents(1, n)
    alone = attention(q, k, v, mask_of(n))
    longer = max(n + 37, 150)

    # Among a longer neighbour with extreme values, a shorter and an empty one.
    batch = [x.clone() for x in random_documents(4, longer, seed=1)]
    batch[0][1] *= 10
    batch[1][1] *= 10
    for whole, document, rubbish in zip(
        batch, (q, k, v), (1e30, torch.nan, torch.inf), strict=True
    ):
        whole[0, :, :n] = document[0]
        whole[0, :, n:] = rubbish
    mixed = attention(*batch, mask_of(n, longer, 1, 0, n=longer))
    assert relative_error(mixed[0, :, :n], alone[0]) <= 1e-5
    assert mixed.isfinite().all(), "a neighbour was spoilt"
    assert (mixed[0, :, n:] == 0).all(), "the padding's output is zero"
    assert (mixed[3] == 0).all(), "an empty document's output is zero"

    # Padded, with nobody else there.
    padded = attention(*(x[:1] for x in batch), mask_of(n, n=longer))
    assert relative_error(padded[0, :, :n], alone[0]) <= 1e-5


@each_variant
@torch.no_grad()
def test_eval_mode_is_deterministic(variant: Variant) -> None:
    q, k, v = random_documents(2, 300)
    mask = mask_of(300, 211)
    attention = variant.build()
    assert torch.equal(attention(q, k, v, mask), attention(q, k, v, mask))


@each_variant
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@torch.no_grad()
def test_large_queries_and_keys_do_not_overflow(variant: Variant, dtype: torch.dtype) -> None:
    attention = variant.build().to(dtype)
    for n in (5, 700):
        q, k, v = random_documents(2, n, dtype=dtype)
        out = attention(10 * q, 10 * k, v, mask_of(n, n // 2 + 1))
        assert out.dtype == dtype
        assert out.isfinite().all()


@each_variant
@torch.no_grad()
def test_half_precision_agrees_with_single(variant: Variant) -> None:
    attention = variant.build()
    q, k, v = random_documents(2, 333, dtype=torch.float16)
    mask = mask_of(333, 100)
    wanted = attention(q.float(), k.float(), v.float(), mask)
    got = attention.half()(q, k, v, mask).float()
    # Trigonometric features divide by sums that may be near zero: there only the middle counts.
    error = (got - wanted).abs().flatten().kthvalue(int(0.99 * got.numel())).values
    assert error <= 0.02 * wanted.abs().max()


@each_variant
def test_gradients_are_correct(variant: Variant) -> None:
    attention = variant.build_small().double()
    q, k, v = (x.requires_grad_() for x in random_documents(2, 8, 0, torch.float64, 2))
    mask = mask_of(8, 5)

    def of_inputs(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        out: Tensor = attention(q, k, v, mask)
        return out

    assert torch.autograd.gradcheck(of_inputs, (q, k, v))
    of_inputs(q, k, v).square().sum().backward()  # type: ignore[no-untyped-call]
    for name, parameter in attention.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.any(), f"{name} learns nothing"


@each_variant
def test_gradients_are_finite_for_large_queries_and_keys(variant: Variant) -> None:
    attention = variant.build()
    q, k, v = (
        (x * scale).requires_grad_()
        for x, scale in zip(random_documents(2, 130), (10, 10, 1), strict=True)
    )
    attention(q, k, v, mask_of(130, 0)).square().mean().backward()
    for x in (q, k, v, *attention.parameters()):
        assert x.grad is not None
        assert x.grad.isfinite().all()


@each_variant
def test_weights_keep_the_random_choices(variant: Variant) -> None:
    """Whatever is drawn at random comes back with the weights."""
    q, k, v = random_documents(1, 90)
    one = variant.build()
    other = variant.build(**({"seed": 7} if variant.name in SEEDED else {}))
    other.load_state_dict(one.state_dict())
    assert torch.equal(one(q, k, v, mask_of(90)), other(q, k, v, mask_of(90)))


@each_variant
def test_shapes_that_do_not_fit_are_refused(variant: Variant) -> None:
    attention = variant.build()
    q, k, v = random_documents(2, 8)
    mask = mask_of(8, 5)
    refused: list[tuple[tuple[Tensor, Tensor, Tensor, Tensor], str]] = [
        ((q[0], k, v, mask), r"q must be \(batch, heads=2, n, d=16\); got \(2, 8, 16\)"),
        ((q, k[:, :1], v, mask), r"k must be .* got \(2, 1, 8, 16\)"),
        ((q, k, v[..., :4], mask), r"v must be .* got \(2, 2, 8, 4\)"),
        ((q, k[:1], v, mask), r"one shape; got q \(2, 2, 8, 16\), k \(1, 2, 8, 16\)"),
        ((q, k, v[:, :, :3], mask), "one shape"),
        ((q, k.double(), v, mask), "one floating-point type; got q torch.float32, k torch.float64"),
        ((q.int(), k.int(), v.int(), mask), "floating-point type"),
        ((q, k, v, mask.int()), "mask must be of type torch.bool; got torch.int32"),
        ((q, k, v, mask[:, :7]), r"mask must be \(batch=2, n=8\).*got \(2, 7\)"),
        ((q, k, v, mask[:1]), r"mask must be \(batch=2, n=8\).*got \(1, 8\)"),
        ((q, k, v, mask.flip(1)), "false after them only"),
        ((q[:, :, :0], k[:, :, :0], v[:, :, :0], mask[:, :0]), "n must be at least 1"),
    ]
    for arguments, message in refused:
        with pytest.raises(ShapeError, match=message):
            attention(*arguments)


@pytest.mark.parametrize("spec", ATTENTIONS, ids=lambda spec: spec.name)
@torch.no_grad()
def test_a_hard_maximum_is_declared_and_enforced(spec: AttentionSpec) -> None:
    limit: dict[str, int] = {} if spec.max_length is None else {spec.max_length: 200}
    attention = create_attention(spec.name, heads=HEADS, head_dim=HEAD_DIM, **limit)
    q, k, v = random_documents(1, 201)
    attention(q[:, :, :200], k[:, :, :200], v[:, :, :200], mask_of(200))
    if limit:
        with pytest.raises(ShapeError, match="at most 200 tokens; got n=201"):
            attention(q, k, v, mask_of(201))
    else:
        attention(q, k, v, mask_of(201))


def test_unknown_names_and_parameters_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"did you mean 'nystromformer'\?.*known: softmax, linf"):
        create_attention("nystromer", heads=2, head_dim=8)
    with pytest.raises(ConfigError, match="landmarks must be a whole number of at least 1; got 0"):
        create_attention("nystromformer", heads=2, head_dim=8, landmarks=0)
    with pytest.raises(ConfigError, match="skyformer has no parameter 'k'; it has: landmarks"):
        create_attention("skyformer", heads=2, head_dim=8, k=3)
    with pytest.raises(ConfigError, match="basis must be even"):
        create_attention("infinite_former", heads=2, head_dim=8, basis=7)


def test_layers_of_a_stack_draw_their_own_features() -> None:
    first, second = create_layers("performer", layers=2, heads=2, head_dim=8)
    assert not torch.equal(first.state_dict()["projection"], second.state_dict()["projection"])


@pytest.mark.parametrize(
    ("sharing", "matrices"), [("none", 8), ("headwise", 4), ("key-value", 2), ("layerwise", 1)]
)
def test_linformer_shares_as_asked(sharing: str, matrices: int) -> None:
    layers = create_layers(
        "linformer", layers=2, heads=2, head_dim=8, k=4, max_length=10, sharing=sharing
    )
    names = torch.nn.ModuleList(layers).state_dict()
    assert sum(tensor.numel() for tensor in names.values()) == matrices * 4 * 10


def test_linformer_takes_a_k_per_layer() -> None:
    build = {"heads": 2, "head_dim": 8, "max_length": 64}
    first, second = create_layers("linformer", layers=2, k=[16, 4], **build)
    assert first.state_dict()["keys.weight"].shape == (1, 16, 64)
    assert second.state_dict()["keys.weight"].shape == (1, 4, 64)
    with pytest.raises(ConfigError, match="k has 3 entries for 2 layers"):
        create_layers("linformer", layers=2, k=[16, 4, 2], **build)
    with pytest.raises(ConfigError, match="need one k"):
        create_layers("linformer", layers=2, k=[16, 4], sharing="layerwise", **build)
    with pytest.raises(ConfigError, match="at most max_length"):
        create_layers("linformer", layers=1, k=65, **build)

"""Vision transformers (Dosovitskiy et al. 2021) with timm's parameter names, so its weights load by name.

The class token after the last LayerNorm is the feature vector, as in USB. Shapes: B rows, N tokens, D wide.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from instant.backbones.base import Backbone, DropPath
from instant.errors import InputError


class PatchEmbed(nn.Module):
    """Cut an image into patches and embed each: (B, C, H, W) -> (B, N, D)."""

    def __init__(self, channels: int, width: int, patch: int) -> None:
        super().__init__()
        self.proj = nn.Conv2d(channels, width, patch, stride=patch)

    def forward(self, x: Tensor) -> Tensor:
        return self.proj(x).flatten(2).transpose(1, 2)


class Attention(nn.Module):
    """Multi-head self-attention."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        qkv = self.qkv(x).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)  # (3, B, heads, N, D / heads)
        q, k, v = qkv.unbind(0)
        return self.proj(scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


class Mlp(nn.Module):
    """Two linear layers with a GELU between."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(width, hidden)
        self.act = nn.GELU()
        self.fc2 = nn.Linear(hidden, width)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(self.act(self.fc1(x)))


class Block(nn.Module):
    """Pre-norm attention and MLP, each on a branch that stochastic depth may drop."""

    def __init__(self, width: int, heads: int, *, number: int, drop_path: float) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width, eps=1e-6)
        self.attn = Attention(width, heads)
        self.drop_path1 = DropPath(drop_path, stream=2 * number)
        self.norm2 = nn.LayerNorm(width, eps=1e-6)
        self.mlp = Mlp(width, 4 * width)
        self.drop_path2 = DropPath(drop_path, stream=2 * number + 1)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.drop_path1(self.attn(self.norm1(x)))
        return x + self.drop_path2(self.mlp(self.norm2(x)))


class VisionTransformer(Backbone):
    """Patches and a class token through `depth` blocks; drop rates grow linearly from 0 to `drop_path`."""

    no_weight_decay = frozenset({"cls_token", "pos_embed"})
    rows_are_independent = True

    def __init__(
        self,
        *,
        channels: int,
        classes: int,
        image: int,
        patch: int,
        width: int,
        depth: int,
        heads: int,
        drop_path: float = 0.2,
    ) -> None:
        super().__init__(width, classes)
        if image % patch or width % heads:
            raise InputError(
                f"patch must divide image and heads must divide width, got image={image}, patch={patch}, "
                f"width={width}, heads={heads}"
            )
        self.depth = depth
        self.grid = image // patch
        self.patch_embed = PatchEmbed(channels, width, patch)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, width))
        self.pos_embed = nn.Parameter(torch.zeros(1, 1 + self.grid**2, width))
        rates = [drop_path * number / max(1, depth - 1) for number in range(depth)]
        self.blocks = nn.Sequential(*(Block(width, heads, number=i, drop_path=rate) for i, rate in enumerate(rates)))
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.head = nn.Linear(width, classes)
        self._initialise()

    def _initialise(self) -> None:
        # timm truncates at +-2, a hundred deviations away: plain normal numbers are the same distribution.
        nn.init.normal_(self.cls_token, std=1e-6)
        nn.init.normal_(self.pos_embed, std=0.02)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=0.02)
                nn.init.zeros_(module.bias)

    def features(self, x: Tensor) -> Tensor:
        patches = self.patch_embed(x)
        tokens = torch.cat([self.cls_token.expand(x.shape[0], -1, -1), patches], dim=1) + self.pos_embed
        return self.norm(self.blocks(tokens))[:, 0]

    def layer_numbers(self) -> dict[str, int]:
        """Embeddings 0, block i at i + 1, the last norm and the head at depth + 1."""
        numbers = {}
        for name, _ in self.named_parameters():
            part = name.split(".")
            if part[0] == "blocks":
                numbers[name] = int(part[1]) + 1
            elif part[0] in ("cls_token", "pos_embed", "patch_embed"):
                numbers[name] = 0
            else:
                numbers[name] = self.depth + 1
        return numbers

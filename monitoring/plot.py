"""Pictures of a run: norms per layer and token, and attention patterns. matplotlib is imported when one is drawn."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from monitoring.errors import MissingDependency, StoreError
from monitoring.reading.internals import Internals

DOTS_PER_INCH = 120
MAX_HEADS = 16
"""Attention heads that one picture shows."""


def plot_norms(internals: Internals, path: str | Path, *, site: str = "resid_pre", request: int = 0) -> Path:
    """Draw the L2 norm of each token's vector, one line of cells per layer; give the PNG's path.

    `request` counts in `internals.requests`. Only the request's own tokens are drawn.
    """
    pyplot = _import_pyplot()
    layers = internals.site(site)
    name, numbers = _place(internals, site)
    _check_request(internals, request)
    rows = []
    for tensor, layer in zip(layers, numbers, strict=True):
        mask = internals.mask(site, layer=layer)[request]
        values = tensor[request].double()
        rows.append(values.reshape(values.shape[0], -1).norm(dim=1).masked_fill(~mask, float("nan")).tolist())
    # Every layer has the request's tokens at its right edge; empty columns of the batch around them go.
    width = max(sum(value == value for value in row) for row in rows)  # noqa: PLR0124 - NaN alone differs from itself
    grid = [[value for value in row if value == value] for row in rows]  # noqa: PLR0124 - as above
    grid = [[float("nan")] * (width - len(row)) + row for row in grid]
    figure, axes = pyplot.subplots(figsize=(min(16.0, 3 + 0.18 * width), min(12.0, 1.6 + 0.28 * len(grid))))
    image = axes.imshow(grid, aspect="auto", cmap="viridis", interpolation="nearest")
    axes.set_title(f"norm of {name}, request {internals.requests[request]}")
    axes.set_xlabel("token")
    axes.set_ylabel("layer")
    axes.set_yticks(range(len(grid)), ["model" if number < 0 else str(number) for number in numbers])
    figure.colorbar(image, ax=axes, label="L2 norm")
    return _save(pyplot, figure, path)


def plot_attention(
    internals: Internals,
    path: str | Path,
    *,
    layer: int | None = None,
    request: int = 0,
    heads: Sequence[int] | None = None,
) -> Path:
    """Draw one layer's attention pattern (the first captured by default), a square per head; give the PNG's path."""
    pyplot = _import_pyplot()
    patterns = internals.attentions
    _, numbers = _place(internals, "pattern")
    chosen = numbers[0] if layer is None else layer
    if chosen not in numbers:
        raise StoreError(f"layer {chosen} has no pattern", hint=f"layers: {', '.join(map(str, numbers))}")
    _check_request(internals, request)
    pattern = patterns[numbers.index(chosen)][request].float()
    held = internals.mask("pattern", layer=chosen)[request]
    tokens = held.nonzero().flatten()
    # The key axis may be longer than the query axis: both end at the batch's right edge.
    pattern = pattern[:, tokens][:, :, tokens + pattern.shape[-1] - held.shape[0]]
    shown = list(heads) if heads is not None else list(range(min(MAX_HEADS, pattern.shape[0])))
    if not shown or any(not 0 <= head < pattern.shape[0] for head in shown):
        raise StoreError(f"heads are {shown}, expected some of 0 to {pattern.shape[0] - 1}")
    columns = min(4, len(shown))
    lines = -(-len(shown) // columns)
    figure, grid = pyplot.subplots(lines, columns, figsize=(3 * columns, 3 * lines), squeeze=False)
    for axes in grid.flat:
        axes.axis("off")
    for axes, head in zip(grid.flat, shown, strict=False):
        axes.axis("on")
        axes.imshow(
            pattern[head].tolist(), cmap="magma", vmin=0.0, vmax=float(pattern.max()) or 1.0, interpolation="nearest"
        )
        axes.set_title(f"head {head}", fontsize=9)
        axes.tick_params(labelsize=7)
    figure.suptitle(f"attention, layer {chosen}, request {internals.requests[request]} (rows look at columns)")
    return _save(pyplot, figure, path)


def _import_pyplot() -> Any:
    try:
        matplotlib = importlib.import_module("matplotlib")
    except ImportError as error:
        raise MissingDependency("pictures need matplotlib", hint='pip install "lockgate[plot]"') from error
    matplotlib.use("Agg")
    return importlib.import_module("matplotlib.pyplot")


def _place(internals: Internals, site: str) -> tuple[str, tuple[int, ...]]:
    found, layers = internals.find_site(site)
    return found.name, layers


def _check_request(internals: Internals, request: int) -> None:
    count = len(internals.requests)
    if not 0 <= request < count:
        raise StoreError(f"request is {request}, expected 0 to {count - 1}", hint="requests count from 0, in order")


def _save(pyplot: Any, figure: Any, path: str | Path) -> Path:
    place = Path(path)
    try:
        figure.savefig(place, dpi=DOTS_PER_INCH, bbox_inches="tight")
    except (OSError, ValueError) as error:
        raise StoreError(
            f"the picture {place} cannot be written: {error}", hint="name a .png file in an existing folder"
        ) from error
    finally:
        pyplot.close(figure)
    return place

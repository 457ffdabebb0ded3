"""The main job once, from end to end: `python -m monitoring.demo --out DIR`.

A small Llama with random weights (fixed seed, nothing to download) generates
text while its internals are captured into an embedded ClickHouse, read back,
compared bit for bit with what the model itself returns, and drawn.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from monitoring.errors import MissingDependency, MonitoringError

if TYPE_CHECKING:
    from monitoring.reading.internals import Internals

SITES = "hidden-states,attentions,q,k,v,mlp_post,logits,token-ids"
PROMPTS = ("A gate opens", "Locks and keys, one after another")
PAD = 256
ROUNDS = 7


def main(argv: Sequence[str] | None = None) -> int:
    """Run the demonstration; 0 when everything read back is what the model computed."""
    parser = argparse.ArgumentParser(prog="python -m monitoring.demo", description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("lockgate-demo"), help="folder for the store and the picture")
    parser.add_argument("--store", default="", help="another store, say clickhouse://localhost:8123/default")
    parser.add_argument("--tokens", type=int, default=24, help="tokens to generate (default 24)")
    options = parser.parse_args(argv)
    if not 1 <= options.tokens <= 400:
        parser.error(f"--tokens is {options.tokens}, expected 1 to 400")
    # A pipe (a CI log) has no width of its own; the tables need one that does not fold them.
    console = Console(soft_wrap=False, width=None if sys.stdout.isatty() else 110)
    try:
        return run(console, out=options.out, store=options.store, tokens=options.tokens)
    except MonitoringError as error:
        failed = Console(stderr=True, soft_wrap=True)
        failed.print(f"[bold red]error:[/] {escape(error.message)}", highlight=False)
        if error.hint:
            failed.print(f"[bold]hint:[/] {escape(error.hint)}", highlight=False)
        return 1


def run(console: Console, *, out: Path, store: str, tokens: int) -> int:
    """Build, capture, read back, compare, measure, draw."""
    from monitoring.capture import watch
    from monitoring.read import read

    def say(text: str) -> None:
        console.print(f"[bold cyan]>[/] {text}", highlight=False)

    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise MonitoringError(
            f"cannot create {out}: {error.strerror}", hint="give another folder with --out"
        ) from error
    url = store or str(out / "store")
    say("building a Llama of 6 layers, 256 wide, from its configuration (fixed seed, random weights)")
    model, batch = build()
    parameters = sum(parameter.numel() for parameter in model.parameters())
    say(f"{parameters / 1e6:.1f} M parameters; generating {tokens} tokens for {len(PROMPTS)} prompts, unwatched")
    plain = generate(model, batch, tokens)
    say(f"generating again, watching {escape(SITES)}")
    with watch(model, select=SITES, store=url, raise_on_loss=True) as monitor:
        output = generate(model, batch, tokens)
        say(f"generated; draining into {escape(url)}")
    stats = monitor.stats()
    say(f"run {monitor.run_id}: {stats}")
    say("reading the run back")
    internals = read(url, run=monitor.run_id)
    say("comparing with the model's own outputs, bit for bit")
    compared, wrong = compare(internals, plain, output)
    say("measuring what watching costs")
    cost = measure(model, batch, tokens, url)
    console.print(describe(internals))
    console.print(f"rows: {stats}", highlight=False)
    say("drawing")
    picture = out / "norms.png"
    draw(internals, picture)
    for line in wrong:
        console.print(f"[bold red]differs:[/] {escape(line)}", highlight=False)
    verdict = "[bold red]NOT equal[/]" if wrong else "[bold green]bit-equal[/]"
    console.print(f"{compared} tensors read back, {verdict} to the model's own", highlight=False)
    console.print(f"cost of watching: {cost}", highlight=False)
    console.print(f"picture: {escape(str(picture))}", highlight=False)
    console.print(f"look further: python -m monitoring show {escape(url)} --run {monitor.run_id}", highlight=False)
    return 1 if wrong else 0


def build() -> tuple[Any, dict[str, Any]]:
    """Build the model and a left-padded batch; a token is a byte of UTF-8."""
    try:
        import torch
        import transformers
    except ImportError as error:
        raise MissingDependency(
            f"the demonstration needs torch and transformers: {error}",
            hint="pip install 'lockgate[monitoring]' transformers",
        ) from error
    torch.manual_seed(20)
    config = transformers.LlamaConfig(
        vocab_size=257, hidden_size=256, intermediate_size=688, num_hidden_layers=6, num_attention_heads=8,
        num_key_value_heads=4, max_position_embeddings=512, pad_token_id=PAD, bos_token_id=None, eos_token_id=None,
    )  # fmt: skip
    model = transformers.LlamaForCausalLM(config).to(torch.bfloat16).eval()
    model.set_attn_implementation("eager")
    width = max(len(prompt.encode()) for prompt in PROMPTS)
    ids = torch.tensor([[PAD] * (width - len(prompt.encode())) + list(prompt.encode()) for prompt in PROMPTS])
    return model, {"input_ids": ids, "attention_mask": (ids != PAD).long()}


def generate(model: Any, batch: dict[str, Any], tokens: int) -> Any:
    """Generate greedily, and let the model return its own view of its internals."""
    return model.generate(
        **batch, max_new_tokens=tokens, do_sample=False, return_dict_in_generate=True,
        output_hidden_states=True, output_attentions=True, output_logits=True,
    )  # fmt: skip


def compare(internals: Internals, plain: Any, output: Any) -> tuple[int, list[str]]:
    """Compare every tensor that the model returns too; the number of tensors, and those that differ."""
    import torch

    wrong = [] if torch.equal(plain.sequences, output.sequences) else ["the tokens generated while watched"]
    mask = internals.token_mask
    compared = 0

    def check(name: str, ours: Any, theirs: Any) -> None:
        nonlocal compared
        compared += 1
        # Compared as integers: NaN and signed zero count too.
        if ours.shape != theirs.shape or not torch.equal(
            ours.contiguous().view(torch.uint8), theirs.contiguous().view(torch.uint8)
        ):
            wrong.append(name)

    for layer, ours in enumerate(internals.hidden_states):
        theirs = torch.cat([states[layer] for states in output.hidden_states], dim=1)
        check(f"hidden state {layer}", ours[mask], theirs[mask])
    for layer, ours in enumerate(internals.attentions):
        for row in range(mask.shape[0]):
            for step, patterns in enumerate(output.attentions):
                theirs = patterns[layer][row]
                end = theirs.shape[-1]
                first = end - theirs.shape[1]
                real = mask[row, first:end]
                check(
                    f"attention {layer} row {row} step {step}", ours[row, :, first:end, :end][:, real], theirs[:, real]
                )
    steps = len(output.logits)
    for step, theirs in enumerate(output.logits):
        check(f"logits of step {step}", internals.logits[:, step - steps].float(), theirs)
    check("token ids", internals.token_ids[mask], output.sequences[:, :-1][mask])
    return compared, wrong


def measure(model: Any, batch: dict[str, Any], tokens: int, url: str) -> str:
    """Time generation watched and not, in turns; what watching adds to the quickest turn, as other load only slows."""
    import torch

    from monitoring.capture import watch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # a thread that spins for its helpers would count their waiting
    without, watched = [], []
    for _ in range(ROUNDS):
        without.append(thread_seconds(lambda: bare(model, batch, tokens)))
        with watch(model, select=SITES, store=url):
            watched.append(thread_seconds(lambda: bare(model, batch, tokens)))
    torch.set_num_threads(threads)
    share, step = min(watched) / min(without) - 1, min(without) / tokens
    return f"{share:+.1%} CPU time (best of {ROUNDS} turns, one thread, {step * 1e3:.1f} ms per step unwatched)"


def bare(model: Any, batch: dict[str, Any], tokens: int) -> None:
    """Generate and keep nothing."""
    model.generate(**batch, max_new_tokens=tokens, do_sample=False)


def thread_seconds(action: Callable[[], None]) -> float:
    """Give the CPU seconds that this thread spends in an action."""
    before = time.thread_time()
    action()
    return time.thread_time() - before


def describe(internals: Internals) -> Table:
    """Tabulate sites, shapes and bytes."""
    by_site = defaultdict(list)
    for row in internals.rows:
        by_site[row.site].append(row)
    table = Table(title=f"run {internals.run_id} of {internals.model_id}", title_justify="left")
    for name in ("site", "layers", "first row", "dtype", "rows", "bytes"):
        table.add_column(name, justify="right" if name in ("rows", "bytes") else "left")
    for site, layers in internals.sites.items():
        rows = by_site[site]
        size = sum(len(row.data) for row in rows)
        shape = " x ".join(str(extent) for extent in rows[0].shape)
        count = "-" if layers == (-1,) else str(len(layers))
        table.add_row(site, count, shape, rows[0].dtype, f"{len(rows):,}", f"{size:,}")
    total = sum(len(row.data) for row in internals.rows)
    table.add_section()
    table.add_row("all", "", "", "", f"{len(internals.rows):,}", f"{total:,}")
    return table


def draw(internals: Internals, path: Path) -> None:
    """Draw norms per layer and token for each request, and the last layer's attention."""
    try:
        import matplotlib as mpl

        mpl.use("Agg")
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise MissingDependency(f"the picture needs matplotlib: {error}", hint="pip install matplotlib") from error
    import torch

    norms = torch.stack([state.float().norm(dim=-1) for state in internals.hidden_states[:-1]])
    mask = internals.token_mask
    requests = internals.requests
    figure, axes = plt.subplots(2, len(requests), figsize=(6 * len(requests), 7), squeeze=False, layout="constrained")
    for row, request in enumerate(requests):
        real = mask[row]
        image = axes[0][row].imshow(norms[:, row][:, real].numpy(), aspect="auto", origin="lower", cmap="viridis")
        axes[0][row].set(title=f"norm of the residual stream, request {request}", xlabel="token", ylabel="layer")
        figure.colorbar(image, ax=axes[0][row])
        pattern = internals.attentions[-1][row].float().mean(dim=0)[real][:, real]
        image = axes[1][row].imshow(pattern.numpy(), aspect="auto", cmap="magma")
        axes[1][row].set(title="attention, last layer, mean of heads", xlabel="key token", ylabel="query token")
        figure.colorbar(image, ax=axes[1][row])
    figure.savefig(path, dpi=110)
    plt.close(figure)


if __name__ == "__main__":
    sys.exit(main())

"""Distillation: store what a teacher knows once, train students from the store.

    python examples/distillation_dump.py [--store teacher-store] [--batches 12]

The teacher runs over a corpus while its logits and last hidden states are
stored; it is then thrown away. The student learns from what is read back.
"""

from __future__ import annotations

import argparse
from typing import Any

import torch
import transformers

import monitoring

VOCABULARY = 200
COLUMNS = 32
ROWS = 4


def main() -> None:
    """Dump the teacher, train the student, show that it learns."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--store", default="teacher-store")
    parser.add_argument("--batches", type=int, default=12)
    options = parser.parse_args()
    torch.manual_seed(0)
    run = dump(options.store, options.batches)
    train(monitoring.read(options.store, run=run))


def model(layers: int, width: int) -> Any:
    """Build a GPT-2 with random weights."""
    config = transformers.GPT2Config(
        vocab_size=VOCABULARY, n_layer=layers, n_embd=width, n_head=4, n_positions=COLUMNS,
        bos_token_id=0, eos_token_id=0, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
    )  # fmt: skip
    return transformers.GPT2LMHeadModel(config)


def dump(store: str, batches: int) -> str:
    """Run the teacher over the corpus and store what it says; the run's id."""
    teacher = model(layers=6, width=128).eval()
    with torch.no_grad():  # a teacher with opinions: sharper logits than random weights give
        teacher.lm_head.weight.mul_(20)
    with monitoring.watch(teacher, select="logits,final_ln,token-ids", store=store, raise_on_loss=True) as watch:
        for batch in range(batches):
            ids = torch.randint(0, VOCABULARY, (ROWS, COLUMNS))
            with watch.requests([f"text{batch * ROWS + row}" for row in range(ROWS)]), torch.no_grad():
                teacher(ids, use_cache=False)
    print(f"teacher: {watch.stats()}, {watch.stats().bytes_written / 1e6:.1f} MB")
    return watch.run_id


def train(taught: Any) -> None:
    """Train a student on the stored logits; prints the loss."""
    student = model(layers=2, width=64).train()
    optimizer = torch.optim.AdamW(student.parameters(), lr=3e-3)
    ids, targets = taught.token_ids, taught.logits.softmax(-1)
    print(f"student: {len(taught.requests)} texts, logits {tuple(taught.logits.shape)}")
    losses = []
    for step in range(60):
        pick = torch.randint(0, len(ids), (ROWS * 2,))
        said = student(ids[pick], use_cache=False).logits.log_softmax(-1)
        loss = torch.nn.functional.kl_div(said, targets[pick], reduction="none").sum(-1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if step % 15 == 0:
            print(f"  step {step:3}: divergence from the teacher {losses[-1]:.3f}")
    print(f"  end     : {sum(losses[-5:]) / 5:.3f}, from {losses[0]:.3f}")


if __name__ == "__main__":
    main()

"""Sessions: each row of a forward pass belongs to the right request and the right tokens."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitoring.step import Names, Request, Session, expand_names

pytestmark = pytest.mark.cpu

FILLER = -1
EOS = 9


def play(lengths, chunks, decode, stop):
    """Run a left-padded batch through a session as generate does; per request, the tokens that its rows cover.

    `chunks` are the sizes of the prefill's passes, `decode` the number of
    passes of one token after it, `stop[row]` the decode pass whose input is the
    row's end token (filler follows).
    """
    width = max(lengths)
    # What stands in each column: (row, token index), or FILLER for padding and for what follows an end token.
    grid = [
        [FILLER] * (width - length) + [(row, token) for token in range(length)] for row, length in enumerate(lengths)
    ]
    for row, length in enumerate(lengths):
        for step in range(decode):
            grid[row].append((row, length + step) if stop[row] is None or step <= stop[row] else FILLER)
    session = Session(
        name="g0", requests=[Request(f"r{row}") for row in range(len(lengths))], prompt=width, eos=frozenset({EOS})
    )
    covered = {row: [] for row in range(len(lengths))}
    column = 0
    for size in [*chunks, *([1] * decode)]:
        windows = None
        last_ids = None
        prefill = session.is_prefill(size)
        assert prefill == (column < width)
        if prefill:
            windows = []
            for line in grid:
                real = [at for at in range(size) if line[column + at] != FILLER]
                windows.append((real[0], real[-1] + 1) if real else (0, 0))
        else:
            step = column - width
            last_ids = [EOS if stop[row] == step else 3 for row in range(len(lengths))]
        for placed in session.advance(size, windows=windows, last_ids=last_ids):
            cells = grid[placed.row][column + placed.first : column + placed.last]
            assert placed.request is session.requests[placed.row]
            assert cells == [(placed.row, placed.token_start + at) for at in range(len(cells))]
            covered[placed.row] += cells
        column += size
    return grid, covered


@st.composite
def batches(draw):
    lengths = draw(st.lists(st.integers(1, 8), min_size=1, max_size=4))
    width, chunks = max(lengths), []
    while sum(chunks) < width:
        chunks.append(draw(st.integers(1, width - sum(chunks))))
    decode = draw(st.integers(0, 6))
    stop = [draw(st.none() | st.integers(0, 6)) for _ in lengths]
    return lengths, chunks, decode, stop


@given(batches())
def test_rows_cover_exactly_the_real_tokens_of_every_request(batch):
    lengths, chunks, decode, stop = batch
    grid, covered = play(lengths, chunks, decode, stop)
    for row, cells in covered.items():
        assert cells == [cell for cell in grid[row] if cell != FILLER]


def test_an_end_token_in_the_prompt_ends_nothing():
    session = Session(name="g", requests=[Request("a"), Request("b")], prompt=3, eos=frozenset({EOS}))
    session.advance(2, last_ids=[EOS, EOS])
    session.advance(1, last_ids=[EOS, 1])
    assert [row.token_start for row in session.advance(1, last_ids=[1, EOS])] == [3, 3]
    assert [row.row for row in session.advance(1, last_ids=[1, 1])] == [0]


def test_a_row_of_padding_alone_gives_no_row_and_no_tokens():
    session = Session(name="g", requests=[Request("a"), Request("b")], prompt=4)
    assert [row.row for row in session.advance(2, windows=[(0, 0), (0, 2)])] == [1]
    assert [(row.row, row.token_start) for row in session.advance(2, windows=[(1, 2), (0, 2)])] == [(0, 0), (1, 2)]


def test_a_cropped_cache_takes_tokens_back():
    session = Session(name="g", requests=[Request("a")], prompt=3)
    session.advance(3)
    session.advance(5)
    session.rewind(4)
    assert session.advance(1)[0].token_start == 4


def test_columns_computed_unwatched_are_counted():
    session = Session(name="f", requests=[Request("a")])
    session.advance(3)
    session.skip(7)
    assert session.advance(1)[0].token_start == 7


@given(names=st.lists(st.text(min_size=1, max_size=3), min_size=1, max_size=4, unique=True), copies=st.integers(1, 4))
def test_names_spread_over_copies_in_batch_order(names, copies):
    spread = expand_names(names, len(names) * copies)
    assert len(set(spread)) == len(names) * copies or copies > 1
    for place, name in enumerate(spread):
        assert name.startswith(names[place // copies])


def test_a_batch_that_is_no_multiple_of_the_names_is_refused():
    with pytest.raises(ValueError, match=r"2 request names.*3 rows"):
        expand_names(["a", "b"], 3)


def test_a_name_used_again_gets_a_number():
    names = Names()
    assert [names.unique("a") for _ in range(3)] == ["a", "a#2", "a#3"]
    assert names.session("g") == "g0"
    assert names.session("f") == "f1"


@given(st.lists(st.sampled_from(["a", "a#2", "b", "a#2#2"]), max_size=12))
def test_given_names_never_collide(wanted):
    names = Names()
    given_out = [names.unique(name) for name in wanted]
    assert len(set(given_out)) == len(given_out)

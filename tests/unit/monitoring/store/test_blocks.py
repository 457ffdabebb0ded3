"""The FORMAT Native codec: round trips, and refusal of whatever is not a block."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitoring.blocks import Block, BlockError, decode_blocks, encode_block

pytestmark = pytest.mark.cpu

INTEGERS = {
    f"{sign}Int{bits}": (0 if sign else -(1 << bits - 1), (1 << bits) - 1 if sign else (1 << bits - 1) - 1)
    for sign in ("", "U")
    for bits in (8, 16, 32, 64)
}


@st.composite
def blocks(draw: st.DrawFn) -> Block:
    rows = draw(st.integers(1, 5))
    kinds = draw(
        st.lists(st.sampled_from([*INTEGERS, "String", "Bool", "Float64", "Array(UInt32)"]), min_size=1, max_size=6)
    )
    columns = []
    for kind in kinds:
        if kind in INTEGERS:
            values = st.integers(*INTEGERS[kind])
        else:
            values = {
                "String": st.text(), "Bool": st.booleans(), "Float64": st.floats(allow_nan=False),
                "Array(UInt32)": st.lists(st.integers(0, 2**32 - 1)),
            }[kind]  # fmt: skip
        columns.append(draw(st.lists(values, min_size=rows, max_size=rows)))
    names = tuple(f"c{number}" for number in range(len(kinds)))
    return Block(names=names, types=tuple(kinds), columns=tuple(columns))


@given(st.lists(blocks(), max_size=3))
def test_blocks_come_back_as_they_were(given_blocks: list[Block]) -> None:
    data = b"".join(encode_block(block) for block in given_blocks)
    assert [(one.names, one.types, [list(column) for column in one.columns]) for one in decode_blocks(data)] == [
        (one.names, one.types, [list(column) for column in one.columns]) for one in given_blocks
    ]


@given(blocks(), st.data())
def test_a_truncated_block_is_refused(block: Block, data: st.DataObject) -> None:
    whole = encode_block(block)
    cut = data.draw(st.integers(1, len(whole) - 1))
    with pytest.raises(BlockError, match=r"ends early|claims"):
        list(decode_blocks(whole[:cut]))


@given(st.binary(max_size=300))
def test_garbage_is_a_block_error_or_a_block_never_another_exception(data: bytes) -> None:
    try:
        for block in decode_blocks(data):
            assert block.rows > 0
    except BlockError:
        pass


@given(blocks(), st.data())
def test_flipped_bytes_are_a_block_error_or_a_block(block: Block, data: st.DataObject) -> None:
    damaged = bytearray(encode_block(block))
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(BlockError):
        list(decode_blocks(damaged))


def test_lengths_found_in_the_data_allocate_nothing() -> None:
    huge = bytes([1]) + b"\xff" * 8 + b"\x7f" + b"\x01a\x06String"
    with pytest.raises(BlockError, match="ends early"):
        list(decode_blocks(huge))
    array = bytes([1, 1]) + b"\x01a\x0dArray(UInt32)" + (2**62).to_bytes(8, "little")
    with pytest.raises(BlockError, match="ends early"):
        list(decode_blocks(array))
    fixed = bytes([1]) + b"\xff\xff\xff\xff\x0f" + b"\x01a\x0eFixedString(0)"
    with pytest.raises(BlockError):
        list(decode_blocks(fixed))


def test_backward_offsets_of_an_array_are_refused() -> None:
    offsets = (2).to_bytes(8, "little") + (1).to_bytes(8, "little")
    with pytest.raises(BlockError, match="run backwards"):
        list(decode_blocks(bytes([1, 2]) + b"\x01a\x0dArray(UInt32)" + offsets + bytes(4)))


def test_types_of_query_answers() -> None:
    answer = (
        bytes([4, 2])
        + b"\x01a\x0eNullable(Int8)" + bytes([0, 1, 5, 0])
        + b"\x01b\x0fDateTime('UTC')" + (7).to_bytes(4, "little") * 2
        + b"\x01c\x0eFixedString(2)" + b"abcd"
        + b"\x04data\x06String" + b"\x01\xff\x00"
    )  # fmt: skip
    (block,) = decode_blocks(answer)
    assert [list(column) for column in block.columns] == [[5, None], [7, 7], ["ab", "cd"], [b"\xff", b""]]


def test_bytes_that_are_no_text_survive_in_a_text_column() -> None:
    block = Block(names=("s",), types=("String",), columns=(["a\udcffb"],))
    (back,) = decode_blocks(encode_block(block))
    assert back.columns[0] == ["a\udcffb"]
    assert b"a\xffb" in encode_block(block)


@pytest.mark.parametrize(
    "kind", ["LowCardinality(String)", "Tuple(UInt8, String)", "Map(String, String)", "Array(" * 12]
)
def test_an_unknown_type_names_itself_and_the_way_out(kind: str) -> None:
    with pytest.raises(BlockError, match="not read here") as caught:
        list(decode_blocks(bytes([1, 1]) + b"\x01a" + bytes([len(kind)]) + kind.encode()))
    assert "toString" in caught.value.hint


def test_values_that_do_not_fit_are_refused_by_the_encoder() -> None:
    for kind, value in (("UInt8", 256), ("UInt8", "x"), ("String", 5), ("Array(UInt32)", [-1]), ("Decimal(9, 2)", 1)):
        with pytest.raises(BlockError, match=r"column a"):
            encode_block(Block(names=("a",), types=(kind,), columns=([value],)))
    with pytest.raises(BlockError, match="expected 1"):
        encode_block(Block(names=("a", "b"), types=("UInt8", "UInt8"), columns=([1], [1, 2])))

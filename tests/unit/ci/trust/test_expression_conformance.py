"""The public conformance vectors of the expression language: every case, or a named reason."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from ci.trust.evaluate import Scope, evaluate
from ci.trust.expression import parse
from ci.trust.functions import first_wins, normal_value
from ci.trust.tokens import ExpressionError
from ci.trust.values import EvaluationError

pytestmark = pytest.mark.cpu

VECTORS = Path(__file__).parents[4].parent / "shared" / "vectors" / "expressions"
KINDS = {"Null": type(None), "Boolean": bool, "Number": float, "String": str, "Array": list, "Object": dict}
MESSAGES_THAT_DIFFER = {
    "Too few parameters supplied: ": "the vectors leave out the function's name",
    "Too many parameters supplied: ": "the vectors leave out the function's name",
    "Unrecognized function: ": "the vectors give position 1 wherever the function stands",
}
"""Errors whose kind and first words must agree, but not the rest, and why."""


def read_cases():
    for path in sorted(VECTORS.glob("*.json")) if VECTORS.is_dir() else ():
        lines = path.read_text(encoding="utf-8-sig").splitlines(keepends=True)
        document = json.loads(
            "".join(line for line in lines if not line.lstrip().startswith("//")), object_pairs_hook=first_wins
        )
        for group, cases in document.items():
            for number, case in enumerate(cases):
                yield f"{path.stem}-{group}-{number}", case


CASES = dict(read_cases())

if not CASES:

    def test_vectors():
        pytest.skip("../shared/vectors/expressions is not beside this repository")


def outcome(case):
    contexts = {name.lower(): normal_value(value) for name, value in case.get("contexts", {}).items()}
    try:
        return evaluate(parse(case["expr"], contexts=set(contexts)), Scope(contexts=contexts)), None
    except ExpressionError as error:
        return None, (error.kind, str(error))
    except EvaluationError as error:
        return None, ("evaluation", str(error))


def compare(case):
    value, error = outcome(case)
    wanted = case.get("err")
    if wanted is not None or error is not None:
        assert wanted is not None, f"{case['expr']!r} fails with {error}, expected {case['result']}"
        assert error is not None, f"{case['expr']!r} gives {value!r}, expected {wanted}"
        prefix = next((words for words in MESSAGES_THAT_DIFFER if wanted["value"].startswith(words)), None)
        assert error[0] == wanted["kind"]
        assert error[1].startswith(prefix) if prefix else error[1] == wanted["value"]
        return
    result = case["result"]
    expected = normal_value(result["value"])
    if result["kind"] == "Number" and isinstance(expected, str):
        expected = float(expected.replace("Infinity", "inf"))
    assert isinstance(value, KINDS[result["kind"]]), f"{case['expr']!r} gives {value!r}, expected {result}"
    if isinstance(value, float) and math.isnan(expected):
        assert math.isnan(value)
    else:
        assert value == expected, f"{case['expr']!r} gives {value!r}, expected {result}"


if CASES:

    @pytest.mark.parametrize("file", sorted({name.partition("-")[0] for name in CASES}))
    def test_every_vector_of(file):
        cases = [case for name, case in CASES.items() if name.partition("-")[0] == file]
        assert cases
        for case in cases:
            compare(case)

    def test_nothing_of_the_vectors_is_left_out():
        assert len(CASES) == 1020

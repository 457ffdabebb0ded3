"""Store URLs: what is read, what is refused, and that no password is ever shown."""

from __future__ import annotations

from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitoring.errors import StoreUrlError
from monitoring.store.url import SCHEMES, StoreUrl, parse_store_url

pytestmark = pytest.mark.cpu


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("captures/", StoreUrl(scheme="chdb", location="captures")),
        ("/a/b c", StoreUrl(scheme="chdb", location="/a/b c")),
        ("chdb://a/b", StoreUrl(scheme="chdb", location="a/b")),
        ("chdb:///a", StoreUrl(scheme="chdb", location="/a")),
        ("a:b", StoreUrl(scheme="chdb", location="a:b")),
        ("memory:", StoreUrl(scheme="memory")),
        ("memory:left", StoreUrl(scheme="memory", location="left")),
        ("null:", StoreUrl(scheme="null")),
        ("clickhouse://h", StoreUrl(scheme="clickhouse", host="h", port=8123)),
        ("clickhouse://[::1]:1/d", StoreUrl(scheme="clickhouse", host="::1", port=1, database="d")),
        (
            "clickhouses://u%40x:p%2Fw@h:9/d?table=t&timeout=2.5",
            StoreUrl(
                scheme="clickhouses", host="h", port=9, database="d", user="u@x", password="p/w",
                options={"table": "t", "timeout": "2.5"},
            ),
        ),
    ],
)  # fmt: skip
def test_urls_that_are_read(text: str, expected: StoreUrl) -> None:
    assert parse_store_url(text) == expected


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", "empty"),
        ("  ", "empty"),
        ("a\0b", "NUL"),
        ("postgres://h/d", "scheme 'postgres'"),
        ("clickhouse:h", "followed by //"),
        ("clickhouse://", "no host"),
        ("clickhouse://h:99999/d", "host or port"),
        ("clickhouse://h:0/d", "port"),
        ("clickhouse://h:x/d", "host or port"),
        ("clickhouse://h/d;drop", "'d;drop'"),
        ("clickhouse://h/a/b", "'a/b'"),
        ("clickhouse://h/d?table=1x", "table is '1x'"),
        ("clickhouse://h/d?table=a.b", "table is 'a.b'"),
        ("clickhouse://h/d?cluster=a'b", "cluster"),
        ("clickhouse://h/d?tabel=x", "unknown option"),
        ("clickhouse://h/d?table=a&table=b", "twice"),
        ("clickhouse://h/d?timeout=-1", "timeout"),
        ("clickhouse://h/d?timeout=0", "timeout"),
        ("clickhouse://h/d?engine=Log", "engine"),
        ("clickhouse://h/d?replicated=yes", "replicated"),
        ("clickhouse://h/d#x", "#"),
        ("clickhouse://a b/d", "host"),
        ("clickhouse://u:a%0Ab@h/d", "control character"),
        ("chdb://", "no folder"),
        ("memory:a b", "'a b'"),
        ("null:x", "'x'"),
    ],
)
def test_bad_urls_say_what_was_found(text: str, found: str) -> None:
    with pytest.raises(StoreUrlError, match=found):
        parse_store_url(text)


@given(st.text(min_size=4, max_size=20))
def test_a_password_comes_through_and_is_never_shown(password: str) -> None:
    text = f"clickhouse://someone:{quote(password, safe='', errors='surrogatepass')}@host/base"
    if any(ord(character) < 32 for character in password):
        with pytest.raises(StoreUrlError, match="control character") as caught:
            parse_store_url(text)
        assert password not in str(caught.value)
        return
    url = parse_store_url(text)
    assert quote(url.password, safe="", errors="replace") == quote(password, safe="", errors="replace")
    assert "someone" not in str(url)
    assert str(url) == "clickhouse://host:8123/base"
    assert password not in repr(url) or password in repr(
        StoreUrl(scheme="clickhouse", host="host", port=8123, user="someone")
    )


@pytest.mark.parametrize("secret", ["p#a/ss", "s3cr/et", "s3?cr=et", "se[cret", "1234:99999"])
def test_an_unescaped_password_is_not_repeated_in_the_error(secret: str) -> None:
    try:
        shown = str(parse_store_url(f"clickhouse://u:{secret}@host:8123/base"))
    except StoreUrlError as error:
        shown = str(error)
    for piece in (secret, "ss@", "cr=", "et@", "cret", "99999"):
        assert piece not in shown


def test_every_scheme_has_a_store() -> None:
    from monitoring.store.opening import MODULES

    assert set(MODULES) == set(SCHEMES)

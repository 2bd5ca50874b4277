"""The table of control requests: every message of every version is read back as it was written; a cut is an error."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simpleconsumer.errors import DecodeError
from simpleconsumer.messages.apis import APIS
from simpleconsumer.messages.schema import NEVER, Field, Schema, parse

BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
MESSAGES = [
    pytest.param(schema, version, id=f"{schema.what} {version}")
    for api in APIS.values() for schema in (api.request, api.response) if schema.fields
    for version in range(max(api.versions) + 4)
]  # fmt: skip


def scalars(field: Field) -> st.SearchStrategy[Any]:
    if field.type in BITS:
        limit = 1 << BITS[field.type] - 1
        return st.integers(-limit, limit - 1)
    if field.type == "uuid":
        return st.none() | st.binary(min_size=16, max_size=16).filter(any).map(bytes.hex)
    return {"bool": st.booleans(), "string": st.text(max_size=5), "bytes": st.binary(max_size=5)}[field.type]


def values_of(fields: Sequence[Field], version: int) -> st.SearchStrategy[dict[str, Any]]:
    """Values of all fields that a version has."""
    found: dict[str, st.SearchStrategy[Any]] = {}
    for field in fields:
        if field.first <= version <= field.last:
            one = values_of(field.fields, version) if field.fields else scalars(field)
            one = st.lists(one, max_size=2) if field.is_array else one
            found[field.name] = one | st.none() if version >= field.null_from else one
    return st.fixed_dictionaries(found)


@pytest.mark.parametrize(("schema", "version"), MESSAGES)
@settings(max_examples=10, derandomize=True)
@given(data=st.data())
def test_what_is_written_is_read_back_and_a_cut_is_an_error(schema: Schema, version: int, data: st.DataObject) -> None:
    values = data.draw(values_of(schema.fields, version))
    body = schema.encode(version, values)
    assert schema.decode(version, body) == values
    for cut in range(len(body)):
        with pytest.raises(DecodeError):
            schema.decode(version, body[:cut])
    with pytest.raises(DecodeError, match="bytes after its end"):
        schema.decode(version, body + b"\0")


SCHEMA = Schema("Thing request", """
    name: string
    note: string? 2+ = null
    count: int16 1-3 = -1
    rows: []?4
        key: int8
        parts: []int32
    last: {} 3+
        is_last: bool = false
""", 4)  # fmt: skip


@pytest.mark.parametrize(("version", "body"), [
    (0, b"\0\1a" b"\0\0\0\1" b"\7" b"\0\0\0\1" b"\0\0\0\5"),
    (1, b"\0\1a" b"\xff\xff" b"\0\0\0\1" b"\7" b"\0\0\0\1" b"\0\0\0\5"),
    (3, b"\0\1a" b"\xff\xff" b"\xff\xff" b"\0\0\0\1" b"\7" b"\0\0\0\1" b"\0\0\0\5" b"\0"),
    (4, b"\2a" b"\0" b"\2" b"\7" b"\2" b"\0\0\0\5" b"\0" b"\0\0" b"\0"),
])  # fmt: skip
def test_each_version_has_its_fields_and_its_encoding(version: int, body: bytes) -> None:
    values = {"name": "a", "rows": [{"key": 7, "parts": [5]}], "last": {}}
    assert SCHEMA.encode(version, values) == body


def test_tagged_fields_of_newer_brokers_are_passed_over() -> None:
    body = bytearray(SCHEMA.encode(4, {"name": "a", "rows": None, "last": {}}))
    body[-1:] = b"\1\0\3abc"
    assert SCHEMA.decode(4, bytes(body))["rows"] is None


@pytest.mark.parametrize(("values", "said"), [
    ({"rows": []}, "the field name has no value"),
    ({"name": None, "rows": []}, "name is null, and must be of type string"),
    ({"name": "a", "rows": None}, "rows is null, and must be an array"),
    ({"name": "a", "rows": [], "nmae": 1}, "no field is called nmae"),
    ({"name": "a", "rows": [{"key": 1}]}, "the field parts has no value"),
])  # fmt: skip
def test_values_that_do_not_fit_are_named(values: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said) as raised:
        SCHEMA.encode(0, values)
    assert raised.value.__notes__ == ["in Thing request 0"]


@pytest.mark.parametrize(("body", "said"), [
    (b"\xff\xff\0\0\0\0", "the string name at byte 0 is null"),
    (b"\0\1a\xff\xff\xff\xff", "says -1 items"),
    (b"\0\1a\x7f\xff\xff\xff", "says 2147483647 items"),
    (b"\0\1\xff\0\0\0\0", "not UTF-8"),
])  # fmt: skip
def test_bytes_that_do_not_fit_are_named(body: bytes, said: str) -> None:
    with pytest.raises(DecodeError, match=said):
        SCHEMA.decode(0, body)


@pytest.mark.parametrize("text", [
    "name", "name: string 1", "name: string\n      deeper: int8\n   odd: int8", "a: [] b",
])  # fmt: skip
def test_a_line_that_is_no_field_is_named(text: str) -> None:
    with pytest.raises(ValueError, match="a schema has a line"):
        parse(text)


def test_the_notation() -> None:
    [plain, nullable, array, struct] = parse("a: int8\nb: string?3 2-5 = ''\nc: []uuid 1+\nd: {}\n  e: bool = true\n")
    assert plain == Field("a", "int8", False, 0, NEVER, NEVER, ..., ())
    assert nullable == Field("b", "string", False, 2, 5, 3, "", ())
    assert array == Field("c", "uuid", True, 1, NEVER, NEVER, ..., ())
    assert struct.fields == (Field("e", "bool", False, 0, NEVER, NEVER, True, ()),)

"""Which columns the elements of a list become."""

from __future__ import annotations

from headgate.core.columns.elements import element_columns, element_of, exploded, stored_as
from headgate.core.columns.logical import Logical, decimal
from headgate.core.columns.schema import BOOL, INT, TEXT, ColumnSchema, ColumnSpec, PathPart

SIZE = Logical("object", of=(Logical("float64"),), fields=("cm",))
ITEM = Logical("object", of=(Logical("text"), decimal(6, 2), SIZE), fields=("sku", "price", "size"), optional=True)


def column(element: Logical, name: str = "items", path: tuple[PathPart, ...] = ()) -> ColumnSpec:
    return ColumnSpec(name, TEXT, True, path, logical=Logical("list", of=(element,)))


def test_only_lists_have_elements() -> None:
    """A map has none, nor has text."""
    assert element_of(ColumnSpec("a", TEXT), keep_empty=True) is None
    assert element_of(ColumnSpec("a", TEXT, logical=Logical("map", of=(SIZE,))), keep_empty=True) is None
    assert element_of(column(SIZE), keep_empty=False) == SIZE


def test_what_stands_for_an_empty_list_may_be_null() -> None:
    element = element_of(column(Logical("date")), keep_empty=True)
    assert element is not None
    assert element_columns(column(Logical("date")), element) == (
        ColumnSpec("items", INT, True, logical=Logical("date")),
    )


def test_an_object_becomes_columns_in_the_place_of_its_list() -> None:
    """They are null where it is; inside of objects, too."""
    made = element_columns(column(ITEM), ITEM, "item")
    schema = exploded(ColumnSchema((ColumnSpec("id", INT), column(ITEM), ColumnSpec("user", TEXT))), "items", made)
    assert str(schema) == (
        "id: int64, item: bool | null, item.sku: text | null, item.price: decimal(6, 2) | null, item.size.cm: float64 | null, user: text"
    )
    assert made[0] == ColumnSpec("item", BOOL, True, (PathPart("item", True),), is_object=True)
    assert made[-1].path == (PathPart("item", True), PathPart("size", False), PathPart("cm", False))


def test_an_element_lies_where_its_list_lay() -> None:
    """Under another name it is a field of the record."""
    nested = column(Logical("bytes"), "meta.blobs", (PathPart("meta", True), PathPart("blobs", True)))
    ours, named = (element_columns(nested, Logical("bytes"), name)[0] for name in (None, "blob"))
    assert (ours.name, ours.path, ours.optional) == (
        "meta.blobs",
        (PathPart("meta", True), PathPart("blobs", False)),
        True,
    )
    assert (named.name, named.path, named.optional) == ("blob", (), False)


def test_types_are_stored_as_they_are_elsewhere() -> None:
    kinds = [Logical("list", of=(SIZE,)), Logical("bytes"), Logical("timestamp"), decimal(3, 1), Logical("bool")]
    assert [stored_as(one) for one in kinds] == ["text", "text", "int64", "int64", "bool"]

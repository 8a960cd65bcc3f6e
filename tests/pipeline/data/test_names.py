"""Names of rows and columns: what they are, where they are among others, and what a result keeps of them."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankfold.pipeline.data.names import (
    MOST_LABELS,
    Axis,
    Names,
    attributes_of_result,
    find_along,
    labels_of,
    names_of_result,
)
from rankfold.pipeline.errors import DataError

Array = npt.NDArray[Any]


def table(*labels: Any) -> Names:
    names = Names.of([Axis.of("column", len(labels), np.asarray(labels))])
    assert names is not None
    return names


def field(order: tuple[str, ...] = ("lat", "lon"), **labels: Any) -> Names:
    known = {"lat": [10.0, 20.0, 30.0], "lon": [0.0, 1.0], **labels}
    return Names(tuple(Axis.of(name, len(known[name]), np.asarray(known[name])) for name in order))


@given(st.lists(st.text(max_size=4), min_size=1, max_size=12, unique=True), st.randoms())
def test_columns_in_any_order_are_found(labels: list[str], random: Any) -> None:
    order = list(range(len(labels)))
    random.shuffle(order)
    shuffled = [labels[place] for place in order]
    found = table(*shuffled).find(table(*labels))
    assert [shuffled[place] for place in found] == labels
    assert table(*shuffled).is_like(table(*labels)) == (shuffled == labels)


@given(st.integers(-900, 900), st.permutations(range(6)))
def test_coordinates_of_any_scale_are_found(exponent: int, order: list[int]) -> None:
    values = np.ldexp(np.linspace(-2.0, 3.0, 6), exponent)
    found = table(*values[order]).find(table(*values))
    np.testing.assert_array_equal(values[order][found], values)


LONGITUDES = st.lists(st.integers(-6, 6).map(lambda each: 60.0 * each), min_size=1, max_size=9, unique=True)


@given(own=LONGITUDES, wanted=LONGITUDES)
def test_a_longitude_stands_for_itself_where_a_meridian_comes_twice(
    own: list[float], wanted: list[float]
) -> None:
    found = find_along(*(Axis.of("lon", len(each), np.array(each)) for each in (own, wanted)))
    for label, place in zip(wanted, found, strict=True):
        same = [each for each in own if (each - label) % 360 == 0]
        if place >= 0:
            assert own[place] in same
        else:
            assert len(same) != 1 and label not in own
            assert place == (-2 if same else -1)
    if set(wanted) <= set(own):
        assert [own[place] for place in found] == wanted


def test_a_meridian_that_comes_twice_turns_with_the_others() -> None:
    east, west, half = (60.0 * np.arange(start, start + 7) for start in (0, -6, -3))
    axes = [Axis.of("lon", 7, each) for each in (east, west)]
    np.testing.assert_array_equal(find_along(*axes), np.arange(7))
    np.testing.assert_array_equal(find_along(*axes[::-1]), np.arange(7))
    found = find_along(axes[0], Axis.of("lon", 7, half))
    np.testing.assert_array_equal(east[found], [180, 240, 300, 0, 60, 120, 180])


def test_coordinates_of_32_bits_are_those_of_64() -> None:
    wide = np.linspace(-89.875, 89.875, 720) + 1 / 3
    narrow = Names((Axis.of("lat", 720, wide.astype(np.float32)),))
    assert narrow.is_like(Names((Axis.of("lat", 720, wide),)))
    np.testing.assert_array_equal(
        narrow.find(Names((Axis.of("lat", 720, wide[::-1]),))), np.arange(720)[::-1]
    )
    assert not narrow.is_like(Names((Axis.of("lat", 720, wide + 0.25),)))


def test_whole_numbers_of_many_digits_are_told_apart() -> None:
    axis = Axis.of("id", 2, [10_000_001, 10_000_002])
    assert axis.find(np.array([10_000_002, 10_000_003])).tolist() == [1, -1]
    assert not axis.is_like(Axis.of("id", 2, [10_000_002, 10_000_003]))


def test_what_is_lacking_or_comes_twice_is_told() -> None:
    np.testing.assert_array_equal(table("a", "b", "a").find(table("b", "a", "x")), [1, -2, -1])
    np.testing.assert_array_equal(table(1.0, 2.0, 1.0).find(table(2.0, 1.0, 9.0)), [1, -2, -1])


def test_numbers_and_words_of_the_same_digits_are_the_same() -> None:
    np.testing.assert_array_equal(table("0", "1", "2").find(table(2, 0)), [2, 0])


@pytest.mark.parametrize("order", [("lat", "lon"), ("lon", "lat")])
def test_places_are_found_whatever_the_order_of_axes_and_coordinates(order: tuple[str, ...]) -> None:
    wanted = field()
    own = field(order, lat=[30.0, 20.0, 10.0, 40.0])
    found = own.find(wanted)
    assert [sorted(own.title(int(at)).split(", ")) for at in found] == [
        sorted(wanted.title(at).split(", ")) for at in range(len(wanted))
    ]


def test_places_that_were_left_out_are_not_there() -> None:
    own = field().take(np.array([5, 0, 1]))
    np.testing.assert_array_equal(own.find(field()), [1, 2, -1, -1, -1, 0])
    assert own.title(0) == "lat 30.0, lon 1.0" and len(own) == 3


def test_other_axes_are_told() -> None:
    with pytest.raises(ValueError, match=r"lat \(3\) x lon \(2\) are not column \(1\)"):
        field().find(table("a"))
    with pytest.raises(ValueError, match=r"are not lat \(3\) x depth \(1\)"):
        field().find(Names((field().axes[0], Axis.of("depth", 1, np.array([5.0])))))
    with pytest.raises(ValueError, match="2 along lon are not 4"):
        Names((field().axes[0], Axis("lon", 2))).find(Names((field().axes[0], Axis("lon", 4))))


def test_axes_without_labels_are_compared_by_name_and_length() -> None:
    own, other = (Names((Axis(one, 2), Axis(two, 3))) for one, two in (("y", "x"), ("a", "b")))
    assert not own.is_like(other)
    turned = Names((Axis("x", 3), Axis("y", 2)))
    np.testing.assert_array_equal(turned.find(own), [0, 2, 4, 1, 3, 5])
    assert Names.of([Axis("1", 2), Axis("2", 3)]) is None and Names.of([Axis("column", 4)]) is None


def test_of_very_many_labels_a_digest_tells_whether_they_are_the_same() -> None:
    labels = np.array([f"peak{number}" for number in range(MOST_LABELS + 5)])
    names = [
        Names((Axis.of("column", len(each), each),)) for each in (labels, labels[::-1], labels.astype(object))
    ]
    assert names[0].labels is None and names[0].is_like(names[2]) and not names[0].is_like(names[1])
    np.testing.assert_array_equal(names[0].find(names[2].take(np.array([7, 3]))), [7, 3])
    with pytest.raises(ValueError, match="are others, or in another order"):
        names[0].find(names[1])
    kept = Names.from_json(json.loads(json.dumps(names[0].as_json())))
    assert kept.is_like(names[0]) and not kept.is_like(names[1])


LABELS = (
    ["income", "age"],
    [b"g1", b"g2"],
    np.array(["2000-01-01", "2000-01-02"], "datetime64[D]"),
    np.array(["2000-01-01T00:00:00.5", "2000-01-02"], "datetime64[ns]"),
    [True, False],
    [1, 2],
    np.array([1.5, 2.5], np.float32),
    np.array(["a", None], object),
)


@pytest.mark.parametrize("labels", LABELS, ids=str)
def test_a_result_keeps_them(labels: Any) -> None:
    names = table(*labels)
    kept = Names.from_json(json.loads(json.dumps(names.as_json())))
    assert (
        kept.is_like(names) and kept.labels is not None and kept.labels.tolist() == labels_of(labels).tolist()
    )


@pytest.mark.parametrize("places", [[5, 0, 1], [4, 3, 2], [0, 2, 4]])
def test_a_result_keeps_which_places_there_are(places: list[int]) -> None:
    names = field().take(np.array(places))
    kept = Names.from_json(json.loads(json.dumps(names.as_json())))
    assert kept.is_like(names) and [kept.title(at) for at in range(3)] == [names.title(at) for at in range(3)]


def test_what_names_nothing_is_no_label() -> None:
    for values in ([1.0, np.nan], [1j, 2j], [[1, 2]]):
        assert labels_of(values) is None
    assert Axis.of("x", 3, np.arange(2)).labels is None and Axis.of("x", 3, None).labels is None


FORGED = (
    "names",
    7,
    [],
    {"columns": 3},
    {"columns": {"axes": []}},
    {"columns": {"axes": "lat"}},
    {"columns": {"axes": [{"axis": 3, "length": 2}]}},
    {"columns": {"axes": [{"axis": "a", "length": -2}]}},
    {"columns": {"axes": [{"axis": "a", "length": True}]}},
    {"columns": {"axes": [{"axis": "a", "length": 2, "labels": ["x"]}]}},
    {"columns": {"axes": [{"axis": "a", "length": 2, "labels": ["x", 3]}]}},
    {"columns": {"axes": [{"axis": "a", "length": 2, "labels": {"x": 1}}]}},
    {"columns": {"axes": [{"axis": "a", "length": 2, "labels": [[1], [2]]}]}},
    {"columns": {"axes": [{"axis": "a", "length": 2, "digest": 4}]}},
    {"columns": {"axes": [{"axis": "a", "length": 2, "attributes": {"units": 3}}]}},
    {"columns": {"axes": [{"axis": "a", "length": 2}], "places": [[0, 3, 1]]}},
    {"columns": {"axes": [{"axis": "a", "length": 2}], "places": [[-1, 1, 1]]}},
    {"columns": {"axes": [{"axis": "a", "length": 2}], "places": [[0, 10**15, 0]]}},
    {"columns": {"axes": [{"axis": "a", "length": 2}], "places": "all"}},
    {"columns": {"axes": [{"axis": str(at), "length": 2**40} for at in range(3)]}},
)


@pytest.mark.parametrize("forged", FORGED, ids=str)
def test_names_that_are_none_are_damage(forged: Any) -> None:
    facts = {"request": {}, "input": {"names": forged}}
    with pytest.raises(DataError, match="its names of columns are"):
        names_of_result("r.zarr", facts, 1)


@pytest.mark.parametrize("forged", ["names", [], {"attributes": "K"}, {"attributes": {"units": 3}}], ids=str)
def test_attributes_that_are_none_are_damage(forged: Any) -> None:
    with pytest.raises(DataError, match="its attributes of the data are"):
        attributes_of_result("r.zarr", {"request": {}, "input": {"names": forged or [1]}})


def test_attributes_are_kept_and_count_for_no_difference() -> None:
    said = {"units": "K", "long_name": b"temperature", "history": "x", "axis": 3, "standard_name": "s" * 999}
    axis = Axis.of("t", 2, np.arange(2), said)
    assert axis.attributes == {"units": "K", "long_name": "temperature"}
    assert axis.is_like(Axis.of("t", 2, np.arange(2))) and axis.mark == Axis.of("t", 2, np.arange(2)).mark
    assert Axis.from_json(json.loads(json.dumps(axis.as_json()))).attributes == axis.attributes
    assert Names((axis,)).take(np.array([1])).axes[0].attributes == axis.attributes
    since = {"units": "days since 2000-01-01"}  # which dates are no more, and numbers are
    assert Axis.of("t", 2, np.arange(2).astype("datetime64[D]"), since).attributes == {}
    assert Axis.of("t", 2, np.arange(2), since).attributes == since

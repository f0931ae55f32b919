"""One content, one panel, whatever it came in; every refusal says what was found and what to do."""

from __future__ import annotations

import copy
import pickle
import re
import time
from decimal import Decimal

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from onesided import InputError, OneSidedCompletion, Panel, as_panel
from onesided.panels.ids import IdIndex
from onesided.panels.refusals import LARGEST_VALUE

NAN, INF = float("nan"), float("inf")
NAMES = {"row": "who", "column": "what", "value": "stars"}

# Four rows, three columns, a zero and a negative zero, out of order; "who" also as integers with the same order.
WHO = ["cleo", "ann", "bob", "ann", "dan", "cleo"]
WHO_INTEGERS = [30, 10, 20, 10, 40, 30]
WHAT = ["tea", "tea", "rye", "gin", "gin", "rye"]
STARS = [2.5, 5.0, 0.0, -1.0, 4.0, -0.0]
DENSE = [[-1.0, NAN, 5.0], [NAN, 0.0, NAN], [NAN, -0.0, 2.5], [4.0, NAN, NAN]]  # ann bob cleo dan × gin rye tea
LONG = {"who": WHO, "what": WHAT, "stars": STARS}


def refused(*parts):
    """The refusal whose message has these parts, in this order."""
    return pytest.raises(InputError, match="(?s)" + ".*".join(map(re.escape, parts)))


def check_invariants(panel):
    assert panel.indptr.dtype == np.int64
    assert panel.columns.dtype == np.int32
    assert panel.values.dtype in (np.float32, np.float64)
    assert panel.row_weights.dtype == np.float64
    assert panel.shape == (panel.n_rows, panel.n_columns)
    assert panel.n_entries == len(panel.values) == len(panel.columns) == panel.indptr[-1] == panel.row_counts.sum()
    for ids, axis in ((panel.row_ids, panel.n_rows), (panel.column_ids, panel.n_columns)):
        assert ids.shape == (axis,)
        assert ids.dtype == np.int64 or (ids.dtype == object and all(type(one) is str for one in ids))


def assert_same(panel, other, *, ids=True):
    check_invariants(panel)
    np.testing.assert_array_equal(panel.indptr, other.indptr)
    np.testing.assert_array_equal(panel.columns, other.columns)
    np.testing.assert_array_equal(panel.values, other.values)
    assert panel.values.dtype == other.values.dtype
    assert panel.shape == other.shape
    np.testing.assert_array_equal(panel.row_weights, other.row_weights)
    if ids:
        for axis in ("row_ids", "column_ids"):
            assert getattr(panel, axis).tolist() == getattr(other, axis).tolist()
            assert getattr(panel, axis).dtype == getattr(other, axis).dtype


@pytest.fixture
def expected():
    indptr, columns, values = [0, 2, 3, 5, 6], [0, 2, 1, 1, 2, 0], [-1.0, 5.0, 0.0, -0.0, 2.5, 4.0]
    return Panel(indptr, columns, values, 3, row_ids=["ann", "bob", "cleo", "dan"], column_ids=["gin", "rye", "tea"])


@pytest.fixture
def small():
    return Panel.from_arrays([1, 1, 2, 3], ["a", "b", "a", "c"], [1.0, 2.0, 3.0, 4.0])


# One content, one panel


PANDAS = pd.DataFrame(LONG)
POLARS = pl.DataFrame(LONG)
ARROW = pa.table(LONG)
DICTIONARY = ARROW.set_column(0, "who", ARROW["who"].dictionary_encode())


def padded(array):
    """The same array as a slice of a longer one."""
    longer = pa.concat_arrays([pa.nulls(2, array.type), array, pa.nulls(3, array.type)])
    return longer.slice(2, len(array))


TABLES = {
    "pandas": lambda: PANDAS,
    "pandas object": lambda: PANDAS.astype({"who": object, "what": object}),
    "pandas string": lambda: PANDAS.astype({"who": "string", "what": "string"}),
    "pandas category": lambda: PANDAS.astype({"who": "category", "what": "category"}),
    "pandas unused category": lambda: PANDAS.assign(
        what=pd.Categorical(WHAT, categories=["zoo", "tea", "ale", "rye", "gin"])
    ),
    "pandas nullable": lambda: PANDAS.convert_dtypes(),
    "pandas Float64": lambda: PANDAS.astype({"stars": "Float64"}),
    "pandas pyarrow": lambda: PANDAS.convert_dtypes(dtype_backend="pyarrow"),
    "pandas index": lambda: PANDAS.set_index(pd.Index([9, 9, 7, 1, 0, 0])),
    "pandas more columns": lambda: PANDAS.assign(schema=1, note=[1, "mixed", None, 2.0, "x", b"y"])[
        ["note", "stars", "schema", "what", "who"]
    ],
    "polars": lambda: POLARS,
    "polars lazy": lambda: POLARS.lazy(),
    "polars Categorical": lambda: POLARS.with_columns(pl.col("who", "what").cast(pl.Categorical)),
    "polars Enum": lambda: POLARS.with_columns(pl.col("what").cast(pl.Enum(["zoo", "tea", "ale", "rye", "gin"]))),
    "polars chunks": lambda: pl.concat([POLARS[:2], POLARS[2:3], POLARS[3:]], rechunk=False),
    "polars chunks of categories": lambda: pl.concat(
        [part.with_columns(pl.col("what").cast(pl.Categorical)) for part in (POLARS[:2], POLARS[2:])], rechunk=False
    ),
    "pyarrow": lambda: ARROW,
    "pyarrow RecordBatch": lambda: ARROW.to_batches()[0],
    "pyarrow RecordBatchReader": lambda: ARROW.to_reader(max_chunksize=2),
    "pyarrow chunks": lambda: pa.concat_tables([ARROW[:1], ARROW[1:4], ARROW[4:]]),
    "pyarrow empty chunk": lambda: pa.concat_tables([ARROW[:0], ARROW[:3], ARROW[3:3], ARROW[3:], ARROW[:0]]),
    "pyarrow slices": lambda: pa.table({name: padded(pa.array(one)) for name, one in LONG.items()}),
    "pyarrow slice of a table": lambda: pa.concat_tables([ARROW, ARROW, ARROW])[6:12],
    "pyarrow dictionary": lambda: DICTIONARY,
    "pyarrow dictionaries per chunk": lambda: pa.concat_tables(
        [part.set_column(0, "who", part["who"].dictionary_encode()) for part in (ARROW[:2], ARROW[2:])]
    ),
    "pyarrow dictionary slice": lambda: pa.concat_tables([DICTIONARY, DICTIONARY])[6:],
    "pyarrow large_string": lambda: ARROW.cast(
        pa.schema([("who", pa.large_string()), ("what", pa.large_string()), ("stars", pa.float64())])
    ),
    "pyarrow string_view": lambda: ARROW.set_column(1, "what", ARROW["what"].cast(pa.string_view())),
    "pyarrow decimal": lambda: ARROW.set_column(2, "stars", pa.array([Decimal(str(one)) for one in STARS])),
    "duckdb": lambda: duckdb.from_arrow(ARROW),
    "dict of lists": lambda: LONG,
    "dict of arrays": lambda: {name: np.array(one) for name, one in LONG.items()},
    "dict of mixed containers": lambda: {
        "who": pl.Series(WHO),
        "what": pa.chunked_array([WHAT[:2], WHAT[2:]]),
        "stars": pd.Series(STARS),
    },
}


@pytest.mark.parametrize("table", TABLES)
def test_tables_agree(expected, table):
    assert_same(Panel.from_table(TABLES[table](), **NAMES), expected)
    assert_same(as_panel(TABLES[table](), **NAMES), expected)


ARRAYS = {
    "lists": list,
    "tuples": tuple,
    "numpy": np.array,
    "numpy objects": lambda one: np.array(one, dtype=object),
    "numpy strings": lambda one: np.array(one, dtype=np.dtypes.StringDType() if isinstance(one[0], str) else None),
    "numpy strided": lambda one: np.repeat(np.array(one), 2)[::2],
    "pandas": pd.Series,
    "pandas category": lambda one: pd.Series(one, dtype="category"),
    "polars": pl.Series,
    "pyarrow": pa.array,
    "pyarrow chunks": lambda one: pa.chunked_array([one[:1], one[1:1], one[1:]]),
}


@pytest.mark.parametrize("container", ARRAYS)
def test_three_arrays_agree(expected, container):
    arrays = tuple(ARRAYS[container](one) for one in LONG.values())
    assert_same(Panel.from_arrays(*arrays), expected)
    assert_same(as_panel(arrays), expected)


@pytest.mark.parametrize("container", ARRAYS)
def test_integer_ids_agree(expected, container):
    panel = Panel.from_arrays(*(ARRAYS[container](one) for one in (WHO_INTEGERS, WHAT, STARS)))
    assert_same(panel, expected, ids=False)
    assert panel.row_ids.dtype == np.int64
    assert panel.row_ids.tolist() == [10, 20, 30, 40]


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "uint64", "Int64", "UInt16", "category", "int64[pyarrow]"])
def test_integer_ids_of_any_width(expected, dtype):
    panel = Panel.from_table(PANDAS.assign(who=pd.Series(WHO_INTEGERS, dtype=dtype)), **NAMES)
    assert_same(panel, expected, ids=False)
    assert panel.row_ids.dtype == np.int64


def test_generators_and_ranges_are_lists():
    panel = Panel.from_arrays(range(3), (f"c{k}" for k in range(3)), (float(k) for k in range(3)))
    assert panel.row_ids.tolist() == [0, 1, 2]
    assert panel.values.tolist() == [0.0, 1.0, 2.0]


SPARSE = [getattr(sp, f"{name}_{kind}") for name in ("coo", "csr", "csc", "lil", "dok") for kind in ("array", "matrix")]


@pytest.mark.parametrize("kind", SPARSE, ids=lambda kind: kind.__name__)
def test_sparse_formats_agree(expected, kind):
    rows, columns = np.nonzero(~np.isnan(DENSE))
    stored = sp.coo_array((np.array(DENSE)[rows, columns], (rows, columns)), shape=(4, 3))
    matrix = kind(stored)
    panel = Panel.from_sparse(matrix)
    assert_same(panel, expected, ids=False)
    assert_same(as_panel(matrix), expected, ids=False)
    assert not panel.has_row_ids
    assert panel.column_ids.tolist() == [0, 1, 2]
    assert np.signbit(panel.values).tolist() == [True, False, False, True, False, False]


@pytest.mark.parametrize(
    "make",
    [
        list,
        np.array,
        np.asfortranarray,
        lambda one: np.array(one, dtype=object),
        lambda one: [[None if np.isnan(v) else v for v in row] for row in one],
        lambda one: np.ma.masked_invalid(one),
        lambda one: np.ma.array(np.nan_to_num(one, nan=7.0), mask=np.isnan(one)),
    ],
    ids=["list", "array", "fortran", "object", "None", "masked NaN", "masked number"],
)
def test_dense_arrays_agree(expected, make):
    assert_same(Panel.from_dense(make(DENSE)), expected, ids=False)
    assert_same(as_panel(make(DENSE)), expected, ids=False)


WIDE = pd.DataFrame(DENSE, columns=["gin", "rye", "tea"], index=["ann", "bob", "cleo", "dan"])


@pytest.mark.parametrize(
    "table",
    [
        WIDE,
        WIDE.convert_dtypes(),
        WIDE.astype("Float64"),
        WIDE.convert_dtypes(dtype_backend="pyarrow"),
        WIDE.astype(object).where(WIDE.notna(), None),
        WIDE.astype(pd.SparseDtype(float)),
    ],
    ids=["float64", "nullable", "Float64", "pyarrow", "object", "sparse"],
)
def test_a_wide_pandas_table_keeps_its_names(expected, table):
    assert_same(as_panel(table), expected)
    assert_same(Panel.from_dense(table), expected)


@pytest.mark.parametrize(
    "convert",
    [
        pl.from_pandas,
        lambda wide: pl.from_pandas(wide).lazy(),
        lambda wide: pl.from_pandas(wide).with_columns(pl.all().cast(pl.Decimal(10, 2))),
        lambda wide: pa.Table.from_pandas(wide, preserve_index=False),
        lambda wide: pa.RecordBatch.from_pandas(wide, preserve_index=False),
        lambda wide: wide.to_dict("list"),
    ],
    ids=["polars", "lazy", "decimals", "pyarrow", "batch", "dict"],
)
def test_other_wide_tables_keep_their_column_names(expected, convert):
    panel = as_panel(convert(WIDE))
    assert_same(panel, expected, ids=False)
    assert panel.column_ids.tolist() == ["gin", "rye", "tea"]
    assert not panel.has_row_ids


def test_wide_tables_with_integer_names():
    panel = as_panel(pd.DataFrame([[1, 2], [3, 4]], columns=[20, 10], index=[7, 5]))
    assert panel.column_ids.tolist() == [20, 10]  # the order of the table: a dense array has one
    assert panel.row_ids.tolist() == [7, 5]
    panel = as_panel(pd.DataFrame([[1.0, True], [3.0, False]]))  # of two types, by way of Arrow
    assert not panel.has_row_ids
    assert panel.column_ids.tolist() == [0, 1]
    assert panel.values.tolist() == [1.0, 1.0, 3.0, 0.0]


def test_a_table_named_by_integers():
    table = PANDAS.set_axis([0, 1, 2], axis=1)
    assert Panel.from_table(table, row=0, column=1, value=2).row_ids.tolist() == ["ann", "bob", "cleo", "dan"]
    with refused("the table has no column '0'; its columns are 0, 1, 2"):
        Panel.from_table(table, row="0", column="1", value="2")


def test_a_panel_is_returned_as_it_is(expected):
    assert as_panel(expected) is expected


def test_only_a_tuple_of_three_is_three_arrays():
    assert as_panel([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]).shape == (3, 2)
    assert as_panel(([1.0, 2.0], [3.0, 4.0])).shape == (2, 2)
    assert as_panel(([1, 2], [3, 4], [5.0, 6.0])).row_ids.tolist() == [1, 2]


def test_options_reach_every_container():
    for data, names in (
        ({"who": [1, 1, 2], "what": [1, 1, 1], "stars": [1.0, 3.0, INF]}, NAMES),
        (([1, 1, 2], [1, 1, 1], [1.0, 3.0, INF]), {}),
        (sp.coo_array(([1.0, 3.0, INF], ([0, 0, 1], [0, 0, 0]))), {}),
    ):
        panel = as_panel(data, duplicates="mean", non_finite="drop", **names)
        assert panel.values.tolist() == [2.0]
        assert panel.row_counts.tolist() == [1, 0]
    assert as_panel([[INF, 1.0]], non_finite="drop").values.tolist() == [1.0]


# The order of lines, and a dictionary as the oracle


ids = st.one_of(
    st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=8, unique=True),
    st.lists(st.text(st.characters(codec="utf-8"), max_size=4), min_size=1, max_size=8, unique=True),
)


@st.composite
def entries(draw):
    """Distinct (row id, column id) pairs in any order, with their values."""
    rows, columns = draw(ids), draw(ids)
    pairs = st.tuples(st.sampled_from(rows), st.sampled_from(columns))
    values = st.floats(-1e75, 1e75) | st.sampled_from([0.0, -0.0, 5e-324])
    return draw(st.dictionaries(pairs, values, min_size=1, max_size=30))


def as_dictionary(panel):
    rows = np.repeat(np.arange(panel.n_rows), np.diff(panel.indptr))
    pairs = zip(panel.row_ids[rows].tolist(), panel.column_ids[panel.columns].tolist(), strict=True)
    return dict(zip(pairs, panel.values.tolist(), strict=True))


@settings(max_examples=150, deadline=None)
@given(entries(), st.randoms(use_true_random=False))
def test_lines_in_any_order_are_the_same_panel(content, random):
    lines = [(row, column, value) for (row, column), value in content.items()]
    panel = Panel.from_arrays(*zip(*lines, strict=True))
    check_invariants(panel)
    assert as_dictionary(panel) == content
    assert panel.row_ids.tolist() == sorted({row for row, _, _ in lines})
    assert panel.column_ids.tolist() == sorted({column for _, column, _ in lines})
    random.shuffle(lines)
    assert_same(Panel.from_arrays(*zip(*lines, strict=True)), panel)


@pytest.mark.parametrize("seed", range(10))
def test_shuffled_tables_are_the_same_panel(expected, seed):
    for table in (PANDAS, PANDAS.astype({"what": "category"})):
        shuffled = table.sample(frac=1.0, random_state=seed)
        assert_same(Panel.from_table(shuffled, **NAMES), expected)
        assert_same(Panel.from_table(pl.from_pandas(shuffled), **NAMES), expected)


patterns = st.tuples(st.integers(1, 7), st.integers(1, 6)).flatmap(
    lambda shape: st.lists(st.booleans(), min_size=shape[0] * shape[1], max_size=shape[0] * shape[1]).map(
        lambda bits: np.array(bits).reshape(shape)
    )
)


@settings(max_examples=200, deadline=None)
@given(patterns)
def test_any_pattern_survives_every_road(pattern):
    dense = np.where(pattern, np.arange(pattern.size).reshape(pattern.shape) - 2.0, np.nan)
    oracle = {(u, j): dense[u, j] for u, j in np.argwhere(pattern).tolist()}
    panel = Panel.from_dense(dense)
    check_invariants(panel)
    assert as_dictionary(panel) == oracle
    np.testing.assert_array_equal(panel.to_dense(), dense)
    np.testing.assert_array_equal(panel.row_counts, pattern.sum(axis=1))
    np.testing.assert_array_equal(panel.column_counts, pattern.sum(axis=0))
    stored = sp.csr_array((dense[pattern], np.nonzero(pattern)), shape=pattern.shape)
    for matrix in (stored, stored.tocsc(), stored.tocoo(), panel.to_sparse()):
        assert_same(Panel.from_sparse(matrix), panel)
    assert_same(Panel(panel.indptr, panel.columns, panel.values, panel.n_columns), panel)
    assert_same(panel.take_rows(np.arange(panel.n_rows)), panel)
    assert_same(panel.align_columns(panel.column_ids), panel)


@settings(max_examples=200, deadline=None)
@given(patterns, st.data())
def test_disorder_within_a_row_is_found_next_to_empty_rows(pattern, data):
    panel = Panel.from_dense(np.where(pattern, 1.0, np.nan))
    long_rows = np.flatnonzero(panel.row_counts > 1)
    if not len(long_rows):
        return
    row = data.draw(st.sampled_from(long_rows.tolist()))
    k = panel.indptr[row] + data.draw(st.integers(0, int(panel.row_counts[row]) - 2))
    for first, second in ((panel.columns[k + 1], panel.columns[k]), (panel.columns[k], panel.columns[k])):
        columns = panel.columns.copy()
        columns[k : k + 2] = first, second
        with refused("ascend within each row", f"row {row} has {first} before {second}"):
            Panel(panel.indptr, columns, panel.values, panel.n_columns)


@pytest.mark.parametrize("empty", [[0], [0, 1], [2], [4], [3, 4], [0, 2, 4], [0, 1, 2, 3, 4]])
def test_rows_without_entries_are_kept(empty):
    dense = np.arange(15.0).reshape(5, 3)
    dense[empty] = np.nan
    panel = Panel.from_dense(dense)
    assert panel.n_rows == 5
    assert np.flatnonzero(panel.row_counts == 0).tolist() == empty
    np.testing.assert_array_equal(panel.to_dense(), dense)
    assert_same(Panel.from_sparse(panel.to_sparse()), panel)
    assert_same(Panel.from_sparse(panel.to_sparse().tocoo()), panel)
    assert_same(panel.take_rows([4, 3, 2, 1, 0]).take_rows([4, 3, 2, 1, 0]), panel)


def test_a_column_may_fall_from_row_to_row_but_not_within():
    Panel([0, 0, 1, 1, 2, 2], [2, 0], [1.0, 1.0], 3)
    with refused("column codes must ascend within each row, without repetition; row 1 has 2 before 0"):
        Panel([0, 0, 2, 2], [2, 0], [1.0, 1.0], 3)
    with refused("row 0 has 1 before 1"):
        Panel([0, 2], [1, 1], [1.0, 1.0], 3)


@pytest.mark.parametrize("shuffled", [False, True])
@pytest.mark.parametrize("step", [1, 3, 10**9])
def test_ids_near_and_far_apart_are_coded_alike(step, shuffled):
    rng = np.random.default_rng(0)
    where = np.sort(rng.choice(60 * 40, 1000, replace=False))
    where = rng.permutation(where) if shuffled else where
    rows, columns, values = where // 40, where % 40, rng.normal(size=len(where))
    low = np.iinfo(np.int64).min
    panel = Panel.from_arrays(low + step * rows, step * columns - 7, values)
    np.testing.assert_array_equal(panel.row_ids, low + step * np.unique(rows))
    np.testing.assert_array_equal(panel.column_ids, step * np.unique(columns) - 7)
    order = np.argsort(where)
    np.testing.assert_array_equal(panel.columns, np.searchsorted(np.unique(columns), columns[order]))
    np.testing.assert_array_equal(panel.values, values[order])
    assert not np.shares_memory(panel.values, values)


# Types


@pytest.mark.parametrize(
    ("given_type", "kept"),
    [
        ("float32", "float32"),
        ("float64", "float64"),
        ("float16", "float32"),
        (">f4", "float32"),
        (">f8", "float64"),
        ("longdouble", "float64"),
        ("int8", "float64"),
        ("uint64", "float64"),
        ("bool", "float64"),
    ],
)
def test_values_become_floats(given_type, kept):
    values = np.array([1, 0, 1], dtype=given_type)
    positions = ([0, 0, 1], [0, 1, 1])
    panels = [
        Panel([0, 2, 3], [0, 1, 1], values, 2),
        Panel.from_arrays(*positions, values),
        Panel.from_table({"who": positions[0], "what": positions[1], "stars": values}, **NAMES),
        Panel.from_dense(values[None, :]),
    ]
    if values.dtype.isnative and given_type != "float16":  # scipy has neither
        panels += [Panel.from_sparse(sp.csr_array((values, positions)))]
        panels += [Panel.from_sparse(sp.coo_array((values, positions)))]
    for panel in panels:
        check_invariants(panel)
        assert panel.values.dtype == kept
        assert panel.values.dtype.isnative
        assert panel.values.tolist() == [1.0, 0.0, 1.0]


@pytest.mark.parametrize(
    ("values", "kept"),
    [
        (pa.array(np.array([1, 0], dtype=np.float16)), "float32"),
        (pa.array([1, 0], pa.float32()), "float32"),
        (pa.array([1, 0], pa.int8()), "float64"),
        (pa.array([True, False]), "float64"),
        (pa.array([Decimal("1.00"), Decimal(0)]), "float64"),
        (pa.array([Decimal(1), Decimal(0)], pa.decimal256(60, 10)), "float64"),
        (pa.array([1.0, 0.0], pa.float32()).dictionary_encode(), "float32"),
        (pd.Series([1, 0], dtype="Float32"), "float32"),
        (pd.Series([1, 0], dtype="boolean"), "float64"),
        (pl.Series([1, 0], dtype=pl.Float32), "float32"),
        (pl.Series(["1.0", "0.0"]).cast(pl.Decimal(5, 2)), "float64"),
        ([Decimal(1), Decimal(0)], "float64"),
    ],
    ids=str,
)
def test_values_of_other_libraries_become_floats(values, kept):
    panel = Panel.from_arrays([1, 2], [1, 1], values)
    check_invariants(panel)
    assert panel.values.dtype == kept
    assert panel.values.tolist() == [1.0, 0.0]


def test_float32_stays_float32():
    panel = Panel.from_dense(np.array([[1, NAN], [2, 3]], dtype=np.float32))
    names = {"row_ids": ["u", "v"], "column_ids": ["a", "b"]}
    panel = Panel(panel.indptr, panel.columns, panel.values, 2, **names)
    for other in (
        panel.take_rows([1]),
        panel.align_columns(["b", "a"]),
        panel.with_row_weights([1, 2]),
        Panel.from_sparse(panel.to_sparse()),
        as_panel(pd.DataFrame({"a": np.float32([1, 2])})),
    ):
        assert other.values.dtype == np.float32
    assert panel.to_dense().dtype == panel.to_sparse().dtype == panel.by_column[2].dtype == np.float32


def test_indices_of_64_bits_are_narrowed():
    matrix = sp.csr_array(([1.0, 2.0], ([0, 1], [1, 0])), shape=(2, 2))
    matrix.indices, matrix.indptr = matrix.indices.astype(np.int64), matrix.indptr.astype(np.int64)
    check_invariants(Panel.from_sparse(matrix))
    check_invariants(Panel(np.uint8([0, 1]), np.uint64([1]), [1], np.int64(2)))


def test_strided_arrays_become_contiguous():
    panel = Panel(np.array([0, 9, 1, 9, 2])[::2], np.array([1, 9, 0, 9])[::2], np.arange(4.0)[::2], 2)
    assert panel.to_dense().tolist()[1][0] == 2.0
    assert all(one.flags.c_contiguous for one in (panel.indptr, panel.columns, panel.values))


# Zeros, missing and infinite values


def test_stored_zeros_are_observations():
    for panel in (
        Panel.from_sparse(sp.csr_array(([0.0, -0.0], ([0, 1], [0, 1])), shape=(2, 2))),
        Panel.from_sparse(sp.coo_array(([0.0, -0.0], ([0, 1], [0, 1])), shape=(2, 2))),
        Panel.from_dense([[0.0, NAN], [NAN, -0.0]]),
        Panel.from_arrays([0, 1], [0, 1], [0.0, -0.0]),
    ):
        assert panel.n_entries == 2
        assert np.signbit(panel.values).tolist() == [False, True]
        assert panel.to_sparse().nnz == 2


@pytest.mark.parametrize("kind", SPARSE, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize(("bad", "words"), [(NAN, "1 NaN or missing value"), (INF, "1 infinite value")])
def test_non_finite_values_of_a_sparse_matrix(kind, bad, words):
    matrix = kind(sp.coo_array(([1.0, bad], ([0, 1], [2, 0])), shape=(2, 3)))
    with refused(f"the matrix has {words} (first at row 1, column 0)", 'drop them or pass non_finite="drop"'):
        as_panel(matrix)
    panel = as_panel(matrix, non_finite="drop")
    assert panel.shape == (2, 3)
    assert panel.row_counts.tolist() == [1, 0]


@pytest.mark.parametrize("bad", [INF, -INF])
def test_infinite_values_of_a_dense_array(bad):
    dense = [[1.0, NAN], [NAN, bad], [bad, NAN]]
    with refused("the array has 2 infinite values (first at row 1, column 1)", 'pass non_finite="drop"'):
        as_panel(dense)
    panel = as_panel(dense, non_finite="drop")
    assert panel.row_counts.tolist() == [1, 0, 0]
    assert panel.shape == (3, 2)


@pytest.mark.parametrize("missing", [None, NAN])
@pytest.mark.parametrize(
    "make",
    [pd.DataFrame, lambda table: pd.DataFrame(table).astype({"stars": "Float64"}), pl.DataFrame, pa.table, dict],
    ids=["pandas", "pandas nullable", "polars", "pyarrow", "dict"],
)
def test_non_finite_values_of_a_table(make, missing):
    table = make({**LONG, "stars": [2.5, INF, missing, -1.0, -INF, missing]})
    with refused(
        "column 'stars' has 2 infinite values and 2 NaN or missing values (first at row 'ann', column 'tea')",
        'drop them or pass non_finite="drop"',
    ):
        Panel.from_table(table, **NAMES)
    panel = Panel.from_table(table, **NAMES, non_finite="drop")
    assert panel.row_ids.tolist() == ["ann", "bob", "cleo", "dan"]  # ids stay, with no entries
    assert panel.column_ids.tolist() == ["gin", "rye", "tea"]
    assert as_dictionary(panel) == {("cleo", "tea"): 2.5, ("ann", "gin"): -1.0}


def test_all_values_dropped_leave_a_panel_without_entries():
    for panel in (
        Panel.from_arrays([1, 2], ["a", "b"], [NAN, INF], non_finite="drop"),
        Panel.from_arrays([1, 2], ["a", "b"], [None, None], non_finite="drop"),
        Panel.from_dense([[NAN, NAN], [NAN, NAN]]),
        Panel.from_sparse(sp.csr_array((2, 2))),
        Panel.from_sparse(sp.coo_array((2, 2))),
        Panel([0, 0, 0], [], [], 2),
    ):
        check_invariants(panel)
        assert panel.n_entries == 0
        assert panel.shape == (2, 2)
        assert panel.column_counts.tolist() == [0, 0]
        assert panel.by_column[0].tolist() == [0, 0, 0]
        assert np.isnan(panel.to_dense()).all()
        assert panel.to_sparse().nnz == 0
        assert panel.take_rows([1]).n_entries == 0
        assert panel.align_columns(panel.column_ids[:1]).shape == (2, 1)


def test_rows_with_one_entry_and_columns_never_seen_are_kept():
    panel = Panel.from_dense([[1.0, NAN, NAN], [NAN, NAN, 2.0]])
    assert panel.row_counts.tolist() == [1, 1]
    assert panel.column_counts.tolist() == [1, 0, 1]


def test_non_finite_values_of_the_constructor():
    with refused("the array of values has 1 infinite value and 1 NaN or missing value (first at entry 1); drop them"):
        Panel([0, 3], [0, 1, 2], [1.0, NAN, -INF], 3)


@pytest.mark.parametrize("sign", [1, -1])
def test_huge_values(sign):
    huge, allowed = sign * 1.01 * LARGEST_VALUE, sign * LARGEST_VALUE
    words = ("reaches 1.01e+75 in magnitude, beyond 1e+75, where moments overflow; rescale",)
    with refused("column 'stars'", *words):
        Panel.from_table({"who": [1], "what": [1], "stars": [huge]}, **NAMES)
    with refused("the array", *words):
        Panel.from_dense([[huge, 0.0]])
    for make in (sp.csr_array, sp.coo_array):
        with refused(*words):
            Panel.from_sparse(make([[huge, 1.0]]))
    with refused("the array of values", *words):
        Panel([0, 1], [0], [huge], 1)
    assert Panel.from_dense([[allowed, 0.0]]).values[0] == allowed


def test_what_no_double_holds_is_refused_as_infinite():
    with refused("the array has 1 infinite value"):
        Panel.from_dense(np.array([["1e4000"]], dtype=np.longdouble))
    with refused("the array must hold numbers", "too large"):
        Panel.from_dense([[10**400]])


# Duplicates


MERGED = {"mean": 5.0, "sum": 15.0, "last": 9.0}


def threefold(values):
    """The entry (20, "b") three times among others, in four containers: names and positions."""
    who, what = [20, 10, 20, 10, 20], ["b", "a", "b", "b", "b"]
    rows, columns = [1, 0, 1, 0, 1], [1, 0, 1, 1, 1]
    csr = sp.csr_array((values[[1, 3, 0, 2, 4]], [0, 1, 1, 1, 1], [0, 2, 5]), shape=(2, 2))
    csc = sp.csc_array((values[[1, 3, 0, 2, 4]], [0, 0, 1, 1, 1], [0, 1, 5]), shape=(2, 2))
    assert not csr.has_canonical_format
    return {
        "table": (pa.table({"who": who, "what": what, "stars": values}), NAMES, "row 20, column 'b'"),
        "arrays": ((who, what, values), {}, "row 20, column 'b'"),
        "coo": (sp.coo_array((values, (rows, columns)), shape=(2, 2)), {}, "row 1, column 1"),
        "coo_matrix": (sp.coo_matrix((values, (rows, columns)), shape=(2, 2)), {}, "row 1, column 1"),
        "csr": (csr, {}, "row 1, column 1"),
        "csc": (csc, {}, "row 1, column 1"),
    }


CONTAINERS = ["table", "arrays", "coo", "coo_matrix", "csr", "csc"]


@pytest.mark.parametrize("container", CONTAINERS)
def test_duplicates_are_refused_with_a_count_and_an_example(container):
    data, names, where = threefold(np.array([2.0, 7.0, 4.0, 8.0, 9.0]))[container]
    with refused(
        f"2 entries repeat an earlier (row, column) pair, for example {where} with values 2 and 4",
        'say how to merge them: duplicates="mean", "sum" or "last"',
    ):
        as_panel(data, **names)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("how", MERGED)
@pytest.mark.parametrize("container", CONTAINERS)
def test_duplicates_are_merged(container, how, dtype):
    data, names, _ = threefold(np.array([2.0, 7.0, 4.0, 8.0, 9.0], dtype=dtype))[container]
    panel = as_panel(data, **names, duplicates=how)
    check_invariants(panel)
    assert panel.values.dtype == dtype
    assert panel.values.tolist() == [7.0, 8.0, MERGED[how]]
    assert panel.indptr.tolist() == [0, 2, 3]
    assert panel.columns.tolist() == [0, 1, 1]


def test_one_duplicate_is_counted_in_the_singular():
    with refused("1 entry repeats an earlier (row, column) pair, for example row 'a', column 3 with values 1 and 2"):
        Panel.from_arrays(["a", "a"], [3, 3], [1, 2])


def test_the_same_column_in_two_rows_is_no_duplicate():
    assert Panel.from_arrays([1, 2, 4], [5, 5, 5], [1.0, 2.0, 3.0]).n_entries == 3
    assert Panel.from_sparse(sp.coo_array(([1.0, 2.0], ([1, 3], [0, 0])), shape=(5, 1))).n_entries == 2


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3), st.integers(-9, 9)), min_size=1, max_size=40),
    st.sampled_from(["mean", "sum", "last"]),
)
def test_merging_against_a_dictionary(lines, how):
    found = {}
    for row, column, value in lines:
        found.setdefault((row, column), []).append(value)
    merge = {"mean": lambda one: sum(one) / len(one), "sum": sum, "last": lambda one: one[-1]}[how]
    oracle = {place: float(merge(values)) for place, values in found.items()}
    rows, columns, values = zip(*lines, strict=True)
    assert as_dictionary(Panel.from_arrays(rows, columns, values, duplicates=how)) == oracle
    matrix = sp.coo_array((np.array(values, dtype=float), (rows, columns)), shape=(5, 4))
    panel = Panel.from_sparse(matrix, duplicates=how)
    assert panel.shape == (5, 4)
    assert as_dictionary(panel) == oracle
    repeats = len(lines) - len(found)
    if repeats:
        with refused("1 entry repeats" if repeats == 1 else f"{repeats} entries repeat"):
            Panel.from_sparse(matrix)


def test_duplicates_are_merged_among_the_values_that_stay():
    panel = Panel.from_arrays([1, 1, 1], [2, 2, 2], [3.0, 5.0, NAN], duplicates="mean", non_finite="drop")
    assert panel.values.tolist() == [4.0]
    assert Panel.from_arrays([1, 1], [2, 2], [3.0, NAN], non_finite="drop").values.tolist() == [3.0]


def test_merged_values_that_do_not_fit():
    large = np.array([3e38, 3e38], dtype=np.float32)
    assert Panel.from_arrays([1, 1], [2, 2], large, duplicates="mean").values[0] == large[0]
    with refused("a sum of duplicates does not fit float32; give the values as float64"):
        Panel.from_arrays([1, 1], [2, 2], large, duplicates="sum")
    with refused("reaches 2e+75"):
        Panel.from_arrays([1, 1], [2, 2], [1e75, 1e75], duplicates="sum")
    with refused("reaches 1e+308"):
        Panel.from_arrays([1, 1], [2, 2], [1e308, 1e308], duplicates="sum")


# Refusals


def test_options():
    for data in ([[1.0]], sp.csr_array([[1.0]]), sp.coo_array([[1.0]]), ([1], [1], [1.0])):
        with refused("duplicates='first' is not an option; choose one of 'refuse', 'mean', 'sum', 'last'"):
            as_panel(data, duplicates="first")
        with refused("non_finite='zero' is not an option; choose one of 'refuse', 'drop'"):
            as_panel(data, non_finite="zero")
    with refused("non_finite='zero' is not an option"):
        Panel.from_dense([[1.0]], non_finite="zero")
    with refused("duplicates=None is not an option"):
        Panel.from_sparse(sp.csr_array([[1.0]]), duplicates=None)


def test_names_of_a_table(expected):
    with refused("the table has no column 'movie'; its columns are 'who', 'what', 'stars'"):
        Panel.from_table(ARROW, row="who", column="movie", value="stars")
    with refused("row, column and value must be three different columns; found ('who', 'who', 'stars')"):
        Panel.from_table(ARROW, row="who", column="who", value="stars")
    with refused("name all three of row, column and value, or none of them"):
        as_panel(ARROW, row="who", value="stars")
    with refused("its columns are 'c0',", "'c11', …"):
        Panel.from_table({f"c{k}": [1] for k in range(13)}, **NAMES)
    twice = [PANDAS.set_axis(["who", "stars", "stars"], axis=1).assign(what=1)]
    twice += [pa.table([WHO, WHAT, STARS, STARS], names=["who", "what", "stars", "stars"])]
    for table in twice:
        with refused("the table has 2 columns 'stars'; rename them"):
            Panel.from_table(table, **NAMES)
    for data, found in (
        (np.ones((2, 2)), "ndarray"),
        (sp.csr_array([[1.0]]), "csr_array"),
        (expected, "Panel"),
        ("ratings.csv", "str"),
        (None, "NoneType"),
        (pd.Series(STARS), "Series"),
    ):
        with refused(f"expected a table (pandas, polars, pyarrow, a dict of arrays); found {found}"):
            as_panel(data, **NAMES)


@pytest.mark.parametrize("axis", ["who", "what"])
@pytest.mark.parametrize(
    ("ids", "words"),
    [
        ([1.0, 2.0], ("holds double, for example 1.0; ids must be all integers or all strings",)),
        ([1, 2.5], ("holds double", "ids must be all integers or all strings")),
        ([1, None], ("has 1 missing id (first at position 1); drop them",)),
        ([None, None], ("has 2 missing ids (first at position 0); drop them",)),
        (["a", None], ("has 1 missing id (first at position 1); drop them",)),
        (np.array(["a", NAN], dtype=object), ("has 1 missing id (first at position 1)",)),
        (pd.Series(["a", None], dtype="category"), ("has 1 missing id (first at position 1)",)),
        (pd.Series([pd.NA, 2], dtype="Int64"), ("has 1 missing id (first at position 0)",)),
        (pl.Series([None, "b"], dtype=pl.Categorical), ("has 1 missing id (first at position 0)",)),
        (pa.DictionaryArray.from_arrays([0, 1], ["a", None]), ("has 1 missing id (first at position 1)",)),
        (pa.chunked_array([["a"], [None]]), ("has 1 missing id (first at position 1)",)),
        (["a", 1], ("cannot be read as a list of one kind", "make it all integers, all strings")),
        ([1, "a"], ("cannot be read as a list of one kind", "make it all integers, all strings")),
        (np.array(["a", 1], dtype=object), ("cannot be read as a list of one kind",)),
        ([True, False], ("holds bool, for example True; ids must be all integers or all strings",)),
        ([b"a", b"b"], ("holds binary, for example b'a'",)),
        (pd.Series(pd.to_datetime(["2020", "2021"])), ("holds timestamp",)),
        (np.array([1, 2**63], dtype=np.uint64), ("has ids beyond 64-bit integers; use strings",)),
        ([1, 2**63], ("has integers beyond 64 bits; give ids as strings",)),
        ([1, 2**70], ("has integers beyond 64 bits; give ids as strings",)),
        (np.ones((2, 2), dtype=int), ("cannot be read as a list of one kind", "1-dimensional")),
        (7, ("cannot be read as a list of one kind",)),
    ],
    ids=repr,
)
def test_ids_of_entries(axis, ids, words):
    table = {"who": ["u", "v"], "what": ["a", "b"], "stars": [1.0, 2.0], axis: ids}
    with refused(f"'{axis}' ", *words):
        Panel.from_table(table, **NAMES)
    name = {"who": "rows", "what": "columns"}[axis]
    with refused(f"'{name}' ", *words):
        Panel.from_arrays(*table.values())


def test_mixed_ids_of_a_pandas_table():
    with refused("the table cannot be read", "what", "make each column one kind"):
        Panel.from_table(pd.DataFrame({"who": [1, 2], "what": ["a", 1], "stars": [1.0, 2.0]}), **NAMES)


def test_integers_and_strings_that_look_alike_are_different_kinds():
    assert Panel.from_arrays([1, 2], ["1", "01"], [1.0, 2.0]).column_ids.tolist() == ["01", "1"]
    assert Panel.from_arrays(["10", "9"], [10, 9], [1.0, 2.0]).row_ids.tolist() == ["10", "9"]
    assert Panel.from_arrays(["10", "9"], [10, 9], [1.0, 2.0]).column_ids.tolist() == [9, 10]


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (["4", "5"], ("'values' holds string, for example '4'; values must be numbers",)),
        ([None, "5"], ("'values' holds string, for example '5'; values must be numbers",)),
        (np.array(["4", "5"]), ("values must hold numbers; found <U1",)),
        (np.array(["4", 5.0], dtype=object), ("'values' cannot be read as a list of one kind",)),
        (pd.Series(["4", "5"], dtype="category"), ("'values' holds large_string, for example '4'",)),
        (pl.Series(["4", "5"], dtype=pl.Categorical), ("'values' holds ", "for example '4'; values must be numbers")),
        ([1j, 2.0], ("'values' cannot be read", "make it", "all numbers")),
        (np.array([1j, 2.0]), ("values must hold numbers; found complex128",)),
        (np.array([0, 1], dtype="datetime64[D]"), ("values must hold numbers; found datetime64[D]",)),
        (pa.array([0, 1], pa.timestamp("s")), ("'values' holds timestamp[s]", "values must be numbers")),
        (pa.array([[1.0], [2.0]]), ("'values' holds list<item: double>", "values must be numbers")),
        (np.ones((2, 1)), ("'values' cannot be read as a list", "1-dimensional")),
        ([10**30, 1], ("'values' has integers beyond 64 bits", "values as floats")),
        (5.0, ("'values' cannot be read as a list",)),
    ],
    ids=repr,
)
def test_values_of_entries(values, words):
    with refused(*words):
        Panel.from_arrays([1, 2], [1, 2], values)


def test_values_of_a_table_are_named():
    with refused("'stars' holds ", "for example '5'; values must be numbers"):
        Panel.from_table(PANDAS.assign(stars=["5", "4", "3", "2", "1", "0"]), **NAMES)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ([["1.5", "2"]], "must hold numbers; found <U3"),
        (np.array([["1.5", 2.0]], dtype=object), "must hold numbers; found '1.5'"),
        (np.array([[b"1", 2.0]], dtype=object), "must hold numbers; found b'1'"),
        ([[1j]], "must hold numbers; found complex128"),
        (np.array([[1j]], dtype=object), "must hold numbers: "),
        (np.array([["2020"]], dtype="datetime64[Y]"), "must hold numbers; found datetime64[Y]"),
        ([[1.0], [1.0, 2.0]], "must have rows of one length"),
        ([{}], "must hold numbers: "),
        ("abc", "must hold numbers; found <U3"),
    ],
    ids=repr,
)
def test_dense_values(values, words):
    with refused(f"the array {words}"):
        as_panel(values)


@pytest.mark.parametrize(
    ("data", "shape"),
    [([1.0, 2.0], "(2,)"), (np.ones((2, 2, 2)), "(2, 2, 2)"), (3.0, "()"), (None, "()"), (sp.coo_array([1.0]), "(1,)")],
    ids=["1-D", "3-D", "scalar", "None", "sparse 1-D"],
)
def test_dimensions(data, shape):
    with refused(f"expected a table of rows and columns; found an array of shape {shape}"):
        as_panel(data)


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0, 0)])
def test_no_rows_or_no_columns(shape):
    n, d = shape
    with refused(f"a panel needs at least one row and one column; found {n} × {d}"):
        as_panel(np.ones(shape))
    for make in (sp.csr_array, sp.coo_array):
        with refused(f"found {n} × {d}"):
            as_panel(make(shape))
    with refused(f"found {n} × {d}"):
        Panel(np.zeros(n + 1, dtype=int), [], [], d)
    with refused("a panel needs at least one row and one column; found 0 × 2"):
        Panel([], [], [], 2)


EMPTY = pa.schema([("who", pa.string()), ("what", pa.int64()), ("stars", pa.float64())])


@pytest.mark.parametrize(
    "table",
    [
        {"who": [], "what": [], "stars": []},
        ARROW[:0],
        EMPTY.empty_table(),
        pa.table([pa.chunked_array([], field.type) for field in EMPTY], schema=EMPTY),
        pa.RecordBatchReader.from_batches(EMPTY, []),
        PANDAS[:0],
        pd.DataFrame(columns=["who", "what", "stars"]),
        POLARS[:0],
        POLARS.with_columns(pl.col("what").cast(pl.Categorical))[:0],
    ],
    ids=lambda table: type(table).__name__,
)
def test_empty_tables(table):
    with refused("a panel needs at least one row and one column; the table holds no entries"):
        Panel.from_table(table, **NAMES)


def test_empty_arrays():
    for arrays in (([], [], []), (np.array([], dtype=str), np.array([], dtype=int), np.array([]))):
        with refused("the table holds no entries"):
            Panel.from_arrays(*arrays)


def test_unequal_lengths():
    with refused("the arrays differ in length: 'rows' 2, 'columns' 3, 'values' 1"):
        Panel.from_arrays([1, 2], [1, 2, 3], [1.0])
    with refused("the arrays differ in length: 'rows' 1, 'columns' 1, 'values' 0"):
        as_panel(([1], [1], []))
    with refused("the arrays differ in length: 'who' 1, 'what' 2, 'stars' 2"):
        Panel.from_table({"who": [1], "what": [1, 2], "stars": [1, 2]}, **NAMES)
    with refused("the arrays differ in length: 'a' 1, 'b' 2"):
        as_panel({"a": [1.0], "b": [1.0, 2.0]})


def test_wide_tables_refused():
    with refused("'name' holds ", "for example 'ann'; values must be numbers"):
        as_panel(WIDE.assign(name=["ann", "bob", "cleo", "dan"]))
    with refused("'name' holds ", "for example '1'; values must be numbers"):
        as_panel(pl.DataFrame({"a": [1.0], "name": ["1"]}))
    with refused("column_ids repeat, for example 'a': 2 ids, 1 distinct"):
        as_panel(pd.DataFrame([[1.0, 2.0]], columns=["a", "a"]))
    with refused("column_ids hold int and str; ids must be all integers or all strings"):
        as_panel(pd.DataFrame({"a": [1.0], 0: [2.0]}))
    with refused("column_ids hold tuple"):
        as_panel(pd.DataFrame([[1.0, 2.0]], columns=pd.MultiIndex.from_tuples([("a", 1), ("a", 2)])))
    leave_out = "they are the table's index, which reset_index(drop=True) leaves out"
    with refused("row_ids repeat, for example 'ann'", leave_out):
        as_panel(WIDE.set_axis(["ann", "ann", "bob", "dan"]))
    with refused("row_ids hold datetime64", leave_out):
        as_panel(WIDE.set_axis(pd.date_range("2020", periods=4)))
    with refused("a panel needs at least one row and one column; found 0 × 3"):
        as_panel(WIDE[:0])


def test_dates_as_wide_values():
    with refused("'when' holds timestamp", "values must be numbers"):
        as_panel(pd.DataFrame({"when": pd.date_range("2020", periods=2)}))


@pytest.mark.parametrize("kind", ["dia", "bsr"])
def test_padded_sparse_formats(kind):
    for make in (sp.csr_array, sp.csr_matrix):
        with refused(f"a sparse matrix in {kind} format is padded with zeros that nobody observed", "tocsr()"):
            as_panel(make(np.eye(4)).asformat(kind))


def test_sparse_values():
    for make in (sp.csr_array, sp.coo_array):
        with refused("the matrix must hold numbers; found complex128"):
            as_panel(make([[1j]]))


def test_damaged_sparse_matrices():
    canonical = sp.csr_array(([1.0, 2.0], [0, 5], [0, 2, 2]), shape=(2, 2))
    with refused("column codes must lie between 0 and 1; found 0 to 5"):
        as_panel(canonical)
    for make in (sp.csr_array, sp.csc_array):
        with refused("the sparse matrix is damaged", "exceeds", "build it again"):
            as_panel(make(([1.0, 2.0], [5, 0], [0, 2, 2]), shape=(2, 2)))
    stale = sp.csr_array(([1.0, 2.0], [0, 1], [0, 2]), shape=(1, 2))
    assert stale.has_canonical_format
    stale.indices[:] = [1, 0]  # which scipy does not notice
    with refused("column codes must ascend"):
        as_panel(stale)


def test_more_columns_than_codes():
    words = "2,147,483,648 columns, but at most 2,147,483,647 are supported", "Panel.from_arrays()"
    for make in (sp.csr_array, sp.coo_array):
        with refused(*words):
            as_panel(make(([1.0], ([0], [7])), shape=(1, 2**31)))
    with refused(*words):
        Panel([0, 1], [7], [1.0], 2**31)
    assert Panel([0, 1], [2**31 - 2], [1.0], 2**31 - 1).columns[0] == 2**31 - 2


@pytest.mark.parametrize("indptr", [[1, 2], [0, 1], [0, 3], [0, 3, 2], [0, -1, 2], [2]])
def test_bad_pointers(indptr):
    words = "indptr must rise from 0 to the number of entries, 2" if len(indptr) > 1 else "at least one row"
    with refused(words):
        Panel(indptr, [0, 1], [1.0, 2.0], 2)


def test_bad_codes():
    for columns, found in (([0, 2], "0 to 2"), ([-1, 0], "-1 to 0"), (np.array([0, 2**32 + 1]), "0 to 4294967297")):
        with refused(f"column codes must lie between 0 and 1; found {found}"):
            Panel([0, 2], columns, [1.0, 2.0], 2)
    with refused("columns must be a list of integers; found float64 of shape (2,)"):
        Panel([0, 2], [0.0, 1.0], [1.0, 2.0], 2)
    with refused("columns must be a list of integers; found int64 of shape (1, 2)"):
        Panel([0, 2], [[0, 1]], [1.0, 2.0], 2)
    with refused("indptr must be a list of integers; found float64 of shape (2,)"):
        Panel([0, 2.5], [0, 1], [1.0, 2.0], 2)
    with refused("n_columns must be an integer; found 2.5"):
        Panel([0, 2], [0, 1], [1.0, 2.0], 2.5)
    with refused("2 column codes but values of shape (3,); give one for each"):
        Panel([0, 2], [0, 1], [1.0, 2.0, 3.0], 2)
    with refused("2 column codes but values of shape (2, 1)"):
        Panel([0, 2], [0, 1], [[1.0], [2.0]], 2)
    with refused("values must hold numbers; found <U1"):
        Panel([0, 2], [0, 1], ["1", "2"], 2)


@pytest.mark.parametrize("axis", ["row", "column"])
@pytest.mark.parametrize(
    ("ids", "words"),
    [
        (["a", "b", "a"], "_ids repeat, for example 'a': 3 ids, 2 distinct"),
        ([3, 1, 3], "_ids repeat, for example 3: 3 ids, 2 distinct"),
        (["a", 1, "b"], "_ids hold int and str; ids must be all integers or all strings"),
        (np.array(["a", None, "b"], dtype=object), "_ids hold NoneType and str; ids must be"),
        ([True, False, 2], "_ids hold bool and int; ids must be"),
        ([1.0, 2.0, 3.0], "_ids hold float; ids must be"),
        (np.array([1.0, 2.0, 3.0]), "_ids hold float64; ids must be"),
        (np.array([b"a", b"b", b"c"]), "_ids hold |S1; ids must be"),
        ([1, 2, 2**63], "_ids reach beyond 64-bit integers; use strings"),
        ([1, 2, -(2**63) - 1], "_ids reach beyond 64-bit integers; use strings"),
        (np.array([1, 2, 2**63], dtype=np.uint64), "_ids reach beyond 64-bit integers; use strings"),
        (np.ones((3, 1), dtype=int), "_ids must be a list; found an array of shape (3, 1)"),
        (np.int64(3), "_ids must be a list; found an array of shape ()"),
    ],
    ids=repr,
)
def test_given_ids(axis, ids, words):
    with refused(axis + words):
        Panel([0, 1, 1, 1], [0], [1.0], 3, **{f"{axis}_ids": ids})


def test_the_number_of_ids():
    with refused("2 rows but 1 row id; give one for each"):
        Panel([0, 1, 1], [0], [1.0], 3, row_ids=["a"])
    with refused("3 columns but 0 column ids"):
        Panel([0, 1, 1], [0], [1.0], 3, column_ids=[])


@pytest.mark.parametrize(
    "ids",
    [
        [30, 10, 20],
        np.array([30, 10, 20], dtype=np.uint8),
        np.array([30, 10, 20], dtype=object),
        [np.int32(30), 10, np.uint64(20)],
        pa.array([30, 10, 20]),
        pd.Index([30, 10, 20]),
        range(30, 0, -10),
    ],
    ids=lambda ids: type(ids).__name__,
)
def test_given_integer_ids_are_kept_in_their_order(ids):
    panel = Panel([0, 1, 1, 1], [0], [1.0], 3, row_ids=ids, column_ids=ids)
    assert panel.row_ids.dtype == panel.column_ids.dtype == np.int64
    assert panel.row_ids.tolist() == [int(one) for one in np.asarray(ids)]
    assert panel.has_row_ids
    assert panel.has_column_ids


@pytest.mark.parametrize(
    "ids",
    [
        ["c", "a", "b"],
        ("c", "a", "b"),
        np.array(["c", "a", "b"]),
        np.array(["c", "a", "b"], dtype=object),
        np.array(["c", "a", "b"], dtype=np.dtypes.StringDType()),
        pd.Index(["c", "a", "b"]),
        pl.Series(["c", "a", "b"]),
        pa.array(["c", "a", "b"]),
    ],
    ids=lambda ids: type(ids).__name__,
)
def test_given_string_ids_are_kept_in_their_order(ids):
    panel = Panel([0, 1, 1, 1], [0], [1.0], 3, row_ids=ids)
    check_invariants(panel)
    assert panel.row_ids.tolist() == ["c", "a", "b"]
    assert not panel.has_column_ids
    assert panel.column_ids.tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("weights", "words"),
    [
        ([1.0, -1.0, 2.0], "1 row weight negative or not finite (first at row 1: -1)"),
        ([NAN, 1.0, INF], "2 row weights negative or not finite (first at row 0: nan)"),
        ([1.0, None, 1.0], "1 row weight negative or not finite (first at row 1: nan)"),
        (np.ma.array([1.0, 2.0, 3.0], mask=[0, 0, 1]), "1 row weight negative or not finite (first at row 2: nan)"),
        ([1.0, 2.0], "3 rows but row weights of shape (2,); give one for each"),
        ([[1.0], [1.0], [1.0]], "3 rows but row weights of shape (3, 1)"),
        (2.0, "3 rows but row weights of shape ()"),
        (["1", "1", "1"], "row weights must hold numbers; found <U1"),
        ([1j, 1, 1], "row weights must hold numbers; found complex128"),
    ],
    ids=repr,
)
def test_bad_weights(small, weights, words):
    with refused(words):
        small.with_row_weights(weights)
    with refused(words):
        Panel(small.indptr, small.columns, small.values, 3, row_weights=weights)


# Weights, rows and columns of a panel


def test_row_weights(small):
    assert small.row_weights.tolist() == [1.0, 1.0, 1.0]
    weights = np.array([0, 2, 1])
    weighted = small.with_row_weights(weights)
    weights[0] = 9
    assert weighted.row_weights.tolist() == [0.0, 2.0, 1.0]
    assert small.row_weights.tolist() == [1.0, 1.0, 1.0]
    assert weighted.values is small.values
    assert weighted.row_ids.tolist() == small.row_ids.tolist()


def test_weights_do_not_forget_what_was_computed(small):
    by_column = small.by_column
    assert small.with_row_weights([1, 2, 3]).by_column is by_column


def test_aligned_columns_take_the_order_and_names_of_the_other():
    panel = Panel.from_arrays([1, 1, 2, 3], ["a", "b", "a", "c"], [1.0, 2.0, 3.0, 4.0]).with_row_weights([1, 2, 3])
    aligned = panel.align_columns(["c", "z", "a", "b"])
    check_invariants(aligned)
    assert aligned.column_ids.tolist() == ["c", "z", "a", "b"]
    np.testing.assert_array_equal(
        aligned.to_dense(), [[NAN, NAN, 1.0, 2.0], [NAN, NAN, 3.0, NAN], [4.0, NAN, NAN, NAN]]
    )
    assert aligned.row_ids.tolist() == [1, 2, 3]
    assert aligned.row_weights.tolist() == [1.0, 2.0, 3.0]
    assert_same(aligned.align_columns(["a", "b", "c"]), panel)


@pytest.mark.parametrize("kind", [list, np.array, pd.Index, pa.array, lambda one: np.array(one, dtype=object)])
def test_columns_are_aligned_to_ids_of_any_container(small, kind):
    assert small.align_columns(kind(["c", "b", "a"])).values.tolist() == [2.0, 1.0, 3.0, 4.0]


def test_unknown_columns(small):
    with refused("2 column ids unknown to the model: 'b', 'c'; pass unknown=\"drop\" to leave their entries out"):
        small.align_columns(["a"])
    panel = small.with_row_weights([1, 2, 3]).align_columns(["a"], unknown="drop")
    assert panel.shape == (3, 1)
    assert panel.row_counts.tolist() == [1, 1, 0]  # the row stays without entries
    assert panel.row_ids.tolist() == [1, 2, 3]
    assert panel.row_weights.tolist() == [1.0, 2.0, 3.0]
    many = Panel.from_arrays([1] * 5, list("abcde"), np.arange(5.0))
    with refused("4 column ids unknown to the model: 'b', 'c', 'd', …"):
        many.align_columns(["a"])
    nothing = small.align_columns(["x", "y"], unknown="drop")
    assert nothing.n_entries == 0
    assert nothing.shape == (3, 2)


def test_unknown_columns_without_entries_are_no_error():
    panel = Panel.from_dense(pd.DataFrame({"a": [1.0, 2.0], "never": [NAN, NAN]}))
    assert panel.align_columns(["b", "a"]).to_dense()[:, 1].tolist() == [1.0, 2.0]
    with refused("1 column id unknown to the model: 'a'"):
        panel.align_columns(["b"])


def test_columns_of_different_kinds_do_not_match(small):
    for unknown in ("refuse", "drop"):  # dropping would leave nothing
        with refused(
            "the column ids of the panel are strings, those of the model are integers: they cannot be matched"
        ):
            small.align_columns([1, 2], unknown=unknown)
        with refused("the column ids of the panel are integers, those of the model are strings"):
            Panel.from_dense([[1.0]]).align_columns(["a"], unknown=unknown)


def test_integer_columns_are_aligned():
    panel = Panel.from_arrays([1, 1, 2], [20, -5, 7], [1.0, 2.0, 3.0])
    for ids in ([7, 20, -5, 99], np.array([7, 20, -5, 99], dtype=np.int16), np.array([7, 20, -5, 99], dtype=object)):
        np.testing.assert_array_equal(panel.align_columns(ids).to_dense(), [[NAN, 1, 2, NAN], [3, NAN, NAN, NAN]])
    with refused("1 column id unknown to the model: -5"):
        panel.align_columns(np.array([7, 20], dtype=np.uint64))
    positions = Panel.from_dense([[1.0, 2.0]]).align_columns([1, 0])
    assert positions.values.tolist() == [2.0, 1.0]
    assert positions.has_column_ids


def test_aligning_to_what_is_no_list_of_columns(small):
    with refused("unknown='ignore' is not an option; choose one of 'refuse', 'drop'"):
        small.align_columns(["a"], unknown="ignore")
    with refused("column_ids repeat, for example 'a'"):
        small.align_columns(["a", "b", "c", "a"])
    with refused("column_ids hold float64"):
        small.align_columns(np.array([1.0]))
    with refused("a panel needs at least one row and one column; found 3 × 0"):
        small.align_columns([], unknown="drop")


@settings(max_examples=60, deadline=None)
@given(patterns, st.data())
def test_alignment_against_a_dictionary(pattern, data):
    panel = Panel.from_dense(np.where(pattern, np.arange(pattern.size).reshape(pattern.shape), np.nan))
    ids = data.draw(st.lists(st.integers(-1, 7), min_size=1, unique=True))
    aligned = panel.align_columns(ids, unknown="drop")
    check_invariants(aligned)
    assert as_dictionary(aligned) == {key: value for key, value in as_dictionary(panel).items() if key[1] in ids}
    assert aligned.n_rows == panel.n_rows


def test_taken_rows(small):
    panel = small.with_row_weights([1, 2, 3])
    for rows in ([2, 0], np.array([2, 0], dtype=np.uint8), pd.Series([2, 0]), (2, 0)):
        taken = panel.take_rows(rows)
        check_invariants(taken)
        assert taken.row_ids.tolist() == [3, 1]
        assert taken.row_weights.tolist() == [3.0, 1.0]
        np.testing.assert_array_equal(taken.to_dense(), [[NAN, NAN, 4.0], [1.0, 2.0, NAN]])
        assert taken.column_ids.tolist() == ["a", "b", "c"]
    for mask in ([True, False, True], np.array([True, False, True])):
        assert panel.take_rows(mask).row_ids.tolist() == [1, 3]
    assert_same(panel.take_rows([0, 1, 2]), panel)


def test_rows_with_ids_are_taken_once(small):
    with refused("row 2 is taken more than once, and ids do not repeat", "larger weight: with_row_weights()"):
        small.take_rows([1, 0, 1])
    with refused("row 'b' is taken more than once"):
        Panel.from_arrays(["a", "b"], [1, 1], [1.0, 2.0]).take_rows([1, 1])
    repeated = Panel.from_dense([[1.0, NAN], [2.0, 3.0]]).with_row_weights([5, 6]).take_rows([1, 0, 1])
    np.testing.assert_array_equal(repeated.to_dense(), [[2, 3], [1, NAN], [2, 3]])
    assert repeated.row_weights.tolist() == [6.0, 5.0, 6.0]
    assert repeated.row_ids.tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([3], "row position 3 is outside 0 to 2"),
        ([0, -1], "row position -1 is outside 0 to 2"),
        ([1.0], "expected a list of row positions or a mask over 3 rows; found float64 of shape (1,)"),
        ([True, False], "expected a list of row positions or a mask over 3 rows; found bool of shape (2,)"),
        ([[0, 1]], "expected a list of row positions or a mask over 3 rows; found int64 of shape (1, 2)"),
        (1, "expected a list of row positions or a mask over 3 rows; found int64 of shape ()"),
        (["a"], "expected a list of row positions or a mask over 3 rows; found <U1 of shape (1,)"),
        (slice(0, 2), "expected a list of row positions or a mask over 3 rows; found object of shape ()"),
        ([], "a panel needs at least one row and one column; found 0 × 3"),
        ([False, False, False], "a panel needs at least one row and one column; found 0 × 3"),
    ],
    ids=repr,
)
def test_rows_that_cannot_be_taken(small, rows, words):
    with refused(words):
        small.take_rows(rows)


@settings(max_examples=60, deadline=None)
@given(patterns, st.data())
def test_taken_rows_are_those_of_the_dense_array(pattern, data):
    dense = np.where(pattern, np.arange(pattern.size).reshape(pattern.shape), np.nan)
    rows = data.draw(st.lists(st.integers(0, len(dense) - 1), min_size=1, max_size=9))
    np.testing.assert_array_equal(Panel.from_dense(dense).take_rows(rows).to_dense(), dense[rows])


def test_positions_by_id(small):
    assert small.column_positions(["c", "a", "c"]).tolist() == [2, 0, 2]
    assert small.column_positions(np.array(["b"])).tolist() == [1]
    assert small.row_positions([3, 1]).tolist() == [2, 0]
    assert small.row_positions(np.array([3, 1], dtype=np.uint8)).tolist() == [2, 0]
    assert small.row_positions(one for one in (2,)).tolist() == [1]
    assert small.row_positions({3: "x"}.keys()).tolist() == [2]
    assert small.row_positions([]).tolist() == small.column_positions([]).tolist() == []
    assert Panel.from_dense([[1.0, 2.0]]).column_positions([1]).tolist() == [1]
    close = Panel.from_arrays([2**62, 2**62 + 1], [1, 1], [1.0, 2.0])
    assert close.row_positions(np.array([2**62 + 1], dtype=np.uint64)).tolist() == [1]


def test_unknown_positions(small):
    with refused("2 column ids not in the panel: 'x', 'y'"):
        small.column_positions(["x", "a", "y"])
    with refused("1 row id not in the panel: 9"):
        small.row_positions([1, 9])
    with refused("4 row ids not in the panel: 9, 8, 7, …"):
        small.row_positions([9, 8, 7, 6])
    with refused("1 row id not in the panel: '1'; its row ids are integers"):
        small.row_positions(["1"])
    with refused("1 column id not in the panel: 1; its column ids are strings"):
        small.column_positions([1])
    with refused("column ids hold int and str; ids must be all integers or all strings"):
        Panel.from_arrays([1, 1], ["1", "a"], [1.0, 2.0]).column_positions(("a", 1))  # not "1"
    with refused("expected a list of column ids; found the string 'ab'"):
        small.column_positions("ab")
    with refused("row ids hold float"):
        small.row_positions([1.0])


def test_found_ids_of_all_string_types():
    for known in (np.array(["b", "a"]), np.array(["b", "a"], dtype=object)):
        for wanted in (np.array(["a", "x"]), np.array(["a", "x"], dtype=object)):
            position, found = IdIndex(known).find(wanted)
            assert position.tolist() == [1, -1]
            assert found.tolist() == [True, False]


def counted_sorts(monkeypatch):
    """A list that grows by the length of each array that is sorted."""
    sorts, argsort = [], np.argsort
    monkeypatch.setattr(np, "argsort", lambda array, **options: sorts.append(len(array)) or argsort(array, **options))
    return sorts


@pytest.mark.parametrize(
    ("ids", "times"), [(np.arange(500)[::-1], 1), (np.arange(500), 0), (np.array([f"{k}" for k in range(500)]), 0)]
)
def test_ids_are_put_in_order_once(monkeypatch, ids, times):
    panel = Panel(np.arange(501), np.arange(500), np.ones(500), 500, row_ids=ids, column_ids=ids)
    sorts = counted_sorts(monkeypatch)
    for k in (7, 3, 499):
        assert panel.row_positions([ids[k]]).tolist() == [k]
        assert panel.with_row_weights(np.ones(500)).row_positions([ids[k]]).tolist() == [k]
    assert sorts == [500] * times
    assert panel.column_positions(ids[[9, 2]]).tolist() == [9, 2]


def test_entries_of_t_are_looked_up_in_ids_that_are_put_in_order_once(monkeypatch):
    values = np.random.default_rng(0).standard_normal((50, 6))
    panel = Panel(np.arange(0, 301, 6), np.tile(np.arange(6), 50), values.ravel(), 6, column_ids=[5, 3, 9, 1, 2, 8])
    model = OneSidedCompletion(1, center="columns", diagonal="free", random_state=0).fit(panel)
    looked_up, order = [], IdIndex._order.func
    monkeypatch.setattr(IdIndex._order, "func", lambda index: looked_up.append(index) or order(index))
    T = model.second_moment_
    entries = [T[5, 9], T[9, 5], T.low_rank[5, 9], model.similar(9, 2)]
    assert entries[0].value == entries[1].value == T.block([0], [2])[0, 0]
    assert len(looked_up) <= 1


# Out of a panel again


@settings(max_examples=60, deadline=None)
@given(patterns)
def test_by_column_is_the_compressed_columns(pattern):
    panel = Panel.from_dense(np.where(pattern, np.arange(pattern.size).reshape(pattern.shape), np.nan))
    columns = panel.to_sparse().tocsc()
    columns.sort_indices()
    for mine, theirs in zip(panel.by_column, (columns.indptr, columns.indices, columns.data), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    assert panel.by_column[0].dtype == np.int64


def test_sparse_copies_do_not_reach_the_panel(expected):
    matrix = expected.to_sparse()
    assert isinstance(matrix, sp.csr_array)
    assert matrix.nnz == 6
    matrix.data[:], matrix.indices[:] = 9.0, 0
    expected.to_dense()[:] = 9.0
    assert expected.values.tolist() == [-1.0, 5.0, 0.0, -0.0, 2.5, 4.0]
    assert expected.columns.tolist() == [0, 2, 1, 1, 2, 0]


def test_arrays_are_read_only():
    panel = Panel.from_arrays(WHO, WHAT, STARS)
    arrays = [panel.indptr, panel.columns, panel.values, panel.row_weights, panel.row_ids, panel.column_ids]
    arrays += [panel.column_counts, *panel.by_column]
    for array in arrays:
        with pytest.raises(ValueError, match="read-only"):
            array[:1] = array[:1]


def test_what_the_caller_gave_stays_as_it_was():
    indptr, columns, values = np.array([0, 1, 2]), np.array([1, 0], dtype=np.int32), np.array([1.0, 2.0])
    row_ids, weights = np.array(["b", "a"], dtype=object), np.array([1.0, 2.0])
    given_arrays = [indptr, columns, values, row_ids, weights]
    before = [array.copy() for array in given_arrays]
    panel = Panel(indptr, columns, values, 2, row_ids=row_ids, row_weights=weights)
    assert np.shares_memory(panel.values, values)  # shared, not copied
    panel.align_columns([1, 0])
    panel.take_rows([1])
    matrix = sp.csr_array((np.array([3.0, 1.0, 2.0]), [1, 0, 0], [0, 2, 3]), shape=(2, 2))  # out of order
    Panel.from_sparse(matrix)
    assert matrix.indices.tolist() == [1, 0, 0]
    dense, wide = np.array([[1.0, INF], [NAN, 2.0]]), WIDE.copy()
    Panel.from_dense(dense, non_finite="drop")
    assert np.isinf(dense[0, 1])
    as_panel(wide)
    pd.testing.assert_frame_equal(wide, WIDE)
    rows, names, numbers = np.array([2, 1, 2]), np.array(["b", "a", "b"]), np.array([1.0, NAN, 3.0])
    Panel.from_arrays(rows, names, numbers, duplicates="sum", non_finite="drop")
    assert rows.tolist() == [2, 1, 2]
    assert names.tolist() == ["b", "a", "b"]
    np.testing.assert_array_equal(numbers, [1.0, NAN, 3.0])
    for array, copied in zip(given_arrays, before, strict=True):
        np.testing.assert_array_equal(array, copied)
        assert array.flags.writeable


@pytest.mark.parametrize("clone", [lambda one: pickle.loads(pickle.dumps(one)), copy.deepcopy, copy.copy])
def test_copies(expected, clone):
    panel = expected.with_row_weights([1, 2, 3, 4])
    assert panel.by_column is panel.by_column
    other = clone(panel)
    assert_same(other, panel)
    assert not other.values.flags.writeable
    assert not other.row_ids.flags.writeable
    assert not clone(Panel.from_dense([[1.0]])).has_row_ids


def test_a_deep_copy_shares_nothing(expected):
    other = copy.deepcopy(expected)
    for name in ("indptr", "columns", "values", "row_weights", "row_ids", "column_ids"):
        assert not np.shares_memory(getattr(other, name), getattr(expected, name))


def test_repr():
    assert repr(Panel.from_dense([[1.0]])) == "Panel(1 row × 1 column, 1 entry)"
    assert repr(Panel([0] * 1201, [], [], 30_000)) == "Panel(1,200 rows × 30,000 columns, 0 entries)"


# As scikit-learn and others hold it


def test_rows_by_slices_positions_and_masks(expected):
    assert len(expected) == expected.n_rows
    last = expected.n_rows - 1
    for rows in (slice(1, None), np.arange(1, last + 1), np.arange(last + 1) > 0, (slice(1, None), ...)):
        np.testing.assert_array_equal(expected[rows].row_ids, expected.row_ids[1:])
    with pytest.raises(InputError, match="a panel is cut by rows alone"):
        expected[:, 0]


def test_a_table_that_looks_long_is_pointed_out():
    long = pd.DataFrame({"userId": [1, 1], "movieId": [3, 4], "rating": [2.0, 5.0]})
    with pytest.warns(UserWarning, match=r"if its lines are single entries, use Panel\.from_table"):
        Panel.from_dense(long)
    Panel.from_dense(long.rename(columns={"rating": "height"}))


# Size


def test_a_million_entries_take_less_than_a_few_seconds():
    rng = np.random.default_rng(0)
    keys = rng.permutation(4_000_000)[:1_000_000]
    rows, columns, values = keys // 2000 + 7, keys % 2000 + 3, rng.random(len(keys))
    Panel.from_arrays(rows[:10], columns[:10], values[:10])  # compiles
    start = time.perf_counter()
    panel = Panel.from_arrays(rows, columns, values)
    assert time.perf_counter() - start < 5.0  # 0.2 s on one quiet core
    oracle = sp.coo_array((values, (rows - 7, columns - 3))).tocsr()
    oracle.sort_indices()
    np.testing.assert_array_equal(panel.columns, oracle.indices)
    np.testing.assert_array_equal(panel.values, oracle.data)

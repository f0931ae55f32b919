"""Every way of writing a long table gives the same stream; every broken one is refused in plain words."""

from __future__ import annotations

import doctest
import gzip
import io
import lzma
import subprocess
import sys
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from onesided.errors import InputError
from onesided.panels import table_files, text_format
from onesided.panels.ids import as_ids, encode_ids
from onesided.panels.table_files import open_table
from onesided.panels.text_format import plain_integers

ENTRIES = {"userId": [7, 7, 12], "movieId": [31, 1029, 31], "rating": [2.5, 3.0, 4.0]}
HEADER = "user,item,rating\n"
PACK: dict[str, Callable[[bytes], bytes]] = {"": bytes, ".gz": gzip.compress, ".xz": lzma.compress}

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(content: str | bytes, name: str = "table.csv") -> Path:
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_format, "_BLOCK_BYTES", 64)


def text(separator: str, header: bool = True) -> str:
    lines = [["userId", "movieId", "rating", "timestamp"]] if header else []
    lines += [[str(u), str(m), str(r), "1260759144"] for u, m, r in zip(*ENTRIES.values(), strict=True)]
    return "".join(separator.join(line) + "\n" for line in lines)


def read(path: Path, **options: Any) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = open_table(path, **options).reader.read_all().to_pydict()
    return found


@pytest.mark.parametrize("pack", PACK)
@pytest.mark.parametrize("header", [True, False])
@pytest.mark.parametrize("separator", ["::", "\t", ";", ","])
def test_formats_agree(write: Write, separator: str, header: bool, pack: str) -> None:
    stream = open_table(write(PACK[pack](text(separator, header).encode()), f"ratings.txt{pack}"))
    names = tuple(ENTRIES) if header else ("row", "column", "value")
    assert (stream.row, stream.column, stream.value) == names
    entries = stream.reader.read_all()
    assert entries.to_pydict() == dict(zip(names, ENTRIES.values(), strict=True))
    assert entries.schema.types == [pa.int64(), pa.int64(), pa.float64()]


def test_gzip_members_are_one_table(write: Write) -> None:
    content = text(",").encode()
    assert read(write(gzip.compress(content[:50]) + gzip.compress(content[50:]))) == ENTRIES


def test_parquet_agrees(tmp_path: Path) -> None:
    path = tmp_path / "ratings.parquet"
    pq.write_table(pa.table({"timestamp": [1, 2, 3], **ENTRIES}), path)
    assert read(path) == ENTRIES


@pytest.mark.parametrize("content", [text(","), text(",", header=False), "user;item\n7;31\n7;1029\n12;31\n"])
def test_positions_only(write: Write, content: str) -> None:
    stream = open_table(write(content), values=False)
    assert stream.value is None
    assert list(stream.reader.read_all().to_pydict().values()) == [[7, 7, 12], [31, 1029, 31]]


def test_a_header_may_begin_as_an_archive_does(write: Write) -> None:
    table = open_table(write("PK,user,item,rating\n1,7,8,5\n"))
    assert table.reader.read_all().to_pylist() == [{"user": 7, "item": 8, "rating": 5.0}]


def test_positions_without_header(write: Write) -> None:
    assert read(write("7,31\n8,31\n"), values=False) == {"row": [7, 8], "column": [31, 31]}


def test_pyarrow_is_imported_only_when_a_file_is_opened() -> None:
    code = "import sys, onesided.panels.table_files; sys.exit('pyarrow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_examples() -> None:
    assert doctest.testmod(table_files).failed == doctest.testmod(text_format).failed == 0


# Names


@pytest.mark.parametrize("header", ["USER_ID,Item-Id,Score", "reviewerID,asin,overall", "Person,Question,Answer"])
def test_names_are_recognised(write: Write, header: str) -> None:
    assert list(read(write(f"{header}\n1,2,3\n"))) == header.split(",")


def test_names_are_given_and_come_in_the_order_of_roles(write: Write) -> None:
    path = write("c,b,a\n1,2,3\n")
    assert list(read(path, row="a", column="b", value="c").items()) == [("a", [3]), ("b", [2]), ("c", [1.0])]


def test_a_name_given_settles_which_of_several(write: Write) -> None:
    assert list(read(write("user,user_id,item,rating\n1,2,3,4\n"), row="user_id")) == [
        "user_id",
        "item",
        "rating",
    ]


def test_names_given_mean_a_header_even_of_numbers(write: Write) -> None:
    assert read(write("10,20,30\n1,2,3\n"), row="10", column="20", value="30") == {
        "10": [1],
        "20": [2],
        "30": [3.0],
    }


@pytest.mark.parametrize(
    ("header", "options", "message"),
    [
        ("a,item,rating", {}, "no columns of .* recognised as the row.*has 'a', 'item', 'rating'.*with row="),
        ("user,b,rating", {}, "recognised as the column.*with column="),
        ("user,item,c", {}, "recognised as the value.*with value="),
        ("user,userId,item,rating", {}, "2 columns of .* recognised as the row.*'user', 'userId'.*with row="),
        (
            "user,item,rating",
            {"row": "nobody"},
            "no columns of .* named 'nobody'.*has 'user', 'item', 'rating'",
        ),
        ("a,a,item,rating", {"row": "a"}, "2 columns of .* named 'a'"),
        ("user,item,rating", {"row": "item"}, "must be different columns .* got item, item, rating"),
    ],
)
def test_names_refused(write: Write, header: str, options: dict[str, str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        open_table(write(f"{header}\n{'x,' * header.count(',')}5\n"), **options)  # type: ignore[arg-type]


def test_a_long_list_of_columns_is_cut(write: Write) -> None:
    with pytest.raises(InputError, match=r"'a29', \.\.\.\. Say"):
        open_table(write(",".join(f"a{k}" for k in range(100)) + "\n"))


def test_too_few_columns_without_header(write: Write) -> None:
    with pytest.raises(InputError, match="no header and 2 fields in its first line; expected row, column, value"):
        open_table(write("1,2\n"))


def test_too_many_columns_without_header(write: Write) -> None:
    path = write(",".join(["74", "-7.82", "8.79"] + ["99"] * 98) + "\n")
    message = "no header and 101 fields in its first line; expected row, column"
    with pytest.raises(InputError, match=rf"{message}, value and at most 1 other\. .* Panel\.from_dense\(\)"):
        open_table(path)
    with pytest.raises(InputError, match=rf"{message} and at most 2 others\. Add a header line that names them$"):
        open_table(path, values=False)


# The separator of two bytes


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 7, 100])
@pytest.mark.parametrize("content", [b"1::2::3::4\n", b"a:b:::c::::d:\n:::::x::", b":", b"::", b":::", b"", b"a:"])
def test_narrowed_does_not_depend_on_chunks(content: bytes, size: int) -> None:
    narrowed = text_format.Narrowed(io.BytesIO(content))
    assert b"".join(iter(lambda: narrowed.read(size), b"")) == content.replace(b"::", b"\x1f")


@pytest.mark.parametrize("block", [16, 17, 18, 19, 20, 21])
def test_double_colon_across_blocks(write: Write, monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    monkeypatch.setattr(text_format, "_BLOCK_BYTES", block)
    lines = [(k, k * k, k / 2) for k in range(100)]
    path = write("".join(f"{u}::{m}::{r}\n" for u, m, r in lines))
    assert list(zip(*read(path).values(), strict=True)) == lines


def test_double_colon_has_no_quotes(write: Write) -> None:
    assert read(write('user::item::rating\n"a::it\'s: 5"::3\n'))["user"] == ['"a']


# Ids


@pytest.mark.parametrize("odd", ["007", "-0", "-07", "00", "+7", " 7", "0x7", "7.0", "1e3", "9" * 20, "x", "NA"])
def test_ids_that_are_not_plain_integers_stay_text(write: Write, odd: str) -> None:
    found = read(write(f"{HEADER}7,0,1\n{odd},-3,1\n"))
    assert found["user"] == ["7", odd]
    assert found["item"] == [0, -3]


@pytest.mark.parametrize("last", ["x", "01"])
@pytest.mark.usefixtures("small_blocks")
def test_ids_that_turn_to_text_late(write: Write, last: str) -> None:
    stream = open_table(write(HEADER + "".join(f"{k},{k},1\n" for k in range(200)) + f"{last},200,1\n"))
    assert stream.reader.schema.types == [pa.string(), pa.int64(), pa.float64()]
    batches = list(stream.reader)
    assert len(batches) > 10
    ids = [id_ for batch in batches for id_ in batch.column("user").to_pylist()]
    assert ids == [str(k) for k in range(200)] + [last]


@pytest.mark.usefixtures("small_blocks")
def test_ids_seen_as_integers_are_printed_as_they_were_written(write: Write) -> None:
    ids = [*map(str, range(-50, 50)), "", str(2**63 - 1), str(-(2**63)), *["7"] * 50, str(2**63)]
    found = read(write(HEADER + "".join(f"{one},{one[:2]},1\n" for one in ids)))
    assert found["user"] == [one or None for one in ids]
    assert found["item"] == [int(one[:2]) if one else None for one in ids]


def test_float_ids_are_refused_with_a_remedy() -> None:
    remedy = r'ids must be all integers or all strings; cast floats first, for example with astype\("Int64"\)'
    for ids in ([1.0, 2.0], np.array([1.0]), [1, float("nan")]):
        with pytest.raises(InputError, match=remedy):
            as_ids(ids, "ids")
    with pytest.raises(InputError, match=remedy):
        encode_ids(pa.array([1.0, 2.5]), "user")
    with pytest.raises(InputError, match=r"all strings$"):
        encode_ids(pa.array([True]), "user")


@pytest.mark.parametrize("missing", ["", "NA", "N/A", "NULL", "null", "None", '"NA"'])
@pytest.mark.parametrize("last", ["5", "007", "x"])
def test_what_is_missing_as_a_value_may_be_an_id(write: Write, missing: str, last: str) -> None:
    found = read(write(f"{HEADER}{missing},1,{missing}\n{last},2,4\n"))
    assert found["rating"] == [None, 4.0]
    if missing:
        assert found["user"] == [missing.strip('"'), last]
    else:
        assert found["user"] == [None, 5 if last == "5" else last]


def test_empty_fields_are_null(write: Write) -> None:
    found = read(write(f'{HEADER}1,2,\n,"",4\n'))
    assert found == {"user": [1, None], "item": [2, None], "rating": [None, 4.0]}


# Text


def test_byte_order_mark_is_ignored(write: Write) -> None:
    for header in (True, False):
        for separator in (",", "::"):
            found = read(write(b"\xef\xbb\xbf" + text(separator, header).encode()))
            assert list(found.values()) == list(ENTRIES.values())


def test_line_ends_and_blank_lines(write: Write) -> None:
    assert read(write("\r\n" + text(",").replace("\n", "\r\n\r\n").rstrip())) == ENTRIES


def test_quoted_fields(write: Write) -> None:
    found = read(write('"User-ID";"ISBN";"Book-Rating"\n"a;b";"say ""x""";"0"\n'))
    assert found == {"User-ID": ["a;b"], "ISBN": ['say "x"'], "Book-Rating": [0.0]}


@pytest.mark.usefixtures("small_blocks")
def test_quoted_line_breaks_across_blocks(write: Write) -> None:
    lines = "".join(f'{k},"a,\nb",3\n' for k in range(100))
    found = read(write(HEADER + lines))
    assert found["user"] == list(range(100))
    assert set(found["item"]) == {"a,\nb"}


@pytest.mark.usefixtures("small_blocks")
def test_a_quote_left_open_drops_no_lines(write: Write) -> None:
    with pytest.raises(InputError, match="line of more than 64 bytes, or a quote that is not closed"):
        open_table(write(HEADER + "1,2,3\n" * 30 + '1,"2,3\n' + "1,2,3\n" * 100))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "table.csv holds no entries: it is empty"),
        ("\n\n", "holds no entries"),
        (HEADER, "holds no entries, only a header"),
        (HEADER.rstrip(), "holds no entries"),
        ("hello\n", "line 1 of .* is 'hello'; expected fields between '::', tab, ';' or ','"),
        ('user,"item\n1,2,3\n', "line 1 of .* has a quote that is not closed"),
        (b"\1\2\0\0\0\0", "is binary; convert it to Parquet or UTF-8 text"),
        (b"PK\3\4\0\0\0\0", "is a zip archive or a model, not a table; unpack it"),
        (
            HEADER + "1,2,3\n1,2,abc\n",
            "line 3 of .* has 'abc' in column 'rating'; expected a number .* value=",
        ),
        (HEADER + "1,2,NA.\n", "line 2 of .* has 'NA.' in column 'rating'"),
        ("1::2::3\n1::2::x\n", "line 2 of .* has 'x' in column 'value'"),
        (HEADER + "1,2,3\n1,2\n", "line 3 of .* has 2 fields where the first line has 3: '1,2'"),
        (HEADER + "1,2,3,4\n", "line 2 of .* has 4 fields where the first line has 3"),
        ("1::2::3\n1::2\n", "line 2 of .* has 2 fields .* '1::2'"),
        (
            "user;item;rating\nJosé;1;2\n".encode("latin-1"),
            "line 2 of .* not UTF-8; .* iconv -f latin1 -t utf8",
        ),
        ("usér;item;rating\nx;1;2\n".encode("latin-1"), "line 1 of .* not UTF-8; .* iconv -f latin1 -t utf8"),
    ],
)
@pytest.mark.parametrize("pack", PACK)
def test_text_refused(write: Write, content: str | bytes, message: str, pack: str) -> None:
    raw = content.encode() if isinstance(content, str) else content
    with pytest.raises(InputError, match=message):
        open_table(write(PACK[pack](raw)))


@pytest.mark.usefixtures("small_blocks")
def test_the_line_of_an_error_beyond_the_first_block(write: Write) -> None:
    with pytest.raises(InputError, match=r"line 102 of .* has 'x'"):
        open_table(write(HEADER + "1,2,3\n" * 100 + "1,2,x\n" + "1,2,3\n" * 100))


def test_columns_not_needed_are_not_judged(write: Write) -> None:
    assert read(write(b"user,item,rating,title\n1,2,3,Am\xe9lie\n"))["rating"] == [3.0]


@pytest.mark.parametrize("pack", [".gz", ".xz"])
@pytest.mark.parametrize("keep", [-5, 0.5, 15])
def test_cut_short(write: Write, pack: str, keep: float) -> None:
    whole = PACK[pack](b"1,2,3\n" * 300_000)  # more than one block
    part = whole[: int(len(whole) * keep)] if isinstance(keep, float) else whole[:keep]
    with pytest.raises(InputError, match=r"is cut short or corrupt .* fetch it again"):
        open_table(write(part, f"ratings.csv{pack}"))


@pytest.mark.parametrize("pack", [".gz", ".xz"])
def test_corrupt(write: Write, pack: str) -> None:
    whole = bytearray(PACK[pack]((HEADER + "".join(f"{k},{k * k},1\n" for k in range(1000))).encode()))
    whole[len(whole) // 2] ^= 0xFF
    with pytest.raises(InputError, match="is cut short or corrupt"):
        open_table(write(bytes(whole)))


def test_not_a_file(tmp_path: Path) -> None:
    for path in (tmp_path / "absent.csv", tmp_path):
        with pytest.raises(InputError, match=f"{path} is not a file; give the path"):
            open_table(path)


# Parquet


def parquet(path: Path, **columns: Any) -> Path:
    pq.write_table(pa.table({"user": [1], "item": [2], "rating": [3.0]} | columns), path)
    return path


@pytest.mark.parametrize(
    ("ids", "kind", "found"),
    [
        (pa.array([3], pa.uint8()), pa.int64(), 3),
        (pa.array(["007"]), pa.string(), "007"),
        (pa.array(["x"], pa.large_string()), pa.string(), "x"),
        (pa.array(["x"]).dictionary_encode(), pa.string(), "x"),
        (pa.array([5], pa.int32()).dictionary_encode(), pa.int64(), 5),
        (pa.array([None], pa.int32()), pa.int64(), None),
    ],
)
def test_parquet_ids(tmp_path: Path, ids: pa.Array, kind: pa.DataType, found: Any) -> None:
    reader = open_table(parquet(tmp_path / "t", item=ids)).reader
    assert reader.schema.field("item").type == kind
    assert reader.read_all()["item"].to_pylist() == [found]


@pytest.mark.parametrize("kind", [pa.int8(), pa.uint64(), pa.float32(), pa.decimal128(5, 2)])
def test_parquet_values(tmp_path: Path, kind: pa.DataType) -> None:
    path = parquet(tmp_path / "t", rating=pa.array([Decimal(4)]).cast(kind))
    reader = open_table(path).reader
    assert reader.schema.field("rating").type == pa.float64()
    assert reader.read_all()["rating"].to_pylist() == [4.0]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"user": [1.0]}, "column 'user' of .* holds double; ids must be integers or text"),
        ({"rating": ["good"]}, "column 'rating' of .* holds string; values must be numbers"),
        ({"user": pa.array([2**63], pa.uint64())}, "not in range.*exceed int64"),
        ({"user": pa.array([], pa.int64()), "item": [], "rating": []}, "holds no entries"),
    ],
)
def test_parquet_refused(tmp_path: Path, columns: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        read(parquet(tmp_path / "t.parquet", **columns))


def test_parquet_positions_keep_the_bound_of_ids(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="exceed int64"):
        read(parquet(tmp_path / "t", item=pa.array([2**63], pa.uint64())), values=False)


def test_not_parquet_despite_the_name(write: Write) -> None:
    with pytest.raises(InputError, match="is not a Parquet file, despite its name"):
        open_table(write(text(","), "ratings.parquet"))


def test_parquet_cut_short(tmp_path: Path, write: Write) -> None:
    whole = parquet(tmp_path / "t").read_bytes()
    with pytest.raises(InputError, match="is cut short or corrupt"):
        open_table(write(whole[:-10]))


# Progress


@pytest.mark.parametrize("pack", PACK)
def test_progress_of_text_rises_to_the_size(write: Write, pack: str) -> None:
    path = write(PACK[pack](b"1,2,3\n" * 500_000))
    calls: list[tuple[int, int]] = []
    open_table(path, progress=lambda *call: calls.append(call))
    size = path.stat().st_size
    assert calls == sorted(calls)
    assert len(calls) > 1
    assert calls[-1] == (size, size)
    assert {total for _, total in calls} == {size}


def test_progress_of_parquet_follows_the_batches(tmp_path: Path) -> None:
    ids = list(range(200_000))
    path = parquet(tmp_path / "t", user=ids, item=ids, rating=[1.0] * len(ids))
    calls: list[tuple[int, int]] = []
    reader = open_table(path, progress=lambda *call: calls.append(call)).reader
    assert not calls
    assert sum(batch.num_rows for batch in reader) == len(ids)
    assert len(calls) > 1
    assert calls[-1] == (path.stat().st_size,) * 2


@pytest.mark.parametrize("pack", PACK)
def test_progress_can_interrupt(write: Write, pack: str) -> None:

    def interrupt(done: int, size: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        open_table(write(PACK[pack](b"1::2::3\n" * 500_000)), progress=interrupt)


# Streamed


def streamed(path: Path, **options: Any) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = open_table(path, whole=False, **options).reader.read_all().to_pydict()
    return found


@pytest.mark.parametrize("pack", PACK)
@pytest.mark.parametrize("header", [True, False])
@pytest.mark.parametrize("separator", ["::", "\t", ";", ","])
def test_a_stream_has_what_a_table_has_with_ids_as_written(
    write: Write, separator: str, header: bool, pack: str
) -> None:
    path = write(PACK[pack](text(separator, header).encode()), f"ratings.txt{pack}")
    stream, table = open_table(path, whole=False), open_table(path)
    assert (stream.row, stream.column, stream.value) == (table.row, table.column, table.value)
    entries = stream.reader.read_all()
    assert entries.schema.types == [pa.string(), pa.string(), pa.float64()]
    assert entries.cast(table.reader.schema).equals(table.reader.read_all())


@pytest.mark.parametrize("pack", PACK)
@pytest.mark.parametrize("separator", ["::", ","])
def test_a_stream_of_many_blocks(write: Write, monkeypatch: pytest.MonkeyPatch, separator: str, pack: str) -> None:
    monkeypatch.setattr(text_format, "_BLOCK_BYTES", 1000)
    lines = [(f"0{k}", str(k * k), k / 2) for k in range(5000)]
    content = "".join(separator.join(map(str, line)) + "\n" for line in lines)
    calls: list[tuple[int, int]] = []
    path = write(PACK[pack](content.encode()))
    batches = list(open_table(path, whole=False, progress=lambda *call: calls.append(call)).reader)
    assert len(batches) > 50
    assert [line for batch in batches for line in zip(*batch.to_pydict().values(), strict=True)] == lines
    assert calls == sorted(calls)
    assert calls[-1] == (path.stat().st_size,) * 2


def test_a_stream_takes_columns_by_name_and_keeps_what_is_missing(write: Write) -> None:
    path = write("c,d,a,b\n1,x,,NA\nNA,x,007,\n")
    assert streamed(path, row="a", column="b", value="c") == {"a": [None, "007"], "b": ["NA", None], "c": [1.0, None]}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("1,2,x", r"line 5002 of .* has 'x' in column 'rating'; expected a number"),
        ("1,2", r"line 5002 of .* has 2 fields where the first line has 3"),
        (b"\xe9,2,3", r"line 5002 of .* is not UTF-8"),
        ('1,"2,3', r"has a line of more than 1000 bytes, or a quote that is not closed"),
    ],
)
@pytest.mark.parametrize("pack", PACK)
def test_a_stream_names_a_bad_line_deep_in_the_file(
    write: Write, monkeypatch: pytest.MonkeyPatch, line: str | bytes, message: str, pack: str
) -> None:
    monkeypatch.setattr(text_format, "_BLOCK_BYTES", 1000)
    bad = line.encode() if isinstance(line, str) else line
    path = write(PACK[pack](HEADER.encode() + b"1,2,3\n" * 5000 + bad + b"\n" + b"1,2,3\n" * 5000))
    reached: list[int] = []
    with pytest.raises(InputError, match=message):
        reached.extend(batch.num_rows for batch in open_table(path, whole=False).reader)
    assert 4000 < sum(reached) <= 5000
    with pytest.raises(InputError, match=message):
        open_table(path)


@pytest.mark.parametrize("content", ["", "\n\n", HEADER, HEADER.rstrip(), "hello\n", "1,2\n", b"PK\3\4\0\0\0\0"])
def test_a_stream_refuses_as_a_table_does(write: Write, content: str | bytes) -> None:
    path = write(content)
    with pytest.raises(InputError) as expected:
        open_table(path)
    with pytest.raises(InputError) as found:
        streamed(path)
    assert str(found.value) == str(expected.value)


@pytest.mark.parametrize("pack", [".gz", ".xz"])
def test_a_stream_cut_short(write: Write, pack: str) -> None:
    whole = PACK[pack]("".join(f"{k},{k * k % 9973},3\n" for k in range(300_000)).encode())
    with pytest.raises(InputError, match=r"is cut short or corrupt .* fetch it again"):
        streamed(write(whole[: len(whole) // 2], f"ratings.csv{pack}"))


@pytest.mark.parametrize("pack", PACK)
def test_a_stream_may_be_left_early(write: Write, pack: str) -> None:
    reader = open_table(write(PACK[pack](b"1::2::3\n" * 1_000_000)), whole=False).reader
    assert reader.read_next_batch().num_rows > 0
    reader.close()


def test_a_stream_of_parquet_keeps_its_kinds(tmp_path: Path) -> None:
    path = tmp_path / "ratings.parquet"
    pq.write_table(pa.table({"timestamp": [1, 2, 3], **ENTRIES}), path)
    assert streamed(path) == ENTRIES


@pytest.mark.parametrize(
    "odd", ["007", "-0", "-07", "00", "+7", " 7", "7 ", "0x7", "7.0", "1e3", "9" * 20, "x", "NA", ""]
)
def test_plain_integers(odd: str) -> None:
    plain = pa.array(["7", "0", None, "-3", str(2**63 - 1), str(-(2**63))])
    assert plain_integers(plain)
    assert plain_integers(pa.array([None], pa.string()))
    assert not plain_integers(pa.concat_arrays([plain, pa.array([odd])]))
    assert not plain_integers(pa.chunked_array([plain, pa.array([odd])]))

"""Tables of names, and columns found by what a person types."""

from __future__ import annotations

import numpy as np
import pytest

from onesided import InputError
from onesided.column_names import ColumnNames, read_column_names

IDS = np.array([1, 2, 50, 1977])


def written(tmp_path, text, encoding="utf-8"):
    path = tmp_path / "names.txt"
    path.write_bytes(text.encode(encoding))
    return path


@pytest.mark.parametrize(
    "text",
    [
        "1::Toy Story (1995)::Animation|Comedy\n2::Amélie::Drama\n9::Elsewhere::Drama\n",
        "movieId,title,genres\n1,Toy Story (1995),a|b\n2,Amélie,c\n9,Elsewhere,d\n",
        'genre;item;film name\nx;1;"Toy Story (1995)"\ny;2;Amélie\n',
        "1\tToy Story (1995)\n2\tAmélie\n",
        "1|Toy Story (1995)\n\n2|Amélie\n",
        "\ufeffid,name\n1,Toy Story (1995)\n2,Amélie\n",
        'id,name\n1,"Toy Story (1995)"\n2,"Amélie"\n3,"a ""b"", c\nd"\n',
    ],
)
def test_tables_of_many_kinds_are_read(tmp_path, text):
    names = read_column_names(written(tmp_path, text), IDS)
    assert [names[k] for k in range(4)] == ["Toy Story (1995)", "Amélie", "50", "1977"]
    assert names.named == 2


def test_older_encodings_are_read(tmp_path):
    names = read_column_names(written(tmp_path, "2::Amélie::x\n1::Toy::y\n", "latin-1"), IDS)
    assert names[1] == "Amélie"


def test_ids_that_are_text(tmp_path):
    ids = np.array(["q1", "q2"], dtype=object)
    names = read_column_names(written(tmp_path, "code,question\nq1,How are you?\nq2,And now?\n"), ids)
    assert names[0] == "How are you?"
    assert names.find("now") == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("one\ntwo\n", "has no table of ids and names"),
        ("", "has no table of ids and names"),
        ("1,a\n2,b,c\n", "has no table of ids and names"),
        ("7,a\n8,b\n", "none of the ids in .* is a column of the model, whose ids are such as 1, 2, 50"),
        ("1,a\n1,b\n", "names column 1 twice: 'a' and 'b'"),
    ],
)
def test_refusals(tmp_path, text, message):
    with pytest.raises(InputError, match=message):
        read_column_names(written(tmp_path, text), IDS)


NAMES = ColumnNames(IDS, {1: "Star Wars (1977)", 2: "Star Trek", 50: "Amélie"})


@pytest.mark.parametrize(
    ("asked", "position"),
    [("1977", 3), ("50", 2), ("star trek", 1), ("Trek", 1), ("amelie", 2), ("AMÉLIE", 2), ("wars", 0)],
)
def test_columns_are_found(asked, position):
    assert NAMES.find(asked) == position


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (
            "star",
            r"2 columns have 'star' in their names: 'Star Wars \(1977\)' \(id 1\), 'Star Trek' \(id 2\); type more",
        ),
        ("ameli e", "no column is called 'ameli e'; nearest: 'Amélie'"),
        ("5 0", "no column is called '5 0'; .*ids are such as 1, 2, 50, …"),
        ("", "no column is called ''"),
    ],
)
def test_what_is_not_found_is_said(asked, message):
    with pytest.raises(InputError, match=message):
        NAMES.find(asked)


def test_two_columns_of_one_name():
    twice = ColumnNames(np.array([1, 2]), {1: "Hamlet", 2: "Hamlet"})
    with pytest.raises(InputError, match="2 columns have 'hamlet' in their names"):
        twice.find("hamlet")
    assert twice.find("2") == 1

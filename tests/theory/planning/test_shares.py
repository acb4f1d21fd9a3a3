import pytest

from expunge.core.errors import ParameterError
from expunge.theory.planning import read_vote_shares


@pytest.mark.parametrize(
    "content",
    [
        "0.5\n0.75\n1\n",
        "share\n0.5\n0.75\n1.0",
        "0.5, 0.75; 1",
        "# seen today\n\n0.5 0.75 # two\r\n1e0",
        "\ufeff0.5\t.75 1",
    ],
)
def test_many_ways_to_write_three_shares(tmp_path, content):
    file = tmp_path / "shares.txt"
    file.write_text(content, encoding="utf-8", newline="")
    assert read_vote_shares(file) == (0.5, 0.75, 1.0)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("0.5\n-0.1\n", "'-0.1' in line 2"),
        ("0.5\nnan\n", "'nan' in line 2"),
        ("95%\n0.9", "'95%' in line 1"),
        ("\n\n0.5\nhigh", "'high' in line 4"),
        ("share\nshare\n0.5", "'share' in line 2"),
        ("# nothing\n", "no vote shares"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(tmp_path, content, message):
    file = tmp_path / "shares.txt"
    file.write_text(content)
    with pytest.raises(ParameterError, match=message):
        read_vote_shares(file)


def test_a_folder_is_no_file(tmp_path):
    with pytest.raises(ParameterError, match="cannot be read"):
        read_vote_shares(tmp_path)

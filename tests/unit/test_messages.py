"""What commands say besides their result."""

from __future__ import annotations

from aaco.cli import say


def test_the_name_of_a_file_is_no_name_of_a_credential(tmp_path, capsys, monkeypatch):
    """"passwd: <withheld> of a format". Mutations: the whole message is searched at once; none of it."""
    file = tmp_path / "passwd"
    file.touch()
    say.failed("aaco", f"{file}: not of a format this version reads", "passwd: hunter22")
    assert capsys.readouterr().err == (f"aaco: {file}: not of a format this version reads\n"
                                       "  try: passwd: <withheld>\n")
    say.failed("aaco", f"{file}: line 3: passwd: hunter22")
    assert "hunter22" not in capsys.readouterr().err
    monkeypatch.chdir(tmp_path)
    say.failed("aaco", "passwd: hunter22")  # a word that is a file here by chance
    assert "hunter22" not in capsys.readouterr().err

"""Files that are whole or as they were."""

import os
import re
import threading
from pathlib import Path

import pytest
from dovetail.errors import DovetailError
from dovetail.plugin import hold, remove_orphans
from dovetail_onnx.files.writing import replacing_file, write_text


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_a_block_that_fails_leaves_what_was_there():
    write_text(Path("new/file"), "old")
    with pytest.raises(ValueError, match="half"), replacing_file(Path("new/file")) as file:
        file.write(b"half")
        raise ValueError("half")
    assert [path.read_text() for path in Path("new").iterdir()] == ["old"]
    with pytest.raises(ValueError, match="half"), replacing_file(Path("other/below/file")) as file:
        raise ValueError("half")
    assert not Path("other").exists()


def test_the_name_cannot_be_guessed_and_nothing_is_followed(monkeypatch):
    """A link that stands at the very name that is tried is an error, not a way to another file."""
    import secrets

    monkeypatch.setattr(secrets, "token_hex", lambda size: "0" * 2 * size)
    Path("victim").write_text("precious")
    Path(f".file.{'0' * 16}.partial").symlink_to("victim")
    with pytest.raises(DovetailError, match="file could not be written: File exists"):
        write_text(Path("file"), "mine")
    assert Path("victim").read_text() == "precious"


def test_a_link_is_replaced_and_its_target_stays():
    Path("target").write_text("precious")
    Path("link").symlink_to("target")
    write_text(Path("link"), "mine")
    assert (Path("target").read_text(), Path("link").read_text()) == ("precious", "mine")
    assert not Path("link").is_symlink()


def test_devices_and_pipes_are_written_to():
    write_text(Path("/dev/null"), "gone")
    assert Path("/dev/null").is_char_device()
    os.mkfifo("pipe")
    read = []
    reader = threading.Thread(target=lambda: read.append(Path("pipe").read_text()))
    reader.start()
    write_text(Path("pipe"), "through")
    reader.join()
    assert read == ["through"]


def test_a_folder_is_no_file():
    Path("folder").mkdir()
    with pytest.raises(DovetailError, match="folder is a folder"):
        write_text(Path("folder"), "")


def test_permissions_are_those_of_any_file():
    Path("plain").write_text("")
    write_text(Path("written"), "")
    assert Path("written").stat().st_mode == Path("plain").stat().st_mode


NAME = re.compile(r"\.x\.[0-9]+")


def test_orphans_are_what_nobody_holds():
    for name in (".x.1", ".x.2", ".y.1"):
        Path(name).write_text("")
    Path(".x.3").mkdir()
    Path(".x.3/inside").write_text("")
    Path(".x.4").symlink_to(".y.1")
    os.mkfifo(".x.5")
    with open(".x.1") as held:
        assert hold(held.fileno())
        remove_orphans(Path(), NAME, keep=[".x.6"])
    assert sorted(os.listdir()) == [".x.1", ".x.4", ".x.5", ".y.1"]
    remove_orphans(Path(), NAME)
    assert sorted(os.listdir()) == [".x.4", ".x.5", ".y.1"]


def test_where_nothing_can_be_locked_only_old_orphans_go(monkeypatch):
    from dovetail.plugin import temporary

    monkeypatch.setattr(temporary, "fcntl", None)
    for name in (".x.1", ".x.2"):
        Path(name).write_text("")
    os.utime(".x.1", (0, 0))
    remove_orphans(Path(), NAME)
    assert os.listdir() == [".x.2"]

"""Caches remove only what they wrote, in a folder of their own that nobody else can write to."""

import json
import os
import shutil
import stat
import string
import sys

import platformdirs
import pytest
from dovetail.errors import DovetailWarning
from dovetail_commands.said_today import new_notes
from dovetail_onnx.files.folder_cache import RESULTS, FolderCache
from dovetail_onnx.files.private_folders import cache_folder
from dovetail_runtime.machine import profile_folder
from hypothesis import given, settings
from hypothesis import strategies as st

KEYS = [f"{number:064x}" for number in range(4)]
HOUR = 3600


@pytest.fixture
def opened(monkeypatch):
    """Opens the cache of results in a folder, as a program does that names it."""

    def opened(folder):
        monkeypatch.setenv(RESULTS.variable, str(folder))
        return RESULTS.open()

    return opened


def put(cache, key=KEYS[0], text="x" * 100, part=""):
    """Store an entry of two files."""

    def write(folder):
        (folder / "inner").mkdir()
        for name in ("model", "inner/weights"):
            (folder / name).write_text(text)
        return {"number": 1}

    cache.store(key, "an entry", write, part)


def content(folder):
    """Everything in a folder: mode, and the text of files or the target of links, by path."""
    found = {}
    for root, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = os.path.join(root, name)
            mode = os.lstat(path).st_mode
            what = os.readlink(path) if stat.S_ISLNK(mode) else None
            if stat.S_ISREG(mode):
                with open(path) as file:
                    what = file.read()
            found[os.path.relpath(path, folder)] = mode, what
    return found


def age(path):
    os.utime(path, (0, 0), follow_symlinks=False)


def project(folder):
    """A folder of somebody's work, older than an hour."""
    for name in (".git", ".venv", ".ssh", "src", KEYS[0]):
        (folder / name).mkdir(parents=True)
        (folder / name / "file").write_text(name)
        age(folder / name)


def test_a_folder_with_other_things_is_refused(opened, tmp_path):
    project(tmp_path / "project")
    before = content(tmp_path / "project")
    with pytest.warns(DovetailWarning, match="holds other things .* name a new or an empty folder"):
        assert opened(tmp_path / "project") is None
    assert content(tmp_path / "project") == before


def test_a_link_is_not_followed(opened, tmp_path):
    project(tmp_path / "home")
    before = content(tmp_path / "home")
    (tmp_path / "cache").symlink_to("home")
    with pytest.warns(DovetailWarning, match="is a link"):
        assert opened(tmp_path / "cache") is None
    assert content(tmp_path / "home") == before


@pytest.mark.parametrize(("mode", "is_fine"), [(0o777, False), (0o770, False), (0o1777, True), (0o755, True)])
def test_parents_that_others_may_write_to_are_refused(opened, tmp_path, mode, is_fine, recwarn):
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(mode)
    if mode == 0o770:
        os.chown(tmp_path / "shared", -1, 12345) if os.getuid() == 0 else pytest.skip(
            "only root can give it to a group"
        )
    assert (opened(tmp_path / "shared" / "cache") is not None) == is_fine
    assert bool(recwarn.list) != is_fine


def test_in_a_shared_folder_it_must_be_closed(opened, tmp_path):
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o1777)
    (tmp_path / "shared" / "cache").mkdir(mode=0o755)
    with pytest.warns(DovetailWarning, match="chmod 700"):
        assert opened(tmp_path / "shared" / "cache") is None
    (tmp_path / "shared" / "cache").chmod(0o700)
    assert opened(tmp_path / "shared" / "cache") is not None


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give files to other users")
@pytest.mark.parametrize("planted", ["link", "folder", "parent"])
def test_what_another_user_planted_is_refused(opened, tmp_path, planted):
    project(tmp_path / "home")
    (shared := tmp_path / "shared").mkdir()
    shared.chmod(0o1777)
    place = shared / "cache" / "inner" if planted == "parent" else shared / "cache"
    if planted == "link":
        (shared / "cache").symlink_to(tmp_path / "home")
    else:
        (shared / "cache").mkdir(mode=0o700)
    os.chown(shared / "cache", 12345, 12345, follow_symlinks=False)
    before = content(tmp_path)
    with pytest.warns(DovetailWarning):
        assert opened(place) is None
    assert content(tmp_path) == before


def test_a_folder_above_may_be_a_link_of_this_user(opened, tmp_path):
    (tmp_path / "scratch").mkdir()
    (tmp_path / ".cache").symlink_to("scratch")
    put(cache := opened(tmp_path / ".cache" / "results"))
    assert cache.find(KEYS[0]) and (tmp_path / "scratch" / "results" / KEYS[0]).is_dir()


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_files_are_for_this_user_alone(opened, tmp_path, umask):
    known = os.umask(umask)
    try:
        put(cache := opened(tmp_path / "new" / "cache"))
    finally:
        os.umask(known)
    assert cache.find(KEYS[0])
    modes = {stat.S_IFMT(mode): set() for mode, _ in content(tmp_path).values()}
    for mode, _ in content(tmp_path).values():
        modes[stat.S_IFMT(mode)].add(stat.S_IMODE(mode))
    assert modes == {stat.S_IFREG: {0o600}, stat.S_IFDIR: {0o700}}


def test_entries_of_an_earlier_version_are_adopted(opened, tmp_path):
    for key in KEYS[:2]:
        (tmp_path / "cache" / key / "files").mkdir(parents=True, mode=0o755)
        (tmp_path / "cache" / key / "files" / "model").write_text("x")
        (tmp_path / "cache" / key / "about.json").write_text(json.dumps({"about": key, "facts": {}}))
    cache = opened(tmp_path / "cache")
    assert {entry.about for entry in cache.entries()} == set(KEYS[:2])
    cache.clear()
    assert os.listdir(cache.folder) == ["CACHEDIR.TAG"]


@pytest.mark.parametrize("other", ["file", ".git", KEYS[3]])
def test_with_anything_else_they_are_not(opened, tmp_path, other):
    (tmp_path / "cache" / KEYS[0] / "files").mkdir(parents=True)
    (tmp_path / "cache" / KEYS[0] / "about.json").write_text(json.dumps({"about": "", "facts": {}}))
    (tmp_path / "cache" / other).mkdir()
    before = content(tmp_path)
    with pytest.warns(DovetailWarning, match="holds other things"):
        assert opened(tmp_path / "cache") is None
    assert content(tmp_path) == before


def test_a_killed_writer_leaves_nothing_for_long(opened, tmp_path):
    cache = opened(tmp_path / "cache")

    def write(folder):
        (folder / "half").write_text("x")
        shutil.copytree(folder.parent, tmp_path / "killed" / folder.parent.name)
        raise KeyboardInterrupt  # at any time, as a signal

    with pytest.raises(KeyboardInterrupt):
        cache.store(KEYS[0], "", write)
    assert os.listdir(cache.folder) == ["CACHEDIR.TAG"]
    (left,) = (tmp_path / "killed").iterdir()
    shutil.copytree(left, cache.folder / left.name)
    copy = f"unfinished-{KEYS[0]}-{'0' * 16}"  # of somebody who looks into it
    shutil.copytree(left, cache.folder / copy)
    assert cache.others() == [copy]
    put(cache, KEYS[1])
    assert sorted(os.listdir(cache.folder)) == sorted([KEYS[1], "CACHEDIR.TAG", copy])


def test_parts_go_with_their_entry(opened, tmp_path):
    cache = opened(tmp_path / "cache")
    put(cache)
    put(cache, part="start")
    put(cache, KEYS[1])
    assert [entry.key for entry in cache.entries()] == [KEYS[0], KEYS[1]]
    assert cache.find(KEYS[0], "start")
    cache.drop(KEYS[0])
    assert sorted(os.listdir(cache.folder)) == [KEYS[1], "CACHEDIR.TAG"]


names = st.one_of(
    st.sampled_from([
        *KEYS, f"{KEYS[0]}-start", f"unfinished-{KEYS[0]}-{'0' * 16}", "about.json", "files", ".git", ".ssh",
        "start-x1", "tmpabcdefgh", ".tmpabcdefgh", f".dovetail-{'0' * 16}", f".dovetail-unfinished-{'0' * 32}",
        "f" * 64,
    ]),
    st.text(string.ascii_letters + string.digits + ".-_ ", min_size=1, max_size=70).filter(lambda s: s.strip(".")),
)  # fmt: skip
kinds = st.sampled_from(["file", "folder", "full folder", "link", "link to a file", "entry", "copy"])
places = st.sampled_from(["", KEYS[0], f"{KEYS[0]}/files", f"{KEYS[1]}/files/inner"])
steps = st.lists(
    st.sampled_from([
        "put 0", "put 1", "put 2", "start 0", "find 0", "find 1", "drop 0", "drop 1", "clear", "damage", "full",
    ]),
    max_size=8,
)  # fmt: skip


def plant(place, kind, outside):
    """Put something at a place that is free; return whether it was free, and its folder there."""
    if os.path.lexists(place) or not place.parent.is_dir():
        return False
    if kind == "file":
        place.write_text("foreign")
    elif kind.startswith("link"):
        place.symlink_to(outside / "file" if kind.endswith("file") else outside)
    elif kind == "copy" and (place.parent / KEYS[0] / "about.json").exists():  # somebody keeps a copy of an entry
        if place.name == KEYS[0]:
            return False
        shutil.copytree(place.parent / KEYS[0], place, symlinks=True)
    else:
        place.mkdir()
        if kind == "full folder":
            (place / "file").write_text("foreign")
        elif kind == "entry":
            (place / "files").mkdir()
            (place / "about.json").write_text(json.dumps({"about": "", "facts": {}, "files": {}}))
    for path in [place, *place.rglob("*")] if not place.is_symlink() else [place]:
        age(path)
    return True


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(planted=st.lists(st.tuples(places, names, kinds), min_size=1, max_size=5), steps=steps)
def test_nothing_else_is_ever_removed_or_changed(tmp_path_factory, planted, steps):
    base = tmp_path_factory.mktemp("any")
    (outside := base / "outside").mkdir()
    (outside / "file").write_text("outside")
    cache = FolderCache(base / "cache", most=1000)
    for number in (0, 1):
        put(cache, KEYS[number])
    foreign = {}
    for inner, name, kind in planted:
        place = cache.folder / inner / name
        if plant(place, kind, outside):
            foreign[place] = content(place) if not place.is_symlink() else {}, place.lstat().st_mode
            foreign = {path: (content(path) if not path.is_symlink() else {}, path.lstat().st_mode) for path in foreign}
    for step in steps:
        what, _, number = step.partition(" ")
        key = KEYS[int(number or 0)]
        if what in ("put", "start"):
            put(cache, key, part="start" if what == "start" else "")
        elif what == "full":
            cache.most = 1
            put(cache, KEYS[3])
        elif what == "damage":
            for path in cache.folder.glob("0*/files/model"):
                if not any(each == path or each in path.parents for each in foreign):
                    path.unlink()
        elif what == "clear":
            cache.clear()
        else:
            getattr(cache, what)(key)
    for path, (inside, mode) in foreign.items():
        assert path.lstat().st_mode == mode
        assert path.is_symlink() or content(path) == inside
    assert (outside / "file").read_text() == "outside" and os.listdir(outside) == ["file"]
    shutil.rmtree(base)


def test_every_cache_is_where_the_system_has_caches(monkeypatch, tmp_path):
    monkeypatch.setattr(platformdirs, "user_cache_path", lambda name, **_: tmp_path / "Caches" / name)
    for variable in (RESULTS.variable, "DOVETAIL_PROFILES"):
        monkeypatch.delenv(variable, raising=False)
    folder = tmp_path / "Caches" / "dovetail"
    assert RESULTS.open().folder == folder / "results"
    assert profile_folder() == folder / "tune"
    new_notes(["a note"])
    assert (folder / "notes.json").is_file()


@pytest.mark.skipif(sys.platform != "linux", reason="XDG variables are Linux's")
def test_xdg_variables_name_the_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "dovetail"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "dovetail"

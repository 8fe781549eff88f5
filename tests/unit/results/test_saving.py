"""What a folder holds after a save, and what no save does to it."""

import os
import stat
import threading
from pathlib import Path

import pytest
from dovetail import api
from dovetail.errors import DovetailError, UsageError
from dovetail_onnx.results.manifest import Manifest

from .conftest import describe, files_of, write_model


def test_what_belongs_together_is_named(results):
    results["a"].save("out")
    _, manifest = Manifest.read(Path("out/result.json"))
    digests = files_of("out")
    assert {name: record.sha256 for name, record in manifest.files.items()} == {
        name: digest for name, digest in digests.items() if name != "result.json"
    }
    plan = api.load("out").plan
    assert plan.model["path"] == "a.onnx"
    assert plan.model["sha256"] == files_of(".")["a.onnx"]
    assert plan.model["result"] == manifest.content_digest


def test_every_file_and_every_folder_is_flushed_once(results, monkeypatch):
    """The second result replaces one with more files, which takes one record of what to remove."""
    flushed, flush = [], os.fsync

    def counted(descriptor):
        flushed.append(os.fstat(descriptor).st_ino)
        flush(descriptor)

    monkeypatch.setattr("os.fsync", counted)
    results["a"].files["ranges.json"] = "{}\n"
    for name, records in (("a", 0), ("b", 1)):
        flushed.clear()
        results[name].save("out")
        kept = [path.stat().st_ino for path in (Path("out"), *Path("out").iterdir())]
        assert sorted(flushed.count(inode) for inode in kept) == [1] * len(kept)
        assert len(flushed) == len(kept) + len(["the staging folder"]) + records


def test_equal_results_are_equal_in_every_byte(results):
    results["a"].save("one")
    results["a"].save("two")
    assert files_of("one") == files_of("two")


def test_files_of_others_stay(results):
    Path("out").mkdir()
    Path("out/notes.txt").write_text("mine")
    Path("out/.hidden").write_text("mine")
    results["a"].files["ranges.json"] = "{}\n"
    results["a"].save("out", external=True)
    assert Path("out/ranges.json").is_file()
    results["b"].save("out")
    assert sorted(os.listdir("out")) == [
        ".hidden", "model.onnx", "notes.txt", "plan.yaml", "remarks.json", "result.json"
    ]  # fmt: skip


def test_a_text_that_its_owner_has_edited_stays(results):
    results["a"].files["ranges.json"] = "{}\n"
    results["a"].save("out")
    Path("out/ranges.json").write_text("mine")
    results["b"].save("out")
    assert Path("out/ranges.json").read_text() == "mine"


def test_data_that_another_model_in_the_folder_names_stays(results):
    results["a"].save("out", external=True)
    Path("out/kept.onnx").write_bytes(Path("out/model.onnx").read_bytes())
    results["b"].save("out", external=True)
    assert len(list(Path("out").glob("*.data"))) == 2
    assert describe("out") == "b"
    Path("out/kept.onnx").unlink()
    results["a"].save("out")
    results["b"].save("out")
    assert len(list(Path("out").glob("*.data"))) == 1  # that of the removed copy, which nobody lists


def test_planted_links_are_not_followed(results):
    Path("out").mkdir()
    Path("victim").write_text("precious")
    for name in (".model.onnx.partial", ".plan.yaml.partial", ".dovetail-0123456789abcdef", "model.onnx", "plan.yaml"):
        Path("out", name).symlink_to("../victim")
    results["a"].save("out")
    assert Path("victim").read_text() == "precious"
    assert describe("out") == "a"
    assert not Path("out/model.onnx").is_symlink()


def test_a_folder_that_is_a_link(results):
    Path("real").mkdir()
    Path("out").symlink_to("real")
    results["a"].save("out")
    assert describe("real") == "a"
    assert Path("out").is_symlink()


def test_what_is_written_is_private_until_it_is_there(results, monkeypatch):
    from dovetail_onnx.results import writing

    seen = []
    with monkeypatch.context() as patched:
        patched.setattr(writing, "commit", lambda folder, staging, _: seen.append(staging.stat().st_mode))
        results["a"].save("out")
    assert stat.S_IMODE(seen[0]) == 0o700
    results["a"].save("out")
    Path("plain").write_text("")
    assert Path("out/model.onnx").stat().st_mode == Path("plain").stat().st_mode


REFUSED = [
    # what is there, the folder, what is said
    (lambda: Path("out").write_text("mine"), "out", "out is a file"),
    (lambda: Path("file").write_text("mine"), "file/out", "file/out could not be written: Not a directory"),
    (lambda: Path("out").symlink_to("nowhere"), "out", "out is a link to nowhere, which does not exist"),
    (lambda: Path("out/model.onnx").mkdir(parents=True), "out", "out/model.onnx is a folder"),
]


@pytest.mark.parametrize(("make", "folder", "says"), REFUSED, ids=[says for *_, says in REFUSED])
def test_folders_that_cannot_be_written(results, make, folder, says):
    make()
    before = sorted(str(path) for path in Path().rglob("*"))
    with pytest.raises(DovetailError) as caught:
        results["a"].save(folder)
    assert says in caught.value.message
    assert sorted(str(path) for path in Path().rglob("*")) == before


def test_folders_that_were_made_for_nothing_are_removed(results):
    results["a"].files["../evil"] = ""
    with pytest.raises(DovetailError, match="a pass wants to write '../evil'"):
        results["a"].save("new/folder")
    assert not Path("new").exists()


def test_an_empty_name_is_no_folder(results):
    with pytest.raises(UsageError, match="empty name"):
        results["a"].save("")


def test_a_result_never_replaces_its_own_source(results):
    Path("out").mkdir()
    write_model("out/model.onnx", 3.0)
    before = files_of("out")
    with pytest.raises(DovetailError, match="would replace its own source .*out/model.onnx"):
        api.compile("out/model.onnx", ["cpu-bf16"], try_engines=False).save("out")
    assert files_of("out") == before


def test_a_file_that_cannot_take_its_place(results, monkeypatch):
    """As where another program keeps it open. What is decided stays decided, and is completed later."""
    results["a"].save("out")
    replace = os.replace

    def stubborn(source, target, **folders):
        if folders and target == "model.onnx":
            raise PermissionError(13, "Permission denied", str(target))
        return replace(source, target, **folders)

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", stubborn)
        with pytest.raises(DovetailError, match="the result is saved in out, but .* Permission denied"):
            results["b"].save("out")
        assert describe("out") == "b"
    assert describe("out") == "b"
    results["b"].save("clean")
    assert files_of("out") == files_of("clean")


def test_the_source_may_be_gone(results):
    Path("a.onnx").unlink()
    results["a"].save("out")
    assert describe("out") == "a"


def test_a_loaded_result_can_be_saved_anywhere(results):
    results["a"].save("out", external=True)
    before = files_of("out")
    api.load("out").save("out")
    assert files_of("out") == before
    api.load("out").save("copy")
    assert files_of("copy") == before
    loaded = api.load("out")
    results["b"].save("out")  # its data file is gone now
    loaded.save("late")
    assert describe("late") == "a"


@pytest.mark.slow
def test_many_writers_at_once(results):
    """Of threads, here: each save is whole, and the last one stays."""
    failed = []

    def write(name):
        try:
            for _ in range(6):
                results[name].save("out", external=name == "a")
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=write, args=(name,)) for name in "abab"]
    for thread in threads:
        thread.start()
    seen = set()
    while any(thread.is_alive() for thread in threads):
        seen.add(describe("out"))
    for thread in threads:
        thread.join()
    assert not failed
    assert {*seen, describe("out")} <= {"a", "b", "out holds no model.onnx"}
    assert describe("out") in "ab"
    assert not list(Path("out").glob(".*"))


def test_a_staging_folder_that_is_taken_for_an_orphan_before_it_is_held(results, monkeypatch):
    """Another writer may remove it in that moment; the next one is tried."""
    mkdir, made = Path.mkdir, set()

    def robbed(self, *arguments, **options):
        mkdir(self, *arguments, **options)
        if self.name.startswith(".dovetail-"):
            if not made:
                self.rmdir()
            made.add(self)

    monkeypatch.setattr(Path, "mkdir", robbed)
    results["a"].save("out")
    assert len(made) == 2
    assert describe("out") == "a"

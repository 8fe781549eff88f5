"""Results from somebody else: no step follows a link out of the folder, and nothing is completed that is not ours."""

import hashlib
import json
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import dovetail
import pytest
from dovetail.cli.main import main

DIGITS = Path(__file__).parents[3] / "examples" / "digits"
KEY = b"ssh-ed25519 PLANTED"


def record(content):
    return {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}


@pytest.fixture
def home(tmp_path):
    """A folder of the user with a file that only the user may change."""
    folder = tmp_path / "home"
    (folder / "empty").mkdir(parents=True)
    (folder / "precious").write_text("precious")
    return folder


@pytest.fixture
def result(tmp_path):
    dovetail.compile(DIGITS / "digits.onnx", "cpu-bf16").save(tmp_path / "result")
    return tmp_path / "result"


def listed(result, **files):
    """Let the manifest name more files."""
    manifest = json.loads((result / "result.json").read_text())
    manifest["files"] |= {name.replace("__", "/"): record(content) for name, content in files.items()}
    (result / "result.json").write_text(json.dumps(manifest))


def planted(result, home):
    """A staging folder with a file for `artifacts`, which leads to the home of the user, and one to remove there."""
    listed(result, artifacts__authorized_keys=KEY)
    (result / "artifacts").symlink_to(home)
    staging = result / ".dovetail-0123456789abcdef"
    (staging / "artifacts").mkdir(parents=True)
    (staging / "artifacts" / "authorized_keys").write_bytes(KEY)
    shutil.copy(result / "result.json", staging)
    (staging / "replaced.json").write_text(json.dumps({"artifacts/precious": record(b"precious")}))


def untouched(home):
    return {path.relative_to(home).as_posix() for path in home.rglob("*")} == {"empty", "precious"}


@pytest.mark.parametrize(
    "command",
    [
        ["explain", "RESULT"],
        ["run", "RESULT", "--data", str(DIGITS / "test.npz"), "-o", "RESULT.npz"],
        ["verify", str(DIGITS / "digits.onnx"), "RESULT", "--data", str(DIGITS / "test.npz")],
        ["compile", str(DIGITS / "digits.onnx"), "--backend", "cpu-bf16", "-o", "RESULT"],
        ["compile", str(DIGITS / "digits.onnx"), "--backend", "gpu-fp16", "-o", "RESULT"],
        [
            "compile",
            str(DIGITS / "digits.onnx"),
            "--backend",
            "ppl-int8",
            "--data",
            str(DIGITS / "test.npz"),
            "-o",
            "RESULT",
        ],
    ],
    ids=lambda command: " ".join(word for word in command if "/" not in word),
)
def test_a_planted_staging_folder_is_not_completed(command, result, home, capsys):
    planted(result, home)
    assert main([word.replace("RESULT", str(result)) for word in command]) in (0, 1, 2)
    assert untouched(home)


def test_loading_a_folder_from_somebody_else_writes_nothing(result, home):
    """Not even inside of it, where a staging folder looks like one of ours."""
    staging = result / ".dovetail-0123456789abcdef"
    listed(result, **{"notes.json": KEY})
    staging.mkdir()
    (staging / "notes.json").write_bytes(KEY)
    shutil.copy(result / "result.json", staging)
    (staging / "replaced.json").write_text(json.dumps({"mine.txt": record(b"mine")}))
    (result / "mine.txt").write_text("mine")
    before = {path.relative_to(result).as_posix() for path in result.rglob("*")}
    dovetail.load(result)
    assert {path.relative_to(result).as_posix() for path in result.rglob("*")} == before


def test_files_that_an_old_manifest_names_behind_a_link_are_not_removed(result, home):
    listed(result, artifacts__precious=b"precious", artifacts__empty__x=b"x")
    (result / "artifacts").symlink_to(home)
    dovetail.compile(DIGITS / "digits.onnx", "gpu-fp16").save(result)
    assert untouched(home)
    assert dovetail.load(result).coverage().startswith("gpu-fp16")


@pytest.mark.parametrize("name", ["plan.yaml", "remarks.json"])
def test_a_link_in_place_of_a_file_is_an_altered_file(result, tmp_path, name):
    (result / name).rename(tmp_path / "elsewhere")
    (result / name).symlink_to(tmp_path / "elsewhere")
    assert [remark.why.split()[0] for remark in dovetail.load(result).remarks if remark.rule == "altered"] == [name]


def test_a_link_in_place_of_the_model_is_refused(result, tmp_path):
    (result / "model.onnx").rename(tmp_path / "elsewhere.onnx")
    (result / "model.onnx").symlink_to(tmp_path / "elsewhere.onnx")
    with pytest.raises(dovetail.DovetailError, match="model.onnx is not the file that was saved"):
        dovetail.load(result)


@pytest.fixture
def with_artifacts(tmp_path):
    dovetail.compile(DIGITS / "digits.onnx", "ppl-int8", data=DIGITS / "test.npz").save(tmp_path / "ppl")
    return tmp_path / "ppl"


def test_an_artifact_named_like_the_model_is_compared_with_its_own_digest(with_artifacts):
    loaded = dovetail.load(with_artifacts)
    assert (with_artifacts / "artifacts" / "ppl-int8" / "model" / "model.onnx").is_file()
    assert [remark.why for remark in loaded.remarks if remark.rule == "altered"] == []
    assert loaded.artifacts.of("ppl-int8/model").is_dir()


def test_saving_again_takes_along_what_belongs_to_the_result_alone(with_artifacts, tmp_path):
    artifacts = with_artifacts / "artifacts"
    (tmp_path / "secret").write_text("secret")
    for name in (".DS_Store", "extra.bin", "a\\b"):
        (artifacts / name).write_text("x")
    (artifacts / "leak").symlink_to(tmp_path / "secret")
    (artifacts / "folder").symlink_to(tmp_path)
    dovetail.load(with_artifacts).save(tmp_path / "again")
    found = {
        path.relative_to(tmp_path / "again").as_posix() for path in (tmp_path / "again" / "artifacts").rglob("*.*")
    }
    assert found == {f"artifacts/ppl-int8/model/{name}" for name in ("model.onnx", "ppl.json")}
    assert not [remark for remark in dovetail.load(tmp_path / "again").remarks if remark.rule == "altered"]


def test_an_altered_artifact_stays_altered_when_it_is_saved_again(with_artifacts, tmp_path):
    (with_artifacts / "artifacts" / "ppl-int8" / "model" / "ppl.json").write_text("{}")
    dovetail.load(with_artifacts).save(tmp_path / "again")
    loaded = dovetail.load(tmp_path / "again")
    assert loaded.artifacts.altered == {"ppl-int8/model/ppl.json"}
    with pytest.raises(dovetail.DovetailError, match="ppl.json is not the file that was saved"):
        loaded.artifacts.of("ppl-int8/model")


@pytest.mark.parametrize(
    "name", ["result.json", "model.onnx", "plan.yaml", "x.data", "artifacts/a", "../x.npz", "a\\b.npz"]
)
def test_a_plan_names_arrays_beside_it_and_nothing_else(result, name):
    plan = result / "plan.yaml"
    plan.write_text(plan.read_text().replace("summary: {", 'summary: {"files": ' + json.dumps({name: "0" * 64}) + ","))
    with pytest.raises(dovetail.DovetailError, match="'files' in its summary"):
        dovetail.compile(DIGITS / "digits.onnx", plan=plan)


def test_a_staging_folder_that_was_copied_has_no_receipt(tmp_path):
    from dovetail_onnx.files.receipts import discard_receipt, has_receipt, leave_receipt

    (tmp_path / "a" / "staging").mkdir(parents=True)
    leave_receipt(tmp_path / "a" / "staging")
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    assert has_receipt(tmp_path / "a" / "staging") and not has_receipt(tmp_path / "b" / "staging")
    discard_receipt(tmp_path / "a" / "staging")
    assert not has_receipt(tmp_path / "a" / "staging")


def test_no_receipt_is_lost_while_others_discard_the_last_one(tmp_path, monkeypatch):
    """Whoever discards the last receipt removes their folder, perhaps right before another one is left there."""
    import tempfile

    from dovetail_onnx.files.receipts import discard_receipt, has_receipt, leave_receipt

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def left(number):
        folder = tmp_path / f"staging{number}"
        folder.mkdir()
        kept = []
        for _ in range(200):
            leave_receipt(folder)
            kept.append(has_receipt(folder))
            discard_receipt(folder)
        return all(kept)

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(left, range(8)))


@pytest.mark.skipif(os.name == "nt", reason="folders cannot be opened there")
def test_a_folder_of_receipts_that_others_may_write_to_counts_for_nothing(tmp_path, monkeypatch):
    import tempfile

    from dovetail_onnx.files.receipts import has_receipt, leave_receipt

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / f"dovetail-{os.getuid()}").mkdir()
    (tmp_path / f"dovetail-{os.getuid()}").chmod(0o777)
    leave_receipt(tmp_path)
    assert not has_receipt(tmp_path)
